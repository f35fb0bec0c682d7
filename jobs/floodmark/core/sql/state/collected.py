"""Analyses windows that depend on the rows of a key: every n rows, or from a begin condition to an end condition.

Spark has no such windows, so Floodmark defines two functions: `GROUP BY count_window(n[, every])` and `GROUP BY
state_window(begin, emit)`, each beside the columns of the key. A key's rows are ordered by event time, then by all
columns, once the watermark has passed them. `count_window.start` and `.end` are the event times of a window's first and
last row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.forms.bounds import HIDDEN, prefix_of
from floodmark.core.sql.forms.over import overs_of
from floodmark.core.sql.forms.window import no_calls
from floodmark.core.sql.state.partials import clause_of, each_once, grouping_column
from floodmark.core.sql.tree.expressions import has_star, names_first
from floodmark.core.sql.tree.shape import Select, Shape, Source, Stream
from floodmark.core.sql.words.function_names import COLLECTING
from floodmark.core.sql.words.functions import closing, is_call
from floodmark.core.sql.words.lexis import Word, quoted
from floodmark.errors import SqlAt

_NESTED = ("array", "map", "struct")  # types that name others in <...>
NUMBER = f"{HIDDEN}number"
_BEFORE = "BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
MOST_ROWS = 1_000_000  # of one count window: they are sorted together
_FORMS = {
    "count_window": "write GROUP BY count_window(rows[, every]), key columns",
    "state_window": "write GROUP BY state_window(begin condition, emit condition), key columns",
}


_PLACE, _ROWS, _CLOSED, _PART, _BEGUN, _ENDS = (
    f"{HIDDEN}{name}" for name in ("place", "rows", "closed", "part", "begun", "ends")
)
Over = Callable[..., str]  # an OVER clause for the rows of a key: its order and frame, and more to partition by


class RowsWindow(ABC):
    """A kind of window of rows, as SQL for Spark over the rows of a key."""

    @abstractmethod
    def describe(self, of: str) -> str:
        """For people; `of`: in words, what has the windows."""

    @abstractmethod
    def steps(self, over: Over, order: str) -> tuple[tuple[str, ...], ...]:
        """Columns that tell the windows of each row; those of a later step read those of an earlier one.

        `order`: the ORDER BY of the rows.
        """

    @property
    @abstractmethod
    def numbers(self) -> str:
        """The numbers of the full windows that a row is in, as an array; NULL for none."""

    @property
    @abstractmethod
    def is_open(self) -> str:
        """Whether a row is needed for windows that are not full yet."""


@dataclass(frozen=True)
class EveryRows(RowsWindow):
    """A window of `rows` rows, and the next one `every` rows later; a window that never fills up gives nothing."""

    rows: int
    every: int

    def describe(self, of: str) -> str:
        return f"windows of {self.rows} rows{of}, a new one every {self.every}"

    def steps(self, over: Over, order: str) -> tuple[tuple[str, ...], ...]:
        full = f"CASE WHEN {_ROWS} < {self.rows} THEN 0 ELSE ({_ROWS} - {self.rows}) DIV {self.every} + 1 END"
        return (
            (f"row_number() {over(order)} AS {_PLACE}", f"count(*) {over()} AS {_ROWS}"),
            (f"{full} AS {_CLOSED}",),
        )

    @property
    def numbers(self) -> str:
        first = f"greatest(0, ceil(({_PLACE} - {self.rows}) / {self.every}))"
        last = f"least(({_PLACE} - 1) DIV {self.every}, {_CLOSED} - 1)"
        return f"CASE WHEN {first} <= {last} THEN sequence({first}, {last}) END"

    @property
    def is_open(self) -> str:
        return f"{_PLACE} > {_CLOSED} * {self.every}"


@dataclass(frozen=True)
class FromTo(RowsWindow):
    """A window from the first row for which `begin` is true to the next for which `emit` is: SQL over a row."""

    begin: str
    emit: str

    def describe(self, of: str) -> str:
        return f"windows of rows{of}, from a row that starts one to a row that ends it"

    def steps(self, over: Over, order: str) -> tuple[tuple[str, ...], ...]:
        before, so_far = (f"{order} ROWS {frame}" for frame in (_BEFORE, "UNBOUNDED PRECEDING"))
        return (
            (f"count_if({self.emit}) {over(before)} AS {_PART}",),
            (
                f"bool_or({self.begin}) {over(so_far, _PART)} AS {_BEGUN}",
                f"bool_or({self.emit}) {over('', _PART)} AS {_ENDS}",
            ),
        )

    @property
    def numbers(self) -> str:
        return f"CASE WHEN {_BEGUN} AND {_ENDS} THEN array({_PART}) END"

    @property
    def is_open(self) -> str:
        return f"{_BEGUN} AND NOT {_ENDS}"


@dataclass(frozen=True)
class Collected:
    """How the query folds.

    name: of the function. keys: columns of `stream`, which the SQL reads as `alias`. read: SQL over the stream for the
    rows that count. final: the rule's SQL over rows with NUMBER and the window, a column that has the function's name.
    """

    stream: str
    alias: str
    name: str
    window: RowsWindow
    keys: tuple[str, ...]
    read: str
    final: str

    @property
    def held(self) -> str:
        """The state table with the rows of open windows."""
        return f"{self.stream}_held"


def collected_of(shape: Shape, root: Source) -> Collected | None:
    """How the query folds; None if it has no such window. Raises SqlAt if it cannot fold."""
    calls = [i for i, word in enumerate(shape.words) if word.name in COLLECTING and is_call(shape.words, i)]
    if not calls:
        return None
    called = shape.words[calls[0]]
    if not isinstance(root, Select) or any(shape.words[i].select != root.number for i in calls) or not root.grouped:
        raise called.refuse(shape.sql, f"{called.name}(...) belongs in the GROUP BY of the outermost SELECT")
    if [type(source) for source in root.sources] != [Stream]:
        raise called.refuse(shape.sql, f"{called.name}(...): expected FROM one stream, with at most a WHERE")
    (stream,) = root.sources
    assert isinstance(stream, Stream)
    if shape.declared[stream.name] is None:
        raise called.refuse(
            shape.sql, f"{called.name}(...) needs the event time of stream {stream.name}, for its order"
        )
    _check_calls(shape, calls)
    _check_alone(shape, root, called.name)
    _check_columns(shape, root, called.name)
    window = _window(shape, calls[0])
    keys = tuple(key.name for key in each_once(_keys(shape, root)))
    return Collected(
        stream.name, root.reads[0].alias, called.name, window, keys, _read(shape, root), _final(shape, calls)
    )


def _check_calls(shape: Shape, calls: Sequence[int]) -> None:
    words = shape.words
    texts = {"".join(word.text.lower() for word in words[i : closing(words, i + 1)]) for i in calls}
    if len(texts) > 1:
        raise words[calls[1]].refuse(shape.sql, "a second, different window of rows: make two rules")
    if sum(words[i].clause == "group" for i in calls) != 1 or any(
        words[i].clause not in ("group", "select") for i in calls
    ):
        problem = f"{words[calls[0]].name}(...): {_FORMS[words[calls[0]].name]}, once"
        raise words[calls[0]].refuse(shape.sql, problem)


def _check_alone(shape: Shape, root: Select, name: str) -> None:
    """Refuse what the division into epochs would decide: what a result has from windows that close beside its own."""
    for word, found in (("over", bool(overs_of(root))), ("distinct", bool(root.node.args.get("distinct")))):
        if found:
            problem = (
                f"{word.upper()} next to {name}(...): an epoch would compute it over the windows that it closes only; "
                "leave it out, and compute it in a query of the sink"
            )
            raise shape.at((word,), problem, root.number)
    no_calls(shape, f"{name}(...)")


def _check_columns(shape: Shape, root: Select, name: str) -> None:
    """Refuse a `*`, which has Floodmark's columns of the window, too, and WHERE by the window: it is not there yet."""
    if has_star(root.node):
        problem = f"* beside {name}(...): Floodmark's own columns would be among those that it stands for; list columns"
        raise shape.at(("*",), problem, root.number)
    where = root.node.args.get("where")
    if where is not None and names_first(where, name):
        problem = f"{name} in WHERE, which decides which rows come into windows; write the condition into HAVING"
        raise shape.at((name,), problem, root.number, "where")


