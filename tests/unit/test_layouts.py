"""What is read of versions with other columns, or other partition columns, than their table has now; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.connectors.delta.changes import ChangesSource
from floodmark.connectors.delta.mapping import MODE, PHYSICAL, Layout, known_layouts, layouts, problem, relaid
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.rewrites import files_moved
from floodmark.connectors.delta.source import DeltaSource
from floodmark.core.rules.model import OnRewrite
from floodmark.core.rules.rule import Stream
from floodmark.core.sql.tree.names import CHANGE_FEED
from floodmark.errors import HistoryGone

ROWS = pa.table({"k": ["a"], "n": [1]})
PLAIN = {"k": "string", "n": "long"}


def log(table: Path, *actions: dict[str, Any]) -> None:
    """Commit these actions, as another writer would."""
    version = DeltaTable(table).version() + 1
    entry = table / "_delta_log" / f"{version:020}.json"
    entry.write_text("\n".join(map(json.dumps, actions)))


def metadata(table: Path, columns: dict[str, str], partitions: tuple[str, ...] = ()) -> dict[str, Any]:
    now = DeltaTable(table).metadata()
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    said = {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": partitions}
    kept = {"format": {"provider": "parquet", "options": {}}, "configuration": now.configuration, "createdTime": 0}
    return {"metaData": {"id": str(now.id), **kept, **said}}


def file(path: str, **partition: str) -> dict[str, Any]:
    return {"path": path, "partitionValues": partition, "size": 1, "modificationTime": 0, "dataChange": True}


def removed(path: str, **partition: str) -> dict[str, Any]:
    return {"remove": file(path, **partition)}


def overwrite_by_k(table: Path) -> None:
    """Overwrite all rows, partitioned by k."""
    gone = [removed(path) for path in DeltaTable(table).get_add_actions()["path"].to_pylist()]
    log(table, metadata(table, PLAIN, ("k",)), *gone, {"add": file("k=a/new.parquet", k="a")})


@pytest.fixture
def table(place: Path) -> Path:
    write_deltalake(place / "in", ROWS)
    return place / "in"


def stream(table: Path, on_rewrite: OnRewrite = "correct") -> DeltaSource:
    return DeltaSource("e", Stream(kind="delta", address=str(table), on_rewrite=on_rewrite))


def forget_entry(table: Path, version: int) -> None:
    """Take a log entry away, as Delta's own cleanup does once a checkpoint holds it."""
    (table / "_delta_log" / f"{version:020}.json").unlink()


def at(table: Path, version: int, index: int = -1, snapshot: bool = False) -> str:
    return DeltaOffset(str(DeltaTable(table).metadata().id), version, index, snapshot).line()


def span(table: Path, version: int, index: int = -1) -> tuple[int, int]:
    found = stream(table).rewrite(at(table, version, index))
    assert found is not None
    return DeltaOffset.parse(found.since).version, DeltaOffset.parse(found.upto).version


def as_of(table: Path, version: int) -> DeltaTable:
    return DeltaTable(table, version=version)


def test_files_are_read_by_the_version_that_had_them_if_they_are_partitioned_otherwise(table: Path) -> None:
    overwrite_by_k(table)
    left, came = files_moved(str(table), DeltaTable(table), lambda version: as_of(table, version), 1, 1)
    assert (left[1], came[1]) == (0, None)
    assert [json.loads(line)["add"]["partitionValues"] for line in came[0]] == [{"k": "a"}]
    assert [json.loads(line)["add"]["partitionValues"] for line in left[0]] == [{}]


def test_files_of_a_correction_that_waited_are_read_by_their_own_version(table: Path) -> None:
    gone = DeltaTable(table).get_add_actions()["path"].to_pylist()
    log(table, *map(removed, gone), {"add": file("kept.parquet")})
    overwrite_by_k(table)
    left, came = files_moved(str(table), DeltaTable(table), lambda version: as_of(table, version), 1, 1)
    assert (left[1], came[1]) == (0, 1)


def test_a_file_that_was_removed_without_its_partition_is_refused_though_today_none_is_needed(place: Path) -> None:
    table = place / "in"
    write_deltalake(table, ROWS, partition_by=["k"])
    (path,) = DeltaTable(table).get_add_actions()["path"].to_pylist()
    log(table, metadata(table, PLAIN), {"remove": {"path": path, "size": 1, "dataChange": True}})
    left, _ = files_moved(str(table), DeltaTable(table), lambda version: as_of(table, version), 1, 1)
    with pytest.raises(HistoryGone, match="expected the partition of k=a/"):
        list(left[0])


