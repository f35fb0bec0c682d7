"""Converts rows of a case to rows of a table: checks every value against its column, reports faults by place."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from floodmark.core.cases.casefile import Row
from floodmark.core.cases.casevalues import text_of_value, value_of
from floodmark.core.text.ddl import Column
from floodmark.core.text.problems import Problems, unknown
from floodmark.core.text.yamltree import Path as At

Texts = tuple[str | None, ...]


def typed(rows: Sequence[Row], columns: Sequence[Column], zone: ZoneInfo, problems: Problems, at: At) -> list[Row]:
    """The rows with all columns of their table, null where one is left out; collects problems of values."""
    by_name = {column.name.lower(): column for column in columns}
    return [_typed(row, by_name, zone, problems, (*at, i)) for i, row in enumerate(rows)]


def _typed(row: Row, columns: dict[str, Column], zone: ZoneInfo, problems: Problems, at: At) -> Row:
    found = {column.name: None for column in columns.values()}
    for name, written in row.items():
        column = columns.get(name.lower())
        if column is None:
            problems.add((*at, name), unknown("column", name, [one.name for one in columns.values()]))
            continue
        try:
            found[column.name] = value_of(column.type, written, zone)
        except ValueError as fault:
            problems.add((*at, name), f"{fault} (the column is {str(column.type).upper()})")
    return found


def named(rows: Sequence[Row], columns: Sequence[Column]) -> list[Column]:
    """The columns that occur in any of the rows, in the table's order."""
    names = {name.lower() for row in rows for name in row}
    return [column for column in columns if column.name.lower() in names]


def texts(rows: Sequence[Row], columns: Sequence[Column], zone: ZoneInfo) -> list[Texts]:
    """For each row, the texts of these columns."""
    return [tuple(text_of_value(column.type, row[column.name], zone) for column in columns) for row in rows]
