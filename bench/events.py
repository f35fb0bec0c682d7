"""Generate the events that every contender reads: once for a number of keys, in a Delta table of equal commits.

Event time grows with the row's number and is disturbed by at most DISORDER seconds, less than the lateness, so that no
contender has late rows. Values and keys are functions of the row's number: the input is the same in every run.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

MINUTES = 50
DISORDER = 8
LATENESS = "10 seconds"
COMMITS = 10
BEGIN_MS = 1_700_000_040_000  # a full minute


def write_events(spark: SparkSession, table: Path, rows: int, keys: int, commits: int = COMMITS) -> None:
    """Write `commits` commits of two files each; version 0 is an empty table, so `start: {version: 1}` reads all."""
    for place in range(commits):
        first, last = rows * place // commits, rows * (place + 1) // commits
        events = spark.range(first, last, 1, 2).selectExpr(
            f"timestamp_millis({BEGIN_MS} + id * {MINUTES * 60_000} DIV {rows}"
            f" - pmod(xxhash64(id), {DISORDER * 1000})) AS ts",
            f"CAST(pmod(xxhash64(id, 1), {keys}) AS STRING) AS k",
            "pmod(xxhash64(id, 2), 100000) / 100.0D AS v",
        )
        if place == 0:
            events.limit(0).write.format("delta").save(str(table))
        events.write.format("delta").mode("append").save(str(table))
