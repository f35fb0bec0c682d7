"""A stream that falls silent is excused: by recorded clocks, so the same in every attempt.

Two streams; what counts as silence is one millisecond, less than lies between two epochs, or more than a test takes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.joins import TwoStreams
from support.running import crash, run
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.backlog.news import look
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.rules.rule import Rule
from floodmark.spark.rule.epochs.reports import EpochReport
from floodmark.spark.rule.run import RuleRun

BOTH = """SELECT window.start AS start, count(*) AS c FROM (SELECT at FROM events UNION ALL SELECT at FROM others)
          GROUP BY window(at, '1 minute')"""
SOON, NEVER = "1 millisecond", "1000 days"


@pytest.fixture
def without_ticks() -> Iterator[None]:
    """Only epochs with input: else a run would end with a tick, for the others are silent by then."""
    with mock.patch("floodmark.spark.rule.epochs.draining.tick_target", return_value=None):
        yield


def flow_of(place: Path, idle_after: str, **more: Any) -> TwoStreams:
    return TwoStreams(place, sql=BOTH, sinks=1, more={"idle_after": idle_after}, **more)


def head_of(flow: Flow) -> Head:
    head = flow.ledger().head
    assert head is not None
    return head


def mark(flow: TwoStreams) -> float | None:
    """Seconds from START to the watermark."""
    at = head_of(flow).watermark
    return None if at is None else at / 1_000_000 - START.timestamp()


def counted(*seconds: int) -> dict[datetime, int]:
    """How many of these fall into each minute."""
    return dict(Counter(START + timedelta(minutes=second // 60) for second in seconds))


def results(flow: TwoStreams) -> dict[datetime, int]:
    return {row["start"].astimezone(UTC): row["c"] for row in rows_of(flow.sink())}


def status(flow: TwoStreams, *words: str) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    return CliRunner().invoke(app, ["status", flow.name, *words], env=places).stdout


@pytest.mark.usefixtures("without_ticks")
@pytest.mark.parametrize(
    "point", ["intent.after", *(pytest.param(point, marks=pytest.mark.prove) for point in (None, "sink0.after"))]
)
def test_the_watermark_goes_on_without_a_silent_stream_and_waits_for_it_again(
    spark: SparkSession, place: Path, point: str | None
) -> None:
    flow = flow_of(place, SOON)
    flow.arrive([event(0), event(100)])
    flow.arrive_other([event(10)])
    run(spark, flow)
    assert mark(flow) == -20, "both have spoken: the slower one holds"
    assert json.loads(status(flow, "--json"))["rules"]["counted"]["excused"] == {}
    flow.arrive([event(300)])
    if point is not None:
        assert crash(spark, flow, point)
        flow.arrive_other([event(20), event(280)])  # what comes before the retry does not change what it decides
    run(spark, flow)
    second = [Commit.model_validate_json(row.body) for row in flow.ledger().rows if row.kind == "commit"][2]
    assert second.watermark == round((START.timestamp() + 270) * 1_000_000)
    if point is None:
        assert results(flow) == counted(0, 100, 10)
        assert "stream others: idle since 20" in status(flow)
        assert "held back by stream events" in status(flow)
        flow.arrive_other([event(20), event(280)])
        run(spark, flow)
    assert (mark(flow), flow.counts()["late"]) == (270, 1), "it has spoken: the watermark waits, and never goes back"
    assert "idle since" not in status(flow)
    flow.arrive([event(500)])
    flow.arrive_other([event(400)])
    run(spark, flow)
    assert mark(flow) == 370
    assert results(flow) == counted(0, 100, 10, 300, 280)


@pytest.mark.prove  # `unit/test_bounds.py` decides it
def test_a_stream_that_is_not_silent_for_long_enough_holds_the_watermark(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, NEVER)
    flow.arrive([event(0)])
    flow.arrive_other([event(10)])
    run(spark, flow)
    flow.arrive([event(300)])
    run(spark, flow)
    assert mark(flow) == -30 + 10
    assert results(flow) == {}


@pytest.mark.parametrize("others", [pytest.param([], marks=pytest.mark.prove), [event(None), event(None)]])
def test_a_stream_that_has_never_given_a_row_is_excused_too(
    spark: SparkSession, place: Path, others: list[dict[str, Any]]
) -> None:
    """Dead rows are no sign of life."""
    flow = flow_of(place, SOON)
    flow.arrive([event(0)])
    flow.arrive_other(others)
    run(spark, flow)
    flow.arrive([event(300)])
    run(spark, flow)
    assert mark(flow) == 270
    assert results(flow) == counted(0)


@pytest.mark.prove
def test_a_first_snapshot_that_is_not_read_yet_is_not_silence(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, SOON, settings={"epoch": {"max_files": 1}})
    flow.arrive([event(0)])
    for _ in range(3):
        flow.arrive_other([event(None)])
    run(spark, flow)
    commits = [Commit.model_validate_json(row.body) for row in flow.ledger().rows if row.kind == "commit"]
    assert [commit.watermark for commit in commits[:3]] == [None, None, None]
    assert (len(commits), mark(flow)) == (4, -30), "the epoch that ends the snapshot moves it on"


@pytest.mark.usefixtures("without_ticks")
def test_what_comes_while_a_run_is_at_work_is_not_silence(spark: SparkSession, place: Path) -> None:
    """A run reads what was there when it began: what it does not see yet is not late afterwards."""
    flow = flow_of(place, SOON, settings={"epoch": {"max_files": 1}})
    flow.arrive([event(0)])
    flow.arrive([event(300)])
    flow.arrive_other([event(10)])

    def told(report: EpochReport) -> None:
        if report.epoch == 1:
            flow.arrive_other([event(20)])

    RuleRun(spark, flow.rule(), flow.home, "test", told).run()
    assert (head_of(flow).epoch, mark(flow)) == (2, -20)
    run(spark, flow)
    assert (flow.counts()["late"], flow.counts()["folded"], mark(flow)) == (0, 4, -10)


@pytest.mark.prove  # `test_older_homes.py`
def test_an_epoch_that_was_left_open_before_streams_could_be_excused_is_finished(
    spark: SparkSession, place: Path
) -> None:
    flow = Flow(place)
    flow.arrive([event(0), event(300)])
    text = Rule.to_json

    def of_then(rule: Rule) -> str:
        return text(rule).replace('"idle_after_us":null,', "")

    with mock.patch.object(Rule, "to_json", of_then):
        assert crash(spark, flow, "sink0.after")
    opened = flow.ledger().head
    assert opened is not None and opened.open is not None
    assert '"idle_after_us"' not in opened.open.rule
    run(spark, flow)
    assert head_of(flow).epoch == 1


def quiet(spark: SparkSession, flow: TwoStreams, minutes: int) -> str | None:
    """Run as if so long had passed; returns why a run is needed, as it is known without a JVM."""
    later = time.time_ns() + minutes * 60 * 10**9
    with mock.patch("floodmark.connectors.backlog.news.time.time_ns", return_value=later):
        why = look(flow.rule(), flow.home).why
        run(spark, flow)
    return why


@pytest.mark.prove  # `unit/test_ticks.py`; such a tick is killed in `test_closing.py`
@pytest.mark.parametrize("point", ["intent.after", None])
def test_silence_closes_windows_without_any_input(spark: SparkSession, place: Path, point: str | None) -> None:
    flow = flow_of(place, "10 minutes")
    flow.arrive([event(0), event(300)])
    flow.arrive_other([event(10)])
    run(spark, flow)
    assert quiet(spark, flow, 9) is None
    assert (head_of(flow).epoch, mark(flow)) == (1, -20)
    if point is not None:
        with mock.patch("floodmark.spark.rule.run.time.time_ns", return_value=time.time_ns() + 12 * 60 * 10**9):
            assert crash(spark, flow, point)
        flow.arrive_other([event(20)])
        run(spark, flow)
        assert flow.counts()["late"] == 1, "the retry closes what the first attempt would have closed"
        return
    assert quiet(spark, flow, 12) == "the input has been idle for so long that the watermark advances"
    assert (head_of(flow).epoch, mark(flow)) == (2, 270)
    assert results(flow) == counted(0, 10)
    assert quiet(spark, flow, 24) is None
    assert head_of(flow).epoch == 2
