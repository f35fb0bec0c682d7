"""Finds the expressions that a query computes from single rows, so that a row that raises an error can be identified.

They are in every SELECT that reads only one stream: its WHERE, the items of its select list and GROUP BY, and the
arguments of its aggregates. Join keys that are computed from one stream count, too. Expressions that depend on several
rows are excluded: those above an aggregate or an OVER, and those over the rows of a JOIN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.tree.parse import parse
from floodmark.core.sql.tree.shape import Select, Shape, Source, Stream, Union
from floodmark.core.sql.words import function_names as names
from floodmark.core.sql.words.functions import closing, is_call
from floodmark.core.sql.words.lexis import Word, words_of

_OF_SEVERAL = names.AGGREGATES | names.SORTABLE | names.GROUPING
_JOINS = frozenset("join left right full inner cross semi anti natural on".split())
_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}
_NESTED = {"<": 1, ">": -1, ">>": -2, ">>>": -3}  # in a type, such as MAP<STRING, ARRAY<INT>>
_NESTING = ("array", "map", "struct")
Span = tuple[int, int]  # start and end (exclusive), as indexes of words


@dataclass(frozen=True)
class RowCheck:
    """An expression over a row of `stream`.

    place: the clause that contains it. only: the condition under which the query computes it.
    """

    stream: str
    place: str
    sql: str
    only: str | None = None

    @property
    def tested(self) -> str:
        """SQL that raises where the query would; NULL for a row that `only` excludes."""
        return self.sql if self.only is None else f"CASE WHEN {self.only}\nTHEN {self.sql}\nEND"


def row_checks(
    sql: str, streams: Mapping[str, str | None], lookups: Collection[str] = (), unbounded: bool = False
) -> tuple[RowCheck, ...]:
    """The expressions over single rows, each SELECT's WHERE first; arguments as for `analyse`."""
    words = words_of(sql)
    shape = Shape(sql, words, streams, lookups, unbounded)
    selects = {select.number: select for select in _selects(shape.root(parse(sql, words)))}
    return tuple(check for _, select in sorted(selects.items()) for check in _SelectChecks(shape, select).checks())


def _selects(source: Source) -> Iterator[Select]:
    if isinstance(source, Select):
        yield source
    below = source.sources if isinstance(source, Select) else source.branches if isinstance(source, Union) else ()
    for one in below:
        yield from _selects(one)


