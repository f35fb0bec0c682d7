"""Measure files as a source: new small files, beside Spark's own file stream; and a look at many files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from bench.table import Line, Measured
from floodmark.connectors.backlog.news import look
from floodmark.core.rules.rule import load_rule
from floodmark.spark.rule.run import RuleRun

NEW = 1_000  # files of a run, each with ROWS records
ROWS = 10
MANY = 10_000  # files that are looked at
COLUMNS = "ts TIMESTAMP, k STRING, v BIGINT"
SQL = "SELECT ts, k, v FROM events WHERE v >= 0"


def new_files(spark: SparkSession, work: Path, repeats: int) -> list[Line]:
    """A run over 1,000 new files, each by its own means, in turn. The first run of both, which warms up, is left out.

    Spark's stream promises its Delta table the same: each file once.
    """
    folder, ours, theirs = work / "in", Measured(), Measured()
    folder.mkdir(parents=True)
    for number in range(repeats + 1):
        _drop(folder, number)
        for times, run in ((ours, _floodmark), (theirs, _spark)):
            if number:
                times.take(lambda run=run: run(spark, folder, work))
            else:
                run(spark, folder, work)
    counts = {name: spark.read.format("delta").load(str(work / name)).count() for name in ("ours", "theirs")}
    assert set(counts.values()) == {(repeats + 1) * NEW * ROWS}, counts
    name = f"{NEW:,} new files of {ROWS} JSON records"
    own = Line.rate_of(f"Floodmark, {name}", ours, NEW * ROWS)
    return [own, Line.rate_of("  Spark's own file stream into Delta", theirs, NEW * ROWS).against(ours, 1.0)]


def look_at_many(spark: SparkSession, work: Path, repeats: int) -> list[Line]:
    """Whether there is news in a folder of 10,000 files, all of which are read: without a JVM."""
    folder, found = work / "in", Measured()
    folder.mkdir(parents=True)
    for number in range(MANY // NEW):
        _drop(folder, number)
    _floodmark(spark, folder, work)
    rule = load_rule(_rule_file(folder, work), os.environ)
    for _ in range(repeats):
        begun = time.monotonic()
        assert look(rule, work / "home").why is None
        found.add(time.monotonic() - begun)
    return [Line.of(f"a look at {MANY:,} files, nothing new", found, 1.0)]


def _drop(folder: Path, number: int) -> None:
    for i in range(NEW):
        record = {"ts": "2001-01-01T00:00:00Z", "k": f"k{i % 50}", "v": i}
        (folder / f"{number}-{i}.json").write_text(f"{json.dumps(record)}\n" * ROWS)


def _rule_file(folder: Path, work: Path) -> Path:
    files = {"path": str(folder), "format": "json", "schema": COLUMNS, "settle": "0 seconds"}
    rule = {"rule": "bench", "streams": {"events": {"files": files}}, "sql": SQL,
            "sinks": [{"delta": str(work / "ours")}], "spark": {"driver_memory": "3g"}}  # fmt: skip
    path = work / "rules" / "bench.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(rule))
    return path


def _floodmark(spark: SparkSession, folder: Path, work: Path) -> float:
    rule = load_rule(_rule_file(folder, work), os.environ)
    begun = time.monotonic()
    RuleRun(spark, rule, work / "home", "bench", lambda _: None).run()
    return time.monotonic() - begun


def _spark(spark: SparkSession, folder: Path, work: Path) -> float:
    begun = time.monotonic()
    events = spark.readStream.schema(COLUMNS).json(str(folder)).where("v >= 0").selectExpr("ts", "k", "v")
    query = (
        events.writeStream.format("delta")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(work / "checkpoint"))
        .start(str(work / "theirs"))
    )
    query.awaitTermination()
    return time.monotonic() - begun
