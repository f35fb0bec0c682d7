"""Measure overlapping windows: windows of an hour that start every minute, compared with ones every hour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench import contenders
from bench.table import Line, Measured

_LIST = "SELECT window.start AS start, k, count(*) AS n, max(v) AS most, avg(v) AS mean FROM events"
TUMBLING = f"{_LIST} GROUP BY window(ts, '1 hour'), k"
HOPPING = f"{_LIST} GROUP BY window(ts, '1 hour', '1 minute'), k"


def hopping(spark: SparkSession, table: Path, fewer: Path, work: Callable[[], Path], repeats: int) -> list[Line]:
    """Each row is in sixty windows. `fewer`: a tenth of the events, for the strategy that copies each row as often."""

    def seconds(events: Path, sql: str, **settings: str) -> float:
        return contenders.floodmark(spark, events, work(), 1, sql=sql, **settings)[0]

    found = {name: Measured() for name in ("tumbling", "hopping", "slices", "rows")}
    seconds(fewer, HOPPING)
    for _ in range(repeats):
        found["tumbling"].add(seconds(table, TUMBLING))
        found["hopping"].add(seconds(table, HOPPING))
        found["slices"].add(seconds(fewer, HOPPING))
        found["rows"].add(seconds(fewer, HOPPING, windows="rows"))
    return [
        Line.of("windows of 1 hour, one every hour", found["tumbling"]),
        Line.of("  one every minute (slices)", found["hopping"]).beside(found["tumbling"], at_most=3.0),
        Line.of("the same over a tenth of the events (slices)", found["slices"]),
        Line.of("  by their rows (windows: rows)", found["rows"]).beside(found["slices"]),
    ]
