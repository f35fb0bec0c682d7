"""What both ways to read a table share: its connection, its columns, and whether it is the table that was read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.sources.postgres.offsets import Place
from floodmark.connectors.sources.postgres.options import WrittenPostgres
from floodmark.connectors.sources.postgres.queries import Reading, snapshot_parts
from floodmark.connectors.sources.postgres.server.catalog import Table, table
from floodmark.connectors.sources.postgres.server.database import Database, settings_of
from floodmark.core.text.ddl import Column, delta_name
from floodmark.errors import Refused

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.model import Stream

RESET = "start over with `floodmark reset`"


class TableSource:
    """A table of a database."""

    def __init__(self, name: str, stream: Stream):
        self.name, self.address = name, stream.address
        self._said, self._starts_at = WrittenPostgres.model_validate(stream.options), stream.start

    @property
    def _database(self) -> Database:
        return Database(self._said.connection, settings_of(connection(self._said.connection)))

    @property
    def _about(self) -> str:
        return f"stream {self.name}"

    @contextmanager
    def _asking(self) -> Iterator[tuple[psycopg.Connection[Any], Table]]:
        database = self._database
        with database.connected() as asked:
            yield asked, table(asked, database.about, self._said.table)

    def _place(self, of: Table) -> Place:
        return Place(of.system, of.database, of.oid)

    def _reading(self, asked: psycopg.Connection[Any], of: Table) -> Reading:
        """All columns of the table, and all its rows."""
        return self._readable(of, of.columns, None)

    def _readable(self, of: Table, columns: tuple[Column, ...], where: str | None) -> Reading:
        names = {one.name.lower() for one in columns}
        doubled = next((name for name in self._said.added.values() if name.lower() in names), None)
        if doubled:
            raise Refused(
                f"{self._about}: expected names in `metadata` that no column of {of.title} has, found {doubled}: give "
                "it another name there"
            )
        return Reading(of, columns, self._said.added, where)

    def columns(self) -> dict[str, str]:
        with self._asking() as (asked, of):
            found = (*self._reading(asked, of).columns, *self._said.more_columns())
        return {column.name: delta_name(column.type) for column in found}

    def bytes_a_row(self) -> float | None:
        with self._asking() as (_, of):
            return of.size / of.rows if of.rows and of.size else None

    def typed(self, spark: SparkSession) -> DataFrame:
        from floodmark.connectors.sources.postgres.rows import nothing_of

        with self._asking() as (asked, of):
            return nothing_of(spark, self._reading(asked, of))

    def whole(self, spark: SparkSession) -> DataFrame:
        with self._asking() as (asked, of):
            return self._snapshot_rows(spark, self._reading(asked, of), None, of.storage, {})

    def _snapshot_rows(
        self, spark: SparkSession, reading: Reading, snapshot: str | None, storage: str, same: dict[str, Any]
    ) -> DataFrame:
        from floodmark.connectors.sources.postgres.rows import rows_of

        same = {"change": "insert", "lsn": 0, "seq": 0, "committed": None, **same}
        parts = snapshot_parts(reading, snapshot, storage, spark.sparkContext.defaultParallelism)
        return rows_of(spark, self._database, reading, parts, same)
