"""Windows and joins by their input rows: state holds the rows that results not yet final need.

The rule's own SQL computes the results that become final in the epoch (windows: W before < end <= W after), over state
and new rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from floodmark.core.rules.rule import Rule
from floodmark.core.sql.asof import first_start
from floodmark.core.sql.windows import Spec, needed_from
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.fold.fold import Fold, Folded, Moment, StateReader
from floodmark.spark.fold.fullness import refuse_full
from floodmark.spark.fold.liverows import live_rows
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.lookuprows import NONE, First, moments_of
from floodmark.spark.read.shape import Shape, micros, time_type
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.views import put_view


class WindowRows(Fold):
    def __init__(self, rule: Rule, shape: Shape, windows: tuple[Spec, ...]):
        super().__init__(rule, shape)
        self.windows = windows

    @property
    def tables(self) -> dict[str, StructType]:
        return {name: schema.add("_epoch", LongType()) for name, schema in self._copies().items()}

    def _copies(self) -> dict[str, StructType]:
        return {name: StructType(list(schema.fields)) for name, schema in self.shape.streams.items()}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        if self.rule.max_rows_per_window is not None:
            self._refuse_full(batch, state, at)
        kept = {name: self._state_rows(batch, name, at) for name in state if self._needs_any(batch, name, at)}
        return Folded(self._due(batch, state, session, at), kept)

    def _needs_any(self, batch: Batch, name: str, at: Moment) -> bool:
        """Whether a window not yet final needs a row of this batch; it is enough to check the newest."""
        newest, since = batch.maxima[name], self.needed_from(at.after)
        return newest is not None and (since is None or newest >= since)

    def _state_rows(self, batch: Batch, name: str, at: Moment) -> DataFrame:
        kept = self._needed(name, batch.folded(name), self.needed_from(at.after))
        return kept.selectExpr("*", f"{uncompiled_constant(f'{at.epoch}L', self._column(name))} AS _epoch")

    def _due(
        self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment
    ) -> DataFrame | None:
        low = self._low(batch, at)
        if at.after is None or not any(window.any_becomes_final(low, at.after) for window in self.windows):
            return None
        since = self._since(low)
        for name, reader in state.items():
            rows, kept = batch.folded(name), reader(since)
            if kept is not None:
                rows = rows.unionByName(self._needed(name, at.committed(kept), since).drop("_epoch"))
            put_view(rows.where(self._before(name, self._cut(at.after))), name)
        return session.sql(at.sql(self._sql(low, at.after)))

    def _refuse_full(self, batch: Batch, state: Mapping[str, StateReader], at: Moment) -> None:
        """Raise InputFault if this epoch's rows make a window too large. State has all earlier rows of a window that
        is not final, so the count is complete."""
        first = batch.earliest()
        if first is None:
            return
        since = first_start(self.windows, first)
        for name, reader in state.items():
            rows, kept = batch.folded(name), reader(since)
            if kept is not None:
                rows = rows.unionByName(self._needed(name, at.committed(kept), since).drop("_epoch"))
            refuse_full(self.rule, name, rows, self._column(name), self.windows)

    def _low(self, batch: Batch, at: Moment) -> int | None:
        """The watermark from which results are due: an earlier one if a row changes results that were final."""
        earliest = batch.earliest() if at.before is not None and self.rule.amend_us is not None else None
        return at.before if at.before is None or earliest is None else min(at.before, earliest)

    def _cut(self, after: int) -> int:
        """Rows at or after this event time are in no window that is final at `after`."""
        since = self._since(after) if self._tumbles else None
        return after if since is None else since

    @property
    def _tumbles(self) -> bool:
        """Whether a row is in one window only, the same for every GROUP BY, and affects no other."""
        alone = len(set(self.windows)) == 1 and self.rule.amend_us is None and not self.rule.query.lasts
        return alone and self.windows[0].tumbles

    def _sql(self, before: int | None, after: int) -> str:
        """The rule's SQL over the windows that become final.

        If each row is in one window only, the rows are already those of these windows, and the text is unchanged.
        """
        if self._tumbles:
            return self.rule.query.sql
        return self.rule.query.bounded(before, after, self._instant)

    def _instant(self, moment: int, column: str) -> str:
        return uncompiled_constant(self.instant(moment), column)

    def _before(self, name: str, moment: int) -> str:
        return f"{self._column(name)} < {uncompiled_constant(self.instant(moment), self._column(name))}"

    def _needed(self, name: str, rows: DataFrame, since: int | None) -> DataFrame:
        """The rows from an event time on (None: all)."""
        return rows if since is None else rows.where(f"NOT ({self._before(name, since)})")

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        query = self.rule.query
        if watermark is None or not (query.sessions or query.lasts):
            return self._needed(table, rows[table], self.needed_from(watermark))
        return live_rows(query, table, self._column(table), rows, watermark, self._instant)

    def _column(self, name: str) -> str:
        return quoted(self.time_of(name))

    def needed_from(self, watermark: int | None) -> int | None:
        return self._since(self.rule.late_below(watermark))

    def _since(self, watermark: int | None) -> int | None:
        """An event time before which no result that is not final at `watermark` needs a row."""
        return None if watermark is None or self.rule.query.lasts else needed_from(self.windows, watermark)

    def since(self, batch: Batch, state: Mapping[str, StateReader], at: Moment, exact: bool) -> First:
        low = self._low(batch, at)
        needed = self._since(low)  # of None, the SQL runs over all state, also to compact it
        if needed is not None:
            if at.after is None or not any(window.any_becomes_final(low, at.after) for window in self.windows):
                return NONE
            if not exact:
                return moments_of(self.rule, self.shape, needed, needed)
        first = self._earliest(batch, state, at, needed)
        if first is None:
            return NONE
        start = first_start(self.windows, first)
        return moments_of(self.rule, self.shape, first, start if needed is None else max(start, needed))

    def _earliest(self, batch: Batch, state: Mapping[str, StateReader], at: Moment, since: int | None) -> int | None:
        """The first event time of the rows of the epoch, and of those of state, from a time on (None: of all)."""
        found = [batch.earliest()]
        for name, reader in state.items():
            kept, time = reader(since), self.time_of(name)
            if kept is not None:
                shown = micros(time, time_type(self.rule.streams[name], kept.schema))
                rows = self._needed(name, at.committed(kept), since)
                row = rows.selectExpr(f"min({shown})").head()
                found.append(row[0] if row else None)
        first = min((one for one in found if one is not None), default=None)
        return first if first is None or since is None else max(first, since)

    def time_of(self, table: str) -> str:
        """The event time of the stream whose rows are in the table."""
        time = self.rule.streams[table].event_time
        assert time is not None
        wanted = time.name.lower()
        return next(column for column in self.shape.streams[table].names if column.lower() == wanted)
