"""Windows by their input rows: those that a window not yet final still needs are kept.

The windows that become final in the epoch, W before < end <= W after, are computed by the rule's own SQL over kept and
new rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from floodmark.core.rules import Rule
from floodmark.core.sql import WindowSpec
from floodmark.core.windows import any_becomes_final, needed_from
from floodmark.spark.batch import Batch, Shape
from floodmark.spark.constants import aside
from floodmark.spark.fold import Fold, Folded, Moment, StateReader


class WindowRows(Fold):
    def __init__(self, rule: Rule, shape: Shape, windows: tuple[WindowSpec, ...]):
        super().__init__(rule, shape)
        self.windows = windows

    @property
    def tables(self) -> dict[str, StructType]:
        return {name: schema.add("_epoch", LongType()) for name, schema in self._copies().items()}

    def _copies(self) -> dict[str, StructType]:
        return {name: StructType(list(schema.fields)) for name, schema in self.shape.streams.items()}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        kept = {name: self._kept(batch, name, at) for name in state if self._keeps_any(batch, name, at)}
        return Folded(self._due(batch, state, session, at), kept)

    def _keeps_any(self, batch: Batch, name: str, at: Moment) -> bool:
        """Whether a window not yet final needs a row of this batch: if any, then the newest."""
        newest, since = batch.maxima[name], self.needed_from(at.after)
        return newest is not None and (since is None or newest >= since)

    def _kept(self, batch: Batch, name: str, at: Moment) -> DataFrame:
        kept = self.live(name, batch.folded(name), at.after)
        return kept.selectExpr("*", f"{aside(f'{at.epoch}L', self._column(name))} AS _epoch")

    def _due(
        self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment
    ) -> DataFrame | None:
        if at.after is None or not any(any_becomes_final(window, at.before, at.after) for window in self.windows):
            return None
        for name, reader in state.items():
            rows, kept = batch.folded(name), reader(self.needed_from(at.before))
            if kept is not None:
                rows = rows.unionByName(self._committed(kept, name, at))
            rows.where(self._before(name, self._cut(at.after))).createOrReplaceTempView(name)
        return session.sql(self._sql(at.before, at.after))

    def _cut(self, after: int) -> int:
        """Rows at or after this event time are in no window that is final at `after`."""
        return needed_from(self.windows, after) if self._tumbles else after

    @property
    def _tumbles(self) -> bool:
        """Whether a row is in one window only, whichever GROUP BY of the SQL it is for."""
        return len(set(self.windows)) == 1 and self.windows[0].tumbles

    def _sql(self, before: int | None, after: int) -> str:
        """The rule's SQL over the windows that become final.

        Where a row is in one window only the rows are those of these windows, and the text stays as it is.
        """
        if self._tumbles:
            return self.rule.query.sql
        low = None if before is None else aside(self.instant(before), "window.end")
        return self.rule.query.bounded(low, aside(self.instant(after), "window.end"))

    def _before(self, name: str, moment: int) -> str:
        return f"{self._column(name)} < {aside(self.instant(moment), self._column(name))}"

    def _committed(self, kept: DataFrame, name: str, at: Moment) -> DataFrame:
        """State rows of committed epochs that a window after the previous watermark holds."""
        return self.live(name, at.committed(kept), at.before).drop("_epoch")

    def live(self, table: str, rows: DataFrame, watermark: int | None) -> DataFrame:
        since = self.needed_from(watermark)
        return rows if since is None else rows.where(f"NOT ({self._before(table, since)})")

    def _column(self, name: str) -> str:
        return f"`{self.time_of(name)}`"

    def needed_from(self, watermark: int | None) -> int | None:
        return None if watermark is None else needed_from(self.windows, watermark)

    def time_of(self, table: str) -> str:
        """The event time of the stream whose rows the table keeps."""
        time = self.rule.streams[table].event_time
        assert time is not None
        wanted = time.name.lower()
        return next(column for column in self.shape.streams[table].names if column.lower() == wanted)
