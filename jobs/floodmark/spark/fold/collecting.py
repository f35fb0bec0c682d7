"""Windows of rows: a key's rows are ordered once the watermark has passed them, and held while a window is open.

One state table has the rows that wait for the watermark. The other has each key's rows of open windows, as its newest
epoch left them; a row that is not held says that there are none. An epoch reads and writes only keys with rows that its
watermark passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import BooleanType, LongType, StructType

from floodmark.core.rules.rule import Rule
from floodmark.core.sql.forms.bounds import HIDDEN
from floodmark.core.sql.state.collected import NUMBER, Collected
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import WrongColumn
from floodmark.spark.fold.fold import Fold, Folded, Moment, StateReader, touched
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.shape import Shape
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import materialised, without_rows
from floodmark.spark.session.views import put_view

HELD = "_held"  # whether a row is of an open window
_PLACE, _ENDS = f"{HIDDEN}place", f"{HIDDEN}ends"


class CollectedRows(Fold):
    def __init__(self, rule: Rule, shape: Shape, collected: Collected):
        super().__init__(rule, shape)
        self._how = collected
        self._waiting, self._held = collected.stream, collected.held
        self._columns = shape.streams[collected.stream].names
        _refuse_held(collected.stream, self._columns)

    @property
    def tables(self) -> dict[str, StructType]:
        fields = self.shape.streams[self._how.stream].fields
        waiting, held = StructType([*fields]), StructType([*fields]).add(HELD, BooleanType())
        return {self._waiting: waiting.add("_epoch", LongType()), self._held: held.add("_epoch", LongType())}

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        arrived = self._read(batch.folded(self._how.stream))
        waiting = arrived if at.after is None else arrived.where(f"NOT ({self._before(at.after)})")
        changes = {self._waiting: self._stamped(waiting, at)}
        if at.after is None or at.after == at.before:
            return Folded(None, changes)
        passed = materialised(self._passed(arrived, state, at, at.after), session)
        numbered = materialised(self._numbered(self._with_held(passed, state, at)), session)
        put_view(self._windows(numbered), self._how.stream)
        return Folded(session.sql(at.sql(self._how.final)), {**changes, self._held: self._open_rows(numbered, at)})

    def _read(self, rows: DataFrame) -> DataFrame:
        """The rows that pass the SQL's WHERE."""
        put_view(rows, self._how.stream)
        return rows.sparkSession.sql(self._how.read)

    def _passed(self, arrived: DataFrame, state: Mapping[str, StateReader], at: Moment, after: int) -> DataFrame:
        """The rows that the epoch's watermark passes."""
        rows, waited = arrived, state[self._waiting](at.before)
        if waited is not None:
            still = at.committed(waited).drop("_epoch")
            rows = rows.unionByName(still if at.before is None else still.where(f"NOT ({self._before(at.before)})"))
        return rows.where(self._before(after))

    def _with_held(self, passed: DataFrame, state: Mapping[str, StateReader], at: Moment) -> DataFrame:
        """The same, plus the rows that are held for their keys."""
        held = state[self._held](None)
        if held is None:
            return passed
        newest = self._newest(touched(at.committed(held), passed.select(*map(_column, self._how.keys)), self._how.keys))
        return passed.unionByName(newest.where(HELD).select(*map(_column, self._columns)))

    def _newest(self, held: DataFrame) -> DataFrame:
        """The rows of each key's newest epoch."""
        newest = held.withColumn(_PLACE, F.expr(f"max(_epoch) {self._over()}"))
        return newest.where(f"_epoch = {_PLACE}").drop(_PLACE)

    def _numbered(self, rows: DataFrame) -> DataFrame:
        """The rows in order, with what tells their windows."""
        for columns in self._how.window.steps(self._over, self._order):
            rows = rows.alias(self._how.alias).selectExpr("*", *columns)
        return rows

    def _windows(self, numbered: DataFrame) -> DataFrame:
        """Each row once for every window that it is in, if that is full."""
        rows, time = numbered.selectExpr("*", f"explode({self._how.window.numbers}) AS {NUMBER}"), self._time
        over = self._over("", NUMBER)
        span = f"named_struct('start', min({time}) {over}, 'end', max({time}) {over}) AS {quoted(self._how.name)}"
        return rows.selectExpr(*map(quoted, self._columns), NUMBER, span)

    def _open_rows(self, numbered: DataFrame, at: Moment) -> DataFrame:
        """The rows of windows that are open; of a key without any, one row that is not held."""
        is_open = self._how.window.is_open
        marked = numbered.selectExpr(
            *map(quoted, self._columns),
            f"{is_open} AS {HELD}",
            f"bool_or({is_open}) {self._over()} AS {_ENDS}",
            f"row_number() {self._over(self._order)} AS {_PLACE}",
        )
        left = marked.where(f"{HELD} OR (NOT {_ENDS} AND {_PLACE} = 1)")
        return self._stamped(left.select(*map(_column, [*self._columns, HELD])), at)

    def output_schema(self, session: SparkSession) -> StructType:
        none = self._read(without_rows(session, self.shape.streams[self._how.stream]))
        put_view(self._windows(self._numbered(none)), self._how.stream)
        found = session.sql(self._how.final).schema
        session.catalog.dropTempView(self._how.stream)
        return found

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        if table == self._held:
            return self._newest(rows[table]).where(HELD)
        return rows[table] if watermark is None else rows[table].where(f"NOT ({self._before(watermark)})")

    def needed_from(self, watermark: int | None) -> int | None:
        return watermark

    def time_of(self, table: str) -> str | None:
        return self._time_column if table == self._waiting else None

    @property
    def _time_column(self) -> str:
        time = self.rule.streams[self._how.stream].event_time
        assert time is not None
        return next(column for column in self._columns if column.lower() == time.name.lower())

    @property
    def _time(self) -> str:
        return quoted(self._time_column)

    @property
    def _order(self) -> str:
        return f"ORDER BY {self._time}, struct({', '.join(map(quoted, self._columns))})"

    def _over(self, order: str = "", *more: str) -> str:
        keys = [*map(quoted, self._how.keys), *more]
        parts = f"PARTITION BY {', '.join(keys)} " if keys else ""
        return f"OVER ({parts}{order})"

    def _before(self, moment: int) -> str:
        return f"{self._time} < {uncompiled_constant(self.instant(moment), self._time)}"

    def _stamped(self, rows: DataFrame, at: Moment) -> DataFrame:
        return rows.selectExpr("*", f"{uncompiled_constant(f'{at.epoch}L', self._time)} AS _epoch")


def _refuse_held(stream: str, columns: Sequence[str]) -> None:
    taken = [column for column in columns if column.lower() == HELD]
    if taken:
        raise WrongColumn(
            f"stream {stream}: expected to read no column {taken[0]}, because the state of a window of rows has one "
            "of that name: name the columns that the SQL needs, or rename this one in the table"
        )


def _column(name: str) -> Column:
    return F.col(quoted(name))
