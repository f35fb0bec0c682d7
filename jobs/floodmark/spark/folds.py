"""How each kind of state folds, behind one small interface. The rule's own SQL computes every result.

- Stateless: the rows of the epoch through the SQL; nothing is kept.
- WindowRows: the input rows that a window not yet final still needs are kept; the windows that become final in the
  epoch, W before < end <= W after, are computed over kept and new rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

from floodmark.core.rules import Rule
from floodmark.core.sql import WindowSpec
from floodmark.core.windows import any_becomes_final, live_from
from floodmark.errors import Refused
from floodmark.spark.batch import Batch, Shape, instant, time_type


@dataclass(frozen=True)
class Moment:
    """Where an epoch stands: watermarks in microseconds, and the epochs whose state must not be seen."""

    epoch: int
    before: int | None
    after: int | None
    lost: tuple[int, ...]


@dataclass(frozen=True)
class Folded:
    """Output rows (None: no result is due) and, for each state table, the rows to append."""

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
    def fold(self, batch: Batch, state: Mapping[str, DataFrame], session: SparkSession, at: Moment) -> Folded: ...

    @abstractmethod
    def live(self, table: str, watermark: int | None) -> str | None:
        """SQL condition that holds for state rows still needed at `watermark`; None: all of them."""

    def statistics(self, table: str) -> str:
        """Columns of a state table worth file statistics."""
        return "_epoch"

    def output_schema(self, session: SparkSession) -> StructType:
        """Columns that the rule's SQL gives, from empty inputs."""
        for name, schema in self.shape.streams.items():
            session.createDataFrame([], schema).createOrReplaceTempView(name)
        return session.sql(self.rule.sql).schema


class Stateless(Fold):
    @property
    def tables(self) -> dict[str, StructType]:
        return {}

    def fold(self, batch: Batch, state: Mapping[str, DataFrame], session: SparkSession, at: Moment) -> Folded:
        for name in self.shape.streams:
            batch.folded(name).createOrReplaceTempView(name)
        return Folded(session.sql(self.rule.sql))

    def live(self, table: str, watermark: int | None) -> str | None:
        return None


class WindowRows(Fold):
    def __init__(self, rule: Rule, shape: Shape, window: WindowSpec):
        super().__init__(rule, shape)
        self.window = window
        clash = [name for name, schema in shape.streams.items() if "window" in (n.lower() for n in schema.names)]
        if clash:
            raise Refused(f"stream {clash[0]}: a column named `window` cannot be told from the window; rename it")

    @property
    def tables(self) -> dict[str, StructType]:
        return {name: schema.add("_epoch", LongType()) for name, schema in self._copies().items()}

    def _copies(self) -> dict[str, StructType]:
        return {name: StructType(list(schema.fields)) for name, schema in self.shape.streams.items()}

    def statistics(self, table: str) -> str:
        return f"_epoch,`{self._time(table)}`"

    def fold(self, batch: Batch, state: Mapping[str, DataFrame], session: SparkSession, at: Moment) -> Folded:
        return Folded(self._due(batch, state, session, at), {name: self._kept(batch, name, at) for name in state})

    def _kept(self, batch: Batch, name: str, at: Moment) -> DataFrame:
        condition = self.live(name, at.after)
        rows = batch.folded(name)
        kept = rows.where(condition) if condition else rows
        return kept.selectExpr("*", f"CAST({at.epoch} AS BIGINT) AS _epoch")

    def _due(self, batch: Batch, state: Mapping[str, DataFrame], session: SparkSession, at: Moment) -> DataFrame | None:
        if at.after is None or not any_becomes_final(self.window, at.before, at.after):
            return None
        for name, kept in state.items():
            rows = batch.folded(name).unionByName(self._needed(kept, name, at))
            rows.where(f"`{self._time(name)}` < {self._instant(at.after)}").createOrReplaceTempView(name)
        low = None if at.before is None else self._instant(at.before)
        return session.sql(self.rule.query.bounded(low, self._instant(at.after)))

    def _needed(self, kept: DataFrame, name: str, at: Moment) -> DataFrame:
        """State rows of committed epochs that a window after the previous watermark holds."""
        conditions = [f"_epoch < {at.epoch}"]
        if at.lost:
            conditions.append(f"_epoch NOT IN ({', '.join(map(str, at.lost))})")
        live = self.live(name, at.before)
        if live:
            conditions.append(live)
        return kept.where(" AND ".join(conditions)).drop("_epoch")

    def live(self, table: str, watermark: int | None) -> str | None:
        if watermark is None:
            return None
        return f"`{self._time(table)}` >= {self._instant(live_from(self.window, watermark))}"

    def _time(self, name: str) -> str:
        time = self.rule.streams[name].event_time
        assert time is not None
        wanted = time.name.lower()
        return next(column for column in self.shape.streams[name].names if column.lower() == wanted)

    def _instant(self, at: int) -> str:
        kinds = {time_type(self.rule.streams[name], schema) for name, schema in self.shape.streams.items()}
        return instant(at, next(kind for kind in kinds if kind))


def fold_of(rule: Rule, shape: Shape) -> Fold:
    """The planner: which kind of state a rule's SQL needs."""
    window = rule.query.window
    return Stateless(rule, shape) if window is None else WindowRows(rule, shape, window)
