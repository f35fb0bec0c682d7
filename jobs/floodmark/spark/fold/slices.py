"""Windows by partial aggregates of slices: an epoch appends what its rows add to each key and slice.

Windows that become final are merged from stored slices and the epoch's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from floodmark.core.protocol.records.rows import total
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.slices import Slices
from floodmark.core.sql.state.partials import TOTALS
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.fold.fold import Fold, Folded, Moment, StateReader, decimals, typed
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.shape import Shape
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import materialised
from floodmark.spark.session.views import put_view

TABLE = "slices"


class SlicedWindows(Fold):
    is_immediate = True

    def __init__(self, rule: Rule, shape: Shape, slices: Slices, session: SparkSession):
        super().__init__(rule, shape)
        self._slices = slices
        self._output = self.output_schema(session)
        self._partials = self.schema_of(slices.partial, session)
        self._final = slices.final(decimals(self._partials))

    @property
    def tables(self) -> dict[str, StructType]:
        return {TABLE: StructType(list(self._partials.fields)).add("_epoch", LongType())}

    instead = "Write `windows: rows` into the rule file, or aggregate a number, such as unix_micros(b) - unix_micros(a)"

    def describe_column(self, column: str) -> str:
        return self._slices.describe_column(column)

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        added = self._added(batch, session, at) if total(batch.counts).folded else None
        changes = {}
        if added is not None:
            epoch = f"{uncompiled_constant(f'{at.epoch}L', quoted(self._slices.time))} AS _epoch"
            changes = {TABLE: self._needed(added, at.after).selectExpr("*", epoch)}
        return Folded(self._due(added, state[TABLE], session, at), changes)

    def _added(self, batch: Batch, session: SparkSession, at: Moment) -> DataFrame:
        self.show(batch)
        return materialised(session.sql(at.sql(self._slices.partial)), session)

    def _due(self, added: DataFrame | None, reader: StateReader, session: SparkSession, at: Moment) -> DataFrame | None:
        if at.after is None or not self._slices.spec.any_becomes_final(at.before, at.after):
            return None
        kept = reader(self.needed_from(at.before))
        known = None if kept is None else self._needed(at.committed(kept), at.before).drop("_epoch")
        rows = added if known is None else known if added is None else added.unionByName(known)
        if rows is None:
            return None
        put_view(rows.where(self._before(at.after)), TOTALS)
        final = self._final.bounded(at.before, at.after, self._instant)
        return typed(session.sql(at.sql(final)), self._output)

    def _needed(self, rows: DataFrame, watermark: int | None) -> DataFrame:
        """The slices of windows that are not yet final."""
        since = self.needed_from(watermark)
        return rows if since is None else rows.where(f"NOT ({self._before(since)})")

    def _before(self, moment: int) -> str:
        time = quoted(self._slices.time)
        return f"{time} < {self._instant(moment, time)}"

    def _instant(self, moment: int, column: str) -> str:
        return uncompiled_constant(self.instant(moment), column)

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        put_view(self._needed(rows[table], watermark), TOTALS)
        return typed(rows[table].sparkSession.sql(self._slices.merged), self.tables[table])

    def needed_from(self, watermark: int | None) -> int | None:
        return None if watermark is None else self._slices.spec.needed_from(watermark)

    def time_of(self, table: str) -> str:
        return self._slices.time
