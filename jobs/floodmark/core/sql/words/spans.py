"""Splits words of SQL at commas, ANDs and ORs, and gives their text as an expression over the rows of one relation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from floodmark.core.sql.words.functions import closing
from floodmark.core.sql.words.lexis import Word

_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}
_NESTED = {"<": 1, ">": -1, ">>": -2, ">>>": -3}  # in a type, such as MAP<STRING, ARRAY<INT>>
_NESTING = ("array", "map", "struct")
Span = tuple[int, int]  # start and end (exclusive), as indexes of words


class Spans:
    """Parts of a query's text, by the indexes of their words."""

    def __init__(self, sql: str, words: Sequence[Word]):
        self._sql, self._words = sql, words

    def of(self, span: Span) -> Sequence[Word]:
        return self._words[span[0] : span[1]]

    def has(self, span: Span, *names: str) -> bool:
        return any(word.name in names for word in self.of(span))

    def split(self, span: Span) -> Iterator[Span]:
        """The parts between commas that are outside of parentheses and types."""
        start, depth, nested = span[0], 0, 0
        for i in range(*span):
            text = self._words[i].text
            depth += _DEPTH.get(text, 0)
            if nested > 0 or self._opens_type(i):
                nested += _NESTED.get(text, 0)
            if text == "," and depth == 0 and nested <= 0:
                yield start, i
                start = i + 1
        if start < span[1]:
            yield start, span[1]

    def _opens_type(self, i: int) -> bool:
        """Whether the `<` of a type begins at word `i`, as in x::MAP<STRING, INT>; elsewhere it compares."""
        before = self._words[max(0, i - 2) : i + 1]
        return len(before) == 3 and (before[0].text, before[2].text) == ("::", "<") and before[1].name in _NESTING

    def conjuncts(self, span: Span) -> list[Span]:
        """The parts of a condition between its ANDs."""
        return list(self._apart(span, "and"))

    def disjuncts(self, span: Span) -> list[Span]:
        """The parts of a condition between its ORs, which bind less than its ANDs."""
        return list(self._apart(span, "or"))

    def sides(self, span: Span) -> list[Span]:
        """The sides of an equation."""
        return list(self._apart(span, "=", "==", "<=>"))

    def _apart(self, span: Span, *by: str) -> Iterator[Span]:
        """The parts between operators outside of parentheses and CASE; the AND of a BETWEEN is not counted."""
        start, depth, cases, between = span[0], 0, 0, 0
        for i in range(*span):
            word = self._words[i]
            depth += _DEPTH.get(word.text, 0)
            if depth > 0 or word.kind not in ("word", "operator") or (i and self._words[i - 1].text == "."):
                continue
            cases += (word.name == "case") - (word.name == "end" and cases > 0)
            if cases > 0:
                continue
            if word.name == "and" and between > 0:
                between -= 1
            elif word.name in by:
                yield start, i
                start = i + 1
            between += word.name == "between"
        yield start, span[1]

    def unwrapped(self, span: Span) -> Span:
        """Without parentheses around all of it."""
        begin, end = span
        wrapped = self._words[begin].text == "(" and closing(self._words, begin) == end - 1
        return self.unwrapped((begin + 1, end - 1)) if wrapped else span

    def text(self, span: Span, relation: str) -> str | None:
        """The text of some words, without `relation` as a qualifier of columns; None if one would then be a lambda's
        argument."""
        if any(self._is_captured(i, relation) for i in range(*span)):
            return None
        begin, end = self._words[span[0]].start, self._words[span[1] - 1].end
        text, at = "", begin
        for i in range(*span):
            if self.is_qualifier(i, relation):
                text, at = text + self._sql[at : self._words[i].start], self._words[i + 2].start
        return text + self._sql[at:end]

    def is_qualifier(self, i: int, relation: str) -> bool:
        """Whether word `i` is the relation's name in front of a column's."""
        word = self._words[i]
        follows = i + 2 < len(self._words) and self._words[i + 1].text == "."
        return (
            follows
            and word.kind in ("word", "quoted")
            and word.name == relation
            and (i == 0 or self._words[i - 1].text != ".")
            and not self._is_argument(i, relation)
        )

    def _is_captured(self, i: int, relation: str) -> bool:
        """Whether word `i` is the relation's name before a column that would, without it, be a lambda's argument."""
        return self.is_qualifier(i, relation) and self._is_argument(i, self._words[i + 2].name)

    @cached_property
    def arguments(self) -> frozenset[str]:
        """The names of all arguments of lambdas."""
        return frozenset(name for arrow in self._arrows for name in self._arguments(arrow))

    def _is_argument(self, i: int, name: str) -> bool:
        """Whether a name at word `i` is that of an argument of a lambda around it: columns come after these."""
        return any(name in names and begin <= i < end for names, (begin, end) in self._lambdas)

    @cached_property
    def _lambdas(self) -> tuple[tuple[frozenset[str], Span], ...]:
        """The names of each lambda's arguments, and its body."""
        return tuple((frozenset(self._arguments(arrow)), self._body(arrow)) for arrow in self._arrows)

    @property
    def _arrows(self) -> list[int]:
        return [i for i, word in enumerate(self._words) if word.text == "->"]

    def _arguments(self, arrow: int) -> Iterator[str]:
        """The names before an arrow: one, or several in parentheses."""
        begin = arrow - 1
        while self._words[arrow - 1].text == ")" and self._words[begin].text != "(":
            begin -= 1
        yield from (word.name for word in self.of((begin, arrow)) if word.kind in ("word", "quoted"))

    def _body(self, arrow: int) -> Span:
        """From the arrow to the end of the function's argument."""
        depth, begin = 0, arrow + 1
        for end in range(begin, len(self._words)):
            depth += _DEPTH.get(self._words[end].text, 0)
            if depth < 0:
                return next(self.split((begin, end)))
        return begin, len(self._words)
