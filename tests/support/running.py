"""Run a flow's rule in the test's own Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.abandoning import Readers
from floodmark.core.lifecycle.backfills import Interval, requested_interval, requested_whole
from floodmark.core.protocol.records.head import Head
from floodmark.spark.rule.backfill import correcting
from floodmark.spark.rule.backfill.backfilling import BackfillResult
from floodmark.spark.rule.epochs.reports import RunReport
from floodmark.spark.rule.run import BESIDE, RuleRun
from support.crash import Crash, crash_at, put_reach
from support.flow import Flow


def run(spark: SparkSession, flow: Flow) -> RunReport:
    return RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).run()


def reset(spark: SparkSession, flow: Flow, keep_output: bool = False) -> RunReport:
    return RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).reset(keep_output)


def abandon(spark: SparkSession, flow: Flow, readers: Readers | None = None) -> RunReport:
    return RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).abandon(readers or {})


def backfill(spark: SparkSession, flow: Flow, begin: int, end: int, then: bool = False) -> BackfillResult:
    """Of an interval of event time, in microseconds. then: with lookup tables as each epoch read them."""
    return _backfill_job(spark, flow).backfill(_interval(flow, begin, end, then), 0, lambda _: None)


def rehearse_backfill(spark: SparkSession, flow: Flow, begin: int, end: int) -> BackfillResult:
    return _backfill_job(spark, flow).rehearse_backfill(_interval(flow, begin, end))


def backfill_killed(spark: SparkSession, flow: Flow, begin: int, end: int, point: str | None) -> None:
    """A backfill that is killed at a point and finished: by the next run, or once more where it had not begun."""
    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            _ = backfill(spark, flow, begin, end)
        assert planned.fired
        run(spark, flow)
    if point in (None, "backfill.computed", "backfill.intent.before"):
        _ = backfill(spark, flow, begin, end)


def backfill_all(spark: SparkSession, flow: Flow, then: bool = False) -> BackfillResult:
    """Of everything. then: as in `backfill`."""
    rule = flow.rule()
    return _backfill_job(spark, flow).backfill(lambda head: requested_whole(rule, head, then), 0, lambda _: None)


def rehearse_all(spark: SparkSession, flow: Flow) -> BackfillResult:
    rule = flow.rule()
    return _backfill_job(spark, flow).rehearse_backfill(lambda head: requested_whole(rule, head))


def _backfill_job(spark: SparkSession, flow: Flow) -> RuleRun:
    return RuleRun(spark, flow.rule(), flow.home, "backfill", lambda _: None)


def _interval(flow: Flow, begin: int, end: int, then: bool = False) -> Callable[[Head], Interval]:
    rule = flow.rule()
    return lambda head: requested_interval(rule, head, begin, end, str, then)


def computed_beside(
    spark: SparkSession, flow: Flow, meanwhile: Callable[[], None], crash: str = "", often: int = 1
) -> tuple[RunReport, int]:
    """A run that corrects, with `meanwhile` between its computation and its commit; how often it computed.

    crash: a point at which it is killed afterwards. often: how many times something comes between.
    """
    computed: list[int] = []
    beside: list[int] = []  # those without the rule's lock
    compute = correcting.compute

    def reach(rule: str, point: str, epoch: int | None = None) -> None:
        if point == "backfill.computed":
            beside.append(len(computed))
            if len(computed) <= often:
                meanwhile()
        elif point == crash:
            raise Crash(point)

    def counting(*args: Any) -> Any:
        computed.append(len(computed))
        return compute(*args)

    with pytest.MonkeyPatch.context() as patch:
        put_reach(patch, reach)
        patch.setattr(correcting, "compute", counting)
        done = run(spark, flow)
    assert len(beside) == min(len(computed), BESIDE)
    return done, len(computed)


def listed(flow: Flow, *command: str) -> dict[str, Any]:
    """What a command prints of the rule, as JSON."""
    places = ["--home", str(flow.home), "--rules", str(flow.root / "rules"), "--json"]
    told = CliRunner().invoke(app, [*command, flow.name, *places])
    assert told.exit_code == 0, told.output
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def recheck(flow: Flow) -> None:
    """Somebody decides that what failed a check is to be tried again."""
    done = CliRunner().invoke(app, ["recheck", flow.name, "--yes", "--home", str(flow.home)])
    assert done.exit_code == 0, done.output


def crash(spark: SparkSession, flow: Flow, point: str, nth: int = 1) -> bool:
    """Run until the planned crash; whether it fired. A run that ends before it is no crash."""
    with crash_at(point, nth) as planned:
        try:
            run(spark, flow)
        except Crash:
            assert planned.fired
    return planned.fired
