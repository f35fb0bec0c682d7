"""Decides whether late rows may amend results: a sink must be able to identify the result of a window and key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sqlglot import exp

from floodmark.core.sql.forms.relations import grid_root
from floodmark.core.sql.forms.window import window_called
from floodmark.core.sql.state.partials import grouping_column
from floodmark.core.sql.state.running import shown_as
from floodmark.core.sql.tree.parse import parse
from floodmark.core.sql.tree.shape import Select, Shape
from floodmark.core.sql.windows import GroupSpec
from floodmark.core.sql.words.lexis import words_of

Shown = tuple[str, str | None]  # a column that the query groups by, and the name under which the result shows it


def amended_of(sql: str, streams: Mapping[str, str | None], lookups: Collection[str] = ()) -> list[Shown]:
    """The columns that identify a result; arguments as for `analyse`.

    Raises SqlAt if late rows cannot amend results.
    """
    words = words_of(sql)
    shape = Shape(sql, words, streams, lookups)
    found = grid_root(shape, shape.root(parse(sql, words)))
    if found is None:
        raise shape.at(("select",), "`late: {amend: ...}`: expected GROUP BY window(...) and nothing above it")
    root, spec, _, relation = found
    if relation.uncut or shape.looked_up:
        raise shape.at(("join", "over"), "`late: {amend: ...}`: expected single rows of streams below the GROUP BY")
    if root.node.args.get("having") is not None:
        problem = "HAVING with `late: {amend: ...}`: a result that no longer passes would stay; give the sink `delete`"
        raise shape.at(("having",), problem, root.number)
    return list(_shown(shape, root, spec))


def _shown(shape: Shape, root: Select, spec: GroupSpec) -> Iterator[Shown]:
    for item in root.node.args["group"].expressions:
        if window_called(root, item):
            yield spec.start, _window_shown(root, spec.function)
            continue
        column = grouping_column(root, item)
        if column is None:
            problem = f"`late: {{amend: ...}}`: expected columns next to the window, found {item.sql('spark')}"
            raise shape.at(("group",), problem, root.number)
        yield column.name, shown_as(root, column)


def _window_shown(root: Select, function: str) -> str | None:
    """The name under which the result shows the window, its start or its end."""
    found = (item for item in root.node.expressions if _identifies_window(item.unalias(), function))
    return next((str(item.alias_or_name) for item in found), None)


def _identifies_window(node: exp.Expr, function: str) -> bool:
    if isinstance(node, exp.Dot):
        return _identifies_window(node.this, function) and node.expression.name.lower() in ("start", "end")
    if isinstance(node, exp.Anonymous):
        return node.name.lower() == function
    named = [part.name.lower() for part in node.parts] if isinstance(node, exp.Column) else []
    return named in ([function], [function, "start"], [function, "end"])
