"""Finds the expressions that a query computes from single rows, so that a row that raises an error can be identified.

They are in every SELECT that reads only one stream: its WHERE, the items of its select list and GROUP BY, and the
arguments of its aggregates. Join keys that are computed from one stream count, too. Expressions that depend on several
rows are excluded: those above an aggregate or an OVER, and those over the rows of a JOIN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import exp

from floodmark.core.sql.forms.joins import conjuncts, side_of, using
from floodmark.core.sql.tree.parse import parse
from floodmark.core.sql.tree.shape import Select, Shape, Source, Stream, Union
from floodmark.core.sql.words import function_names as names
from floodmark.core.sql.words.functions import closing, is_call
from floodmark.core.sql.words.lexis import words_of
from floodmark.core.sql.words.spans import Span, Spans

_OF_SEVERAL = names.AGGREGATES | names.SORTABLE | names.GROUPING
_JOINS = frozenset("join left right full inner cross semi anti natural on".split())
_COMPARING = frozenset(("=", "==", "<", "<=", ">", ">=", "<>", "!=", "between", "in", "like"))  # NULL for a NULL
_AWAITING = frozenset(("on", "and", "or", "not", "("))  # a condition goes on after them
_HOLDING = frozenset(("is", "or", "<=>"))  # may be true beside a comparison that is NULL


@dataclass(frozen=True)
class RowCheck:
    """An expression over a row of `stream`.

    place: the clause that contains it. only: the condition under which the query computes it. guards: conditions of a
    SELECT with a JOIN, by which Spark leaves rows out before it joins them, if the stream alone has their columns. The
    text may not show whether it has. A condition of which Spark may not do so is none of them: a row that it left
    untried would wait in the state, and stop every run.
    """

    stream: str
    place: str
    sql: str
    only: str | None = None
    guards: tuple[str, ...] = ()

    @property
    def tested(self) -> str:
        """SQL that raises where the query would; NULL for a row that `only` excludes."""
        return self.sql if self.only is None else f"CASE WHEN {self.only}\nTHEN {self.sql}\nEND"

    def guarded(self, known: Collection[str]) -> RowCheck:
        """The check of the rows for which those of its guards that are among `known` hold."""
        only = _all(self.only, *(guard for guard in self.guards if guard in known))
        return replace(self, only=only, guards=())


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
        self._words, self._select = shape.words, select
        self._spans = Spans(shape.sql, shape.words)

    def checks(self) -> Iterator[RowCheck]:
        source = self._select.reads[0].source
        if len(self._select.reads) > 1:
            yield from self._keys()
        elif isinstance(source, Stream):
            yield from self._of_one(source)

    def _keys(self) -> Iterator[RowCheck]:
        """The join keys of streams: sides of the equations that ON combines with AND."""
        streams = {
            read.alias: (number, read.source.name)
            for number, read in enumerate(self._select.reads)
            if isinstance(read.source, Stream)
        }
        for number, span in self._conditions.items():
            for side, node in self._sides(number, span):
                alias = set(_relations(node))
                found = streams.get(next(iter(alias))) if len(alias) == 1 else None
                if found is not None and len(self._spans.of(side)) > 3:  # alias.column cannot raise
                    text = self._spans.text(side, next(iter(alias)))
                    if text is not None:
                        yield RowCheck(found[1], "ON", text, guards=tuple(self._guards(found[0])))

    def _sides(self, number: int, span: Span) -> Iterator[tuple[Span, exp.Expr]]:
        """The sides of the equations in the ON of the relation with this number."""
        join = self._select.reads[number].join
        condition = join.args["on"] if join else exp.true()
        for place, part in zip(self._shown(span, condition), conjuncts(condition), strict=False):
            sides = self._spans.sides(place)
            if isinstance(part, (exp.EQ, exp.NullSafeEQ)) and len(sides) == 2:
                yield from zip(sides, (part.left, part.right), strict=True)

    @cached_property
    def _conditions(self) -> Mapping[int, Span]:
        """The condition after each ON, by the number of the relation that it joins."""
        clause = self._clause("from")
        assert clause is not None
        own = [i for i in range(*clause) if self._words[i].select == self._select.number]
        starts = [i for i in own if self._is_keyword(i, "on")]
        numbers = [number for number, read in enumerate(self._select.reads) if read.join and read.join.args.get("on")]
        ends = [i for i in own if self._is_keyword(i, *_JOINS) and self._ends_condition(i)]
        spans = [(start + 1, next((end for end in ends if end > start), clause[1])) for start in starts]
        return {
            number: next(self._spans.split(span))
            for number, span in zip(numbers, spans, strict=False)
            if span[0] < span[1]
        }

    def _is_keyword(self, i: int, *names: str) -> bool:
        """Whether word `i` is one of these words of SQL; a column or a relation may be named left."""
        around = {word.text for word in (*self._words[max(0, i - 1) : i], *self._words[i + 1 : i + 2])}
        return self._words[i].kind == "word" and self._words[i].name in names and "." not in around

    def _ends_condition(self, i: int) -> bool:
        """Whether a condition can end before word `i`, and that is no call."""
        before = self._words[i - 1]
        return before.kind != "operator" and before.name not in _AWAITING and not is_call(self._words, i)

    def _guards(self, number: int) -> Iterator[str]:
        """The conditions by which Spark leaves out rows of a relation before it computes the keys that join them."""
        alias = self._select.reads[number].alias
        for span, condition, lacking in self._conditions_on(number):
            for part in self._shown(span, condition):
                text = self._spans.text(part, alias)
                is_alone = text is not None and not self._names_others(part, number)
                if is_alone and not (lacking and not self._fails_of_null(part, alias)):
                    yield str(text)

    def _conditions_on(self, number: int) -> Iterator[tuple[Span, exp.Expr, bool]]:
        """The WHERE, and the ONs by which the join leaves out rows of a relation, as text and as tree; and whether the
        rows that a condition is computed of may lack a row of the relation.

        Of a relation behind SEMI or ANTI, only its own ON: others don't see it, and a name there is another's column.
        """
        where, sides = self._clause("where"), [*(side_of(read.join) for read in self._select.reads), "inner"]
        joins = [read.join for read in self._select.reads]
        conditions = [(at, span, join.args["on"]) for at, span in self._conditions.items() if (join := joins[at])]
        if where:  # leaves rows out as the ON of a last, inner join would
            condition = self._select.node.args["where"].this
            conditions = [(len(sides) - 1, (where[0] + 1, where[1]), condition), *conditions]
        is_seen = sides[number] not in ("semi", "anti")
        for joined, span, condition in conditions:
            if joined == number and sides[joined] in ("inner", "semi", "left", "anti"):
                yield span, condition, False
            elif joined > number and is_seen and sides[joined] in ("inner", "semi", "right"):
                between = sides[number + 1 : joined]
                yield span, condition, sides[number] in ("left", "full") or "right" in between or "full" in between

    def _shown(self, span: Span, condition: exp.Expr) -> list[Span]:
        """The conditions that all hold where this one does; none if its text shows others than its tree, as it does
        with a CASE over a column named end."""
        parts = list(self._parts(span))
        return parts if len(parts) == len(list(conjuncts(condition))) else []

    def _parts(self, span: Span) -> Iterator[Span]:
        """The conditions that all hold where this one does. An OR is one: Spark may compute it after the join."""
        span = self._spans.unwrapped(span)
        parts = self._spans.conjuncts(span)
        if len(parts) == 1 or len(self._spans.disjuncts(span)) > 1:
            yield span
        else:
            for part in parts:
                yield from self._parts(part)

    def _names_others(self, span: Span, number: int) -> bool:
        """Whether it names another relation, or a column that USING merges: that may have another type than its own."""
        others = [read.alias for other, read in enumerate(self._select.reads) if other != number]
        merged = {name for read in self._select.reads for name in using(read.join)}
        return any(
            (self._words[i].name in merged and self._words[i - 1].text != ".")
            or any(self._spans.is_qualifier(i, alias) for alias in others)
            for i in range(*span)
        )

    def _fails_of_null(self, span: Span, alias: str) -> bool:
        """Whether the text shows that a condition isn't true of a missing row: it compares `alias.column`.

        Only then is the row's outer join an inner one to Spark.
        """
        names = [word.name for word in self._spans.of(span)][3:]
        compares = bool(_COMPARING.intersection(names[:1] if names[:1] != ["not"] else names[1:2]))
        is_known = names == ["is", "not", "null"] or (compares and not _HOLDING.intersection(names))
        return self._spans.is_qualifier(span[0], alias) and is_known

    def _of_one(self, source: Stream) -> Iterator[RowCheck]:
        where = self._clause("where")
        only = self._text((where[0] + 1, where[1])) if where else None
        if only is not None:
            yield RowCheck(source.name, "WHERE", only)
        elif where:
            return  # which rows it leaves out is not known
        parts = self._grouped() if self._select.grouped else self._listed()
        for place, span, more in (part for part in parts if len(self._spans.of(part[1])) > 1):  # one word cannot raise
            text = self._text(span)
            if text is not None:
                yield RowCheck(source.name, place, text, _all(only, more))

    def _listed(self) -> Iterator[tuple[str, Span, str | None]]:
        """The items of the select list that depend on one row."""
        for span in self._items():
            is_over = any(self._is_keyword(i, "over") for i in range(*span))
            if not is_over and not self._spans.has(span, *names.WINDOWING):
                yield "SELECT", span, None

    def _grouped(self) -> Iterator[tuple[str, Span, str | None]]:
        """Items of the GROUP BY; arguments of the aggregates in list and HAVING; and list items without an aggregate.

        With a HAVING, the last are left out: Spark computes them only for groups that pass it. So they are with
        GROUPING SETS, which put NULLs in the place of some columns.
        """
        group, having = self._clause("group"), self._clause("having")
        is_whole = not having and not (group and any(self._follow(i, "sets", "(") for i in range(*group)))
        for span in self._spans.split((group[0] + 2, group[1])) if group else ():
            if self._words[span[0]].name == "state_window" and is_call(self._words, span[0]):
                yield from self._conditions_of_window(span[0])
            else:
                yield from (("GROUP BY", item, None) for item in self._items_of_sets(span))
        for span in (*self._items(), *((having,) if having else ())):
            calls = [i for i in range(*span) if is_call(self._words, i) and self._words[i].name in _OF_SEVERAL]
            if not calls and is_whole and not self._spans.has(span, *names.WINDOWING, *names.COLLECTING):
                yield "SELECT", span, None
            for call in calls:
                yield from self._arguments(call)

    def _items_of_sets(self, span: Span) -> Iterator[Span]:
        """An item of the GROUP BY; of a ROLLUP, CUBE or GROUPING SETS, each of its items: Spark computes them all."""
        sets = (i for i in range(*span) if self._is_keyword(i, *names.SETS) and is_call(self._words, i))
        opening = next(sets, span[1]) + 1
        if opening < span[1]:
            for one in self._spans.split((opening + 1, closing(self._words, opening))):
                for item in self._spans.split(self._spans.unwrapped(one)):
                    yield from self._items_of_sets(item)
        elif not self._spans.has(span, *names.WINDOWING, *names.COLLECTING):
            yield span

    def _conditions_of_window(self, call: int) -> Iterator[tuple[str, Span, str | None]]:
        """Those that begin and end the windows of `state_window`: of a row that waits, none could leave it out."""
        spans = self._spans.split((call + 2, closing(self._words, call + 1)))
        for place, span in zip(("begin", "emit"), spans, strict=False):
            yield f"{place} of state_window", span, None

    def _arguments(self, call: int) -> Iterator[tuple[str, Span, str | None]]:
        name, end = self._words[call].name, closing(self._words, call + 1)
        first, last = call + 2 + self._is_keyword(call + 2, "distinct", "all"), end
        ordered = list[Span]()
        if self._follow(end, "within", "group", "("):
            end = closing(self._words, end + 3)
            ordered = [self._ordered(span) for span in self._spans.split((last + 6, end))]  # after ( ORDER BY
        only = None
        if self._follow(end, "filter", "("):
            condition = end + 4, closing(self._words, end + 2)
            only = self._text(condition)
            if only is None:
                return
            yield f"FILTER of {name}", condition, None
        for span in (*self._spans.split((first, last)), *ordered):
            yield f"argument of {name}", span, only

    def _follow(self, i: int, *names: str) -> bool:
        return tuple(word.name for word in self._words[i + 1 : i + 1 + len(names)]) == names

    def _ordered(self, span: Span) -> Span:
        """What an item of an ORDER BY orders by, without its direction."""
        begin, end = span
        end -= 2 * (self._is_keyword(end - 2, "nulls") and self._is_keyword(end - 1, "first", "last"))
        return begin, end - self._is_keyword(end - 1, "asc", "desc")

    def _items(self) -> Iterator[Span]:
        """The items of the select list, without aliases; a `*` is left out. None where the text does not show them."""
        listed = self._clause("select")
        assert listed is not None
        start = listed[0] + 1 + (self._words[listed[0] + 1].name in ("distinct", "all"))
        spans, nodes = list(self._spans.split((start, listed[1]))), self._select.node.expressions
        for (begin, end), node in zip(spans, nodes, strict=True) if len(spans) == len(nodes) else ():
            if node.is_star:
                continue
            if isinstance(node, exp.Alias):
                end -= 2 if self._is_keyword(end - 2, "as") else 1
            yield begin, end

    def _clause(self, clause: str) -> Span | None:
        """The words of a clause, with its keyword first; None if the SELECT does not have it."""
        found = [i for i, word in enumerate(self._words) if (word.select, word.clause) == (self._select.number, clause)]
        if found and self._words[found[-1]].text == ";":
            found.pop()
        return (found[0], found[-1] + 1) if found else None

    def _text(self, span: Span) -> str | None:
        return self._spans.text(span, self._select.reads[0].alias)


def _all(*conditions: str | None) -> str | None:
    """A condition that stops at the first that does not hold, as Spark's filters do; its AND goes on after a NULL."""
    known = [text for text in conditions if text is not None]
    return " AND ".join((*(f"coalesce({text}\n, false)" for text in known[:-1]), f"({known[-1]}\n)")) if known else None


def _relations(node: exp.Expr) -> Iterator[str]:
    """The relation of each column, also of one whose field is read (`a.struct.field`); empty without a relation."""
    for column in node.find_all(exp.Column):
        if not _is_unit(column):
            yield column.parts[0].name.lower() if len(column.parts) > 1 else ""


def _is_unit(column: exp.Column) -> bool:
    """Whether it is no column but a unit, as in timestampadd(HOUR, 1, at)."""
    call = column.parent
    is_first = isinstance(call, exp.Anonymous) and len(call.expressions) == 3 and call.expressions[0] is column
    return is_first and len(column.parts) == 1 and column.name.lower() in names.UNITS
