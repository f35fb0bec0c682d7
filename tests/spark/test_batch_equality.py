"""Exactly once means: a sink holds what the same SQL gives in batch over the rows counted as folded, where final.

Random events, epochs of random size, runs split at random and crashes in between; the answer comes from plain Spark
batch and, independently of Spark, from DuckDB or plain Python.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.compared import CACHE, same, without
from support.drawn import STEPS, is_telling, play
from support.flow import (
    CTE_SESSIONS,
    HOPPING,
    OVER,
    PLACES,
    RUNNING,
    SCHEMA,
    SESSIONS,
    SLICED,
    STATELESS,
    TUMBLING,
    TWO_WINDOWS,
    Flow,
    event,
    rows_of,
)
from support.running import crash, run

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.lifecycle import cleanup

CASES = given(
    steps=STEPS,
    sql=st.sampled_from(
        [TUMBLING, HOPPING, SLICED, TWO_WINDOWS, STATELESS, SESSIONS, CTE_SESSIONS, OVER, PLACES, RUNNING]
    ),
    windows=st.sampled_from([None, "rows", "slices"]),
    max_files=st.sampled_from([None, 1, 2]),
    where=st.sampled_from([None, "n <> 3"]),
    start=st.sampled_from(["earliest", {"version": 0}]),
    compacts=st.booleans(),
)


@CASES
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
def test_sinks_equal_batch(spark: SparkSession, **drawn: Any) -> None:
    assume(is_telling([point for _, point, _ in drawn["steps"]]))
    _check(spark, **drawn)


@pytest.mark.prove
@CASES
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_sinks_equal_batch_many_times(spark: SparkSession, **drawn: Any) -> None:
    _check(spark, **drawn)


def _check(
    spark: SparkSession,
    steps: list[Any],
    sql: str,
    windows: str | None,
    max_files: int | None,
    where: str | None,
    start: Any,
    compacts: bool,
) -> None:
    root = CACHE / uuid4().hex
    root.mkdir(parents=True)
    limits = {"epoch": {"max_files": max_files}} if max_files else {}
    flow = Flow(root, sql=sql, stream={"where": where, "start": start}, settings=limits)
    if windows and sql in (TUMBLING, HOPPING, SLICED):
        flow.settings["windows"] = windows
    if sql == PLACES:
        flow.settings["unbounded"] = True
    if sql == RUNNING:
        flow.settings |= {"unbounded": True, "sinks": [{"delta": flow.sink(i), "key": ["k"]} for i in (0, 1)]}
    try:
        with mock.patch.object(cleanup, "MAX_FILES", 1 if compacts else cleanup.MAX_FILES):
            note(f"crashes: {play(spark, flow, steps)}")
        _compare(spark, flow, [one for events, _, _ in steps for one in events])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _compare(spark: SparkSession, flow: Flow, arrived: list[dict[str, Any]]) -> None:
    late, dead = rows_of(flow.place.late), rows_of(flow.place.dead)
    where = flow.text()["streams"]["events"].get("where")
    kept = [one for one in arrived if where is None or (one["n"] is not None and one["n"] != 3)]
    folded = without(kept, late + dead)
    assert flow.counts() == {
        "read": len(arrived),
        "filtered": len(arrived) - len(kept),
        "late": len(late),
        "dead": len(dead),
        "folded": len(folded),
    }
    head = flow.ledger().head
    assert head is not None
    assert not DeltaOffset.parse(head.entry.offsets[0]).snapshot
    expected = _batch(spark, flow, folded, head.watermark)
    for number in (0, 1):
        same(_sink(flow, number), expected)
    if flow.sql == TUMBLING:
        same(_sink(flow, 0), _duckdb(folded, head.watermark))


def _sink(flow: Flow, number: int) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows_of(flow.sink(number))]


def _batch(
    spark: SparkSession, flow: Flow, folded: list[dict[str, Any]], watermark: int | None
) -> list[tuple[Any, ...]]:
    """The rule's SQL, with the window's end beside, over the folded rows; only what is final."""
    spark.createDataFrame(
        [tuple(row.values()) for row in folded], "at timestamp, k string, v double, n bigint"
    ).createOrReplaceTempView("events")
    if flow.sql in (STATELESS, RUNNING):
        return [tuple(row) for row in spark.sql(flow.sql).collect()]
    if watermark is None:
        return []
    last = watermark - {SESSIONS: 1, CTE_SESSIONS: 1, OVER: 1_000_001, PLACES: 1}.get(flow.sql, 0)
    # Cut here, not by Spark: it would push a condition on a session's end below the aggregation, to single rows.
    return [tuple(row)[1:] for row in spark.sql(_with_end(flow.sql)).collect() if row["_end"] <= last]


def _with_end(sql: str) -> str:
    """The SQL with the end of the window as a column `_end`."""
    if sql in (OVER, PLACES):
        return sql.replace("SELECT ", "SELECT unix_micros(at) AS _end, ", 1)
    if "session" in sql:
        return sql.replace("SELECT session", "SELECT unix_micros(session_window.end) AS _end, session")
    return sql.replace("SELECT ", "SELECT unix_micros(window.end) AS _end, ")


def _duckdb(folded: list[dict[str, Any]], watermark: int | None) -> list[tuple[Any, ...]]:
    if watermark is None:
        return []
    events = pa.Table.from_pylist(folded, schema=SCHEMA)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("events", events)
    return connection.execute(
        """
        SELECT time_bucket(INTERVAL 1 minute, "at") AS start, k, count(*), sum(v), max(n)
        FROM events GROUP BY 1, 2 HAVING max(epoch_us(time_bucket(INTERVAL 1 minute, "at"))) + 60000000 <= ?
        """,
        [watermark],
    ).fetchall()


MICRO = 0.000001
# At a watermark of 100 s: how far OVER looks back, where open windows start, from where on rows are not final.
BOUNDS = [at + beside for at in (39, 60, 80, 99) for beside in (-MICRO, 0, MICRO)]


@pytest.mark.prove
@pytest.mark.parametrize("sql", [HOPPING, OVER])
def test_rows_at_the_bounds_outlast_kills_and_rewrites_of_state(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path, sql: str
) -> None:
    monkeypatch.setattr(cleanup, "MAX_FILES", 1)
    flow = Flow(
        place, sql=sql, stream={"lateness": "0 seconds"}, settings={"windows": "rows"} if sql == HOPPING else {}
    )
    steps = [([event(at, n=i) for i, at in enumerate([*BOUNDS, 100])], None), ([event(100, "b")], "state.after")]
    for events, point in steps:
        flow.arrive(events)
        assert point is None or crash(spark, flow, point)
        run(spark, flow)
    flow.arrive([event(400, "z")])
    run(spark, flow)
    _compare(spark, flow, [*(one for events, _ in steps for one in events), event(400, "z")])


@pytest.mark.prove
def test_a_state_file_whose_newest_row_lies_within_the_bounds_millisecond_is_read(
    spark: SparkSession, place: Path
) -> None:
    """Delta's statistics have times in whole milliseconds, cut down."""
    flow = Flow(place, sql=OVER, stream={"lateness": "0 seconds"})
    files = [[event(39.0009, n=9)], [event(99.0005), event(100.0005)], [event(200)]]
    for events in files:
        flow.arrive(events)
        run(spark, flow)
    assert [row["top"] for row in rows_of(flow.sink()) if row["at"] == event(99.0005)["at"]] == [9]
    _compare(spark, flow, [one for events in files for one in events])
