"""The interface of all kinds of state, through which an epoch folds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import DecimalType, StructField, StructType

from floodmark.core.rules.rule import Rule
from floodmark.core.sql.state.partials import Aggregated
from floodmark.core.sql.words.clock import at_clock
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.lookuprows import First, first_moments
from floodmark.spark.read.shape import Shape, instant, time_type
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import without_rows
from floodmark.spark.session.views import put_view

# Reads a state table, given an event time (None: any) before which no row is needed. Returns None if it has no rows.
StateReader = Callable[[int | None], DataFrame | None]


@dataclass(frozen=True)
class Moment:
    """An epoch's watermarks and recorded clock, in microseconds, and the `lost` epochs, whose state is not read."""

    epoch: int
    before: int | None
    after: int | None
    lost: tuple[int, ...]
    clock: int

    def sql(self, text: str) -> str:
        """The rule's SQL with the epoch's clock in it."""
        return at_clock(text, self.clock)

    def committed(self, rows: DataFrame) -> DataFrame:
        """The rows of committed epochs in a state table; other attempts at this epoch may have left more."""
        found = rows.where(f"_epoch < {uncompiled_constant(f'{self.epoch}L', '_epoch')}")
        return found.where(f"_epoch NOT IN ({', '.join(map(str, self.lost))})") if self.lost else found


@dataclass(frozen=True)
class Rejected:
    """Rows of one stream, folded in this or an earlier epoch, that the rule's class rejects; with `_reason`."""

    count: int
    rows: DataFrame


@dataclass(frozen=True)
class Folded:
    """Output rows (None: no result is due) and, for each state table that changes, the rows to append.

    `held`: the frame that is persisted for them until the epoch ends. `rejected`: by stream.
    """

    output: DataFrame | None
    changes: dict[str, DataFrame] = field(default_factory=dict)
    held: DataFrame | None = None
    rejected: dict[str, Rejected] = field(default_factory=dict)

    def release(self) -> None:
        if self.held is not None:
            self.held.unpersist()


class Fold(ABC):
    """One kind of state. `tables`: its state tables and their schemas, including `_epoch`."""

    def __init__(self, rule: Rule, shape: Shape):
        self.rule, self.shape = rule, shape

    is_immediate = False  # whether an epoch computes each expression over its own rows: none waits in the state

    @property
    @abstractmethod
    def tables(self) -> dict[str, StructType]: ...

    @abstractmethod
    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded: ...

    @abstractmethod
    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        """The rows of `table` that a later epoch can still need. `rows`: the committed rows of each state table."""

    def touched(self, batch: Batch, session: SparkSession, at: Moment) -> DataFrame:
        """A row for each result that may depend on these rows, with at least the columns that identify it; may repeat.

        Only of rules that are recomputed by key.
        """
        raise LookupError(f"rule {self.rule.rule} is not recomputed by key")

    @property
    def state_keys(self) -> dict[str, str]:
        """The columns of the state table that identify a key, with their names in the result."""
        return {}

    def of_keys(self, batch: Batch, keys: DataFrame, session: SparkSession, at: Moment) -> Folded:
        """The results, and the rows of state, of these keys, as if one epoch had folded all of these rows.

        keys: with the columns of `state_keys`. A rule without state gives all results.
        """
        raise LookupError(f"rule {self.rule.rule} is not recomputed by key")

    instead = "Name in the SQL only other columns of the stream"  # for a column that a state table cannot have

    def describe_column(self, column: str) -> str:
        """What a column of a state table holds, in the rule's terms."""
        return column

    def time_of(self, table: str) -> str | None:
        """The state table's column of event time that `needed_from` applies to."""
        return None

    def needed_from(self, watermark: int | None) -> int | None:
        """Event time in microseconds before which no state row is needed at `watermark`; None: time does not decide."""
        return None

    def since(self, batch: Batch, state: Mapping[str, StateReader], at: Moment, exact: bool) -> First:
        """The first moments of the rows that the SQL reads, for `lookuprows.show`. `exact`: as found in the rows."""
        return first_moments(batch)

    def instant(self, at: int) -> str:
        """SQL for a time in microseconds, in the type of this rule's event times."""
        kinds = {time_type(self.rule.streams[name], schema) for name, schema in self.shape.streams.items()}
        return instant(at, next(kind for kind in kinds if kind))

    def show(self, batch: Batch) -> None:
        """Register each stream's rows of the epoch as a view with the stream's name, for the SQL."""
        for name in self.shape.streams:
            put_view(batch.folded(name), name)

    def inexact(self, aggregated: Aggregated, session: SparkSession) -> str | None:
        """Why partial aggregates of the streams do not give the exact result; None if they do."""
        means, sums = (
            {field.name: field.dataType.simpleString() for field in (self.schema_of(sql, session) if sql else ())}
            for sql in (aggregated.means, aggregated.sums)
        )
        return aggregated.inexact(means, sums, session.conf.get("spark.sql.ansi.enabled") == "true")

    def output_schema(self, session: SparkSession) -> StructType:
        """The output columns of the rule's SQL."""
        return self.schema_of(self.rule.sql, session)

    def schema_of(self, sql: str, session: SparkSession) -> StructType:
        """The output columns of SQL over the streams, computed from empty inputs."""
        for name, schema in self.shape.streams.items():
            put_view(without_rows(session, schema), name)
        found = session.sql(sql).schema
        for name in self.shape.streams:  # otherwise they would be read where an epoch's own views are missing
            session.catalog.dropTempView(name)
        return found


FEW = 200_000  # rows: up to this, broadcasting their keys is cheaper than shuffling all of the state


def touched(state: DataFrame, added: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows of `state` with a key in `added`; null counts as a key."""
    same = [state[quoted(key)].eqNullSafe(added[quoted(key)]) for key in keys]
    return state.join(added, same, "left_semi") if same else state


def shown_keys(keys: Sequence[str], outputs: Sequence[str | None]) -> dict[str, str]:
    """The columns of a key in the state, with the names under which the result shows them."""
    return {key: shown for key, shown in zip(keys, outputs, strict=True) if shown is not None}


def decimals(partials: StructType) -> dict[str, str]:
    """The types of decimal partial aggregates, by name: merging them would change their type."""
    return {field.name: field.dataType.simpleString() for field in partials if isinstance(field.dataType, DecimalType)}


def typed(frame: DataFrame, schema: StructType) -> DataFrame:
    """The same columns cast to the types that they have in batch: sums of decimal sums would widen with every step.

    Columns of the right type are not cast: Spark refuses to cast to a struct or array that it considers non-nullable.
    """
    columns = zip(frame.schema, schema, strict=True)
    return frame.select(*(_typed(found, wanted) for found, wanted in columns))


def _typed(found: StructField, wanted: StructField) -> Column:
    column = F.col(quoted(found.name))
    same = found.dataType.simpleString() == wanted.dataType.simpleString()
    return (column if same else column.cast(wanted.dataType)).alias(wanted.name)
