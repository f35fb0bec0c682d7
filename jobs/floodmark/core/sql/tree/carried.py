"""Tells which columns of a query's result are columns of the one stream that it reads, unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from floodmark.core.sql.tree.columns import names_column
from floodmark.core.sql.tree.shape import Read, Select, Source, Stream


@dataclass(frozen=True)
class Carried:
    """The stream's column in each column of the result, in lower case.

    A row of the stream counts for no result whose carried columns differ from its own. named: None where the query
    computes the column. others: whether any other column of the result is the stream's own, because `*` selects it.
    """

    named: Mapping[str, str | None] = field(default_factory=dict)
    others: bool = False

    def of(self, column: str) -> str | None:
        """The stream's column; None if there is none, or none is known."""
        name = column.lower()
        return self.named.get(name, name if self.others else None)


def carried_by(source: Source) -> Carried:
    """What single rows, or groups of rows, carry: nothing where rows of several streams meet, or rows see others."""
    if isinstance(source, Stream):
        return Carried(others=True)
    if not isinstance(source, Select) or len(source.reads) != 1 or _looks_around(source.node):
        return Carried()
    (read,) = source.reads
    below = carried_by(read.source)
    items = source.node.expressions
    named = {item.alias_or_name.lower(): _below(item.unalias(), read, below) for item in items if not item.is_star}
    stars = [item for item in items if item.is_star]
    if not stars or any(item.find(exp.Identifier) for item in stars):  # of `alias.*` and EXCEPT (...) no more is said
        return Carried(named)
    return Carried({**below.named, **named}, below.others)


def _looks_around(select: exp.Select) -> bool:
    return bool(select.args.get("distinct")) or any(item.find(exp.Window) for item in select.expressions)


def _below(item: exp.Expr, read: Read, below: Carried) -> str | None:
    return below.of(item.name) if names_column(item, read.alias) else None
