"""Finds columns that the SQL names and no table has."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence

from sqlglot import exp

from floodmark.core.sql.tree.parse import parse, parse_expression
from floodmark.core.sql.words.function_names import COLLECTING, UNITS, WINDOWING
from floodmark.core.sql.words.functions import is_call
from floodmark.core.sql.words.lexis import Word, refuse_at, words_of
from floodmark.errors import SqlAt

# What Spark, or Floodmark, adds by name; windows only where the SQL calls them.
_ADDED = frozenset({"start", "end", "_valid_from", "_valid_to"})
_WINDOWS = WINDOWING | COLLECTING


def unknown_column(sql: str, columns: Collection[str]) -> SqlAt | None:
    """The first column name that is in no table's `columns` and that the SQL does not define.

    The check ignores which relation has which column, so it may miss an error but reports no false one.
    """
    words = words_of(sql)
    tree = parse(sql, words)
    return _first(sql, words, tree, columns, _made(tree))


def unknown_in_expression(sql: str, columns: Collection[str]) -> SqlAt | None:
    """The same for an expression over the rows of one stream."""
    words = words_of(sql)
    return _first(sql, words, parse_expression(sql, words), columns, set())


def _made(tree: exp.Expr) -> set[str]:
    """Names that the SQL itself defines: aliases, relations, and every name inside a lambda."""
    aliases = {node.alias.lower() for node in tree.find_all(exp.Alias, exp.Table, exp.Subquery, exp.CTE) if node.alias}
    tables = {table.name.lower() for table in tree.find_all(exp.Table)}
    inside = {name.name.lower() for node in tree.find_all(exp.Lambda) for name in node.find_all(exp.Identifier)}
    named = {name.name.lower() for node in tree.find_all(exp.TableAlias) for name in node.find_all(exp.Identifier)}
    return aliases | tables | inside | named


def _first(
    sql: str, words: Sequence[Word], tree: exp.Expr, columns: Collection[str], made: Collection[str]
) -> SqlAt | None:
    called = {word.name for i, word in enumerate(words) if word.name in _WINDOWS and is_call(words, i)}
    known = {*map(str.lower, columns), *made, *_ADDED, *called, *UNITS}
    missing = {part.name.lower() for part in _read(tree) if "(" not in part.name} - known
    at = next((word for word in words if word.kind in ("word", "quoted") and word.name in missing), None)
    if at is None:
        return None
    near = difflib.get_close_matches(at.name, list(map(str.lower, columns)), 1)
    hint = f"did you mean {near[0]}? " if near else ""
    return refuse_at(sql, at.start, f"column {at.text}: {hint}expected a column that a table has, found "
                                    f"{', '.join(columns)}")  # fmt: skip


def _read(tree: exp.Expr) -> Iterator[exp.Identifier]:
    """The first part of each column's name: the relation or struct before it, if there is one, else the column."""
    for column in tree.find_all(exp.Column):
        if isinstance(column.parts[0], exp.Identifier):
            yield column.parts[0]
