"""Checks whether a query's result columns have names that a table can have, as far as the text shows them."""

from __future__ import annotations

import re
from collections import Counter

from sqlglot import exp

from floodmark.core.sql.tree.names import why_reserved
from floodmark.core.sql.tree.shape import Select, Shape, Source, Union
from floodmark.core.sql.words.function_names import WINDOWING
from floodmark.core.sql.words.lexis import words_of
from floodmark.errors import SqlAt

# Spark names these by their own text, which contains parentheses or spaces.
_NAMED_BY_TEXT = (exp.Func, exp.Binary, exp.Not, exp.Neg, exp.Between, exp.In, exp.Interval, exp.Window)
_ODD = re.compile(r"[ ,;{}()\n\t=]")


def naming_fault(shape: Shape, source: Source) -> SqlAt | None:
    """The first result column with no name, a name that no table can have, or a duplicate name."""
    select = _outermost(source)
    if select is None:
        return None
    names = [_name(item) for item in select.node.expressions]
    for item, name in zip(select.node.expressions, names, strict=True):
        if name is None and isinstance(item, _NAMED_BY_TEXT):
            return shape.at(_words(item), f"a column of the result without a name: write {_short(item)} AS name",
                            select.number)  # fmt: skip
        if name is not None and (not name or _ODD.search(name)):
            return shape.at((name,), f"a column named {name!r}: expected a name without spaces, parentheses, =, ; or ,",
                            select.number)  # fmt: skip
    doubled = [name for name, count in Counter(name for name in names if name).items() if count > 1]
    if doubled:
        return shape.at(
            (doubled[0],), f"two columns of the result are named {doubled[0]}: name one with AS", select.number
        )
    return None


def reserved_name(sql: str) -> SqlAt | None:
    """The first name in the SQL that Floodmark, Delta or Spark use for a column of their own."""
    for word in words_of(sql):
        why = why_reserved(word.name) if word.kind in ("word", "quoted") else None
        if why is not None:
            return word.refuse(sql, f"expected another name than {word.text}: {why}")
    return None


def names_of(source: Source) -> list[str] | None:
    """The columns of the result, in lower case; None if the text does not show all of them."""
    select = _outermost(source)
    names = [] if select is None else [_name(item) for item in select.node.expressions]
    return None if not names or None in names else [name for name in names if name is not None]


def _outermost(source: Source) -> Select | None:
    """The SELECT that names the result's columns: of a UNION ALL, the first."""
    if isinstance(source, Union):
        return _outermost(source.branches[0])
    return source if isinstance(source, Select) else None


def _name(item: exp.Expr) -> str | None:
    """The item's name in lower case; None for a `*` or if Spark generates the name."""
    if item.is_star:
        return None
    if isinstance(item, exp.Dot):
        return str(item.expression.name).lower()
    if isinstance(item, (exp.Alias, exp.Column)):
        return str(item.alias_or_name).lower()
    return item.name.lower() if isinstance(item, exp.Anonymous) and item.name.lower() in WINDOWING else None


def _words(item: exp.Expr) -> tuple[str, ...]:
    return (item.name.lower(),) if isinstance(item, exp.Anonymous) else (item.key, "select")


def _short(item: exp.Expr) -> str:
    text = item.sql("spark")
    return text if len(text) <= 40 else f"{text[:37]}..."
