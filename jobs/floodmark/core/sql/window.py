"""The `window(...)` or `session_window(...)` of each GROUP BY: its lengths, and that it is over the event time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from floodmark.core.durations import parse_duration
from floodmark.core.sql.functions import NOT_THERE_YET, is_call
from floodmark.core.sql.lexis import SqlAt, Word
from floodmark.core.sql.shape import Select, Shape, Source, Stream, Union
from floodmark.core.windows import SessionSpec, WindowSpec

# Functions that give one of their arguments: from which on.
_CHOOSING = {"if": 1, "iff": 1, "coalesce": 0, "ifnull": 0, "nvl": 0, "nvl2": 1, "nullif": 0}
_MOST_WINDOWS = 100_000  # Spark makes a copy of each row for each of its windows
_HINTS = {
    "window": "write GROUP BY window(event_time_column, 'size'[, 'slide'[, 'start']]), ...",
    "session_window": "write GROUP BY session_window(event_time_column, 'gap'), ...",
}
HINT = f"{_HINTS['window']} (or session_window(event_time_column, 'gap'))"


@dataclass(frozen=True)
class _Named:
    """A column of a query by its lower-case name (None: Spark makes one up)."""

    name: str | None
    is_time: bool


@dataclass(frozen=True)
class _Rest:
    """All columns of a stream (it is not known here which), but those hidden."""

    stream: str
    time: str | None
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Fields:
    """The fields of a struct (`s.*`): not known here how many, nor their names; a name given twice Spark refuses."""


GroupSpec = WindowSpec | SessionSpec
_Columns = list[_Named | _Rest | _Fields]


def check_windows(shape: Shape) -> tuple[GroupSpec, ...]:
    """The window of each GROUP BY, in the order of `shape.groups`. Raises SqlAt for what cannot be folded."""
    calls = [w for i, w in enumerate(shape.words) if w.name in _HINTS and is_call(shape.words, i)]
    if calls and not shape.groups:
        raise calls[0].refuse(shape.sql, f"{calls[0].name}(...) without GROUP BY: {_HINTS[calls[0].name]}")
    specs = tuple(_window_of(shape, grouped) for grouped in shape.groups)
    _check_places(shape, calls)
    return specs


def check_above_sessions(shape: Shape, root: Source) -> None:
    """Refuse a condition above sessions, which Spark would push down to rows that are not merged to sessions yet."""
    for select in _selects(root):
        if select.grouped or select.node.args.get("where") is None:
            continue
        if any(below.grouped and _is_session(below) for below in _selects(select.source)):
            problem = "WHERE above a session_window: Spark would apply it to rows before they are sessions; use HAVING"
            raise shape.at(("where",), problem, select.number)


def _is_session(grouped: Select) -> bool:
    return any(call.name.lower() == "session_window" for call in grouped.node.find_all(exp.Anonymous))


def _window_of(shape: Shape, grouped: Select) -> GroupSpec:
    call = _grouping_window(shape, grouped)
    spec, column = _spec(shape, grouped, call), call.expressions[0]
    for other in grouped.node.find_all(exp.Anonymous):
        if _is_window(other) and _meaning(shape, grouped, other) != _meaning(shape, grouped, call):
            raise _again(shape, grouped, f"a second, different {other.name.lower()}(...) {NOT_THERE_YET}")
    _check_event_time(shape, grouped, column, call.name.lower())
    _check_names(shape, grouped, call.name.lower())
    return spec


def _check_places(shape: Shape, calls: Sequence[Word]) -> None:
    numbers = {grouped.number for grouped in shape.groups}
    for word in calls:
        if word.select not in numbers or word.clause not in ("select", "group"):
            elsewhere = f"elsewhere write {word.name}.start or {word.name}.end"
            raise word.refuse(shape.sql, f"{word.name}(...) belongs in GROUP BY; {elsewhere}")


def _is_window(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _HINTS


def _grouping_window(shape: Shape, grouped: Select) -> exp.Anonymous:
    """The window call by which the query groups: written there, or in the select list and named there."""
    found = [call for item in grouped.node.args["group"].expressions if (call := window_called(grouped, item))]
    if not found:
        raise shape.at(("group",), f"GROUP BY without a window {NOT_THERE_YET}; {HINT}", grouped.number)
    if len(found) > 1:
        raise _again(shape, grouped, f"a second window(...) in GROUP BY {NOT_THERE_YET}")
    return found[0]


def window_called(grouped: Select, item: exp.Expr) -> exp.Anonymous | None:
    """The window call that an item of a GROUP BY is, or that it names in the select list; None for another item."""
    node: exp.Expr | None = item
    items = grouped.node.expressions
    if isinstance(item, exp.Column) and not item.args.get("table"):
        node = next((i.this for i in items if isinstance(i, exp.Alias) and i.alias.lower() == item.name.lower()), None)
    elif isinstance(item, exp.Literal) and not item.is_string and item.name.isdigit():
        node = _by_ordinal(items, int(item.name))
    return node if isinstance(node, exp.Anonymous) and _is_window(node) else None


def _by_ordinal(items: Sequence[exp.Expr], ordinal: int) -> exp.Expr | None:
    if not 1 <= ordinal <= len(items) or any(item.is_star for item in items[:ordinal]):
        return None
    return items[ordinal - 1].unalias()


def _again(shape: Shape, grouped: Select, problem: str) -> SqlAt:
    """At the window(...) that is one too many: in the select list, or the last in GROUP BY."""
    calls = _calls(shape, grouped)
    return next((w for w in calls if w.clause == "select"), calls[-1]).refuse(shape.sql, problem)


def _at_window(shape: Shape, grouped: Select, problem: str) -> SqlAt:
    calls = _calls(shape, grouped)
    return next((w for w in calls if w.clause == "group"), calls[0]).refuse(shape.sql, problem)


def _calls(shape: Shape, grouped: Select) -> list[Word]:
    """Every `window(` of the SELECT with the GROUP BY."""
    found = [w for i, w in enumerate(shape.words) if w.name in _HINTS and is_call(shape.words, i)]
    return [w for w in found if w.select == grouped.number]


def _meaning(shape: Shape, grouped: Select, call: exp.Anonymous) -> tuple[GroupSpec, str]:
    return _spec(shape, grouped, call), call.expressions[0].name.lower()


def _spec(shape: Shape, grouped: Select, call: exp.Anonymous) -> GroupSpec:
    name, args = call.name.lower(), call.expressions
    if not 2 <= len(args) <= (4 if name == "window" else 2):
        raise _at_window(shape, grouped, f"{name}(...) with {len(args)} arguments: {_HINTS[name]}")
    return _session(shape, grouped, args[1]) if name == "session_window" else _window(shape, grouped, args)


def _window(shape: Shape, grouped: Select, args: Sequence[exp.Expr]) -> WindowSpec:
    refused = partial(_at_window, shape, grouped)
    lengths = [_length(refused, "window", arg, i == 2) for i, arg in enumerate(args[1:])]
    size = lengths[0]
    slide = lengths[1] if len(lengths) > 1 else size
    offset = lengths[2] if len(lengths) > 2 else 0
    if not 0 < slide <= size or abs(offset) >= slide:
        raise refused("window(...): expected 0 < slide <= size and a start nearer to 0 than the slide")
    if size // slide > _MOST_WINDOWS:
        raise refused(f"window(...): expected a row to be in at most {_MOST_WINDOWS} windows, found {size // slide}")
    return WindowSpec(size, slide, offset)


def _session(shape: Shape, grouped: Select, gap: exp.Expr) -> SessionSpec:
    """The gap may be a text, or an expression over the row that chooses between texts or gives an interval."""
    refused = partial(_at_window, shape, grouped)
    for text in _choices(gap):
        if _length(refused, "session_window", text, False) <= 0:
            raise refused(f"session_window(...): expected a gap longer than nothing, found {text.sql('spark')}")
    return SessionSpec(gap.sql("spark"))


def _choices(gap: exp.Expr) -> Iterator[exp.Expr]:
    """The constants that may become the gap; what a column or a function gives is known to Spark alone."""
    if isinstance(gap, exp.Paren):
        yield from _choices(gap.this)
    elif isinstance(gap, exp.If):
        for branch in (gap.args["true"], gap.args.get("false")):
            yield from _choices(branch) if branch is not None else ()
    elif isinstance(gap, exp.Case):
        for branch in (*(when.args["true"] for when in gap.args["ifs"]), gap.args.get("default")):
            yield from _choices(branch) if branch is not None else ()
    elif isinstance(gap, exp.Anonymous) and gap.name.lower() in _CHOOSING:
        for branch in gap.expressions[_CHOOSING[gap.name.lower()] :]:
            yield from _choices(branch)
    elif isinstance(gap, (exp.Literal, exp.Boolean, exp.Null, exp.Binary)):
        yield gap


def _length(refused: Callable[[str], SqlAt], window: str, arg: exp.Expr, negative: bool) -> int:
    if not (isinstance(arg, exp.Literal) and arg.is_string):
        raise refused(f"{window}(...): expected a duration in quotes, found {arg.sql('spark')}")
    if re.search(r"\d[a-z]", arg.name, re.IGNORECASE):
        raise refused(f"{window}(...): Spark wants a space between number and unit in {arg.name!r}")
    try:
        return parse_duration(arg.name, negative=negative)
    except ValueError as error:
        raise refused(f"{window}(...): {error}") from None


def is_event_time(shape: Shape, select: Select, column: exp.Expr) -> bool:
    """Whether it is the event time of every stream below the SELECT, passed on or renamed but not computed."""
    below = _columns(select.source, shape.declared)
    return names_column(column, select.alias) and _lookup(below, column.name.lower())


def _check_event_time(shape: Shape, grouped: Select, column: exp.Expr, window: str) -> None:
    """The window's column must be the event time of every stream below, passed on or renamed but not computed."""
    if is_event_time(shape, grouped, column):
        return
    below = sorted(streams_of(grouped.source))
    without = [name for name in below if shape.declared[name] is None]
    if without:
        raise _at_window(
            shape, grouped, f"{window}(...) needs the event time of stream {without[0]}: declare `event_time`"
        )
    expected = " and ".join(f"{shape.declared[name]} of stream {name}" for name in below)
    raise _at_window(
        shape,
        grouped,
        f"{window}(...) must be over the event time: expected {expected}, as it is or only renamed on the way "
        f"(and no `*` before it in a UNION ALL), found {column.sql('spark')}",
    )


