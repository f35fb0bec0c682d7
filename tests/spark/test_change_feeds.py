"""`changes: true`: the change feed of a Delta table as rows, against Spark's own `table_changes`."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.crashpoints import EPOCH_POINTS
from floodmark.errors import HistoryGone

SQL = "SELECT k, n, _change, _version, _committed FROM events"
ON = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"


@pytest.fixture
def flow(spark: SparkSession, place: Path) -> Flow:
    """A table with three rows, of which one was deleted before the rule begins."""
    found = Flow(place, sinks=1, sql=SQL, stream={"changes": True, "event_time": None, "lateness": None})
    found.arrive([event(n, n=n) for n in range(4)])
    spark.sql(f"ALTER TABLE delta.`{found.source}` SET {ON}")
    spark.sql(f"DELETE FROM delta.`{found.source}` WHERE n = 0")
    return found


def at(flow: Flow) -> str:
    return f"delta.`{flow.source}`"


def change(spark: SparkSession, flow: Flow) -> None:
    """An update, a delete of some rows of a file, inserts, an OPTIMIZE, a MERGE, an overwrite and a RESTORE."""
    spark.sql(f"UPDATE {at(flow)} SET k = 'u' WHERE n = 1")
    spark.sql(f"DELETE FROM {at(flow)} WHERE n = 2")
    flow.arrive([event(9, n=n) for n in (7, 8)])
    spark.sql(f"OPTIMIZE {at(flow)}")
    spark.sql(
        f"MERGE INTO {at(flow)} t USING (SELECT * FROM {at(flow)} WHERE n IN (3, 7)) s ON t.n = s.n AND t.n = 3 "
        "WHEN MATCHED THEN UPDATE SET k = 'm' WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"DELETE FROM {at(flow)}")
    spark.sql(f"RESTORE TABLE {at(flow)} TO VERSION AS OF 4")


def set_times(flow: Flow) -> None:
    """Of the log's files, as a copy of the table does: Delta computes its own times of commits from them."""
    for entry in (Path(flow.source) / "_delta_log").glob("*.json"):
        os.utime(entry, (1e9, 1e9))


def told(spark: SparkSession, flow: Flow, first: int, last: int) -> Counter[Any]:
    """What plain Spark says that the versions changed."""
    names = {"update_preimage": "update_before", "update_postimage": "update_after"}
    rows = spark.sql(f"SELECT * FROM table_changes('{at(flow)}', {first}, {last})").collect()
    return Counter((row.k, row.n, names.get(row._change_type, row._change_type), row._commit_version) for row in rows)


def folded(flow: Flow) -> Counter[Any]:
    return Counter((row["k"], row["n"], row["_change"], row["_version"]) for row in rows_of(flow.sink()))


SNAPSHOT = Counter(("a", n, "insert", 2) for n in (1, 2, 3))


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and (found.verdict, found.findings) == ("proven", [])


def newest(spark: SparkSession, flow: Flow) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {at(flow)} LIMIT 1").collect()[0].version)


def test_every_change_is_a_row_once_in_whole_versions(spark: SparkSession, flow: Flow) -> None:
    flow.settings = {"epoch": {"max_files": 1}}
    run(spark, flow)
    assert folded(flow) == SNAPSHOT
    change(spark, flow)
    assert crash(spark, flow, "sink0.after", 2)
    spark.sql(f"UPDATE {at(flow)} SET k = 'z' WHERE n = 3")  # no part of the epoch that is open
    history = {row.version: row.timestamp for row in spark.sql(f"DESCRIBE HISTORY {at(flow)}").collect()}
    set_times(flow)
    epochs = run(spark, flow).epochs
    last = newest(spark, flow)
    assert folded(flow) == SNAPSHOT + told(spark, flow, 3, last) and len(epochs) == 6
    assert {"insert", "update_before", "update_after", "delete"} == {one[2] for one in folded(flow)}
    times = {row["_version"]: row["_committed"] for row in rows_of(flow.sink())}
    assert all(abs((times[v].replace(tzinfo=None) - history[v]).total_seconds()) < 5 for v in times)
    assert not run(spark, flow).epochs
    proven(flow)


