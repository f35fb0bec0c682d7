"""Folds a GROUP BY without a window: every epoch updates the results by key, from partial aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.forms.window import HINT
from floodmark.core.sql.state.partials import Aggregated, aggregated, each_once, grouping_column
from floodmark.core.sql.tree.columns import names_column
from floodmark.core.sql.tree.shape import Select, Shape, Source
from floodmark.core.sql.words.functions import NOT_YET


@dataclass(frozen=True)
class Running(Aggregated):
    """How the query folds.

    outputs: the names under which the result shows the keys, in their order; None for a key that it does not show.
    """

    outputs: tuple[str | None, ...]


def running_of(shape: Shape, root: Source) -> Running:
    """How a GROUP BY without a window folds. Raises SqlAt if it cannot."""
    grouped = shape.groups[-1]
    _check_alone(shape, grouped, root)
    grouping = [_key(shape, grouped, item) for item in grouped.node.args["group"].expressions]
    _check_names(shape, grouped, grouping)
    keys = each_once(grouping)
    kept = aggregated(shape, grouped, [(key.name, key.sql("spark", comments=False)) for key in keys])
    return Running(**vars(kept), outputs=tuple(shown_as(grouped, key) for key in keys))


def _check_alone(shape: Shape, grouped: Select, root: Source) -> None:
    if root is not grouped:
        problem = f"GROUP BY without a window below or next to another SELECT {NOT_YET}; {HINT}"
        raise shape.at(("group",), problem, grouped.number)
    if grouped.node.args.get("having") is not None:
        raise shape.at(
            ("having",),
            "HAVING without a window: a key that no longer passes would stay in the sink; give the sink `delete: "
            "CONDITION` instead",
            grouped.number,
        )


def _key(shape: Shape, grouped: Select, item: exp.Expr) -> exp.Column:
    column = grouping_column(grouped, item)
    if column is None:
        problem = (
            f"GROUP BY without a window: expected columns, found {item.sql('spark')}; name the expression in a "
            f"subquery, FROM (SELECT ... AS name), and group by the name. For windows {HINT}"
        )
        raise shape.at(("group",), problem, grouped.number)
    return column


def _check_names(shape: Shape, grouped: Select, keys: Iterable[exp.Column]) -> None:
    """Refuse columns of two relations that have one name: the state has one column for it."""
    found = dict[str, exp.Column]()
    for key in keys:
        relation = _relation_of(grouped, key)
        first = found.setdefault(key.name.lower(), key) if relation else key
        if _relation_of(grouped, first) != relation:
            name, both = key.name.lower(), " and ".join(one.sql("spark", comments=False) for one in (first, key))
            problem = (
                f"GROUP BY without a window: expected one column named {name}, found {both}; name one otherwise in a "
                f"subquery, FROM (SELECT {name} AS name, ...)"
            )
            raise shape.at(("group",), problem, grouped.number)


def _relation_of(grouped: Select, key: exp.Column) -> str:
    """The relation whose column a key is; empty if the text does not tell it.

    A name that USING joins is the first relation's column, also in rows without a partner in a lookup table.
    """
    if key.table:
        return key.table.lower()
    used = {column.name.lower() for read in grouped.reads if read.join for column in read.join.args.get("using") or []}
    return (grouped.reads[0].alias or "the first, without a name") if key.name.lower() in used else ""


def shown_as(grouped: Select, key: exp.Column) -> str | None:
    """The name under which the result shows a grouping column."""
    relations = {read.alias for read in grouped.reads}
    found = (item for item in grouped.node.expressions if _names(item.unalias(), key, relations))
    return next((item.alias_or_name for item in found), None)


def _names(item: exp.Expr, key: exp.Column, relations: Set[str]) -> bool:
    """Whether the item is the key's column: not a struct's field, nor another relation's column, of the same name."""
    if not any(names_column(item, relation) for relation in relations) or item.name.lower() != key.name.lower():
        return False
    item_of, key_of = item.args.get("table"), key.args.get("table")
    return item_of is None or key_of is None or item_of.name.lower() == key_of.name.lower()
