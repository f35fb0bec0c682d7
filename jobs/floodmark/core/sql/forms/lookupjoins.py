"""Analyses lookup tables beside streams: a stream's rows look up rows in them and never wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from floodmark.core.sql.forms.joins import Joined, merged, side_of, using
from floodmark.core.sql.forms.window import listed_as, lookups_of, streams_of, window_called
from floodmark.core.sql.tree.columns import Fields
from floodmark.core.sql.tree.shape import Read, Select, Shape
from floodmark.errors import SqlAt

_SIDES = ("inner", "left", "semi", "anti")


def check_joins(shape: Shape, select: Select, looked_up: Sequence[Read]) -> None:
    """Raise SqlAt for a join that would return table rows to which the epoch has no stream row."""
    sides = {read.alias: side_of(read.join) for read in select.reads}
    for read in looked_up:
        if sides[read.alias] not in ("first", *_SIDES):
            raise _refused(shape, select, sides[read.alias], read)
    outer = next((side for side in sides.values() if side not in ("first", "inner")), None)
    if select.reads[0] in looked_up and outer:
        raise _refused(shape, select, outer, select.reads[0])


def _refused(shape: Shape, select: Select, side: str, read: Read) -> SqlAt:
    problem = (
        f"{side.upper()} JOIN with lookup table {read.alias or '(a subquery)'}: every epoch would return the table's "
        "rows again; write FROM stream [LEFT | SEMI | ANTI] JOIN table ON ..."
    )
    return shape.at((side, "join"), problem, select.number)


def beside(joined: Joined, looked_up: Sequence[Read]) -> Joined:
    """The join of the streams, with the tables' columns, which are not known here."""
    shown = [read for read in looked_up if side_of(read.join) not in ("semi", "anti")]
    columns = [*joined.columns, *(Fields(read.alias) for read in shown)]
    for name in (name for read in looked_up for name in using(read.join)):
        columns = merged(columns, name)
    return replace(joined, columns=tuple(columns))


def deciding(select: Select, more: Iterable[exp.Column] = ()) -> frozenset[str]:
    """The lookup tables that may decide which rows a SELECT has, in which groups they are, or the values of `more`.

    A LEFT JOIN keeps every row, so its table decides nothing if WHERE, GROUP BY, the joins of streams after it and
    `more` name only columns of streams. Joins before it cannot name others.
    """
    beside = [read for read in select.reads if not streams_of(read.source) and side_of(read.join) == "left"]
    others = [read for read in select.reads if read not in beside]
    first = next((number for number, read in enumerate(select.reads) if read in beside), len(select.reads))
    shared = {name for read in select.reads[: first + 1] for name in using(read.join)}
    later = [read.join for read in select.reads[first + 1 :] if read in others and read.join is not None]
    own = {read.alias for read in others if read.alias}
    columns = (*_deciding_columns(select), *_joining_columns(later), *more)
    named = all(_is_of(own, shared, column) for column in columns)
    return frozenset().union(*(lookups_of(read.source) for read in (others if named else select.reads)))


def matching(full: Select) -> frozenset[str]:
    """The lookup tables that may decide which rows of a FULL JOIN find a partner: by the rows of its sides, or by the
    values that its ON compares."""
    compared = list(_joining_columns([read.join for read in full.reads if read.join is not None]))
    aliases = {read.alias for read in full.reads}
    found = frozenset[str]()
    for side in full.reads:
        if isinstance(side.source, Select):
            names = {name for column in compared if (name := _name_in(side.alias, aliases, column))}
            structs = {first for column in compared if (first := column.parts[0].name.lower()) in aliases}
            found |= deciding(side.source, _listed(side.source, names, structs))
        else:
            found |= lookups_of(side.source)
    return found


def _name_in(relation: str, relations: set[str], column: exp.Column) -> str | None:
    """The relation's column that this may be; None for a column of another relation."""
    first, *fields = (part.name.lower() for part in column.parts)
    if not fields or first not in relations:
        return first
    return fields[0] if first == relation else None


def _listed(select: Select, names: set[str], structs: set[str]) -> Iterator[exp.Column]:
    """The columns from which the select list makes those of these names.

    An item whose name the text does not show, such as `*`, may have any name that no other item has. structs: names
    of relations; an item with such a name may be a struct that ON reads a field of.
    """
    items = [(_shown_name(item), item) for item in select.node.expressions]
    missing = names - {name for name, _ in items}
    for name, item in items:
        if "*" in names or name in names | structs or (name is None and missing - _excepted(item)):
            yield from _columns_in(item)


def _shown_name(item: exp.Expr) -> str | None:
    """The name of an item of a select list in lower case; None if the text does not show it."""
    node = item.unnest()
    return node.alias_or_name.lower() if isinstance(node, exp.Alias | exp.Column) and not node.is_star else None


def _excepted(item: exp.Expr) -> set[str]:
    """The columns that a `*` leaves out; EXCEPT (s.x) leaves out a field only."""
    star = item.find(exp.Star) if item.is_star else None
    left_out = (star.args.get("except_") or []) if star is not None else []
    return {column.name.lower() for column in left_out if not column.args.get("table")}


def _deciding_columns(select: Select) -> Iterator[exp.Column]:
    """The columns in WHERE and GROUP BY, without the event time in a window call."""
    where, grouped = select.node.args.get("where"), select.node.args.get("group")
    if where is not None:
        yield from _columns_in(where)
    for item in grouped.expressions if grouped is not None else ():
        call = window_called(select, item)
        listed = listed_as(select, item) if isinstance(item, exp.Literal) else item
        for node in call.expressions[1:] if call is not None else [listed or item]:
            yield from _columns_in(node)


def _joining_columns(joins: Sequence[exp.Join]) -> Iterator[exp.Column]:
    """The columns in ON and USING."""
    for join in joins:
        on = join.args.get("on")
        yield from _columns_in(on) if on is not None else ()
        yield from map(exp.column, using(join))


def _columns_in(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression reads: `*` for all columns, and for OVER, whose values depend on how many rows
    there are."""
    for part in node.walk(prune=lambda one: isinstance(one, exp.Column | exp.Star | exp.Window)):
        if isinstance(part, exp.Column):
            yield part
        elif isinstance(part, exp.Star | exp.Window):
            yield exp.column("*")


def _is_of(relations: set[str], shared: set[str], column: exp.Column) -> bool:
    """Whether the text shows that a column is of one of these relations, or one that USING joins of streams."""
    first, *fields = (part.name.lower() for part in column.parts)
    return first in relations if fields else first in shared