def _arguments(shape: Shape, at: int) -> list[str]:
    """The arguments of a call, as text."""
    words, end = shape.words, closing(shape.words, at + 1)
    found, begin, depth, last = [], words[at + 1].end, 0, at + 1
    for i in range(at + 2, end):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(words[i].text, 0)
        if words[i].text == "::":
            last = _end_of_type(words, i + 1)
        elif words[i].text == "," and depth == 0 and i > last:
            found.append(shape.sql[begin : words[i].start])
            begin = words[i].end
    return [*found, shape.sql[begin : words[end].start]]


def _end_of_type(words: Sequence[Word], at: int) -> int:
    """The index of the last word of the type that begins at `at`, such as MAP<STRING, ARRAY<INT>>."""
    if words[at].name not in _NESTED or words[at + 1].text != "<":
        return at
    depth = 0
    for i in range(at + 1, len(words)):
        text = words[i].text
        depth += text.count("<") - text.count(">") if words[i].kind == "operator" else 0
        if depth <= 0:
            return i
    return at


def _window(shape: Shape, at: int) -> RowsWindow:
    called, arguments = shape.words[at], _arguments(shape, at)
    if called.name == "state_window":
        if len(arguments) != 2:
            raise _refused(shape, called, f"expected two conditions, found {len(arguments)}")
        return FromTo(*(f"coalesce({condition}\n, false)" for condition in arguments))
    counts = [int(text) if text.strip().isdigit() else 0 for text in arguments]
    if not 1 <= len(counts) <= 2 or not 1 <= counts[-1] <= counts[0] <= MOST_ROWS:
        raise _refused(shape, called, f"expected a number of rows from 1 to {MOST_ROWS}, and `every` at most as large")
    return EveryRows(counts[0], counts[-1] if len(counts) == 2 else counts[0])


