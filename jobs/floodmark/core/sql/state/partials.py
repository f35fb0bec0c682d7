"""Splits mergeable aggregates into partial aggregates, their merge and the final result.

So an epoch adds the partial aggregates of its own rows and reads partial aggregates, not rows, from the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlglot import exp

from floodmark.core.sql.forms.bounds import prefix_of
from floodmark.core.sql.tree.columns import names_column
from floodmark.core.sql.tree.grouping import has_star_outside, outside_aggregates
from floodmark.core.sql.tree.names import OURS
from floodmark.core.sql.tree.shape import Select, Shape
from floodmark.core.sql.words import function_names as names
from floodmark.core.sql.words.clock import CALLS as CLOCK_CALLS
from floodmark.core.sql.words.functions import NOT_YET, closing, is_call
from floodmark.core.sql.words.lexis import Word, place_of, quoted
from floodmark.core.sql.words.spans import Spans
from floodmark.errors import SqlAt

TOTALS = "_floodmark_totals"  # the view of partial aggregates that `final` reads
_EPOCH = "_epoch"  # the column of the epoch, in rows of partial aggregates
# Aggregate -> the aggregate that merges its values; each is its own partial.
_MERGED_BY = {
    "sum": "sum", "count": "sum", "count_if": "sum", "min": "min", "max": "max", "any": "bool_or", "bool_or": "bool_or",
    "some": "bool_or", "bool_and": "bool_and", "every": "bool_and", "bit_and": "bit_and", "bit_or": "bit_or",
    "bit_xor": "bit_xor",
}  # fmt: skip
_MEANS = ("avg", "mean")
MOST_DIGITS = 28  # of decimals whose sum cannot overflow: a sum adds ten digits, and 38 is the maximum


@dataclass(frozen=True)
class Partial:
    """A column of partial aggregates: its name, the aggregate that computes it, and the one that merges its values."""

    name: str
    sql: str
    merge: str


@dataclass(frozen=True)
class Merging:
    """SQL over rows of partials, as pieces: text, and partials to be replaced by the merge of their values."""

    pieces: tuple[str | Partial, ...]

    def sql(self, types: Mapping[str, str] | None = None) -> str:
        """The SQL; `types` gives partials whose merge has another type (a sum of sums is wider) the type to cast to."""
        return "".join(one if isinstance(one, str) else _merge(one, (types or {}).get(one.name)) for one in self.pieces)


def _merge(partial: Partial, type_: str | None) -> str:
    merged = f"{partial.merge}({partial.name})"
    return merged if type_ is None else f"CAST({merged} AS {type_})"


@dataclass(frozen=True)
class Aggregated:
    """Partial aggregates by key.

    keys: the columns of the key. partial: SQL over the streams for keys and partials. means: SQL over the streams for
    the rule's averages; sums: for one value that each sum adds up; each is None if there are none. places: the line and
    column of the call for each column of these two. merging: the rule's result, over rows of partials.
    """

    keys: tuple[str, ...]
    partials: tuple[Partial, ...]
    partial: str
    means: str | None
    sums: str | None
    places: tuple[tuple[str, int, int], ...]
    merging: Merging

    def describe_column(self, column: str) -> str:
        """The aggregate of the rule's SQL that a column of partial aggregates holds."""
        found = next((one.sql for one in self.partials if one.name == column), column)
        return " ".join(found.split())

    @property
    def merged(self) -> str:
        """SQL over the view TOTALS that merges the partials of each key."""
        keys = ", ".join(map(quoted, self.keys))
        merges = "".join(f", {p.merge}({quoted(p.name)}) AS {quoted(p.name)}" for p in self.partials)
        return f"SELECT {keys}{merges}, max(_epoch) AS _epoch FROM {TOTALS} GROUP BY {keys}"  # noqa: S608 - ours

    def inexact(self, means: Mapping[str, str], sums: Mapping[str, str], ansi: bool) -> str | None:
        """Why the partials do not give the exact result; None if they do. means, sums: the types of their columns."""
        for name, kind in means.items():
            if kind != "double":
                return self._problem(name, _AVERAGES if _digits(kind) else f"avg over {kind.upper()} {_NO_PARTS}")
        for name, kind in sums.items():
            if not ansi and _digits(kind) > MOST_DIGITS:
                return self._problem(name, f"sum over {kind.upper()} {_OVERFLOWS}")
        return None

    def _problem(self, name: str, problem: str) -> str:
        line, column = next(place for known, *place in self.places if known == name)
        return str(SqlAt(problem, line, column))