def test_files_of_a_table_whose_columns_stay_need_no_older_version(table: Path) -> None:
    write_deltalake(table, ROWS, mode="overwrite")
    left, came = files_moved(str(table), DeltaTable(table), unasked, 1, 1)
    assert (left[1], came[1]) == (None, None)


def unasked(version: int) -> DeltaTable:
    raise AssertionError("only the newest metadata is needed")


def test_partition_columns_that_came_back_count_as_others(table: Path) -> None:
    log(table, metadata(table, PLAIN, ("k",)))
    log(table, metadata(table, PLAIN))
    assert relaid(str(table), 2, DeltaTable(table), unasked) is None
    found = relaid(str(table), 0, DeltaTable(table), lambda version: as_of(table, version))
    assert found == "expected the partition columns of version 1 (k), found others (none) since version 2"


def test_a_column_that_is_only_renamed_stays() -> None:
    def of(version: int, name: str) -> Layout:
        fields = [{"name": name, "type": "string", "metadata": {PHYSICAL: "col-1"}}]
        return Layout.of(version, json.dumps({"fields": fields}), [name])

    assert of(1, "b").fits(of(0, "a")) and of(1, "b").lacks(of(0, "a")) is None


def test_a_type_that_changed_may_not_be_read_on(table: Path) -> None:
    log(table, metadata(table, {**PLAIN, "n": "string"}))
    before, now = layouts(str(table), 0, DeltaTable(table), lambda version: as_of(table, version))
    assert not now.fits(before) and now.lacks(before) is None


def taken_back(table: Path) -> None:
    """A column is added, rows come with it, and the table is restored to version 0."""
    log(table, metadata(table, {**PLAIN, "x": "string"}))
    log(table, {"add": file("with.parquet")})
    log(table, metadata(table, PLAIN), removed("with.parquet"))


