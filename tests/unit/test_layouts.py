"""What is read of versions with other columns, or other partition columns, than their table has now; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.connectors.delta.changes import ChangesSource
from floodmark.connectors.delta.mapping import relaid
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.rewrites import FEED, files_moved
from floodmark.core.rules.rule import Stream
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


def at(table: Path, version: int, index: int = -1, snapshot: bool = False) -> str:
    return DeltaOffset(str(DeltaTable(table).metadata().id), version, index, snapshot).line()


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


def test_a_feed_over_other_partition_columns_is_refused(place: Path) -> None:
    table = place / "in"
    write_deltalake(table, ROWS, configuration={FEED: "true"})
    write_deltalake(table, ROWS, mode="append")
    overwrite_by_k(table)
    feed = ChangesSource("e", Stream(kind="delta", address=str(table), changes=True))
    with pytest.raises(HistoryGone, match=r"version 0 \(none\), found others \(k\) since version 2: .*all rows as ins"):
        feed.check_appended(at(table, 1))
    with pytest.raises(HistoryGone, match=r"version 1 \(none\), found others \(k\)"):
        feed.check_appended(at(table, 2))
    feed.check_appended(at(table, 3))