_AVERAGES = "avg over decimals cannot be merged exactly: write sum(x) and count(x), or avg(CAST(x AS DOUBLE))"
_NO_PARTS = "cannot be merged: take the average of a number"
_OVERFLOWS = (
    "without ANSI (`spark.sql.ansi.enabled`) stays NULL after a partial sum overflows, so it depends on the order of "
    f"rows: write sum(CAST(x AS DECIMAL({MOST_DIGITS}, s))), or turn ANSI on, so that a sum that overflows stops the "
    "run"
)


def _digits(kind: str) -> int:
    """The number of digits of a decimal type; 0 for other types."""
    return int(kind.removeprefix("decimal(").partition(",")[0]) if kind.startswith("decimal(") else 0


@dataclass(frozen=True)
class Call:
    """An aggregate: its place in the text, its partials, and its result over them.

    mean: the call itself, if it is an average. summed: one of the summed values, if it is a sum.
    """

    start: int
    end: int
    partials: tuple[Partial, ...]
    result: tuple[str | Partial, ...]
    mean: str | None = None
    summed: str | None = None

    @property
    def probe(self) -> str | None:
        """The column of `mean` or `summed`."""
        found = self.mean or self.summed
        return found.rpartition(" ")[2] if found else None


def calls_of(shape: Shape, grouped: Select, taken: set[str]) -> Iterator[Call]:
    """The aggregates of a SELECT's list and HAVING; `taken`: names that no partial may have.

    Raises SqlAt for an aggregate whose partials cannot be merged.
    """
    words = shape.words
    for i, word in enumerate(words):
        if word.select != grouped.number or word.clause not in ("select", "having") or not is_call(words, i):
            continue
        if word.name in _MERGED_BY or word.name in _MEANS:
            yield _call(shape, i, taken)
        elif word.name in names.AGGREGATES | names.SORTABLE | names.GROUPING:
            raise _refused(shape, word, "needs all rows of its key")


def _refused(shape: Shape, word: Word, why: str) -> SqlAt:
    known = ", ".join(sorted((*_MERGED_BY, "avg")))
    problem = f"aggregate {word.text} by its parts {why}, which {NOT_YET}; supported: {known}"
    return word.refuse(shape.sql, problem)


def _call(shape: Shape, i: int, taken: set[str]) -> Call:
    sql, words = shape.sql, shape.words
    close = closing(words, i + 1)
    argument, end = f"{sql[words[i + 1].end : words[close].start]}\n", words[close].end  # it may end in a comment
    if words[i + 2].name == "distinct":
        raise _refused(shape, words[i], "(DISTINCT) needs all values of its key")
    if words[i + 2].kind == "word" and words[i + 2].name == "all" and words[i + 3].text not in (")", ",", "."):
        raise words[i + 2].refuse(sql, f"{words[i].text}(ALL ...): leave ALL out, because it is the default")
    only = ""
    if close + 2 < len(words) and words[close + 1].name == "filter" and words[close + 2].text == "(":
        end = words[closing(words, close + 2)].end
        only = f" {sql[words[close + 1].start : end]}"
    _check_clock(shape, i, end)
    name = words[i].name
    if name in _MEANS:
        total = Partial(_free("sum", taken), f"sum(CAST({argument} AS DOUBLE)){only}", "sum")
        count = Partial(_free("count", taken), f"count(CAST({argument} AS DOUBLE)){only}", "sum")
        mean = f"avg({argument}){only} AS {_free('avg', taken)}"
        return Call(words[i].start, end, (total, count), ("try_divide(", total, ", ", count, ")"), mean)
    partial = Partial(_free(name, taken), f"{name}({argument}){only}", _MERGED_BY[name])
    summed = f"max({argument}) AS {partial.name}" if name == "sum" else None
    return Call(words[i].start, end, (partial,), (partial,), summed=summed)


