"""Running aggregates: an epoch appends what its rows add to each key, and a key's total is the sum of all of that.

So an epoch computes its additions without reading the state, and reads only the keys that it touches, to emit their
results again. A rewrite of the table leaves one row for each key.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import LongType, StructType

from floodmark.core.protocol.records.rows import total
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.state.partials import TOTALS
from floodmark.core.sql.state.running import Running
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import Refused
from floodmark.spark.fold.fold import FEW, Fold, Folded, Moment, StateReader, decimals, shown_keys, touched, typed
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.shape import Shape
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import materialised
from floodmark.spark.session.views import put_view

TABLE = "totals"


class RunningTotals(Fold):
    is_immediate = True

    def __init__(self, rule: Rule, shape: Shape, running: Running, session: SparkSession):
        super().__init__(rule, shape)
        self._running = running
        self._output = self.output_schema(session)
        inexact = self.inexact(running, session)
        if inexact is not None:
            raise Refused(f"rule {rule.rule}: {inexact}")
        self._partials = self.schema_of(running.partial, session)
        self._final = running.merging.sql(decimals(self._partials))

    @property
    def tables(self) -> dict[str, StructType]:
        return {TABLE: StructType(list(self._partials.fields)).add("_epoch", LongType())}

    instead = "Aggregate, or group by, text or a number instead, such as unix_micros(b) - unix_micros(a)"

    def describe_column(self, column: str) -> str:
        return self._running.describe_column(column)

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        if not total(batch.counts).folded:
            return Folded(None)
        added = materialised(self._added(batch, session, at), session)
        new = self._stamped(added, at)
        kept = state[TABLE](None)
        if total(batch.counts).folded <= FEW:  # Spark cannot know the size of what `materialised` returns
            added = F.broadcast(added)
        both = new if kept is None else new.unionByName(touched(at.committed(kept), added, self._running.keys))
        return Folded(self._results(both, session, at), {TABLE: new})

    def _added(self, batch: Batch, session: SparkSession, at: Moment) -> DataFrame:
        """What these rows add to each key."""
        self.show(batch)
        return session.sql(at.sql(self._running.partial))

    def _stamped(self, added: DataFrame, at: Moment) -> DataFrame:
        return added.selectExpr("*", f"{uncompiled_constant(f'{at.epoch}L', quoted(self._running.keys[0]))} AS _epoch")

    def _results(self, totals: DataFrame, session: SparkSession, at: Moment) -> DataFrame:
        put_view(totals, TOTALS)
        return typed(session.sql(at.sql(self._final)), self._output)

    def touched(self, batch: Batch, session: SparkSession, at: Moment) -> DataFrame:
        keys = self.state_keys.items()
        return self._added(batch, session, at).select(*(F.col(quoted(key)).alias(shown) for key, shown in keys))

    @property
    def state_keys(self) -> dict[str, str]:
        return shown_keys(self._running.keys, self._running.outputs)

    def of_keys(self, batch: Batch, keys: DataFrame, session: SparkSession, at: Moment) -> Folded:
        mine = touched(self._added(batch, session, at), keys, self._running.keys)
        new = self._stamped(materialised(mine, session), at)
        return Folded(self._results(new, session, at), {TABLE: new})

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        put_view(rows[table], TOTALS)
        return typed(rows[table].sparkSession.sql(self._running.merged), self.tables[table])