def _selects(source: Source) -> Iterator[Select]:
    if isinstance(source, Union):
        for branch in source.branches:
            yield from _selects(branch)
    elif isinstance(source, Select):
        yield source
        yield from _selects(source.source)


def names_column(node: exp.Expr, alias: str) -> bool:
    """Whether it is a plain column of the relation, not a field of a struct."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("db"):
        return False
    return node.table.lower() in ("", alias)


def streams_of(source: Source) -> set[str]:
    """The streams that `source` reads, as declared."""
    if isinstance(source, Stream):
        return {source.name}
    if isinstance(source, Union):
        return set().union(*(streams_of(branch) for branch in source.branches))
    return streams_of(source.source)


def _columns(source: Source, times: Mapping[str, str | None]) -> _Columns:
    """What `source` gives, as far as it can be known without its tables."""
    if isinstance(source, Stream):
        time = times[source.name]
        return [_Rest(source.name, time.lower() if time else None)]
    if isinstance(source, Union):
        columns = _columns(source.branches[0], times)
        for branch in source.branches[1:]:
            columns = _united(columns, _columns(branch, times))
        return columns
    below = _columns(source.source, times)
    return [column for item in source.node.expressions for column in _item(item, source.alias, below)]


def _united(left: _Columns, right: _Columns) -> _Columns:
    """UNION ALL goes by position, and positions are known up to the first `*` over different streams."""
    columns: _Columns = []
    for a, b in zip(left, right, strict=False):
        if isinstance(a, _Named) and isinstance(b, _Named):
            columns.append(_Named(a.name, a.is_time and b.is_time))
        elif isinstance(a, _Rest) and a == b:
            columns.append(a)
        else:
            break
    return columns


def _item(item: exp.Expr, alias: str, below: _Columns) -> _Columns:
    inner = item.unalias()
    if item.is_star:
        qualifier = inner.table.lower() if isinstance(inner, exp.Column) else ""
        return _starred(inner, below) if qualifier in ("", alias) and not inner.args.get("db") else [_Fields()]
    name = item.alias_or_name.lower() if isinstance(item, (exp.Alias, exp.Column, exp.Dot)) else None
    passed = names_column(inner, alias) and _lookup(below, inner.name.lower())
    return [_Named(name, bool(passed))]


def _starred(star: exp.Expr, below: _Columns) -> _Columns:
    inner = star.this if isinstance(star, exp.Column) else star
    hidden = frozenset(column.name.lower() for column in inner.args.get("except_") or [])
    kept: _Columns = []
    for column in below:
        if isinstance(column, _Rest):
            kept.append(_Rest(column.stream, column.time, column.hidden | hidden))
        elif isinstance(column, _Fields) or column.name not in hidden:
            kept.append(column)
    return kept


def _lookup(columns: _Columns, name: str) -> bool:
    """Whether `name` is one column only, and that is the event time."""
    named = [column for column in columns if isinstance(column, _Named) and column.name == name]
    rests = [c for c in columns if isinstance(c, _Rest) and c.time == name and name not in c.hidden]
    found = [column.is_time for column in named] + [True] * len(rests)
    return found == [True]


def _check_names(shape: Shape, grouped: Select, name: str) -> None:
    """Nothing else may be called as the window is: the closing condition speaks of its end by that name."""
    for select in _selects(grouped.source):
        if any(item.alias_or_name.lower() == name for item in select.node.expressions):
            raise shape.at((name,), f"a column named {name} below the GROUP BY; rename it", select.number)
    for item in grouped.node.expressions:
        plain = _is_window(item.unalias()) or (isinstance(item.unalias(), exp.Column) and item.unalias().name == name)
        if isinstance(item, exp.Alias) and item.alias.lower() == name and not plain:
            raise shape.at((name,), f"AS {name}: only the window itself may have this name", grouped.number)