def _refused(shape: Shape, called: Word, problem: str) -> SqlAt:
    return called.refuse(shape.sql, f"{called.name}(...): {problem}; {_FORMS[called.name]}")


def _keys(shape: Shape, root: Select) -> Iterator[exp.Column]:
    for item in root.node.args["group"].expressions:
        if isinstance(item, exp.Anonymous) and item.name.lower() in COLLECTING:
            continue
        column = grouping_column(root, item)
        if column is None:
            problem = f"GROUP BY a window of rows: expected columns of the stream next to it, found {item.sql('spark')}"
            raise shape.at(("group",), problem, root.number)
        yield column


def _read(shape: Shape, root: Select) -> str:
    source, where = clause_of(shape.words, root, "from"), clause_of(shape.words, root, "where")
    text = shape.sql[source[0].start : (where or source)[-1].end]
    return f"{shape.sql[: prefix_of(shape.words)]} SELECT * {text}"


def _final(shape: Shape, calls: Sequence[int]) -> str:
    """The SQL with the window's column for each call; GROUP BY also has NUMBER, since windows may have equal spans."""
    sql, words = shape.sql, shape.words
    for i in reversed(calls):
        column = quoted(words[i].name) + (f", {NUMBER}" if words[i].clause == "group" else "")
        sql = f"{sql[: words[i].start]}{column}{sql[words[closing(words, i + 1)].end :]}"
    return sql.rstrip().removesuffix(";")
