"""Windows that close though nothing comes: because somebody says so, or because it has been quiet for long enough.

Windows of processing time are those of the recorded clock; what a quiet period closes is the same after a crash and a
recovery as without: the clock of a tick is recorded.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import OVER, SESSIONS, START, Flow, event, rows_of
from support.joins import JOINS, TwoStreams
from support.oracle import tumbling
from support.running import run

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit
from floodmark.spark.rule.run import RuleRun

FIRST = [event(s, k) for s, k in ((0, "a"), (10, "b"), (50, "a"), (70, "a"), (100, "b"), (130, "a"))]


def close(spark: SparkSession, flow: Flow, until: datetime) -> None:
    RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None, until).run()


def starts(flow: Flow) -> list[Any]:
    return sorted(row["start"] for row in rows_of(flow.sink()))


@pytest.mark.parametrize("point", [pytest.param("intent.after", marks=pytest.mark.prove), "commit.before"])
def test_input_is_taken_as_complete_up_to_a_moment(spark: SparkSession, place: Path, point: str) -> None:
    """Event-time windows: closed by hand, killed on the way, closed once."""
    flow, until = Flow(place, sinks=1), START + timedelta(seconds=180)
    flow.arrive(FIRST)
    run(spark, flow)
    flow.arrive([event(140, "b")])
    with crash_at(point, 2) as planned, pytest.raises(Crash):
        close(spark, flow, until)
    assert planned.fired
    close(spark, flow, until)
    close(spark, flow, until)
    head = flow.ledger().head
    assert head is not None
    assert (head.epoch, head.watermark) == (3, round(until.timestamp() * 1_000_000))
    found = [tuple(row.values()) for row in rows_of(flow.sink())]
    assert sorted(found, key=repr) == tumbling([*FIRST, event(140, "b")], until)
    flow.arrive([event(179), event(185)])
    run(spark, flow)
    assert flow.counts()["late"] == 1, "what was closed stays closed"


@pytest.mark.prove
def test_sessions_and_rows_close_too(spark: SparkSession, place: Path) -> None:
    for sql, results in ((SESSIONS, 5), (OVER, 6)):
        flow = Flow(place / f"of {results}, a folder with blanks", sql=sql)
        flow.arrive(FIRST)
        run(spark, flow)
        before = len(rows_of(flow.sink()))
        close(spark, flow, START + timedelta(hours=1))
        assert before < len(rows_of(flow.sink())) == results


@pytest.mark.prove
def test_a_stream_that_never_spoke_holds_nothing_back(spark: SparkSession, place: Path) -> None:
    flow = TwoStreams(place, sql=JOINS["anti"].sql, sinks=1)
    flow.arrive_other([])
    flow.arrive(FIRST)
    run(spark, flow)
    assert rows_of(flow.sink()) == []
    close(spark, flow, START + timedelta(hours=1))
    assert len(rows_of(flow.sink())) == len(FIRST)


def quiet(spark: SparkSession, flow: Flow, minutes: int) -> None:
    """Run as if so long had passed."""
    later = time.time_ns() + minutes * 60 * 10**9
    with mock.patch("floodmark.spark.rule.run.time.time_ns", return_value=later):
        run(spark, flow)


@pytest.mark.parametrize("point", [pytest.param(None, marks=pytest.mark.prove), "sink0.after"])
def test_a_quiet_period_closes_windows(spark: SparkSession, place: Path, point: str | None) -> None:
    """Killed or not, the tick closes what its recorded clock says; rows that come before the retry do not change it."""
    flow = Flow(place, sinks=1, settings={"close_idle_after": "10 minutes"}, stream={"lateness": "0 seconds"})
    flow.arrive([event(0), event(59.5, "b", 2.0, 3)])
    quiet(spark, flow, 9)
    assert starts(flow) == []
    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            quiet(spark, flow, 12)
        assert planned.fired
        flow.arrive([event(59.9, "late")])
    quiet(spark, flow, 12)
    assert starts(flow) == [START, START]
    assert flow.counts()["late"] == (0 if point is None else 1)
    quiet(spark, flow, 24)
    head = flow.ledger().head
    assert head is not None
    assert head.epoch == (2 if point is None else 3), "everything is closed: no more ticks"


def test_rows_that_came_come_before_a_tick(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, settings={"close_idle_after": "10 minutes"}, stream={"lateness": "0 seconds"})
    flow.arrive([event(0)])
    run(spark, flow)
    flow.arrive([event(30)])
    quiet(spark, flow, 5)
    head = flow.ledger().head
    assert head is not None
    assert (head.epoch, head.watermark) == (2, round((START + timedelta(seconds=30)).timestamp() * 1_000_000))


@pytest.mark.parametrize("point", [pytest.param(None, marks=pytest.mark.prove), "intent.after"])
def test_windows_of_processing_time_are_those_of_the_recorded_clock(
    spark: SparkSession, place: Path, point: str | None
) -> None:
    """The event time is the epoch's clock; a retry, however much later, puts its rows into the same windows."""
    seen = {"name": "seen", "expr": "current_timestamp()"}
    sql = """SELECT window.start AS start, k, count(*) AS c, current_timestamp() AS written FROM events
             GROUP BY window(seen, '1 millisecond'), k"""
    flow = Flow(place, sql=sql, stream={"event_time": seen, "lateness": "0 seconds"}, sinks=1)
    flow.arrive(FIRST)
    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            run(spark, flow)
        assert planned.fired
    run(spark, flow)
    flow.arrive([event(0, "c")])
    run(spark, flow)
    close(spark, flow, datetime.now(UTC) + timedelta(minutes=1))
    commits = [Commit.model_validate_json(row.body) for row in flow.ledger().rows if row.kind == "commit"]
    clocks = [datetime.fromtimestamp(Entry.parse(commit.entry).clock_ms / 1000, UTC) for commit in commits]
    assert sorted((row["start"], row["k"], row["c"], row["written"]) for row in rows_of(flow.sink())) == [
        (clocks[1], "a", 4, clocks[2]),
        (clocks[1], "b", 2, clocks[2]),
        (clocks[2], "c", 1, clocks[3]),
    ]
