"""Finds columns beside aggregates that are missing in GROUP BY; Spark would refuse them only once a run has started."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import exp

from floodmark.core.sql.tree.shape import Select, Shape, Stream
from floodmark.core.sql.words.function_names import AGGREGATES, COLLECTING, GROUPING, SORTABLE, UNITS, WINDOWING

_OF_A_GROUP = AGGREGATES | SORTABLE | GROUPING | COLLECTING
# Aggregates with syntax of their own, and lambdas, which have names of their own.
_OWN = (exp.AggFunc, exp.Any, exp.Filter, exp.WithinGroup, exp.Lambda)
_WINDOWS = WINDOWING | COLLECTING


def check_grouped(shape: Shape) -> None:
    """Raise SqlAt for the first column that is neither grouped nor aggregated."""
    for select in shape.groups:
        other = _ungrouped(select.node)
        if other is not None:
            shown = other.sql("spark")
            raise shape.at(
                (other.name.lower(), other.parts[0].name.lower()),
                f"{shown} is neither in the GROUP BY nor in an aggregate: add it to the GROUP BY, or take one value of "
                f"it, such as max({shown})",
                select.number,
            )
        time = _ungrouped_time(shape, select)
        if time is not None:
            problem = (
                f"* beside GROUP BY: {time}, which is a column of the stream, is not in the GROUP BY; list the columns "
                "that the result needs"
            )
            raise shape.at(("*",), problem, select.number, "select")


def _ungrouped(select: exp.Select) -> exp.Column | None:
    """The first column outside of an aggregate that GROUP BY does not mention.

    Any name that occurs in GROUP BY or is an alias of the list is accepted, so the check may miss an error but reports
    no false one.
    """
    group = select.args["group"]
    named = _WINDOWS | UNITS | _names(group) | {item.alias.lower() for item in select.expressions if item.alias}
    places = [int(node.name) for node in group.expressions if isinstance(node, exp.Literal) and node.name.isdigit()]
    for place, item in enumerate(select.expressions, 1):
        grouped = place in places or (item.alias and item.alias.lower() in _names(group))
        for column in () if grouped else outside_aggregates(item):
            if not named & {part.name.lower() for part in column.parts}:
                return column
    return None


def _ungrouped_time(shape: Shape, select: Select) -> str | None:
    """An event time that a `*` of the list stands for, and that GROUP BY does not mention."""
    items = (item for item in select.node.args["group"].expressions if not isinstance(item, exp.Func))
    known = set[str]().union(*map(_names, items))
    for star in (item for item in select.node.expressions if item.is_star):
        hidden = {name.name.lower() for node in star.find_all(exp.Star) for name in _excepted(node)}
        for time in _times_in(shape, select, star):
            if time.lower() not in known | hidden:
                return time
    return None


def _times_in(shape: Shape, select: Select, star: exp.Expr) -> Iterator[str]:
    """The event times of the streams for whose columns `*`, or `stream.*`, stands."""
    relation = [part.name.lower() for part in star.parts[:-1]] if isinstance(star, exp.Column) else []
    for read in select.reads:
        joined = read.join is None or (read.join.args.get("kind") or "").upper() not in ("SEMI", "ANTI")
        time = shape.declared[read.source.name] if isinstance(read.source, Stream) and joined else None
        if time and relation in ([], [read.alias]):
            yield time


def _excepted(star: exp.Star) -> list[exp.Expr]:
    return star.args.get("except_") or []


def _function(node: exp.Func) -> str:
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def _names(group: exp.Expr) -> set[str]:
    return {part.name.lower() for column in group.find_all(exp.Column) for part in column.parts}


def outside_aggregates(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns of an expression that are outside of aggregates."""
    if isinstance(node, exp.Star) or _aggregates(node):
        return
    if isinstance(node, exp.Column):
        if not isinstance(node.this, exp.Star):
            yield node
        return
    for child in node.iter_expressions():
        yield from outside_aggregates(child)


def has_star_outside(node: exp.Expr, relations: Collection[str]) -> bool:
    """Whether a `*` outside of aggregates stands for columns of these relations; that of a struct has its fields."""
    if _aggregates(node):
        return False
    if isinstance(node, exp.Column):
        of_relation = not node.args.get("db") and node.table.lower() in relations
        return isinstance(node.this, exp.Star) and of_relation
    return isinstance(node, exp.Star) or any(has_star_outside(child, relations) for child in node.iter_expressions())


def _aggregates(node: exp.Expr) -> bool:
    return isinstance(node, _OWN) or (isinstance(node, exp.Func) and _function(node) in _OF_A_GROUP)