@pytest.mark.prove  # the test above has a kill in each commit
@pytest.mark.parametrize(
    "point", [one for one in EPOCH_POINTS if not one.startswith(("state", "late", "dead", "sink1"))]
)
def test_a_killed_epoch_is_read_again_as_it_was(spark: SparkSession, flow: Flow, point: str) -> None:
    run(spark, flow)
    spark.sql(f"UPDATE {at(flow)} SET k = 'u' WHERE n = 1")
    assert crash(spark, flow, point)
    spark.sql(f"DELETE FROM {at(flow)} WHERE n = 2")
    run(spark, flow)
    assert folded(flow) == SNAPSHOT + told(spark, flow, 3, 4)
    proven(flow)


def test_columns_that_came_since_are_null_in_changes_from_before(spark: SparkSession, flow: Flow) -> None:
    """With column mapping, Spark reads a feed with the columns of its last version."""
    spark.sql(f"ALTER TABLE {at(flow)} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    flow.settings = {"epoch": {"max_files": 1}}
    run(spark, flow)
    first = newest(spark, flow)
    spark.sql(f"DELETE FROM {at(flow)} WHERE n = 1")
    assert crash(spark, flow, "sink0.after")
    spark.sql(f"ALTER TABLE {at(flow)} ADD COLUMNS (w INT)")
    spark.sql(f"DELETE FROM {at(flow)} WHERE n = 2")
    run(spark, flow)
    snapshot = Counter(("a", n, "insert", first) for n in (1, 2, 3))
    assert folded(flow) == snapshot + Counter([("a", 1, "delete", first + 1), ("a", 2, "delete", first + 3)])
    proven(flow)


@pytest.mark.prove
def test_ranges_join_on_in_any_split(spark: SparkSession, flow: Flow) -> None:
    run(spark, flow)
    change(spark, flow)
    set_times(flow)
    source = sources(flow.rule(), flow.place)["events"]
    head = flow.ledger().head
    assert head is not None
    line, end = head.lines["events"], source.end()
    one = Counter(map(tuple, source.frame(spark, line, end).collect()))
    middle = line.replace('"reservoirVersion": 3', '"reservoirVersion": 6')
    assert middle != line
    parts = [source.frame(spark, line, middle), source.frame(spark, middle, end)]
    assert one == sum((Counter(map(tuple, part.collect())) for part in parts), Counter())
    assert source.frame(spark, end, end).schema == source.typed(spark).schema == parts[0].schema


@pytest.mark.prove
def test_a_feed_that_was_off_and_one_that_was_vacuumed_are_named(spark: SparkSession, flow: Flow) -> None:
    run(spark, flow)
    spark.sql(f"ALTER TABLE {at(flow)} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    spark.sql(f"DELETE FROM {at(flow)} WHERE n = 2")
    spark.sql(f"ALTER TABLE {at(flow)} SET {ON}")
    with pytest.raises(HistoryGone, match="expected the changes of version 4, found none: the table had no"):
        run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    assert folded(flow) == Counter(("a", n, "insert", 5) for n in (1, 3))
    spark.sql(f"UPDATE {at(flow)} SET k = 'u' WHERE n = 1")
    shutil.rmtree(Path(flow.source) / "_change_data")
    with pytest.raises(HistoryGone, match=r"of version 6, found no file _change_data/.*: VACUUM removed it"):
        run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    assert folded(flow) == Counter([("u", 1, "insert", 6), ("a", 3, "insert", 6)])
    proven(flow)


@pytest.mark.prove
def test_a_landing_keeps_changes_that_vacuum_removes(spark: SparkSession, flow: Flow) -> None:
    flow.stream |= {"landing": True}
    run(spark, flow)
    spark.sql(f"UPDATE {at(flow)} SET k = 'u' WHERE n = 1")
    run(spark, flow)
    expected = SNAPSHOT + told(spark, flow, 3, 3)
    shutil.rmtree(Path(flow.source) / "_change_data")
    reset(spark, flow)
    run(spark, flow)
    assert folded(flow) == expected
    proven(flow)
