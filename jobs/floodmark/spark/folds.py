"""The planner: which kind of state a rule needs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.core.rules import Rule
from floodmark.spark.batch import Batch, Shape
from floodmark.spark.fold import Fold, Folded, Moment, StateReader
from floodmark.spark.processing import Processed
from floodmark.spark.totals import RunningTotals
from floodmark.spark.windowrows import WindowRows


def fold_of(rule: Rule, shape: Shape, session: SparkSession) -> Fold:
    """The fold of a rule over streams of this shape."""
    if rule.process is not None:
        return Processed(rule, shape, rule.process)
    if rule.query.running is not None:
        return RunningTotals(rule, shape, rule.query.running, session)
    windows = rule.query.windows
    return WindowRows(rule, shape, windows) if windows else Stateless(rule, shape)


class Stateless(Fold):
    """The rows of the epoch through the SQL; nothing is kept."""

    @property
    def tables(self) -> dict[str, StructType]:
        return {}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        for name in self.shape.streams:
            batch.folded(name).createOrReplaceTempView(name)
        return Folded(session.sql(self.rule.sql))

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        raise LookupError(table)
