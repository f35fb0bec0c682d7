"""A GROUP BY without a window: results by key that every epoch goes on with, kept as partial aggregates.

Each aggregate is split into columns that an epoch's rows give by themselves, a function that merges two of them, and
the result as an expression over the merged ones. So an epoch reads and writes the keys that it touches, and no old row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql import function_names as names
from floodmark.core.sql.bounds import prefix_of, quoted
from floodmark.core.sql.columns import names_column
from floodmark.core.sql.functions import NOT_THERE_YET, closing, is_call
from floodmark.core.sql.lexis import SqlAt, Word
from floodmark.core.sql.shape import Select, Shape, Source
from floodmark.core.sql.window import HINT

TOTALS = "_floodmark_totals"  # the view with the partial aggregates that `final` reads
# Aggregate -> what merges two of its values; each is its own partial.
_MERGED_BY = {
    "sum": "sum", "count": "sum", "count_if": "sum", "min": "min", "max": "max", "any": "bool_or", "bool_or": "bool_or",
    "some": "bool_or", "bool_and": "bool_and", "every": "bool_and", "bit_and": "bit_and", "bit_or": "bit_or",
    "bit_xor": "bit_xor",
}  # fmt: skip
_MEANS = ("avg", "mean")


@dataclass(frozen=True)
class Partial:
    """A column of partial aggregates: its name, the aggregate that gives it, and the one that merges its values."""

    name: str
    sql: str
    merge: str


@dataclass(frozen=True)
class Running:
    """How it folds.

    keys: the columns it groups by. outputs: the names under which the result shows them, in the same order; None for
    one that it does not show. partial: SQL over the streams for keys and partials; final: SQL over such rows, of the
    view TOTALS, for the rule's result. means: SQL over the streams for what is an average in the rule; None without.
    """

    keys: tuple[str, ...]
    outputs: tuple[str | None, ...]
    partials: tuple[Partial, ...]
    partial: str
    final: str
    means: str | None

    @property
    def merged(self) -> str:
        """SQL over the view TOTALS that merges the partials of each key."""
        keys = ", ".join(map(quoted, self.keys))
        merges = "".join(f", {p.merge}({quoted(p.name)}) AS {quoted(p.name)}" for p in self.partials)
        return f"SELECT {keys}{merges}, max(_epoch) AS _epoch FROM {TOTALS} GROUP BY {keys}"  # noqa: S608 - ours


def running_of(shape: Shape, root: Source) -> Running:
    """How the GROUP BY without a window folds. Raises SqlAt for what cannot."""
    grouped = shape.groups[-1]
    _check_alone(shape, grouped, root)
    keys = [_key(shape, grouped, item) for item in grouped.node.args["group"].expressions]
    calls = list(_calls(shape, grouped, {key.name.lower() for key in keys}))
    partials = [partial for call in calls for partial in call.partials]
    means = [call.mean for call in calls if call.mean]
    return Running(
        tuple(key.name for key in keys),
        tuple(_shown(grouped, key) for key in keys),
        tuple(partials),
        _over_streams(shape, grouped, [*_named_keys(keys), *(f"{p.sql} AS {quoted(p.name)}" for p in partials)]),
        _final(shape, grouped, calls),
        _over_streams(shape, grouped, means) if means else None,
    )


def _check_alone(shape: Shape, grouped: Select, root: Source) -> None:
    if root is not grouped:
        problem = f"GROUP BY without a window below or beside another SELECT {NOT_THERE_YET}; {HINT}"
        raise shape.at(("group",), problem, grouped.number)
    if grouped.node.args.get("having") is not None:
        raise shape.at(
            ("having",),
            "HAVING without a window: a key that no longer passes would stay in the sink; give the sink `delete: "
            "CONDITION` instead",
            grouped.number,
        )


def _key(shape: Shape, grouped: Select, item: exp.Expr) -> exp.Column:
    aliases = {i.alias.lower(): i.this for i in grouped.node.expressions if isinstance(i, exp.Alias)}
    hidden = isinstance(item, exp.Column) and not item.table and aliases.get(item.name.lower(), item) != item
    if not isinstance(item, exp.Column) or hidden or not names_column(item, grouped.reads[0].alias):
        problem = (
            f"GROUP BY without a window: expected columns, found {item.sql('spark')}; name the expression in a "
            f"subquery, FROM (SELECT ... AS name), and group by the name. For windows {HINT}"
        )
        raise shape.at(("group",), problem, grouped.number)
    return item


def _shown(grouped: Select, key: exp.Column) -> str | None:
    found = (item for item in grouped.node.expressions if _names(item.unalias(), key))
    return next((item.alias_or_name for item in found), None)


def _names(item: exp.Expr, key: exp.Column) -> bool:
    return (
        isinstance(item, exp.Column) and not isinstance(item.this, exp.Star) and item.name.lower() == key.name.lower()
    )


@dataclass(frozen=True)
class _Call:
    """An aggregate: its place in the text, its partials, and its result over them; `mean`: itself, if an average."""

    start: int
    end: int
    partials: tuple[Partial, ...]
    result: str
    mean: str | None = None


def _calls(shape: Shape, grouped: Select, taken: set[str]) -> Iterator[_Call]:
    words = shape.words
    for i, word in enumerate(words):
        if word.select != grouped.number or word.clause != "select" or not is_call(words, i):
            continue
        if word.name in _MERGED_BY or word.name in _MEANS:
            yield _call(shape, i, taken)
        elif word.name in names.AGGREGATES | names.SORTABLE | names.GROUPING:
            raise _refused(shape, word, "needs all rows of its key")


def _refused(shape: Shape, word: Word, why: str) -> SqlAt:
    known = ", ".join(sorted((*_MERGED_BY, "avg")))
    return word.refuse(
        shape.sql, f"aggregate {word.text} without a window {why}, which {NOT_THERE_YET}; those that go: {known}"
    )


def _call(shape: Shape, i: int, taken: set[str]) -> _Call:
    sql, words = shape.sql, shape.words
    close = closing(words, i + 1)
    argument, end = f"{sql[words[i + 1].end : words[close].start]}\n", words[close].end  # it may end in a comment
    if words[i + 2].name == "distinct":
        raise _refused(shape, words[i], "(DISTINCT) needs all values of its key")
    only = ""
    if close + 2 < len(words) and words[close + 1].name == "filter" and words[close + 2].text == "(":
        end = words[closing(words, close + 2)].end
        only = f" {sql[words[close + 1].start : end]}"
    name = words[i].name
    if name in _MEANS:
        total = Partial(_free("sum", taken), f"sum(CAST({argument} AS DOUBLE)){only}", "sum")
        count = Partial(_free("count", taken), f"count({argument}){only}", "sum")
        mean = f"avg({argument}){only} AS {_free('avg', taken)}"
        return _Call(words[i].start, end, (total, count), f"try_divide(sum({total.name}), sum({count.name}))", mean)
    partial = Partial(_free(name, taken), f"{name}({argument}){only}", _MERGED_BY[name])
    return _Call(words[i].start, end, (partial,), f"{partial.merge}({partial.name})")


def _free(name: str, taken: set[str]) -> str:
    """A column name that no key and no other partial has."""
    number = 0
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"


def _named_keys(keys: Sequence[exp.Column]) -> list[str]:
    return [f"{key.sql('spark', comments=False)} AS {quoted(key.name)}" for key in keys]


def _over_streams(shape: Shape, grouped: Select, columns: Sequence[str]) -> str:
    """The SELECT with other columns in its list."""
    listed, group = _places(shape.words, grouped)
    rest = shape.sql[listed[-1].end : group[-1].end]
    return f"{shape.sql[: prefix_of(shape.words)]} SELECT {', '.join(columns)} {rest}"


def _final(shape: Shape, grouped: Select, calls: Sequence[_Call]) -> str:
    """The SELECT with each aggregate replaced by its result, over rows of partials."""
    listed, group = _places(shape.words, grouped)
    sql, alias = shape.sql, f" AS {quoted(grouped.reads[0].alias)}" if grouped.reads[0].alias else ""
    text, at = "", listed[0].start
    for call in calls:
        text += sql[at : call.start] + call.result
        at = call.end
    return f"{text}{sql[at : listed[-1].end]}\nFROM {TOTALS}{alias} {sql[group[0].start : group[-1].end]}"


def _places(words: Sequence[Word], grouped: Select) -> tuple[list[Word], list[Word]]:
    mine = [word for word in words if word.select == grouped.number]
    return [word for word in mine if word.clause == "select"], [word for word in mine if word.clause == "group"]
