"""Replace an interval of a Delta table, or all its rows, under an app transaction, through Delta's own transaction.

1. FIND    the table's files, as the transaction sees it, that hold rows of the interval. Only files whose statistics
           allow such rows are read.
2. WRITE   the new rows, and the other rows of these files again.
3. COMMIT  added files, removed files and the app's version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.protocol.records.backfills import Gaps
from floodmark.core.rules.sinks.upserts import Effect
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.delta.keybounds import Bound
from floodmark.spark.read.shape import instant
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.merging.keyed import of_file
from floodmark.spark.write.rewriting import LiveFile, Rewriting, name_of, rows_of

FILE = "_floodmark_file"  # beside a table's columns: the file that holds a row


@dataclass(frozen=True)
class Span:
    """The rows whose `column`, of type `kind`, has a value in [low, high), and in none of the gaps; microseconds."""

    column: str
    kind: str
    low: int
    high: int
    gaps: Gaps = ()

    @property
    def holds(self) -> str:
        """SQL that is true for these rows and false for all others."""
        outside = (f" AND NOT ({self._within(low, high)})" for low, high in self.gaps)
        return f"coalesce({self._within(self.low, self.high)}{''.join(outside)}, false)"

    def _within(self, low: int, high: int) -> str:
        column = quoted(self.column)
        edges = (uncompiled_constant(instant(at, self.kind), column) for at in (low, high))
        return "{0} >= {1} AND {0} < {2}".format(column, *edges)

    @property
    def bounds(self) -> list[Bound]:
        """What a file's statistics must allow for the file to have such rows."""
        return [Bound(self.column, self.kind, self.low, self.high - 1)]

    def of(self, table: DataFrame) -> DataFrame:
        """These rows of a table."""
        return table.where(self.holds)

    def others(self, table: DataFrame) -> DataFrame:
        """All other rows of a table."""
        return table.where(f"NOT {self.holds}")


@dataclass(frozen=True)
class OfKeys:
    """The rows with one of these keys: `keys` has the columns of the key alone, each key once. Null counts as a key."""

    keys: DataFrame

    @property
    def bounds(self) -> list[Bound]:
        return []

    def of(self, table: DataFrame) -> DataFrame:
        return self._joined(table, "left_semi")

    def others(self, table: DataFrame) -> DataFrame:
        return self._joined(table, "left_anti")

    def _joined(self, table: DataFrame, how: str) -> DataFrame:
        """Aliases keep apart columns of one table that both sides come from."""
        same = (f"one.{quoted(name)} <=> other.{quoted(name)}" for name in self.keys.columns)
        return table.alias("one").join(self.keys.alias("other"), F.expr(" AND ".join(same)), how)


@dataclass(frozen=True)
class Everything:
    """All rows. `column`: none says which."""

    column: None = None

    @property
    def bounds(self) -> list[Bound]:
        return []

    def of(self, table: DataFrame) -> DataFrame:
        return table

    def others(self, table: DataFrame) -> DataFrame:
        return table.limit(0)


Part = Span | OfKeys | Everything  # of a table: what is replaced


class Replacing(Rewriting):
    """A transaction on the table at `address`, started at the newest version, that replaces the rows of `span`."""

    def __init__(self, session: SparkSession, address: str, app: str, span: Part):
        super().__init__(session, address, app)
        self._span = span

    def write(self, frame: DataFrame) -> int:
        """Write the files that change; returns the number of new rows. Materialise `frame`: it is computed twice."""
        rows = self.compute(frame)
        files = self._files_within(self._span.bounds)
        inside = self._inside(files)
        touched = [file for file in files if name_of(file) in inside]
        self.effect = self._rewritten(frame, touched, Effect(rows, inserted=rows, deleted=sum(inside.values())))
        return rows

    def compute(self, frame: DataFrame) -> int:
        """Compute the digest of the new rows, without writing; returns their number."""
        self.results = self._digesting(frame).of(frame)
        return self.results.rows

    def _inside(self, files: Sequence[LiveFile]) -> dict[str, int]:
        """How many rows of the interval each file has, by name; files without any are left out."""
        if not files:
            return {}
        table = self._table(files)
        rows = self._span.of(table.withColumn(FILE, of_file(table, "file_name"))).select(F.col(FILE).alias("file"))
        return {row["file"]: row["count"] for row in rows.groupBy("file").count().collect()}

    def _rewritten(self, frame: DataFrame, touched: Sequence[LiveFile], effect: Effect) -> Effect:
        """Write the new rows, and the remaining rows of the files that lose rows; these files are removed."""
        after = frame  # in place of everything, it may lack a column: a class's state keeps one that an edit dropped
        if touched and not isinstance(self._span, Everything):
            after = self._span.others(self._table(touched)).unionByName(frame)
        written = super().write(after.coalesce(files_for(effect.inserted + sum(map(rows_of, touched)))))
        self._files = self._files.concat(self._removed(touched))
        return effect.with_written(written)


class ReplacingAll(Rewriting):
    """A transaction on the table at `address`, started at the newest version, that replaces all of its rows."""

    def write(self, frame: DataFrame) -> int:
        """Write the new rows, and remove all existing files. Returns the number of new rows."""
        gone = self._files_within([])
        rows = super().write(frame)
        self._files = self._files.concat(self._removed(gone))
        self.effect = Effect(rows, inserted=rows, deleted=sum(map(rows_of, gone)))
        return rows
