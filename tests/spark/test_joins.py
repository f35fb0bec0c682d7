"""Joins and windows of windows, exactly once: sinks hold what the same SQL gives in batch, restricted to what is final.

Random events of two streams, epochs of random size, crashes in between. The answer comes from plain Spark batch over
the rows that were folded and, for some, from DuckDB.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import Any
from unittest import mock
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.compared import CACHE, without
from support.flow import SCHEMA, event, rows_of
from support.joins import JOINS, TwoStreams, together
from support.running import crash, run

from floodmark.core.lifecycle import cleanup

# Few keys, and seconds that lie on the bounds of the joins, beside them and apart from them.
SECONDS = st.sampled_from([0, 0.000001, 19.999999, 20, 40, 59.999999, 60, 61, 80, 100, 120]) | st.integers(0, 300)
EVENTS = st.lists(
    st.builds(event, SECONDS, st.sampled_from(["a", "A", "b", None]), st.sampled_from([None, 1.5, -2.0]),
              st.none() | st.integers(0, 5)),
    max_size=10,
)  # fmt: skip
POINTS = st.none() | st.sampled_from(["intent.after", "state.after", "sink0.after", "commit.before", "commit.after"])
STEPS = st.lists(st.tuples(EVENTS, EVENTS, POINTS), min_size=1, max_size=4)


DRAWN = given(
    steps=STEPS,
    names=st.sets(st.sampled_from(sorted(JOINS)), min_size=1, max_size=2),
    max_files=st.sampled_from([None, 1]),
    compacts=st.booleans(),
)


def test_every_join_equals_batch(spark: SparkSession) -> None:
    first = [event(s, k, 1.0, s % 4) for s, k in ((0, "a"), (20, "a"), (20, "a"), (59, "b"), (70, "A"), (100, None))]
    other = [event(s, k, 2.0, s % 3) for s, k in ((0, "a"), (40, "a"), (60, "b"), (85, "a"), (121, "b"), (121, None))]
    after = [event(200, "a"), event(150, "b", None, 1), event(15, "a"), event(300)]
    last = [*other[4:], event(290, "b")]
    found = _check(spark, set(JOINS), [(first, other[:4], None), (after, last, "state.after")])
    assert set(found) == set(JOINS), "each kind has results, so each has been compared"


@pytest.mark.prove
@DRAWN
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_joins_equal_batch_many_times(spark: SparkSession, **drawn: Any) -> None:
    _check(spark, **drawn)


def _check(
    spark: SparkSession, names: set[str], steps: list[Any], max_files: int | None = None, compacts: bool = False
) -> dict[str, list[str]]:
    root = CACHE / uuid4().hex
    root.mkdir(parents=True)
    limits = {"epoch": {"max_files": max_files}} if max_files else {}
    endless = {"unbounded": True} if "endless" in names else {}
    flow = TwoStreams(root, sql=together(sorted(names)), settings=limits | endless, sinks=1)
    flow.arrive([])
    flow.arrive_other([])
    try:
        with mock.patch.object(cleanup, "MAX_FILES", 1 if compacts else cleanup.MAX_FILES):
            _play(spark, flow, steps)
        return _compared(spark, flow, names, steps)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _play(spark: SparkSession, flow: TwoStreams, steps: list[Any]) -> None:
    for events, others, point in steps:
        if events:
            flow.arrive(events)
        if others:
            flow.arrive_other(others)
        if point is not None:
            crash(spark, flow, point)  # a run that ends before this point has no such crash
        else:
            run(spark, flow)
    run(spark, flow)


def _compared(spark: SparkSession, flow: TwoStreams, names: set[str], steps: list[Any]) -> dict[str, list[str]]:
    """The results of each join, compared with batch."""
    apart = [*rows_of(flow.place.late), *rows_of(flow.place.dead)]
    streams = {
        stream: without([one for step in steps for one in step[i]], [row for row in apart if row["_stream"] == stream])
        for i, stream in enumerate(("events", "others"))
    }
    for stream, rows in streams.items():
        values = [tuple(row.values()) for row in rows]
        spark.createDataFrame(values, "at timestamp, k string, v double, n bigint").createOrReplaceTempView(stream)
    head = flow.ledger().head
    assert head is not None
    found: dict[str, list[str]] = {}
    for row in rows_of(flow.sink()):
        found.setdefault(row["name"], []).append(row["result"])
    for name in names:
        mark = None if head.watermark is None else head.watermark - JOINS[name].peers
        whole = spark.sql(JOINS[name].with_end()).collect() if mark is not None else []
        assert sorted(found.get(name, [])) == sorted(row.result for row in whole if row._end <= mark), name
        if name in DUCKDB and mark is not None:
            answer = [
                tuple(json.loads(result).get(column) for column in DUCKDB[name][0]) for result in found.get(name, [])
            ]
            assert Counter(answer) == Counter(_duckdb(name, streams, mark))
    return found


# The columns that are compared, and the same SQL as DuckDB has it.
DUCKDB = {
    "left": (
        ("k", "n", "v"),
        """SELECT e.k, e.n, o.v FROM events e LEFT JOIN others o ON e.k IS NOT DISTINCT FROM o.k
           AND o."at" >= e."at" AND o."at" < e."at" + INTERVAL 1 MINUTE WHERE epoch_us(e."at") + 60000000 <= ?""",
    ),
    "windows": (
        ("k", "c", "top"),
        """SELECT k, c, top FROM
           (SELECT time_bucket(INTERVAL 1 MINUTE, "at") AS start, k, count(*) AS c FROM events GROUP BY 1, 2) a
           FULL JOIN
           (SELECT time_bucket(INTERVAL 1 MINUTE, "at") AS start, k, max(n) AS top FROM others GROUP BY 1, 2) b
           USING (start, k) WHERE epoch_us(start) + 60000000 <= ?""",
    ),
}


def _duckdb(name: str, streams: dict[str, list[dict[str, Any]]], mark: int) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for stream, rows in streams.items():
            connection.register(stream, pa.Table.from_pylist(rows, schema=SCHEMA))
        return connection.execute(DUCKDB[name][1], [mark]).fetchall()
