"""Past commits of a landing or an outbox that are written anew: each keeps what it is, and nothing shows what left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from support.holding import found_in

from floodmark.errors import Refused
from floodmark.ledger.delta.pastcommits import live_files, rewrite
from floodmark.ledger.delta.tables import entry_actions
from floodmark.ledger.forgetting import remove_needless

ALICE = "alice@example.org"


def append(place: Path, *keys: str) -> None:
    number = len(keys) if not place.exists() else DeltaTable(place).version() + 1
    said = CommitProperties(custom_metadata={"chunk": str(number)})
    write_deltalake(place, pa.table({"k": pa.array(keys, pa.string())}), mode="append", commit_properties=said)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "t"
    for keys in ((ALICE, "bob"), ("carl",), (ALICE,)):
        append(place, *keys)
    DeltaTable(place).create_checkpoint()
    return place


def rows(place: Path, version: int | None = None) -> list[str]:
    return sorted(DeltaTable(place, version=version).to_pyarrow_table()["k"].to_pylist())


def without(place: Path, key: str) -> dict[str, list[dict[str, Any]]]:
    """By each file with the key, a file with its other rows, if it has any."""
    found = dict[str, list[dict[str, Any]]]()
    for path, added in live_files(str(place)).items():
        left = [one for one in pq.read_table(place / path)["k"].to_pylist() if one != key]
        if len(left) < json.loads(added["stats"])["numRecords"]:
            found[path] = [file_with(place, f"new-{path}", left)] if left else []
    return found


def file_with(place: Path, path: str, keys: list[str]) -> dict[str, Any]:
    pq.write_table(pa.table({"k": pa.array(keys, pa.string())}), place / path)
    size = (place / path).stat().st_size
    return {"path": path, "size": size, "modificationTime": 0, "stats": json.dumps({"numRecords": len(keys)})}


def cleaned(place: Path) -> None:
    rewrite(str(place), without(place, ALICE))
    remove_needless("rule", str(place))


def test_each_commit_keeps_its_other_rows_and_what_it_says(table: Path) -> None:
    before = [entry_actions(str(table), version)[-1] for version in range(3)]
    assert found_in(table, ALICE)
    cleaned(table)
    assert found_in(table, ALICE) == []
    assert [rows(table, version) for version in range(3)] == [["bob"], ["bob", "carl"], ["bob", "carl"]]
    after = [entry_actions(str(table), version) for version in range(3)]
    assert [next(one for one in found if "commitInfo" in one)["commitInfo"]["chunk"] for found in after] == [
        "2",
        "1",
        "2",
    ]
    assert after[1][-1] == before[1], "an entry of others is left as it is"
    append(table, "dora")
    assert rows(table) == ["bob", "carl", "dora"]


class Kill(BaseException):
    pass


def killed_at(place: Path, step: int) -> bool:
    """Whether cleaning had as many steps: files that are put in the place of others, or removed."""
    left = iter(range(step))

    def stopping(change: Any) -> Any:
        def changed(*about: Any, **more: Any) -> Any:
            if next(left, None) is None:
                raise Kill
            return change(*about, **more)

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, stopping(getattr(Path, name)))
        try:
            cleaned(place)
        except Kill:
            return True
    return False


def test_a_kill_at_any_step_leaves_a_table_that_can_be_read_and_cleaned(table: Path, tmp_path: Path) -> None:
    steps = 0
    while killed_at(copy := Path(shutil.copytree(table, tmp_path / f"copy{steps}")), steps):
        assert [key for key in rows(copy) if key != ALICE] == ["bob", "carl"], steps
        cleaned(copy)
        assert rows(copy) == ["bob", "carl"] and found_in(copy, ALICE) == [], steps
        steps += 1
    assert steps >= 8


def test_a_log_that_was_cut_keeps_its_first_checkpoint_without_files_that_are_gone(table: Path) -> None:
    DeltaTable(table).delete("true")
    append(table, "dora")
    DeltaTable(table).create_checkpoint()
    DeltaTable(table, version=3).create_checkpoint()
    log = table / "_delta_log"
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    (log / "_last_checkpoint").unlink()
    assert found_in(log, ALICE)
    cleaned(table)
    assert found_in(table, ALICE) == [] and rows(table) == ["dora"]
    assert [file.name for file in sorted(log.glob("*checkpoint*")) if file.suffix != ".crc"] == [
        f"{3:020}.checkpoint.parquet"
    ]


def test_the_log_forgets_the_smallest_and_largest_values_of_files_that_are_gone(table: Path) -> None:
    DeltaTable(table).delete("true")
    cleaned(table)
    assert found_in(table, ALICE) == [] and rows(table) == []
    stats = [json.loads(action["add"]["stats"]) for action in entry_actions(str(table), 0) if "add" in action]
    assert stats == [{"numRecords": 2}], "how many rows there were is still known"


def test_a_log_without_the_entry_of_a_file_is_refused(table: Path) -> None:
    (table / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(
        Refused, match=r"expected the log entry that added part-.*, found none: another program removed"
    ):
        cleaned(table)
    assert found_in(table, ALICE)
