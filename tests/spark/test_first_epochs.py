"""Where a rule begins, and what a first snapshot and absurd event times do to its watermark."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.running import run

from floodmark.ledger.delta.committimes import commit_times


def sink(flow: Flow) -> list[tuple[object, ...]]:
    return ordered(tuple(row.values()) for row in rows_of(flow.sink()))


def micros(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000


def test_a_table_in_reverse_time_order_has_nothing_late(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, settings={"epoch": {"max_files": 1}})
    events = [[event(60 * minute + s) for s in (0, 30)] for minute in range(5, -1, -1)]
    for portion in events:
        flow.arrive(portion)
    report = run(spark, flow)
    assert len(report.epochs) == len(events)
    assert [epoch.watermark for epoch in report.epochs[:-1]] == [None] * 5
    assert flow.counts()["late"] == 0
    assert sink(flow) == tumbling([one for portion in events for one in portion], START + timedelta(minutes=5))


def test_a_row_in_the_year_2999_is_dead_and_leaves_the_watermark(spark: SparkSession, place: Path) -> None:
    flow = Flow(place)
    flow.arrive([event(0), event(100), {**event(0), "at": START.replace(year=2999)}])
    report = run(spark, flow)
    assert flow.counts()["dead"] == 1
    assert report.epochs[-1].watermark == micros(START + timedelta(seconds=70))
    assert [row["at"].year for row in rows_of(flow.place.dead)] == [2999]


def test_latest_begins_after_what_is_there(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, stream={"start": "latest"})
    flow.arrive([event(0)])
    assert flow.rule() and not [epoch for epoch in run(spark, flow).epochs if epoch.read]
    flow.arrive([event(200), event(400)])
    run(spark, flow)
    assert sink(flow) == tumbling([event(200)], START + timedelta(seconds=370))


def test_a_version_begins_with_that_version(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, stream={"start": {"version": 1}})
    for second in (0, 100, 200):
        flow.arrive([event(second)])
    run(spark, flow)
    assert flow.counts()["read"] == 2


def test_a_timestamp_begins_with_the_first_commit_not_before_it(spark: SparkSession, place: Path) -> None:
    from deltalake import DeltaTable

    flow = Flow(place)
    for second in (0, 100, 200):
        flow.arrive([event(second)])
    at = commit_times(DeltaTable(flow.source), flow.source)[2]
    flow.stream["start"] = {"timestamp": datetime.fromtimestamp(at / 1000, START.tzinfo).isoformat()}
    run(spark, flow)
    assert flow.counts()["read"] == 1


def test_rows_that_where_leaves_out_are_counted_as_filtered(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, stream={"where": "k = 'a' -- only these"})
    flow.arrive([event(0, "a"), event(0, "b"), event(0, None), event(None, "b")])
    run(spark, flow)
    assert flow.counts() == {"read": 4, "filtered": 3, "dead": 0, "late": 0, "folded": 1}


def test_event_time_may_be_made_by_an_expression(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, stream={"event_time": {"name": "moment", "expr": "timestamp_seconds(n)"}})
    flow.sql = flow.sql.replace("window(at", "window(moment")
    flow.arrive([event(0, n=0), event(0, n=59), event(0, n=200)])
    run(spark, flow)
    assert [row["c"] for row in rows_of(flow.sink())] == [2]
