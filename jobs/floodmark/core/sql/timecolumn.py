"""Finds the result column that shows a result's event time: its window's start or end, or the event time itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.forms.relations import relation_of
from floodmark.core.sql.tree.columns import Column, Meaning, Named, Part, Rest, Start, Time
from floodmark.core.sql.tree.parse import parse
from floodmark.core.sql.tree.shape import Shape
from floodmark.core.sql.windows import Reach
from floodmark.core.sql.words.lexis import words_of

NOWHERE_ELSE = Reach()


@dataclass(frozen=True)
class TimeColumn:
    """A column, in lower case; its value minus `shift` microseconds is the result's event time.

    reach: how far before and after that time the rows lie on which the result depends; of a window, before its start
    and after its end.
    """

    column: str
    shift: int = 0
    reach: Reach = NOWHERE_ELSE


def time_column_of(
    sql: str, streams: Mapping[str, str | None], lookups: Collection[str] = frozenset()
) -> TimeColumn | None:
    """The first such column, preferring a window's start to its end; None if there is none.

    `streams`, `lookups`: as for `analyse`.
    """
    words = words_of(sql)
    shape = Shape(sql, words, streams, lookups)
    columns = relation_of(shape, shape.root(parse(sql, words))).columns
    found = [told for column in columns if (told := _time_column(column)) is not None]
    return min(found, key=lambda told: told.shift, default=None)


def older_time_column(sql: str, streams: Mapping[str, str | None]) -> TimeColumn | None:
    """The same for a text of before, whose lookup tables today's rule may lack: all that it reads beside the streams.

    Raises SqlRefused for SQL that this version does not read.
    """
    tree = parse(sql, words_of(sql))
    defined = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    read = {table.name.lower() for table in tree.find_all(exp.Table)}
    return time_column_of(sql, streams, read - defined)


def _time_column(column: Column) -> TimeColumn | None:
    meaning = column.meaning
    if isinstance(column, Rest):
        shown = column.time is not None and column.time not in column.hidden and isinstance(meaning, Time)
        return TimeColumn(str(column.time), reach=_reach(meaning)) if shown else None
    if not isinstance(column, Named) or column.name is None:
        return None
    if isinstance(meaning, Part) and meaning.shift_us is not None:
        return TimeColumn(column.name, meaning.shift_us, meaning.spec.reach)
    return TimeColumn(column.name, reach=_reach(meaning)) if isinstance(meaning, (Time, Start)) else None


def _reach(time: Meaning) -> Reach:
    return Reach(time.before_us, time.after_us) if isinstance(time, (Time, Start)) else Reach()
