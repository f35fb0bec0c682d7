"""Choose the kind of state that a rule needs."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused
from floodmark.spark.fold.collecting import CollectedRows
from floodmark.spark.fold.fold import Fold, Folded, Moment, StateReader
from floodmark.spark.fold.process.processing import Processed
from floodmark.spark.fold.slices import SlicedWindows
from floodmark.spark.fold.tops import TopRows
from floodmark.spark.fold.totals import RunningTotals
from floodmark.spark.fold.windowrows import WindowRows
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.lookuprows import results_of_rows
from floodmark.spark.read.shape import Shape


def fold_of(rule: Rule, shape: Shape, session: SparkSession) -> Fold:
    """The fold of a rule over streams of this shape."""
    if rule.process is not None:
        return Processed(rule, shape, rule.process)
    if rule.query.running is not None:
        return RunningTotals(rule, shape, rule.query.running, session)
    if rule.query.top is not None:
        return TopRows(rule, shape, rule.query.top)
    if rule.query.collected is not None:
        return CollectedRows(rule, shape, rule.query.collected)
    if not rule.query.windows:
        return Stateless(rule, shape)
    return _sliced(rule, shape, session) or WindowRows(rule, shape, rule.query.windows)


def _sliced(rule: Rule, shape: Shape, session: SparkSession) -> Fold | None:
    """Windows by slices, if these are exact. Raises Refused if not, and the rule requires them."""
    if rule.slices is None:
        return None
    inexact = Stateless(rule, shape).inexact(rule.slices, session)
    if inexact is not None and rule.windows == "slices":
        raise Refused(f"rule {rule.rule}: {inexact}; or remove `windows: slices`")
    return SlicedWindows(rule, shape, rule.slices, session) if inexact is None else None


class Stateless(Fold):
    """Run the SQL over the epoch's rows; no state."""

    is_immediate = True

    @property
    def tables(self) -> dict[str, StructType]:
        return {}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        self.show(batch)
        return Folded(results_of_rows(session, self.rule, at.sql))

    def touched(self, batch: Batch, session: SparkSession, at: Moment) -> DataFrame:
        self.show(batch)
        return results_of_rows(session, self.rule)

    def of_keys(self, batch: Batch, keys: DataFrame, session: SparkSession, at: Moment) -> Folded:
        return self.fold(batch, {}, session, at)

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        raise LookupError(table)
