"""Rows of PostgreSQL as a frame: Python workers of Spark read them, some at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from floodmark.connectors.ports.registering import register
from floodmark.connectors.sources.postgres.copying import Wanted, changed, copied
from floodmark.connectors.sources.postgres.decoding.changes import Changes
from floodmark.connectors.sources.postgres.queries import Part, Reading
from floodmark.connectors.sources.postgres.server.database import Database, connect
from floodmark.core.text.ddl import Column, columns_of
from floodmark.errors import RunFailed

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from floodmark.connectors.sources.postgres.offsets import Form

FORMAT = "floodmark_postgres"
JOB, SECRET = "job", "password"  # Spark hides the values of options with such a name from plans and logs


@dataclass(frozen=True)
class Job:
    """columns, added: as of `Wanted`. same: what all rows have, of a table; changes: the fields of `Changes`."""

    connection: str
    columns: tuple[tuple[str, str], ...]
    added: Mapping[str, str]
    parts: tuple[Part, ...]
    same: Mapping[str, Any]
    changes: Mapping[str, Any] | None = None

    def text(self) -> str:
        parts = [[part.query, list(part.before), part.same, part.value, part.kept] for part in self.parts]
        return json.dumps({**vars(self), "columns": list(self.columns), "parts": parts})

    @classmethod
    def parse(cls, text: str) -> Job:
        said = json.loads(text)
        parts = tuple(Part(query, tuple(before), *same) for query, before, *same in said.pop("parts"))
        return cls(parts=parts, columns=tuple((name, kind) for name, kind in said.pop("columns")), **said)

    @property
    def wanted(self) -> Wanted:
        found = (Column(name, columns_of(f"a {kind}")[0].type) for name, kind in self.columns)
        return Wanted(tuple(found), self.added)


def frame_of(spark: SparkSession, job: Job, settings: Mapping[str, str]) -> DataFrame:
    """The job's rows. `settings`: libpq's."""
    register(spark, Rows)
    reader = spark.read.format(FORMAT).option(JOB, job.text()).option(SECRET, json.dumps(dict(settings)))
    return reader.load()


class Rows(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _ddl(Job.parse(self.options[JOB]).wanted)

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(Job.parse(self.options[JOB]), json.loads(self.options[SECRET]))


class _Share(InputPartition):
    def __init__(self, part: Part):
        super().__init__(None)
        self.part = part


class _Reader(DataSourceReader):
    def __init__(self, job: Job, settings: Mapping[str, str]):
        self._job, self._settings = job, settings

    def partitions(self) -> Sequence[InputPartition]:
        return [_Share(part) for part in self._job.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark takes Arrow's batches, although the type of the method it overrides names rows only."""
        assert isinstance(partition, _Share)
        job, part, database = self._job, partition.part, Database(self._job.connection, self._settings)
        with database.explained():
            connection = connect(self._settings)
            try:
                _begin(connection, database.about, part)
                if job.changes is None:
                    yield from copied(connection, part.query, job.wanted, job.same)
                else:
                    yield from changed(connection, part.query, job.wanted, Changes(**job.changes))
                    _check_kept(connection, database.about, part)
            finally:
                connection.close()


def _begin(connection: psycopg.Connection[Any], about: str, part: Part) -> None:
    for one in part.before:
        connection.execute(one.encode())
    found = connection.execute(part.same.encode()).fetchone() if part.same else None
    if found is not None and found[0] != part.value:
        raise RunFailed(
            f"{about}: expected the table as it was when its rows began to be read, found that a statement has written "
            "it anew meanwhile, such as ALTER TABLE, VACUUM FULL, CLUSTER or TRUNCATE. Nothing of it was kept; retry"
        )


def _check_kept(connection: psycopg.Connection[Any], about: str, part: Part) -> None:
    """Raise RunFailed if somebody has taken changes from the slot before they were read."""
    if part.kept is not None and connection.execute(part.kept.encode()).fetchone() is None:
        raise RunFailed(
            f"{about}: expected the replication slot where it was when its changes began to be read, found that "
            "another reader has advanced it meanwhile, or made it anew. Nothing of it was kept; retry"
        )


def rows_of(
    spark: SparkSession, database: Database, reading: Reading, parts: Sequence[Part], same: Mapping[str, Any]
) -> DataFrame:
    """The rows of a table. `same`: what they have beside the table's columns, as a change has it."""
    return frame_of(spark, Job(database.name, reading.spelt, reading.added, tuple(parts), same), database.settings)


def changes_of(
    spark: SparkSession, database: Database, reading: Reading, part: Part, between: tuple[int, int], since: Form
) -> DataFrame:
    """The changes of a table whose transactions were committed `between` two places. since: the form at the first."""
    columns = [column.name for column in reading.columns]
    changes = {
        "oid": reading.table.oid,
        "columns": columns,
        "key": sorted(reading.table.key),
        "since": between[0],
        "upto": between[1],
        "whole": since.has_whole_rows,
        "sure": since.key or [],
    }
    job = Job(database.name, reading.spelt, reading.added, (part,), {}, changes)
    return frame_of(spark, job, database.settings)


def nothing_of(spark: SparkSession, reading: Reading) -> DataFrame:
    return spark.createDataFrame([], _ddl(Wanted(reading.columns, reading.added)))


def _ddl(wanted: Wanted) -> str:
    return ", ".join(f"`{column.name.replace('`', '``')}` {column.type}" for column in wanted.all_columns())
