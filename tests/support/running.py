"""Run a flow's rule in the test's own Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.abandoning import Readers
from floodmark.spark.rule.epochs.reports import RunReport
from floodmark.spark.rule.run import RuleRun
from support.crash import Crash, crash_at
from support.flow import Flow


def run(spark: SparkSession, flow: Flow) -> RunReport:
    return RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).run()


def reset(spark: SparkSession, flow: Flow, keep_output: bool = False) -> RunReport:
    return RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).reset(keep_output)


def abandon(spark: SparkSession, flow: Flow, readers: Readers | None = None) -> RunReport:
    return RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).abandon(readers or {})


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
