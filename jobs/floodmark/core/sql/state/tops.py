"""Folds queries for the first rows of each key in an order of their own; the state holds these rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.forms.bounds import HIDDEN, prefix_of
from floodmark.core.sql.forms.over import check_places, overs_of
from floodmark.core.sql.forms.window import no_calls
from floodmark.core.sql.state.partials import clause_of, each_once
from floodmark.core.sql.tree.columns import names_column
from floodmark.core.sql.tree.shape import Select, Shape, Source, Stream
from floodmark.core.sql.words.functions import closing
from floodmark.errors import SqlAt

PLACE = f"{HIDDEN}place"
FORM = (
    "write SELECT ... FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY x DESC) AS place FROM stream) WHERE "
    "place <= n"
)


@dataclass(frozen=True)
class Top:
    """How the query folds.

    rows: the number of rows per key. keys: columns of `stream`. outputs: the names under which the result shows the
    keys, None for one that it does not show. place: the name under which it shows the position. ranked: SQL over the
    stream for its rows and PLACE, each row's position within its key.
    """

    stream: str
    rows: int
    keys: tuple[str, ...]
    outputs: tuple[str | None, ...]
    place: str | None
    ranked: str

    @property
    def carried(self) -> dict[str, str | None]:
        """The stream's column in each column of the result that shows a key, in lower case."""
        shown = zip(self.outputs, self.keys, strict=True)
        return {output.lower(): key.lower() for output, key in shown if output is not None}


def ranking_of(root: Source, streams: Mapping[str, str | None]) -> Select | None:
    """The SELECT that numbers a stream's rows in an order other than event time; None for other queries."""
    if not isinstance(root, Select) or len(root.reads) != 1 or not isinstance(below := root.sources[0], Select):
        return None
    overs = overs_of(below)
    names_rows = [str(over.this.name).lower() for over in overs] == ["row_number"]
    if not names_rows or [type(source) for source in below.sources] != [Stream] or below.grouped:
        return None
    (stream,) = below.sources
    assert isinstance(stream, Stream)
    return None if _by_event_time(overs[0], below.reads[0].alias, streams[stream.name]) else below


def _by_event_time(over: exp.Window, relation: str, time: str | None) -> bool:
    """Whether it orders by event time, oldest first, or partitions by it; then a row's number is final."""
    order = over.args["order"].expressions[:1] if over.args.get("order") is not None else []
    first = [item for item in order if not item.args.get("desc")]
    named = [*(item.this for item in first), *(over.args.get("partition_by") or [])]
    return any(_names(item, relation, time or "") for item in named)


def top_of(shape: Shape, root: Select, ranking: Select) -> Top:
    """How the query folds. Raises SqlAt if it cannot."""
    over, (stream,) = overs_of(ranking)[0], ranking.sources
    assert isinstance(stream, Stream)
    place = _place(shape, ranking)
    rows = _limit(shape, root, place)
    _check_alone(shape, root, ranking)
    keys = tuple(key.name for key in each_once(_keys(shape, ranking, over)))
    outputs = tuple(_shown(root, key) for key in keys)
    return Top(stream.name, rows, keys, outputs, _shown(root, place), _ranked(shape, ranking))


def _check_alone(shape: Shape, root: Select, ranking: Select) -> None:
    """Refuse what other rows of the result, or the order in which rows arrive, would decide."""
    for arg in ("group", "having", "distinct"):
        if root.node.args.get(arg) or ranking.node.args.get(arg):
            raise shape.at((arg,), f"{arg.upper()} next to the first rows of a key: {FORM}", root.number)
    if overs_of(root):
        problem = (
            "OVER above the first rows of a key: an epoch would compute it over the keys that it touches only; leave "
            "it out, and compute it in a query of the sink"
        )
        raise shape.at(("over",), problem, root.number)
    check_places(shape, ranking)
    no_calls(shape, "the first rows of a key")


def _place(shape: Shape, ranking: Select) -> str:
    named = [item for item in ranking.node.expressions if item.find(exp.Window)]
    if not isinstance(named[0], exp.Alias) or not isinstance(named[0].this, exp.Window):
        raise _at(shape, ranking, "row_number() needs a name of its own")
    return str(named[0].alias).lower()


def _limit(shape: Shape, root: Select, place: str) -> int:
    """How many positions the WHERE keeps, counted from the first."""
    where = root.node.args.get("where")
    found = where.this if where is not None else None
    compared = isinstance(found, exp.LTE | exp.LT | exp.EQ) and _is_count(found.expression)
    if found is None or not compared or not _names(found.this, root.reads[0].alias, place):
        problem = f"expected WHERE {place} <= n, and no other condition, above row_number() by an order of its own"
        raise _at(shape, root, problem)
    rows = int(found.expression.name) - isinstance(found, exp.LT)
    if rows < 1 or (isinstance(found, exp.EQ) and rows != 1):
        raise _at(shape, root, f"expected WHERE {place} <= n (or = 1), found {found.sql('spark')}")
    return rows


def _is_count(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def _names(node: exp.Expr, relation: str, name: str) -> bool:
    """Whether the expression is this column of the relation, not a struct's field of the same name."""
    return names_column(node, relation) and node.name.lower() == name.lower()


def _stars(item: exp.Expr, relation: str, name: str) -> bool:
    """Whether the item is a `*` of the relation's columns that leaves this one in; `struct.*` has fields."""
    if not item.is_star or (isinstance(item, exp.Column) and item.table.lower() != relation):
        return False
    star = item.this if isinstance(item, exp.Column) else item
    return name.lower() not in {column.name.lower() for column in star.args.get("except_") or []}


def _keys(shape: Shape, ranking: Select, over: exp.Window) -> Iterator[exp.Column]:
    """The columns of the PARTITION BY, which the SELECT must pass on unchanged."""
    items, relation = ranking.node.expressions, ranking.reads[0].alias
    aliases = {item.alias.lower(): item.this for item in items if isinstance(item, exp.Alias)}
    for part in over.args.get("partition_by") or []:
        if not names_column(part, relation):
            raise _at(shape, ranking, f"PARTITION BY: expected columns of the stream, found {part.sql('spark')}")
        name = part.name.lower()
        passed = any(_names(item, relation, name) or _stars(item, relation, name) for item in items)
        if not (_names(aliases[name], relation, name) if name in aliases else passed):
            raise _at(shape, ranking, f"PARTITION BY {part.name}: expected {part.name} unchanged in the SELECT list")
        yield part


def _shown(root: Select, name: str) -> str | None:
    """The name under which the result shows a column of the SELECT below."""
    items, relation = root.node.expressions, root.reads[0].alias
    found = next((item for item in items if _names(item.unalias(), relation, name)), None)
    if found is not None:
        return str(found.alias_or_name)
    return name if any(_stars(item, relation, name) for item in items) else None


def _ranked(shape: Shape, ranking: Select) -> str:
    words = shape.words
    overs = (i for i, word in enumerate(words) if word.select == ranking.number and word.name == "over")
    at = next(i for i in overs if words[i].kind == "word" and words[i + 1].text == "(")
    spec = shape.sql[words[at + 1].start : words[closing(words, at + 1)].end]
    source, where = clause_of(words, ranking, "from"), clause_of(words, ranking, "where")
    text = shape.sql[source[0].start : (where or source)[-1].end]
    return f"{shape.sql[: prefix_of(words)]} SELECT *, row_number() OVER {spec} AS {PLACE} {text}"


def _at(shape: Shape, select: Select, problem: str) -> SqlAt:
    return shape.at(("where", "over", "select"), f"{problem}; {FORM}", select.number)