def _check_clock(shape: Shape, i: int, end: int) -> None:
    """Refuse the clock within the aggregate at word `i`: its parts would have the clocks of many epochs."""
    words, sql = shape.words, shape.sql
    inside = (k for k in range(i + 1, len(words)) if words[k].start < end)
    clock = next((words[k] for k in inside if words[k].name in CLOCK_CALLS and is_call(words, k)), None)
    if clock is not None:
        problem = (
            f"{clock.text}() within {words[i].text}(...): each epoch would count its rows by its own clock, and keep "
            "that for ever; compare outside of the aggregate, such as max(x) > current_timestamp(), or group by a "
            "window(...) that is stored as rows"
        )
        raise clock.refuse(sql, problem)


def _free(name: str, taken: set[str]) -> str:
    """A column name that no key and no other partial has."""
    number = 0
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"


def aggregated(shape: Shape, grouped: Select, keys: Sequence[tuple[str, str]], group: str | None = None) -> Aggregated:
    """The partial aggregates of a SELECT with a GROUP BY.

    keys: the columns that the state is grouped by, and their SQL. group: a GROUP BY to use in place of the SELECT's
    own. Raises SqlAt for an aggregate whose partials cannot be merged.
    """
    _check_names(shape, grouped, [name for name, _ in keys])
    calls = list(calls_of(shape, grouped, {name.lower() for name, _ in keys} | _twice(shape, grouped)))
    if calls or group is None:  # slices without aggregates have no other columns than a `*` of the rows has
        _check_stars(shape, grouped)
    partials = tuple(partial for call in calls for partial in call.partials)
    named = [f"{sql} AS {quoted(name)}" for name, sql in keys]
    named += [f"{partial.sql} AS {quoted(partial.name)}" for partial in partials]
    means, sums = [call.mean for call in calls if call.mean], [call.summed for call in calls if call.summed]
    return Aggregated(
        tuple(name for name, _ in keys),
        partials,
        over_streams(shape, grouped, named, group),
        over_streams(shape, grouped, means, group) if means else None,
        over_streams(shape, grouped, sums, group) if sums else None,
        tuple((call.probe, *place_of(shape.sql, call.start)) for call in calls if call.probe),
        over_totals(shape, grouped, calls, {name.lower() for name, _ in keys}),
    )


def _check_names(shape: Shape, grouped: Select, keys: Sequence[str]) -> None:
    """Refuse a name that rows of partials have themselves, which would hide the rule's key or alias."""
    having = grouped.node.args.get("having")
    items = [*grouped.node.expressions, *([having.this] if having is not None else [])]
    read = [column.name for item in items for column in outside_aggregates(item)]
    if _EPOCH in {name.lower() for name in (*keys, *read)}:
        problem = f"a column named {_EPOCH}: partial aggregates have one of that name; give it another name"
        raise shape.at((_EPOCH,), problem, grouped.number)


def _check_stars(shape: Shape, grouped: Select) -> None:
    relations = {read.alias for read in grouped.reads}
    if any(has_star_outside(item, relations) for item in grouped.node.expressions):
        problem = (
            "* beside aggregates by their parts: these parts, Floodmark's own columns, would be among those that it "
            "stands for; list the columns of the GROUP BY"
        )
        raise shape.at(("*",), problem, grouped.number, "select")


def each_once(columns: Iterable[exp.Column]) -> list[exp.Column]:
    """The columns, without those whose name came before in any case of letters."""
    found = dict[str, exp.Column]()
    for column in columns:
        found.setdefault(column.name.lower(), column)
    return list(found.values())


