"""What a rule's SQL is and needs, and the same SQL bounded to the windows that become final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from floodmark.core.sql.functions import check_functions
from floodmark.core.sql.lexis import SqlAt, Word, words_of
from floodmark.core.sql.naming import naming_fault
from floodmark.core.sql.parse import parse, parse_expression
from floodmark.core.sql.shape import Shape
from floodmark.core.sql.window import WindowSpec, check_windows


@dataclass(frozen=True)
class Query:
    """SQL that can be folded exactly.

    sql: the text, without a closing semicolon. streams: those it reads, as declared. identifiers: every name in it,
    lower case (a column that is not among them is not read). star: it selects `*`, so every column is read.
    fault: what keeps the result's columns from being a table's, if anything does (a SELECT inside may have any).
    windows: how each GROUP BY of it groups by time; none for a stateless query.
    """

    sql: str
    streams: tuple[str, ...]
    identifiers: frozenset[str]
    star: bool
    windows: tuple[WindowSpec, ...]
    fault: SqlAt | None
    _groups: tuple[_Group, ...] = field(default=(), repr=False)

    def bounded(self, low: str | None, high: str) -> str:
        """The SQL with only the windows whose end lies in (low, high], both SQL expressions; low None: no lower bound.

        The text stays as the rule has it; the condition goes into the HAVING of each SELECT with a GROUP BY, where
        Spark pushes it below the aggregation. Raises ValueError for a query without a window.
        """
        if not self.windows:
            raise ValueError("only a windowed query can be bounded")
        condition = f"window.end <= {high}" if low is None else f"window.end > {low} AND window.end <= {high}"
        text = self.sql
        for group in sorted(self._groups, key=lambda group: -group.end):  # from the last on: the places before it stay
            text = group.with_having(text, condition)
        return text


@dataclass(frozen=True)
class _Group:
    """Where a GROUP BY ends in the text, and where the condition of its HAVING begins and ends (None without one)."""

    end: int
    having: tuple[int, int] | None

    def with_having(self, sql: str, condition: str) -> str:
        if self.having is None:
            return f"{sql[: self.end]}\nHAVING {condition}\n{sql[self.end :]}"
        start, end = self.having
        return f"{sql[:start]} ({condition}) AND ({sql[start:end]}){sql[end:]}"


def analyse(sql: str, streams: Mapping[str, str | None], qos: int = 2) -> Query:
    """The query, where each rule can be folded exactly; `streams`: name -> event-time column (None: has none).

    Raises SqlRefused, with place and name of the first thing that is not allowed. What is refused is refused at every
    `qos`: an answer that hangs on row order is wrong at qos 0, too.
    """
    words = words_of(sql)
    shape = Shape(sql, words, streams)
    try:
        tree = parse(sql, words)
        source = shape.root(tree)
    except RecursionError:
        raise SqlAt("cannot be parsed: it is nested too deeply", 1, 1) from None
    check_functions(sql, words, {grouped.number for grouped in shape.groups})
    windows = check_windows(shape)
    text = sql[: words[-1].start] + sql[words[-1].end :] if words[-1].text == ";" else sql
    groups = tuple(_group(words, grouped.number) for grouped in shape.groups)
    read = tuple(name for name in streams if name in shape.read)
    return Query(text, read, names_in(words), _has_star(tree), windows, naming_fault(shape, source), groups)


def analyse_expression(sql: str) -> frozenset[str]:
    """The lower-case names in an expression over one row (`where`, `expr`). Raises SqlRefused as `analyse` does."""
    words = words_of(sql)
    tree = parse_expression(sql, words)
    Shape(sql, words, {}).expression(tree)
    check_functions(sql, words, frozenset())
    if words[-1].text == ";":  # it would end the statement that the expression becomes a part of
        raise words[-1].refuse(sql, "a semicolon in an expression; leave it out")
    calls = [word for i, word in enumerate(words[:-1]) if word.name == "window" and words[i + 1].text == "("]
    if calls:
        raise calls[0].refuse(sql, "window(...) belongs in the GROUP BY of the rule's SQL")
    return names_in(words)


def names_in(words: Sequence[Word]) -> frozenset[str]:
    return frozenset(word.name for word in words if word.kind in ("word", "quoted"))


def _has_star(tree: exp.Expr) -> bool:
    """Whether a `*` stands for columns; that of count(*) does not."""
    for star in tree.find_all(exp.Star):
        parent = star.parent
        if not (isinstance(parent, exp.Anonymous) and parent.name.lower() == "count" and len(parent.expressions) == 1):
            return True
    return False


def _group(words: Sequence[Word], number: int) -> _Group:
    having = [word for word in words if word.select == number and word.clause == "having"]
    group = [word for word in words if word.select == number and word.clause == "group"]
    return _Group(group[-1].end, (having[0].end, having[-1].end) if having else None)
