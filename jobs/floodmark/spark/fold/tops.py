"""The first rows of each key: an epoch appends its candidates, and ranks the keys that it touches again.

A rewrite of the table leaves only the rows that rank first.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import LongType, StructType

from floodmark.core.protocol.records.rows import total
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.state.tops import PLACE, Top
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.fold.fold import FEW, Fold, Folded, Moment, StateReader, shown_keys, touched
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.shape import Shape
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import materialised
from floodmark.spark.session.views import put_view


class TopRows(Fold):
    def __init__(self, rule: Rule, shape: Shape, top: Top):
        super().__init__(rule, shape)
        self._top = top

    @property
    def tables(self) -> dict[str, StructType]:
        columns = list(self.shape.streams[self._top.stream].fields)
        return {self._top.stream: StructType(columns).add("_epoch", LongType())}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        if not total(batch.counts).folded:
            return Folded(None)
        fresh = materialised(self._first(batch.folded(self._top.stream)), session)
        new = _stamped(fresh, at)
        kept = state[self._top.stream](None)
        rows = fresh if kept is None else fresh.unionByName(self._touched(at.committed(kept), fresh, batch))
        return self._folded(rows, new, session, at)

    def _folded(self, rows: DataFrame, new: DataFrame, session: SparkSession, at: Moment) -> Folded:
        put_view(rows, self._top.stream)
        return Folded(session.sql(at.sql(self.rule.query.sql)), {self._top.stream: new})

    def touched(self, batch: Batch, session: SparkSession, at: Moment) -> DataFrame:
        """Each key with each place that a row of it may have."""
        shown = (F.col(quoted(key)).alias(name) for key, name in self.state_keys.items())
        keys = batch.folded(self._top.stream).select(*shown).distinct()
        if self._top.rows == 1 and self._top.place is None:
            return keys
        return keys.select("*", F.explode(F.sequence(F.lit(1), F.lit(self._top.rows))).alias(str(self._top.place)))

    @property
    def state_keys(self) -> dict[str, str]:
        return shown_keys(self._top.keys, self._top.outputs)

    def of_keys(self, batch: Batch, keys: DataFrame, session: SparkSession, at: Moment) -> Folded:
        first = self._first(touched(batch.folded(self._top.stream), keys, self._top.keys))
        rows = materialised(first, session)
        return self._folded(rows, _stamped(rows, at), session, at)

    def _touched(self, state: DataFrame, fresh: DataFrame, batch: Batch) -> DataFrame:
        keys = fresh.select(*(F.col(quoted(key)) for key in self._top.keys))
        few = total(batch.counts).folded <= FEW  # Spark cannot know the size of what `materialised` returns
        return touched(state.drop("_epoch"), F.broadcast(keys) if few else keys, self._top.keys)

    def _first(self, rows: DataFrame) -> DataFrame:
        """The rows that rank first for their key. Columns beside the stream's own remain."""
        put_view(rows, self._top.stream)
        ranked = rows.sparkSession.sql(self._top.ranked)
        return ranked.where(f"{PLACE} <= {self._top.rows}").drop(PLACE)

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        return self._first(rows[table])


def _stamped(rows: DataFrame, at: Moment) -> DataFrame:
    return rows.selectExpr("*", f"{uncompiled_constant(f'{at.epoch}L', quoted(rows.columns[0]))} AS _epoch")