class _SelectChecks:
    """Finds the row checks of one SELECT."""

    def __init__(self, shape: Shape, select: Select):
        self._sql, self._words, self._select = shape.sql, shape.words, select

    def checks(self) -> Iterator[RowCheck]:
        source = self._select.reads[0].source
        if len(self._select.reads) > 1:
            yield from self._keys()
        elif isinstance(source, Stream):
            yield from self._of_one(source)

    def _keys(self) -> Iterator[RowCheck]:
        """The join keys of streams: sides of the equations that ON combines with AND."""
        streams = {read.alias: read.source.name for read in self._select.reads if isinstance(read.source, Stream)}
        conditions = [read.join.args["on"] for read in self._select.reads if read.join and read.join.args.get("on")]
        for span, condition in zip(self._conditions(), conditions, strict=False):
            parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
            places = list(self._conjuncts(span))
            equations = zip(places, parts, strict=True) if len(places) == len(parts) else ()
            for place, part in equations:
                sides = list(self._split(place, "=", "==", "<=>"))
                if isinstance(part, (exp.EQ, exp.NullSafeEQ)) and len(sides) == 2:
                    for side, node in zip(sides, (part.left, part.right), strict=True):
                        alias = {column.table.lower() for column in node.find_all(exp.Column)}
                        name = streams.get(next(iter(alias))) if len(alias) == 1 else None
                        if name is not None and len(self._of(side)) > 3:  # alias.column cannot raise
                            yield RowCheck(name, "ON", self._text(side, next(iter(alias))))

    def _conditions(self) -> Iterator[Span]:
        """The condition after each ON."""
        clause = self._clause("from")
        assert clause is not None
        own = [i for i in range(*clause) if self._words[i].select == self._select.number]
        starts = [i for i in own if self._words[i].name == "on" and self._words[i].kind == "word"]
        for start in starts:
            ends = (i for i in own if i > start and self._words[i].name in _JOINS and not is_call(self._words, i))
            yield start + 1, next(ends, clause[1])

    def _conjuncts(self, span: Span) -> Iterator[Span]:
        """The parts of a condition between its ANDs; the AND of a BETWEEN is not counted."""
        begun = None
        for start, end in self._split(span, "and"):
            start, begun = begun or start, None
            if self._has((start, end), "between") and not any(self._words[i].name == "and" for i in range(start, end)):
                begun = start
            else:
                yield start, end

    def _of_one(self, source: Stream) -> Iterator[RowCheck]:
        where = self._clause("where")
        only = self._text((where[0] + 1, where[1])) if where else None
        if only is not None:
            yield RowCheck(source.name, "WHERE", only)
        parts = self._grouped() if self._select.grouped else self._listed()
        for place, span, more in (part for part in parts if len(self._of(part[1])) > 1):  # one word cannot raise
            yield RowCheck(source.name, place, self._text(span), _both(only, more))

    def _listed(self) -> Iterator[tuple[str, Span, str | None]]:
        """The items of the select list that depend on one row."""
        for span in self._items():
            if not self._has(span, "over", *names.WINDOWING):
                yield "SELECT", span, None

    def _grouped(self) -> Iterator[tuple[str, Span, str | None]]:
        """Items of the GROUP BY; arguments of the aggregates in list and HAVING; and list items without an aggregate.

        With a HAVING, the last are left out: Spark computes them only for groups that pass it.
        """
        group, having = self._clause("group"), self._clause("having")
        for span in self._split((group[0] + 2, group[1])) if group else ():
            if not self._has(span, *names.WINDOWING, *names.COLLECTING, *names.SETS):
                yield "GROUP BY", span, None
        for span in (*self._items(), *((having,) if having else ())):
            calls = [i for i in range(*span) if is_call(self._words, i) and self._words[i].name in _OF_SEVERAL]
            if not calls and not having and not self._has(span, *names.WINDOWING, *names.COLLECTING):
                yield "SELECT", span, None
            for call in calls:
                yield from self._arguments(call)

    def _arguments(self, call: int) -> Iterator[tuple[str, Span, str | None]]:
        name, end = self._words[call].name, closing(self._words, call + 1)
        only = None
        if end + 2 < len(self._words) and self._words[end + 1].name == "filter" and self._words[end + 2].text == "(":
            condition = end + 4, closing(self._words, end + 2)
            only = self._text(condition)
            yield f"FILTER of {name}", condition, None
        first = call + 2 + (self._words[call + 2].name == "distinct")
        for span in self._split((first, end)):
            yield f"argument of {name}", span, only

    def _items(self) -> Iterator[Span]:
        """The items of the select list, without aliases; a `*` is left out. None where the text does not show them."""
        listed = self._clause("select")
        assert listed is not None
        start = listed[0] + 1 + (self._words[listed[0] + 1].name in ("distinct", "all"))
        spans, nodes = list(self._split((start, listed[1]))), self._select.node.expressions
        for (begin, end), node in zip(spans, nodes, strict=True) if len(spans) == len(nodes) else ():
            if node.is_star:
                continue
            if isinstance(node, exp.Alias):
                end -= 2 if self._words[end - 2].name == "as" else 1
            yield begin, end

    def _clause(self, clause: str) -> Span | None:
        """The words of a clause, with its keyword first; None if the SELECT does not have it."""
        found = [i for i, word in enumerate(self._words) if (word.select, word.clause) == (self._select.number, clause)]
        if found and self._words[found[-1]].text == ";":
            found.pop()
        return (found[0], found[-1] + 1) if found else None

    def _split(self, span: Span, *by: str) -> Iterator[Span]:
        """The parts between separators (commas by default) that are outside of parentheses and types."""
        start, depth, nested = span[0], 0, 0
        for i in range(*span):
            text = self._words[i].text
            depth += _DEPTH.get(text, 0)
            if nested > 0 or self._opens_type(i):
                nested += _NESTED.get(text, 0)
            if self._words[i].name in (by or (",",)) and depth == 0 and nested <= 0:
                yield start, i
                start = i + 1
        if start < span[1]:
            yield start, span[1]

    def _opens_type(self, i: int) -> bool:
        """Whether the `<` of a type begins at word `i`, as in x::MAP<STRING, INT>; elsewhere it compares."""
        before = self._words[max(0, i - 2) : i + 1]
        return len(before) == 3 and (before[0].text, before[2].text) == ("::", "<") and before[1].name in _NESTING

    def _has(self, span: Span, *words: str) -> bool:
        return any(word.name in words for word in self._of(span))

    def _of(self, span: Span) -> Sequence[Word]:
        return self._words[span[0] : span[1]]

    def _text(self, span: Span, relation: str | None = None) -> str:
        """The text of some words, without `relation` as a qualifier of columns (default: the first relation read)."""
        relation = self._select.reads[0].alias if relation is None else relation
        begin, end = self._words[span[0]].start, self._words[span[1] - 1].end
        text, at = "", begin
        for i in range(*span):
            if self._is_qualifier(i, relation):
                text, at = text + self._sql[at : self._words[i].start], self._words[i + 2].start
        return text + self._sql[at:end]

    def _is_qualifier(self, i: int, relation: str) -> bool:
        word = self._words[i]
        follows = i + 2 < len(self._words) and self._words[i + 1].text == "."
        return (
            follows
            and word.kind in ("word", "quoted")
            and word.name == relation
            and (i == 0 or self._words[i - 1].text != ".")
        )


def _both(one: str | None, other: str | None) -> str | None:
    known = [f"({text}\n)" for text in (one, other) if text is not None]
    return " AND ".join(known) or None