def test_a_correction_takes_in_what_was_added_with_a_column_that_is_gone(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    taken_back(table)
    assert span(table, 1) == (1, 5)
    stream(table).check_appended(at(table, 1))  # it raises nothing


def test_a_correction_takes_in_what_was_added_in_other_partitions(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    overwrite_by_k(table)
    assert span(table, 1) == (1, 3)


def test_a_correction_begins_with_the_rewrite_where_columns_stay(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    log(table, metadata(table, {**PLAIN, "x": "string"}))
    write_deltalake(table, ROWS, mode="overwrite", schema_mode="merge")
    assert span(table, 1) == (3, 4)


def test_a_version_that_is_read_in_part_is_not_taken_in(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    overwrite_by_k(table)
    assert span(table, 1, index=0) == (2, 3)
    for line in (at(table, 1, index=0), at(table, 1, snapshot=True)):
        with pytest.raises(
            HistoryGone, match=r"expected the partition columns of version 1 \(none\), found others \(k\)"
        ):
            stream(table).check_appended(line)


def test_what_no_correction_takes_in_is_refused(table: Path) -> None:
    write_deltalake(table, ROWS, mode="append")
    overwrite_by_k(table)
    problem = r"version 1 \(none\), found others \(k\) since version 2: .*later ones. Start over with `floodmark reset`"
    with pytest.raises(HistoryGone, match=problem):
        stream(table, "skip").check_appended(at(table, 1))
    stream(table, "skip").check_appended(at(table, 2))


@pytest.mark.parametrize("on_rewrite", ["stop", "correct", "skip"])
def test_no_stream_passes_over_commits_whose_log_entries_are_gone(table: Path, on_rewrite: OnRewrite) -> None:
    write_deltalake(table, ROWS, mode="append")
    write_deltalake(table, ROWS, mode="append")
    DeltaTable(table).create_checkpoint()
    forget_entry(table, 1)
    read = stream(table, on_rewrite)
    assert read.news(at(table, 1))
    for ask in (read.check_appended, read.backlog):
        with pytest.raises(HistoryGone, match="expected the log entry of version 1, which is still to be read; it is"):
            ask(at(table, 1))
    assert not read.news(at(table, 3))
    read.check_appended(at(table, 2))


def test_no_commit_whose_log_entry_is_gone_is_told_as_passed_over(table: Path) -> None:
    overwrite_by_k(table)
    assert stream(table, "skip").passed_over(at(table, 0), at(table, 2)) == ("version 1 (unknown operation)",)
    forget_entry(table, 1)
    with pytest.raises(HistoryGone, match="expected the log entry of version 1"):
        stream(table, "skip").passed_over(at(table, 0), at(table, 2))


def restore(table: Path, version: int) -> None:
    DeltaTable(table).restore(version)


def test_no_stream_passes_over_a_restore_whose_rows_spark_would_read(table: Path) -> None:
    DeltaTable(table).delete()
    restore(table, 0)
    skipping = stream(table, "skip")
    for since in (at(table, 1), at(table, 0, snapshot=True), at(table, 2)):
        assert skipping.news(since)
        for ask in (skipping.check_appended, skipping.backlog):
            with pytest.raises(HistoryGone, match=r"version 2 .* a RESTORE that brings .*`on_rewrite: correct`.*reset"):
                ask(since)
    with pytest.raises(HistoryGone, match="version 2 of the table is a RESTORE"):
        skipping.passed_over(at(table, 1), at(table, 3))
    skipping.check_appended(at(table, 3))
    stream(table, "correct").check_appended(at(table, 1))
    with pytest.raises(HistoryGone, match="version 1 of the table removes or changes existing rows"):
        stream(table, "stop").check_appended(at(table, 1))
    with pytest.raises(HistoryGone, match="version 2 of the table is a RESTORE") as told:
        stream(table, "stop").check_appended(at(table, 2))
    assert "skip" not in str(told.value)


def test_a_restore_that_removes_files_is_passed_over(table: Path) -> None:
    write_deltalake(table, ROWS, mode="overwrite")
    restore(table, 0)
    assert not stream(table, "skip").news(at(table, 1))
    assert stream(table, "skip").passed_over(at(table, 1), at(table, 3)) == (
        "version 1 (WRITE)",
        "version 2 (RESTORE)",
    )
    stream(table, "skip").check_appended(at(table, 1))


def test_an_open_epoch_that_cannot_be_read_again_is_refused_with_the_way_on(table: Path) -> None:
    taken_back(table)
    problem = "expected column x of version 1, found none since version 3: .*`floodmark abandon` undoes the open epoch"
    with pytest.raises(HistoryGone, match=problem):
        stream(table).check_readable(at(table, 1), at(table, 3))
    with pytest.raises(HistoryGone, match=r"later ones\. Start over"):
        stream(table, "stop").check_readable(at(table, 1), at(table, 3))
    stream(table).check_readable(at(table, 0), at(table, 1))


def test_a_log_that_no_longer_tells_refuses_nothing(table: Path) -> None:
    def gone(version: int) -> DeltaTable:
        raise HistoryGone(f"no version {version}")

    overwrite_by_k(table)
    (now,) = known_layouts(str(table), 0, DeltaTable(table), gone)
    assert now.partitions == ("k",)


def test_a_feed_over_other_partition_columns_is_refused(place: Path) -> None:
    table = place / "in"
    write_deltalake(table, ROWS, configuration={CHANGE_FEED: "true"})
    write_deltalake(table, ROWS, mode="append")
    overwrite_by_k(table)
    feed = ChangesSource("e", Stream(kind="delta", address=str(table), changes=True))
    with pytest.raises(HistoryGone, match=r"version 0 \(none\), found others \(k\) since version 2: .*all rows as ins"):
        feed.check_appended(at(table, 1))
    with pytest.raises(HistoryGone, match=r"version 1 \(none\), found others \(k\)"):
        feed.check_appended(at(table, 2))
    feed.check_appended(at(table, 3))


def _known(version: int, kind: Any) -> Any:
    """A table with column mapping, whose column `c` is of this type."""
    text = json.dumps({"type": "struct", "fields": [{"name": "c", "type": kind, "metadata": {PHYSICAL: "c0"}}]})
    settings = SimpleNamespace(configuration={MODE: "name"})
    schema = SimpleNamespace(to_json=lambda: text)
    return SimpleNamespace(version=lambda: version, metadata=lambda: settings, schema=lambda: schema)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("{}", "c.n"),
        ({"type": "array", "elementType": "{}"}, "c.element.n"),
        ({"type": "map", "keyType": "{}", "valueType": "long"}, "c.key.n"),
        ({"type": "map", "keyType": "long", "valueType": {"type": "array", "elementType": "{}"}}, "c.value.element.n"),
    ],
    ids=str,
)
def test_a_field_of_another_name_in_files_is_found_wherever_it_is(kind: Any, path: str) -> None:
    tables = []
    for version, name in enumerate(("n0", "n0", "n1")):
        struct = {"type": "struct", "fields": [{"name": "n", "type": "long", "metadata": {PHYSICAL: name}}]}
        tables.append(_known(version, json.loads(json.dumps(kind).replace('"{}"', json.dumps(struct)))))
    assert problem(tables[1], tables.__getitem__, 0, ["c"]) is None
    found = problem(tables[2], tables.__getitem__, 1, ["c"])
    assert found is not None and found.startswith(f"column {path}, as it was read up to version 1, was dropped")