def _twice(shape: Shape, grouped: Select) -> set[str]:
    """The names that occur several times in the select list: an alias among them may be read by another item."""
    listed = Counter(word.name for word in shape.words if (word.select, word.clause) == (grouped.number, "select"))
    return {name for name, often in listed.items() if often > 1}


def grouping_column(grouped: Select, item: exp.Expr) -> exp.Column | None:
    """The input column that an item of the GROUP BY is; None for anything else, including the alias of another."""
    relations = [read.alias for read in grouped.reads]
    if not isinstance(item, exp.Column) or not any(names_column(item, relation) for relation in relations):
        return None
    aliases = {one.alias.lower(): one.this for one in grouped.node.expressions if isinstance(one, exp.Alias)}
    listed = item if item.table else aliases.get(item.name.lower(), item)
    same = any(names_column(listed, relation) for relation in relations) and listed.name.lower() == item.name.lower()
    return item if same else None


def over_streams(shape: Shape, grouped: Select, columns: Sequence[str], group: str | None = None) -> str:
    """The SELECT with other columns in its list, and another GROUP BY if one is given."""
    listed, grouping = clause_of(shape.words, grouped, "select"), clause_of(shape.words, grouped, "group")
    source = shape.sql[listed[-1].end : grouping[0].start]
    by = shape.sql[grouping[0].start : grouping[-1].end] if group is None else f"\nGROUP BY {group}"
    return f"{shape.sql[: prefix_of(shape.words)]} SELECT {', '.join(columns)} {source}{by}"


def over_totals(shape: Shape, grouped: Select, calls: Sequence[Call], keys: Collection[str]) -> Merging:
    """The SELECT with each aggregate replaced by its result, over rows of partials; keys: their names, in lower case.

    These rows are one relation, and keys get its name. That is the name of the first relation that the SELECT reads,
    unless a lambda has an argument of that name, which would hide the relation.
    """
    listed, group = clause_of(shape.words, grouped, "select"), clause_of(shape.words, grouped, "group")
    having = clause_of(shape.words, grouped, "having")
    spans, name = Spans(shape.sql, shape.words), grouped.reads[0].alias or TOTALS
    while name in spans.arguments:
        name = OURS + name
    others = {read.alias for read in grouped.reads} - {name}
    changes = [(call.start, call.end, call.result) for call in calls]
    qualifiers = _qualifiers(shape, grouped, spans, others, {*keys, "*"})
    changes += [(start, end, (f"{quoted(name)}.",)) for start, end in qualifiers]
    columns = _replaced(shape.sql, changes, listed[0].start, listed[-1].end)
    rest = _replaced(shape.sql, changes, group[0].start, (having or group)[-1].end)
    return Merging((*columns, f"\nFROM {TOTALS} AS {quoted(name)} ", *rest))


def _qualifiers(
    shape: Shape, grouped: Select, spans: Spans, relations: Collection[str], keys: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Where a key has the name of one of these relations before it, with the dot."""
    for i, word in enumerate(shape.words):
        own = word.select == grouped.number and word.clause != "from"
        if own and any(spans.is_qualifier(i, one) for one in relations) and shape.words[i + 2].name in keys:
            yield word.start, shape.words[i + 2].start


def _replaced(
    sql: str, changes: Iterable[tuple[int, int, tuple[str | Partial, ...]]], start: int, end: int
) -> Iterator[str | Partial]:
    at = start
    for begin, until, pieces in sorted(changes, key=itemgetter(0)):
        if at <= begin < end:  # what stands within an aggregate goes with it
            yield sql[at:begin]
            yield from pieces
            at = until
    yield sql[at:end]


def clause_of(words: Sequence[Word], select: Select, clause: str) -> list[Word]:
    """The words of one clause of a SELECT; empty if it has none."""
    return [word for word in words if word.select == select.number and word.clause == clause and word.text != ";"]
