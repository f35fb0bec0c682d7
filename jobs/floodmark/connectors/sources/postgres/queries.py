"""The queries that read rows of a table, one for each task. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.connectors.sources.postgres.server.catalog import NOW, NUMBER, STORAGE, Table
from floodmark.core.text.ddl import Column

PAGE = 8192
LEAST_PAGES = 1024  # of a part that is worth a task of its own
TASKS_A_CORE = 2


@dataclass(frozen=True)
class Part:
    """What one task reads. `before`: statements; `query`: a SELECT. same: a query whose one value has to be `value`, or
    a statement has written the table anew since the parts were made. kept: a query that has a row if the slot still had
    all changes once they were read."""

    query: str
    before: tuple[str, ...] = ()
    same: str | None = None
    value: str = ""
    kept: str | None = None


@dataclass(frozen=True)
class Reading:
    """columns: of the table. added: from what a change has to the name of its column. where: a condition for rows."""

    table: Table
    columns: tuple[Column, ...]
    added: Mapping[str, str]
    where: str | None = None

    @property
    def spelt(self) -> tuple[tuple[str, str], ...]:
        """Names and types, as text."""
        return tuple((column.name, str(column.type)) for column in self.columns)

    def select(self, *conditions: str) -> str:
        found = [f"({one})" for one in (self.where, *conditions) if one]
        tables = identifier(self.table.schema, self.table.name)
        tables += f", {NOW}" if any("floodmark_now" in one for one in found) else ""
        columns = ", ".join(identifier(column.name) for column in self.columns)
        return f"SELECT {columns} FROM {tables} WHERE {' AND '.join(found) or 'true'}"  # noqa: S608 - quoted


def identifier(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def snapshot_parts(reading: Reading, snapshot: str | None, storage: str, cores: int) -> list[Part]:
    """All rows. `snapshot`: an exported one, which several tasks share. storage: of the table before it was taken."""
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    if snapshot is None:
        return [_part(reading.table, reading.select(), storage, begin)]
    shared = f"SET TRANSACTION SNAPSHOT {literal(snapshot)}"
    return [
        _part(reading.table, reading.select(one), storage, begin, shared) for one in page_ranges(reading.table, cores)
    ]


def number_parts(reading: Reading, low: int, high: int, cores: int) -> list[Part]:
    """The rows of transactions with a number from `low` on, and below `high`."""
    of, wanted = reading.table, between_numbers(low, high)
    return [_part(of, reading.select(one, wanted), of.storage, "BEGIN") for one in page_ranges(reading.table, cores)]


def _part(of: Table, query: str, storage: str, *begin: str) -> Part:
    """A part that locks the table against being written anew. Where that has happened before, an older snapshot has no
    rows, and rows are on other pages."""
    locked = f"LOCK TABLE {identifier(of.schema, of.name)} IN ACCESS SHARE MODE"
    same = f"SELECT {STORAGE.format(oid=of.oid)}"
    return Part(query, ("SET row_security = off", *begin, locked), same, storage)


def between_numbers(low: int, high: int) -> str:
    return f"{NUMBER} >= {low} AND {NUMBER} < {high}"


def numbered(of: Table, low: int, high: int) -> str:
    """The query of the numbers (`n`) of rows in between."""
    tables = f"{identifier(of.schema, of.name)}, {NOW}"
    return f"SELECT {NUMBER} AS n FROM {tables} WHERE {between_numbers(low, high)}"  # noqa: S608 - quoted


def count_of(of: Table, low: int, high: int) -> str:
    return f"SELECT count(*) FROM ({numbered(of, low, high)}) t"  # noqa: S608 - quoted


def beyond(of: Table, low: int, high: int, most: int) -> str:
    """The query of the number behind the first `most` rows, if there are more; not of the first number. And how many
    rows have it or a higher one."""
    counts = "n, count(*) OVER (ORDER BY n) AS total, min(n) OVER () AS least"
    counted = f"SELECT {counts} FROM ({numbered(of, low, high)}) t"  # noqa: S608 - quoted
    return f"SELECT min(n), count(*) FROM ({counted}) t WHERE total > {most} AND n > least"  # noqa: S608 - quoted


def distance(of: Table) -> str:
    """The query of the least distance from the number of the next transaction to that of a row, around the wrap."""
    ahead = "(xmin::text::bigint - floodmark_now.x) & 4294967295"
    tables = f"{identifier(of.schema, of.name)}, {NOW}"
    return f"SELECT min({ahead}), max(floodmark_now.x) FROM {tables} WHERE xmin::text::bigint > 2"  # noqa: S608 - quoted


def page_ranges(of: Table, cores: int) -> list[str]:
    """Conditions that split a table by its pages; the last range has no end, because the table may grow."""
    pages = of.size // PAGE if of.kind == "r" else 0
    count = max(1, min(cores * TASKS_A_CORE, pages // LEAST_PAGES))
    bounds = [pages * i // count for i in range(1, count)]
    lows = ["", *(f"ctid >= '({page},0)'" for page in bounds)]
    highs = [*(f"ctid < '({page},0)'" for page in bounds), ""]
    return [" AND ".join(filter(None, pair)) for pair in zip(lows, highs, strict=True)]
