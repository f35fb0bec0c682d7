"""Folds overlapping windows by partial aggregates for each key and slice of time.

A slice is as long as the greatest common divisor of the windows' size and slide, so every window consists of whole
slices. Each row is added to one slice, once, and windows are merged from slices. So a row costs the same, however many
windows it is in.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp

from floodmark.core.sql.forms.relations import grid_root
from floodmark.core.sql.forms.window import window_called
from floodmark.core.sql.query import Query, analyse
from floodmark.core.sql.state.partials import (
    TOTALS,
    Aggregated,
    aggregated,
    calls_of,
    each_once,
    grouping_column,
)
from floodmark.core.sql.tree.parse import parse
from floodmark.core.sql.tree.shape import Select, Shape
from floodmark.core.sql.windows import Grid, GroupSpec
from floodmark.core.sql.words.lexis import words_of

OVERLAPS = 4  # windows per row; from this many on, slices are the default


@dataclass(frozen=True)
class Slices(Aggregated):
    """How the query folds by slices. The first of `keys` is the start of a slice."""

    spec: GroupSpec

    def final(self, types: Mapping[str, str] | None = None) -> Query:
        """The rule's result, over rows of partials; `types`: as in Merging."""
        return analyse(self.merging.sql(types), {TOTALS: self.time})

    @property
    def time(self) -> str:
        """The column with the starts of the slices."""
        return self.keys[0]


def slices_of(sql: str, streams: Mapping[str, str | None], lookups: Collection[str] = ()) -> Slices:
    """How a windowed query folds by slices; arguments as for `analyse`. Raises SqlAt with the reason if it cannot."""
    words = words_of(sql)
    shape = Shape(sql, words, streams, lookups)
    root = grid_root(shape, shape.root(parse(sql, words)))
    if root is None:
        raise shape.at(("select",), "expected one SELECT with GROUP BY window(...) and nothing above it")
    source, spec, grid, relation = root
    if shape.looked_up:
        raise shape.at(("join",), "expected no lookup table, because its rows may have changed when a window ends")
    if relation.uncut or len(source.reads) > 1:
        raise shape.at(("group",), "expected single rows below the GROUP BY, found a JOIN or OVER", source.number)
    _check_windows(shape, source, spec.function)
    call = next(call for item in _items(source) if (call := window_called(source, item)))
    time, keys = call.expressions[0], each_once(_keys(shape, source, call.expressions[0]))
    slice_ = _slice(grid, time.sql("spark"))
    columns = [(key.name, key.sql("spark", comments=False)) for key in keys]
    by = [(time.name, f"{slice_}.start"), *columns]
    found = Slices(**vars(aggregated(shape, source, by, ", ".join((slice_, *(sql for _, sql in columns))))), spec=spec)
    found.final()  # raises for expressions that are valid over the streams only
    return found


def _check_windows(shape: Shape, grouped: Select, column: str) -> None:
    """Refuse the window's own column within an aggregate: among the rows of a slice, Spark has the slice there."""
    for call in calls_of(shape, grouped, set()):
        for before, word in pairwise(shape.words):
            inside = call.start < word.start < call.end
            if inside and word.name == column and before.text != "." and before.name != "as":
                problem = (
                    f"expected no {column} within an aggregate, whose parts are of slices of time, found "
                    f"{word.text}: remove `windows: slices`, and such windows are kept by their rows"
                )
                raise word.refuse(shape.sql, problem)


def _items(grouped: Select) -> list[exp.Expr]:
    items: list[exp.Expr] = grouped.node.args["group"].expressions
    return items


def _keys(shape: Shape, grouped: Select, time: exp.Expr) -> Iterator[exp.Column]:
    for item in _items(grouped):
        if window_called(grouped, item):
            continue
        column = grouping_column(grouped, item)
        if column is None or _is_aliased(grouped, column):
            problem = f"expected columns in GROUP BY next to the window, found {item.sql('spark')}"
            raise shape.at(("group",), problem, grouped.number)
        if column.name.lower() == time.name.lower():
            raise shape.at(("group",), "expected no event time next to the window in GROUP BY", grouped.number)
        yield column


def _is_aliased(grouped: Select, column: exp.Column) -> bool:
    """Whether the list has the column's name for another text, as in `f.k AS k`. Such windows have been kept as rows
    since before running totals could have such keys; another kind of state would need a reset."""
    aliases = {one.alias.lower(): one.this for one in grouped.node.expressions if isinstance(one, exp.Alias)}
    return not column.table and aliases.get(column.name.lower(), column) != column


def _slice(grid: Grid, time: str) -> str:
    length = math.gcd(grid.size_us, grid.slide_us)
    offset = f"'{grid.offset_us % length} microseconds'"
    return f"window({time}, '{length} microseconds', '{length} microseconds', {offset})"
