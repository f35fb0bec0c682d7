"""Measure keyed state: the cost of an epoch by the keys that it touches, and by the number of epochs before it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import yaml
from pyspark.sql import SparkSession

from bench.contenders import PARTITIONS
from bench.table import Line, Measured
from floodmark.core.rules.rule import load_rule
from floodmark.spark.rule.epochs.reports import EpochReport
from floodmark.spark.rule.run import RuleRun

KEYS = 1_000_000
SQL = "SELECT k, count(*) AS n, sum(v) AS total, max(v) AS most FROM events GROUP BY k"
SMALL_EPOCHS = 200
MANY = 1_000  # keys of the small epochs, each of which touches them all


def touched_keys(spark: SparkSession, work: Path, rounds: int) -> list[Line]:
    """Running totals over 1 M keys: epochs that touch them all, and epochs that touch 1 % of them, far apart."""
    return [
        line
        for vectors in (False, True)
        for line in _touched(spark, work / ("vectors" if vectors else "plain"), rounds, vectors)
    ]


def _touched(spark: SparkSession, work: Path, rounds: int, vectors: bool) -> list[Line]:
    commits = [(KEYS, 1)] * (1 + rounds) + [(KEYS // 100, 100)] * (1 + rounds)
    epochs = _epochs(spark, work, commits, vectors)
    which = ", deletion vectors" if vectors else ""
    everything = Measured([epoch.seconds for epoch in epochs[1 : 1 + rounds]])
    few = Measured([epoch.seconds for epoch in epochs[2 + rounds :]])
    ratio = few.median / everything.median
    aim = f"<= 0.1 {'met' if ratio <= 0.1 else 'MISSED'}"
    return [
        Line.rate_of(f"running totals{which}, an epoch that touches 1 M keys", everything, KEYS),
        Line(
            f"  one that touches {KEYS // 100:,} of them",
            few.text(),
            ratio=f"{1 / ratio:.2f}",
            aim=f"{ratio:.2f}: {aim}",
        ),
    ]


def small_epochs(spark: SparkSession, work: Path) -> list[Line]:
    """Running totals in 200 small epochs of one run: compare the last with the tenth, each with its neighbours."""
    epochs = _epochs(spark, work, [(MANY, 1)] * SMALL_EPOCHS)
    tenth = Measured([epoch.seconds for epoch in epochs[5:15]])
    last = Measured([epoch.seconds for epoch in epochs[-10:]])
    ratio = last.median / tenth.median
    aim = f"<= 1.3 {'met' if ratio <= 1.3 else 'MISSED'}"
    return [
        Line.of("the tenth of 200 small epochs (median of 6 to 15)", tenth),
        Line("  the last (median of 191 to 200)", last.text(), ratio=f"{1 / ratio:.2f}", aim=f"{ratio:.2f}: {aim}"),
        Line.of("  the middle (median of all)", Measured([median(epoch.seconds for epoch in epochs)])),
    ]


def _epochs(
    spark: SparkSession, work: Path, commits: Sequence[tuple[int, int]], vectors: bool = False
) -> list[EpochReport]:
    """Run one epoch for each commit. `commits`: rows, and the distance of their keys; `vectors`: the sink has them."""
    table = work / "events"
    spark.range(0).selectExpr("id AS k", "0.5D AS v").write.format("delta").save(str(table))
    for rows, apart in commits:
        events = spark.range(0, rows, 1, 1).selectExpr(f"id * {apart} AS k", "pmod(xxhash64(id), 1000) / 10.0D AS v")
        events.write.format("delta").mode("append").save(str(table))
    done: list[EpochReport] = []
    RuleRun(spark, load_rule(_rule_file(work, table, vectors), os.environ), work / "home", "bench", done.append).run()
    return done


def _rule_file(work: Path, table: Path, vectors: bool) -> Path:
    sink = {"delta": str(work / "sink"), "key": ["k"]}
    rule = {
        "rule": "bench",
        "streams": {"events": {"delta": str(table), "start": {"version": 1}}},
        "sql": SQL,
        "unbounded": True,
        "epoch": {"max_files": 1},
        "sinks": [sink | ({"properties": {"delta.enableDeletionVectors": True}} if vectors else {})],
        "spark": {"driver_memory": "3g", "shuffle_partitions": PARTITIONS},
    }
    path = work / "rules" / "bench.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(rule))
    return path
