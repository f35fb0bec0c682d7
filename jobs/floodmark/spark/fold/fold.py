"""What every kind of state has in common: the small interface through which an epoch folds it."""

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
from floodmark.spark.read.shape import Shape, instant, time_type
from floodmark.spark.session.constants import aside
from floodmark.spark.session.jvm import without_rows

# Rows of a state table, given an event time (None: any) before which none is needed; None where it holds none.
StateReader = Callable[[int | None], DataFrame | None]


@dataclass(frozen=True)
class Moment:
    """Where an epoch stands: watermarks and its recorded clock in microseconds, and epochs whose state is not seen."""

    epoch: int
    before: int | None
    after: int | None
    lost: tuple[int, ...]
    clock: int

    def sql(self, text: str) -> str:
        """SQL of the rule, with the epoch's clock in it."""
        return at_clock(text, self.clock)

    def committed(self, rows: DataFrame) -> DataFrame:
        """Of the rows of a state table those of epochs that are committed; another attempt at this one left others."""
        found = rows.where(f"_epoch < {aside(f'{self.epoch}L', '_epoch')}")
        return found.where(f"_epoch NOT IN ({', '.join(map(str, self.lost))})") if self.lost else found


@dataclass(frozen=True)
class Rejected:
    """Rows of one stream, folded in this epoch or an earlier one, that the rule's class rejects; with `_reason`."""

    count: int
    rows: DataFrame


@dataclass(frozen=True)
class Folded:
    """Output rows (None: no result is due) and, for each state table that gets rows, those to append.

    `held`: what is kept in memory or on disk for them until the epoch has ended. `rejected`: by stream.
    """

    output: DataFrame | None
    changes: dict[str, DataFrame] = field(default_factory=dict)
    held: DataFrame | None = None
    rejected: dict[str, Rejected] = field(default_factory=dict)

    def release(self) -> None:
        if self.held is not None:
            self.held.unpersist()


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
    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        """Of `rows`, the committed ones of each state table, those of `table` that a later epoch can still need."""

    instead = "Name in the SQL only other columns of the stream"  # of a column that no state table can have

    def said(self, column: str) -> str:
        """What a column of a state table holds, in the rule's own words."""
        return column

    def time_of(self, table: str) -> str | None:
        """The column with the event time before which `needed_from` needs none of a state table's rows."""
        return None

    def needed_from(self, watermark: int | None) -> int | None:
        """Event time in microseconds before which no state row is needed at `watermark`; None: not known by time."""
        return None

    def since(self, batch: Batch, at: Moment) -> int | None:
        """An event time before which no row matters to the epoch, in microseconds; None: not known."""
        return batch.earliest()

    def instant(self, at: int) -> str:
        """SQL for a time in microseconds, as the event times of this rule's streams have it."""
        kinds = {time_type(self.rule.streams[name], schema) for name, schema in self.shape.streams.items()}
        return instant(at, next(kind for kind in kinds if kind))

    def show(self, batch: Batch) -> None:
        """Make the epoch's rows of each stream what the SQL reads by the stream's name."""
        for name in self.shape.streams:
            batch.folded(name).createOrReplaceTempView(name)

    def inexact(self, aggregated: Aggregated, session: SparkSession) -> str | None:
        """Why partial aggregates of the streams do not tell the result; None where they do."""
        means, sums = (
            {field.name: field.dataType.simpleString() for field in (self.schema_of(sql, session) if sql else ())}
            for sql in (aggregated.means, aggregated.sums)
        )
        return aggregated.inexact(means, sums, session.conf.get("spark.sql.ansi.enabled") == "true")

    def output_schema(self, session: SparkSession) -> StructType:
        """Columns that the rule's SQL gives."""
        return self.schema_of(self.rule.sql, session)

    def schema_of(self, sql: str, session: SparkSession) -> StructType:
        """Columns that SQL over the streams gives, from empty inputs."""
        for name, schema in self.shape.streams.items():
            without_rows(session, schema).createOrReplaceTempView(name)
        found = session.sql(sql).schema
        for name in self.shape.streams:  # left there, they would answer where an epoch's own are missing
            session.catalog.dropTempView(name)
        return found


FEW = 200_000  # rows: their keys are sent to every task, which is cheaper than to move all of the state


def touched(kept: DataFrame, added: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of `kept` the rows with a key of `added`; null is a key like others."""
    same = [kept[quoted(key)].eqNullSafe(added[quoted(key)]) for key in keys]
    return kept.join(added, same, "left_semi") if same else kept


def decimals(partials: StructType) -> dict[str, str]:
    """The types of the decimals among partial aggregates: those whose merge is of another type."""
    return {field.name: field.dataType.simpleString() for field in partials if isinstance(field.dataType, DecimalType)}


def typed(frame: DataFrame, schema: StructType) -> DataFrame:
    """The same columns in the types that they have in batch: a sum of decimal sums would grow in every step.

    Where they are of these types they stay: Spark does not cast to a struct or array that it takes to be without nulls.
    """
    columns = zip(frame.schema, schema, strict=True)
    return frame.select(*(_typed(found, wanted) for found, wanted in columns))


def _typed(found: StructField, wanted: StructField) -> Column:
    column = F.col(quoted(found.name))
    same = found.dataType.simpleString() == wanted.dataType.simpleString()
    return (column if same else column.cast(wanted.dataType)).alias(wanted.name)
