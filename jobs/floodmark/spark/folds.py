"""How each kind of state folds, behind one small interface. The rule's own SQL computes every result.

- Stateless: the rows of the epoch through the SQL; nothing is kept.
- WindowRows: the input rows that a window not yet final still needs are kept; the windows that become final in the
  epoch, W before < end <= W after, are computed over kept and new rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from floodmark.core.rules import Rule
from floodmark.core.sql import WindowSpec
from floodmark.core.windows import any_becomes_final, needed_from
from floodmark.spark.batch import Batch, Shape, instant, time_type
from floodmark.spark.constants import aside

# Rows of a state table, given an event time (None: any) before which none is needed; None where it holds none.
StateReader = Callable[[int | None], DataFrame | None]


@dataclass(frozen=True)
class Moment:
    """Where an epoch stands: watermarks in microseconds, and the epochs whose state must not be seen."""

    epoch: int
    before: int | None
    after: int | None
    lost: tuple[int, ...]


@dataclass(frozen=True)
class Folded:
    """Output rows (None: no result is due) and, for each state table that gets rows, those to append."""

    output: DataFrame | None
    changes: dict[str, DataFrame] = field(default_factory=dict)


class Fold(ABC):
    """One kind of state. `tables` names its state tables and their schemas, `_epoch` included."""

    def __init__(self, rule: Rule, shape: Shape):
        self.rule, self.shape = rule, shape

    @property
    @abstractmethod
    def tables(self) -> dict[str, StructType]: ...

    @abstractmethod
    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded: ...

    @abstractmethod
    def needed_from(self, watermark: int | None) -> int | None:
        """Event time in microseconds before which no state row is needed at `watermark`; None: all rows are."""

    @abstractmethod
    def time_of(self, table: str) -> str:
        """The column of a state table that holds its rows' event time."""

    def live(self, table: str, watermark: int | None) -> str | None:
        """SQL condition that holds for state rows still needed at `watermark`; None: all of them."""
        since = self.needed_from(watermark)
        return None if since is None else f"`{self.time_of(table)}` >= {self.instant(since)}"

    def instant(self, at: int) -> str:
        """SQL for a time in microseconds, as the event times of this rule's streams have it."""
        kinds = {time_type(self.rule.streams[name], schema) for name, schema in self.shape.streams.items()}
        return instant(at, next(kind for kind in kinds if kind))

    def output_schema(self, session: SparkSession) -> StructType:
        """Columns that the rule's SQL gives, from empty inputs."""
        for name, schema in self.shape.streams.items():
            session.createDataFrame([], schema).createOrReplaceTempView(name)
        found = session.sql(self.rule.sql).schema
        for name in self.shape.streams:  # left there, they would answer where an epoch's own are missing
            session.catalog.dropTempView(name)
        return found


class Stateless(Fold):
    @property
    def tables(self) -> dict[str, StructType]:
        return {}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        for name in self.shape.streams:
            batch.folded(name).createOrReplaceTempView(name)
        return Folded(session.sql(self.rule.sql))

    def needed_from(self, watermark: int | None) -> int | None:
        return None

    def time_of(self, table: str) -> str:
        raise LookupError(table)


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
        condition = self.live(name, at.after)
        rows = batch.folded(name)
        kept = rows.where(condition) if condition else rows
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
        rows = kept.where(f"_epoch < {aside(f'{at.epoch}L', '_epoch')}")
        if at.lost:
            rows = rows.where(f"_epoch NOT IN ({', '.join(map(str, at.lost))})")
        since = self.needed_from(at.before)
        if since is not None:
            rows = rows.where(f"NOT ({self._before(name, since)})")
        return rows.drop("_epoch")

    def _column(self, name: str) -> str:
        return f"`{self.time_of(name)}`"

    def needed_from(self, watermark: int | None) -> int | None:
        return None if watermark is None else needed_from(self.windows, watermark)

    def time_of(self, table: str) -> str:
        time = self.rule.streams[table].event_time
        assert time is not None
        wanted = time.name.lower()
        return next(column for column in self.shape.streams[table].names if column.lower() == wanted)


def fold_of(rule: Rule, shape: Shape) -> Fold:
    """The planner: which kind of state a rule's SQL needs."""
    windows = rule.query.windows
    return WindowRows(rule, shape, windows) if windows else Stateless(rule, shape)
