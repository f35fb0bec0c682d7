"""Measure the cost of digests: the same rule with them, and with a constant in place of each row's hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

from bench import contenders
from bench.table import Line, Measured
from floodmark.spark.read.digesting import Digesting

AIM = 1.1


def cost(
    spark: SparkSession, tables: dict[str, Path], work: Callable[[], Path], rows: int, repeats: int
) -> Iterator[list[Line]]:
    """Run one epoch over each table, without and with digests in turn. `tables`: by title."""
    for name, table in tables.items():
        without, taken = Measured(), Measured()

        def epoch(table: Path = table) -> float:
            return contenders.floodmark(spark, table, work(), 1)[0]

        epoch()  # the first epoch over a table compiles code that all later ones use
        for _ in range(repeats):
            with _undigested():
                without.take(epoch)
            taken.take(epoch)
        bare = Line.rate_of(f"{name}, rows only counted", without, rows)
        yield [bare, Line.rate_of("  with digests", taken, rows).beside(without, AIM)]


@contextmanager
def _undigested() -> Iterator[None]:
    """Only count rows, which an epoch's balance needs, and read none of their values."""

    def hashed(self: Digesting, frame: DataFrame) -> DataFrame:
        found = "1L" if self.only is None else f"CASE WHEN {self.only} THEN 1L END"
        return frame.selectExpr("*", f"{found} AS {self.column}")

    def measures(self: Digesting) -> list[str]:
        return [f"count({self.column}) AS {self.column}_rows"] + [
            f"max(0L) AS {self.column}_{half}" for half in ("high", "low")
        ]

    with patch.multiple(Digesting, hashed=hashed, measures=measures, _floats={}):
        yield
