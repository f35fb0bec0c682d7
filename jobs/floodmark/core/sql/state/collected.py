"""Analyses windows that depend on the rows of a key: every n rows, or from a begin condition to an end condition.

Spark has no such windows, so Floodmark defines two functions: `GROUP BY count_window(n[, every])` and `GROUP BY
state_window(begin, emit)`, each beside the columns of the key. A key's rows are ordered by event time, then by all
columns, once the watermark has passed them. `count_window.start` and `.end` are the event times of a window's first and
last row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.forms.bounds import HIDDEN, prefix_of
from floodmark.core.sql.state.partials import clause_of, grouping_column
from floodmark.core.sql.tree.shape import Select, Shape, Source, Stream
from floodmark.core.sql.words.function_names import COLLECTING
from floodmark.core.sql.words.functions import closing, is_call
from floodmark.core.sql.words.lexis import Word, quoted
from floodmark.errors import SqlAt

NUMBER = f"{HIDDEN}number"
MOST_ROWS = 1_000_000  # of one count window, because its rows are sorted together
_FORMS = {
    "count_window": "write GROUP BY count_window(rows[, every]), key columns",
    "state_window": "write GROUP BY state_window(begin condition, emit condition), key columns",
}


@dataclass(frozen=True)
class EveryRows:
    """A window of `rows` rows; the next starts `every` rows later. A window that never fills up has no result."""

    rows: int
    every: int


@dataclass(frozen=True)
class FromTo:
    """A window from the first row where `begin` is true to the next where `emit` is; both are SQL over a row."""

    begin: str
    emit: str


@dataclass(frozen=True)
class Collected:
    """How the query folds.

    name: of the function. keys: columns of `stream`, which the SQL reads as `alias`. read: SQL over the stream for the
    rows that count. final: the rule's SQL over rows with NUMBER and the window, a column that has the function's name.
    """

    stream: str
    alias: str
    name: str
    window: EveryRows | FromTo
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
        raise called.refuse(shape.sql, f"{called.name}(...): expected FROM one stream, with a WHERE at most")
    (stream,) = root.sources
    assert isinstance(stream, Stream)
    if shape.declared[stream.name] is None:
        raise called.refuse(
            shape.sql, f"{called.name}(...) needs the event time of stream {stream.name}, for its order"
        )
    _check_calls(shape, calls)
    window = _window(shape, calls[0])
    keys = tuple(_keys(shape, root))
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


def _arguments(shape: Shape, at: int) -> list[str]:
    """The arguments of a call, as text."""
    words, end = shape.words, closing(shape.words, at + 1)
    found, begin, depth = [], words[at + 1].end, 0
    for word in words[at + 2 : end]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.text, 0)
        if word.text == "," and depth == 0:
            found.append(shape.sql[begin : word.start])
            begin = word.end
    return [*found, shape.sql[begin : words[end].start]]


def _window(shape: Shape, at: int) -> EveryRows | FromTo:
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


def _keys(shape: Shape, root: Select) -> Iterator[str]:
    for item in root.node.args["group"].expressions:
        if isinstance(item, exp.Anonymous) and item.name.lower() in COLLECTING:
            continue
        column = grouping_column(root, item)
        if column is None:
            problem = f"GROUP BY a window of rows: expected columns of the stream beside it, found {item.sql('spark')}"
            raise shape.at(("group",), problem, root.number)
        yield column.name


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
