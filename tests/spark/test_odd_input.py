"""Input that is allowed and seldom seen: it is folded like any other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.flow import SCHEMA, STATELESS, Flow, event, rows_of
from support.joins import TwoStreams
from support.running import crash, run

from floodmark.errors import WrongColumn


def test_a_value_that_holds_what_some_take_for_ends_of_lines(spark: SparkSession, place: Path) -> None:
    """They stand in statistics, in a log's JSON, as they are."""
    flow = Flow(place, sql=STATELESS)
    value = "a\u2028b\u0085c\u2029d"
    flow.arrive([event(0, value)])
    assert crash(spark, flow, "sink1.after")
    run(spark, flow)
    assert [row["k"] for row in rows_of(flow.sink())] == [value]


def test_a_sink_that_no_result_can_come_to(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.settings["sinks"] = [{"delta": flow.sink(), "where": "1 = 0"}]
    flow.arrive([event(0), event(200)])
    [report] = run(spark, flow).epochs
    assert report.output == 2
    assert rows_of(flow.sink()) == []


def test_columns_of_two_streams_that_differ_in_case_only(spark: SparkSession, place: Path) -> None:
    """They are one column of the tables of late and dead rows."""
    flow = TwoStreams(place, sinks=1, sql="SELECT at, k FROM events UNION ALL SELECT at, k FROM others")
    flow.arrive([event(0), event(None)])
    upper = pa.Table.from_pylist([event(10, "b"), event(None, "c")], schema=SCHEMA).rename_columns(
        ["at", "K", "V", "n"]
    )
    write_deltalake(flow.other, upper)
    run(spark, flow)
    assert sorted(row["k"] for row in rows_of(flow.sink())) == ["a", "b"]
    assert sorted(row["k"] for row in rows_of(flow.place.dead)) == ["a", "c"]


def test_columns_that_late_and_dead_rows_have_of_their_own_are_refused(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql="SELECT * FROM events")
    arrived = pa.Table.from_pylist([event(0)], schema=SCHEMA)
    write_deltalake(flow.source, arrived.append_column("_Source", pa.array(["a file"])))
    with pytest.raises(WrongColumn, match=r"stream events: expected to read none of .* found _Source"):
        run(spark, flow)
    flow.sql = STATELESS
    run(spark, flow)
    assert len(rows_of(flow.sink())) == 1
