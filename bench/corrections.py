"""Measure corrections: one day of a year is overwritten, or the rows of some keys are deleted, and results follow.

The other side is a reset: the rule reads the repaired source again. Both give the same sink, which is compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from pyspark.sql import DataFrame, SparkSession

from bench.contenders import PARTITIONS
from bench.table import Line, Measured
from floodmark.core.rules.rule import load_rule
from floodmark.spark.rule.run import RuleRun

DAYS = 365
SQL = "SELECT window.start AS hour, k, count(*) AS n, sum(v) AS total FROM events GROUP BY window(at, '1 hour'), k"
SESSIONS = (
    "SELECT session_window.start AS begun, k, count(*) AS n, sum(v) AS total FROM events WHERE hour(at) < 20 "
    "GROUP BY session_window(at, '1 hour'), k"
)
TOTALS = "SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k"
DELETED = 1000  # keys


def one_day(
    spark: SparkSession, work: Path, rows: int, repeats: int, sql: str = SQL, what: str = "one day of a year"
) -> list[Line]:
    """`rows`: of a day."""
    table = work / "events"
    _days(spark, rows, 0, DAYS).write.format("delta").save(str(table))
    rule = load_rule(_rule_file(work, table, sql), os.environ)
    job = RuleRun(spark, rule, work / "home", "bench", lambda _: None)
    job.run()

    def repair(i: int) -> None:
        _overwrite(spark, table, rows, DAYS // 2 + i)

    return _beside_a_reset(spark, work, job, repair, repeats, rows * DAYS, what, 1 / 30)


def some_keys(spark: SparkSession, work: Path, rows: int, keys: int, repeats: int) -> list[Line]:
    """All rows of some keys are deleted; `rows` in all."""
    table = work / "events"
    found = spark.range(rows).selectExpr(
        "timestamp_micros(978307200000000 + id) AS at", f"pmod(xxhash64(id), {keys}) AS k", "CAST(id AS DOUBLE) AS v"
    )
    found.write.format("delta").option("delta.enableChangeDataFeed", True).save(str(table))
    path = _rule_file(work, table, sql=TOTALS, key=["k"])
    job = RuleRun(spark, load_rule(path, os.environ), work / "home", "bench", lambda _: None)
    job.run()
    step = keys // DELETED

    def repair(i: int) -> None:
        spark.sql(f"DELETE FROM delta.`{table}` WHERE k % {step} = {i}")  # noqa: S608 - ours

    return _beside_a_reset(spark, work, job, repair, repeats, rows, f"{DELETED} keys of {keys}", 1 / 10)


def _beside_a_reset(
    spark: SparkSession,
    work: Path,
    job: RuleRun,
    repair: Callable[[int], None],
    repeats: int,
    rows: int,
    what: str,
    at_most: float,
) -> list[Line]:
    """`repair`: changes the source, each time another part. `rows`: that a reset reads."""
    corrected, again = Measured(), Measured()
    for i in range(repeats + 1):
        repair(i)
        seconds = _seconds(job.run)
        if i:  # the first one warms up
            corrected.add(seconds)
    found = _sink(spark, work).collect()
    for _ in range(repeats):
        again.add(_seconds(lambda: (job.reset(keep_output=False), job.run())))
    _compare(spark, work, found)
    ratio = corrected.median / again.median
    aim = f"{ratio:.3f}: <= 1/{1 / at_most:.0f} {'met' if ratio <= at_most else 'MISSED'}"
    return [
        Line.rate_of(f"a reset, and the run after it ({what})", again, rows),
        Line("  a correction", corrected.text(), ratio=f"{1 / ratio:.1f}", aim=aim),
    ]


def _compare(spark: SparkSession, work: Path, found: list[object]) -> None:
    now = _sink(spark, work).collect()
    if now != found:
        raise AssertionError(f"expected the corrected results of the reset, found others: {found[:1]}, now {now[:1]}")


def _sink(spark: SparkSession, work: Path) -> DataFrame:
    """A few numbers that tell whether two sinks hold the same."""
    rows = spark.read.format("delta").load(str(work / "sink"))
    return rows.selectExpr("count(*)", "sum(n)", "sum(total)", "bit_xor(xxhash64(*))")


def _days(spark: SparkSession, rows: int, first: int, count: int, more: int = 0) -> DataFrame:
    """So many rows of each day, spread evenly over it, in a partition of its own. `more`: is added to each value."""
    found = spark.range(first * rows, (first + count) * rows, numPartitions=count)
    step = 86_400_000_000 // rows
    return found.selectExpr(
        f"timestamp_micros(978307200000000 + id * {step}) AS at",
        "pmod(xxhash64(id), 100) AS k",
        f"CAST(pmod(id, 1000) + {more} AS DOUBLE) AS v",
    )


def _overwrite(spark: SparkSession, table: Path, rows: int, day: int) -> None:
    low, high = (f"timestamp_micros({978307200000000 + at * 86_400_000_000})" for at in (day, day + 1))
    writer = _days(spark, rows, day, 1, more=1).write.format("delta").mode("overwrite")
    writer.option("replaceWhere", f"at >= {low} AND at < {high}").save(str(table))


def _rule_file(work: Path, table: Path, sql: str = SQL, key: list[str] | None = None) -> Path:
    """`key`: of running totals, which no row is late for."""
    events = {"delta": str(table), "event_time": "at", "lateness": "1 hour", "on_rewrite": "correct"}
    sink = {"delta": str(work / "sink")}
    if key:
        del events["lateness"]
        sink |= {"key": key}
    rule = {
        "rule": "bench",
        "streams": {"events": events},
        "sql": sql,
        **({"unbounded": True} if key else {}),
        "sinks": [sink],
        "timezone": "UTC",
        "spark": {"driver_memory": "3g", "shuffle_partitions": PARTITIONS},
    }
    path = work / "rules" / "bench.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(rule))
    return path


def _seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
