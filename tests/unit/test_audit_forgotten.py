"""The certificate of a rule whose rows were forgotten, and faults planted in what tells of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.audited import TOKEN, Made, said

from floodmark.ledger.forgetting import purge

EPOCHS = 2
STAY = pa.table({"id": pa.array([11, 20, 21], pa.int64())})  # of the four late rows, the one with id 10 leaves
DIGEST = {"condition": "c" * 64}


class Forgetting:
    """The forget of one late row. `left`: what the ledger says of the table afterwards."""

    def __init__(self, made: Made):
        self.made, self.place = made, made.places["late"]
        self.app = f"floodmark/{made.ledger}/g1-{TOKEN}/forget"
        self.left: dict[str, Any] = {"version": 2, "commit": EPOCHS + 2, "gone": 1, "rows": 3, "digest": said(STAY)}

    def announce(self, **other: Any) -> None:
        told = {"number": 1, **DIGEST, "tables": {"late": 1}, **other}
        self.made.put("life", EPOCHS, {"format": 9, "what": "forgetting", "forgetting": told})

    def end(self, **other: Any) -> None:
        told = {"number": 1, "tables": {"late": {**self.left, **other}}}
        self.made.put("life", EPOCHS, {"format": 9, "what": "forgot", "forgotten": told})

    def rewrite(self, rows: pa.Table = STAY, gone: int = 1) -> None:
        file = self.place / "stay.parquet"
        pq.write_table(rows, file)
        add = {"path": file.name, "size": file.stat().st_size, "partitionValues": {}, "modificationTime": 0,
               "dataChange": True, "stats": json.dumps({"numRecords": rows.num_rows})}  # fmt: skip
        old = ({"path": f"{number}.parquet", "dataChange": True, "deletionTimestamp": 1,
                "stats": '{"numRecords":2}'} for number in range(1, EPOCHS + 1))  # fmt: skip
        self._commit(EPOCHS + 1, 1, {"gone": gone}, [{"add": add}, *({"remove": one} for one in old)])

    def mark(self, **other: Any) -> None:
        facts = {name: self.left[name] for name in ("gone", "rows", "digest")}
        self._commit(EPOCHS + 2, 2, {"left": {**facts, **other}}, [])

    def _commit(self, commit: int, version: int, facts: dict[str, Any], actions: list[dict[str, Any]]) -> None:
        told = {"app": self.app, "version": version, "epoch": EPOCHS, "forget": 1, "intent": DIGEST["condition"]}
        info = {"operation": "WRITE", "timestamp": 0, "userMetadata": json.dumps({**told, **facts})}
        txn = {"appId": self.app, "version": version, "lastUpdated": 0}
        lines = [{"commitInfo": info}, {"txn": txn}, *actions]
        self.made.log("late", commit).write_text("\n".join(map(json.dumps, lines)))

    def whole(self) -> None:
        self.announce()
        self.rewrite()
        self.mark()
        purge("r", str(self.place))
        self.end()

    def verdicts(self, deep: bool = True) -> list[tuple[str, str]]:
        self.made.save()
        return self.made.verdicts(deep)


@pytest.fixture
def one(tmp_path: Path) -> Forgetting:
    return Forgetting(Made(tmp_path, EPOCHS))


def test_what_stayed_is_proven_and_what_went_with_the_log_is_unknown(one: Forgetting) -> None:
    one.whole()
    found = one.verdicts()
    assert [verdict for verdict, _ in found] == ["unknown"]
    said = found[0][1]
    assert "2 of its commits, up to this epoch, cannot be looked up" in said and "because forget 1 removed" in said
    assert DeltaTable(str(one.place)).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize("steps", [(), ("rewrite",), ("rewrite", "mark")])
def test_a_forget_that_is_open_breaks_nothing(one: Forgetting, steps: tuple[str, ...]) -> None:
    one.announce()
    for step in steps:
        getattr(one, step)()
    assert not [what for verdict, what in one.verdicts(deep=False) if verdict == "broken"]


def broken(one: Forgetting, deep: bool = False) -> str:
    return " | ".join(what for verdict, what in one.verdicts(deep) if verdict == "broken")


def test_rows_that_left_without_a_row_of_the_ledger_are_found(one: Forgetting) -> None:
    one.rewrite()
    assert "a commit of forget 1, which the ledger does not know of this table" in broken(one)


@pytest.mark.parametrize("whose", ["anything", f"g2-{TOKEN}", "g1-other", "late"])
def test_a_commit_that_calls_itself_a_forget_is_none_of_another_generation(one: Forgetting, whose: str) -> None:
    one.app = f"floodmark/{one.made.ledger}/{whose}/forget"
    one.announce()
    one.rewrite()
    assert "a commit of a generation that the ledger does not know" in broken(one)


def test_no_forget_is_in_a_sink(one: Forgetting) -> None:
    one.place, one.made.places["late"] = one.made.sink, one.made.sink
    one.announce()
    one.rewrite()
    assert "that the ledger does not name" in broken(one)


def test_a_forget_that_has_ended_takes_no_more_rows(one: Forgetting) -> None:
    one.whole()
    assert not broken(one)
    gone = {"path": "stay.parquet", "dataChange": True, "deletionTimestamp": 1, "stats": '{"numRecords":3}'}
    one._commit(EPOCHS + 3, 3, {"gone": 3}, [{"remove": gone}])
    assert "a commit of forget 2, which the ledger does not know of this table" in broken(one)
    one._commit(EPOCHS + 3, 1, {"gone": 3}, [{"remove": gone}])
    assert "a commit of forget 1 after the one that ended it" in broken(one)


def test_more_rows_than_the_commit_says(one: Forgetting) -> None:
    one.announce()
    one.rewrite(STAY.slice(1))
    assert "a commit that says 1 rows go adds files with 2 rows and removes 4" in broken(one)


def test_fewer_rows_than_were_to_go(one: Forgetting) -> None:
    one.announce(tables={"late": 3})
    one.rewrite()
    assert "was to remove 3 rows, the commit removes 1" in broken(one)


def test_the_end_says_that_fewer_rows_are_gone_than_match(one: Forgetting) -> None:
    one.announce(tables={"late": 2})
    one.end()
    assert "2 rows of late were to go, 1 are gone" in broken(one)


def test_another_condition_than_announced(one: Forgetting) -> None:
    one.announce(condition="d" * 64)
    one.rewrite()
    assert "with another condition than the ledger's" in broken(one)


def test_the_ledger_says_that_other_rows_stayed(one: Forgetting) -> None:
    one.announce()
    one.rewrite()
    one.mark()
    one.end(rows=4)
    assert "the commit says that other rows stayed than the ledger says" in broken(one)


def test_the_checkpoint_has_another_number_of_rows(one: Forgetting) -> None:
    one.announce()
    one.left |= {"rows": 4}
    one.rewrite()
    one.mark()
    purge("r", str(one.place))
    one.end()
    assert "forget 1 left 4 rows, the checkpoint has files with 3" in broken(one)


def test_a_row_that_stayed_was_changed(one: Forgetting) -> None:
    one.announce()
    one.rewrite(pa.table({"id": pa.array([11, 20, 22], pa.int64())}))
    one.mark()
    purge("r", str(one.place))
    one.end()
    assert not broken(one)
    assert "hold other rows than the ledger says" in broken(one, deep=True)


def test_the_commit_that_the_ledger_names_is_not_there(one: Forgetting) -> None:
    one.announce()
    one.rewrite()
    one.end()
    assert "names commit 4 of forget 1, the log has none" in broken(one)


def test_another_commit_than_the_one_that_the_ledger_names(one: Forgetting) -> None:
    one.whole()
    one.made.rows.pop()
    one.end(commit=EPOCHS + 1)
    assert broken(one) == "a commit of forget 1 after the one that ended it"


def test_a_mark_that_names_files(one: Forgetting) -> None:
    one.announce()
    one.rewrite()
    one.mark()
    entry = one.made.log("late", EPOCHS + 2)
    entry.write_text(one.made.log("late", 1).read_text().split("\n")[-1] + "\n" + entry.read_text())
    assert "that was to name no files names some" in broken(one)


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        (("end",), "the end of a forget that no row announced"),
        (("announce", "announce"), "a forget at a moment when there cannot be one"),
    ],
)
def test_rows_of_the_ledger_out_of_order(one: Forgetting, steps: tuple[str, ...], what: str) -> None:
    for step in steps:
        getattr(one, step)()
    assert what in broken(one)


def test_rows_that_do_not_fit(one: Forgetting) -> None:
    one.announce(number=2, tables={"late": 1, f"sink/{one.made.sink}": 1})
    one.end()
    found = broken(one)
    assert "expected forget 1, found forget 2" in found and "which is a sink" in found
    assert "does not name the tables of forget 1" in found


def test_nothing_but_a_seal_comes_before_the_end(one: Forgetting) -> None:
    one.announce()
    one.made._fold(EPOCHS + 1)
    assert "a row (intent) while forget 1 was open" in broken(one)
