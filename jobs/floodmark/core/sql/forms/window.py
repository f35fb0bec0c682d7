"""Analyses the `window(...)` or `session_window(...)` of a SELECT: its lengths and its event-time column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sqlglot import exp

from floodmark.core.sql.tree.columns import Columns, Named, Time, meaning_of
from floodmark.core.sql.tree.expressions import names_first
from floodmark.core.sql.tree.shape import Lookup, Select, Shape, Source, Stream, Union
from floodmark.core.sql.windows import GroupSpec, Reach, SessionSpec, WindowSpec
from floodmark.core.sql.words.function_names import WINDOWING
from floodmark.core.sql.words.functions import NOT_YET, is_call
from floodmark.core.sql.words.lexis import Word
from floodmark.core.text.durations import format_duration, parse_duration
from floodmark.errors import SqlAt

# Functions that return one of their arguments -> the index of the first such argument.
_CHOOSING = {"if": 1, "iff": 1, "coalesce": 0, "ifnull": 0, "nvl": 0, "nvl2": 1, "nullif": 0}
_MOST_WINDOWS = 100_000  # Spark copies each row for each of its windows
_HINTS = {
    "window": "write GROUP BY window(event_time_column, 'size'[, 'slide'[, 'start']]), ...",
    "session_window": "write GROUP BY session_window(event_time_column, 'gap'), ...",
}
HINT = f"{_HINTS['window']} (or session_window(event_time_column, 'gap'))"


def check_places(shape: Shape) -> None:
    """Refuse a window call that is in neither a SELECT's list nor its GROUP BY."""
    for i, word in enumerate(shape.words):
        if word.name in WINDOWING and is_call(shape.words, i) and word.clause not in ("select", "group"):
            elsewhere = f"elsewhere write {word.name}.start or {word.name}.end"
            raise word.refuse(shape.sql, f"{word.name}(...) belongs in GROUP BY; {elsewhere}")


_SETS: dict[type[exp.Expr], str] = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}


def _check_sets(shape: Shape, select: Select, spec: GroupSpec) -> None:
    """Refuse grouping sets beside windows that merge: with them, Spark 4.2 finds no end of a window in HAVING."""
    items = select.node.args["group"].expressions if select.grouped and spec.merges else []
    sets = next((_SETS[type(item)] for item in items if type(item) in _SETS), None)
    if sets is not None:
        problem = (
            f"{sets} beside {spec.function}(...): Spark cannot tell with it which windows are final; group by plain "
            "columns, with a SELECT for each set of columns and UNION ALL between them"
        )
        raise shape.at((sets.partition(" ")[0].lower(),), problem, select.number)


def no_calls(shape: Shape, beside: str) -> None:
    """Refuse every window call of a query whose rows are in no windows of time."""
    for i, word in enumerate(shape.words):
        if word.name in WINDOWING and is_call(shape.words, i):
            problem = f"{word.name}(...) beside {beside}: Spark would leave out some rows for it, and repeat others"
            raise word.refuse(shape.sql, f"{problem}; for a time that is rounded down write date_trunc('HOUR', time)")


def window_of(shape: Shape, select: Select, columns: Columns) -> tuple[exp.Anonymous, GroupSpec, GroupSpec] | None:
    """The window call by which a SELECT puts its rows into windows, and what it means; None for a SELECT without one.

    What it means: by itself, and of rows that depend on others. `columns`: those of what it reads. Raises SqlAt for a
    call that cannot be folded.
    """
    calls = [call for call in select.node.find_all(exp.Anonymous) if _is_window(call) and _is_own(select, call)]
    if not calls:
        return None
    call = _grouping_window(shape, select) if select.grouped else calls[0]
    spec = _spec(shape, select, call)
    if not select.grouped and spec.merges:
        raise _at_window(shape, select, f"{spec.function}(...) without GROUP BY: {_HINTS[spec.function]}")
    for other in calls:
        if _meaning(shape, select, other) != _meaning(shape, select, call):
            raise _again(shape, select, f"a second, different {other.name.lower()}(...) {NOT_YET}")
    time = _event_time(shape, select, call, columns)
    _check_sets(shape, select, spec)
    _check_names(shape, select, spec.function, columns)
    return call, spec, _reaching(shape, select, spec, time)


def _is_own(select: Select, call: exp.Expr) -> bool:
    """Whether a call belongs to this SELECT, not to one that it reads."""
    return call.find_ancestor(exp.Select) is select.node


def _reaching(shape: Shape, select: Select, spec: GroupSpec, time: Time) -> GroupSpec:
    found = spec.reaching(Reach(time.before_us, time.after_us))
    if found is None:
        raise _at_window(shape, select, f"{spec.function}(...) above a JOIN or OVER {NOT_YET}")
    return found


def _is_window(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in WINDOWING


def _grouping_window(shape: Shape, grouped: Select) -> exp.Anonymous:
    """The window call by which the query groups, written in GROUP BY or in the select list and named there."""
    found = [call for item in grouped.node.args["group"].expressions if (call := window_called(grouped, item))]
    if not found:
        sets = [name for item in grouped.node.args["group"].expressions if (name := _SETS.get(type(item)))]
        way = f"write the window beside it: GROUP BY window(...), {sets[0]} (...)" if sets else HINT
        where = f" beside {sets[0]}" if sets else ""
        raise shape.at(("group",), f"GROUP BY without a window{where} {NOT_YET}; {way}", grouped.number)
    if len(found) > 1:
        raise _again(shape, grouped, f"a second window(...) in GROUP BY {NOT_YET}")
    return found[0]


def window_called(grouped: Select, item: exp.Expr) -> exp.Anonymous | None:
    """The window call that an item of a GROUP BY is, or that it names in the select list; None for another item."""
    node = listed_as(grouped, item)
    return node if isinstance(node, exp.Anonymous) and _is_window(node) else None


def listed_as(grouped: Select, item: exp.Expr) -> exp.Expr | None:
    """The list expression that a GROUP BY item refers to by name or position; for any other item, the item itself."""
    items = grouped.node.expressions
    if isinstance(item, exp.Column) and not item.args.get("table"):
        name = item.name.lower()
        return next((i.this for i in items if isinstance(i, exp.Alias) and i.alias.lower() == name), None)
    if isinstance(item, exp.Literal) and not item.is_string and item.name.isdigit():
        return _by_ordinal(items, int(item.name))
    return item


def _by_ordinal(items: Sequence[exp.Expr], ordinal: int) -> exp.Expr | None:
    if not 1 <= ordinal <= len(items) or any(item.is_star for item in items[:ordinal]):
        return None
    return items[ordinal - 1].unalias()


def _again(shape: Shape, grouped: Select, problem: str) -> SqlAt:
    """The error at the superfluous window(...): in the select list, or the last in GROUP BY."""
    calls = _calls(shape, grouped)
    return next((w for w in calls if w.clause == "select"), calls[-1]).refuse(shape.sql, problem)


def _at_window(shape: Shape, grouped: Select, problem: str) -> SqlAt:
    calls = _calls(shape, grouped)
    return next((w for w in calls if w.clause == "group"), calls[0]).refuse(shape.sql, problem)


def _calls(shape: Shape, grouped: Select) -> list[Word]:
    """Every `window(` of the SELECT with the GROUP BY."""
    found = [w for i, w in enumerate(shape.words) if w.name in WINDOWING and is_call(shape.words, i)]
    return [w for w in found if w.select == grouped.number]


def _meaning(shape: Shape, grouped: Select, call: exp.Anonymous) -> tuple[GroupSpec, str]:
    column = call.expressions[0]
    return _spec(shape, grouped, call), (column.name if len(grouped.reads) == 1 else column.sql("spark")).lower()


def _spec(shape: Shape, grouped: Select, call: exp.Anonymous) -> GroupSpec:
    name, args = call.name.lower(), call.expressions
    most, read = _FORMS[name]
    if not 2 <= len(args) <= most:
        raise _at_window(shape, grouped, f"{name}(...) with {len(args)} arguments: {_HINTS[name]}")
    return read(shape, grouped, args)


def _window(shape: Shape, grouped: Select, args: Sequence[exp.Expr]) -> WindowSpec:
    refused = partial(_at_window, shape, grouped)
    lengths = [_length(refused, "window", arg, i == 2) for i, arg in enumerate(args[1:])]
    size = lengths[0]
    slide = lengths[1] if len(lengths) > 1 else size
    offset = lengths[2] if len(lengths) > 2 else 0
    if not 0 < slide <= size or abs(offset) >= slide:
        raise refused(
            "window(...): expected 0 < slide <= size and a start nearer to 0 than the slide, found size "
            f"{format_duration(size)}, slide {format_duration(slide)}, start {format_duration(offset)}"
        )
    if size // slide > _MOST_WINDOWS:
        raise refused(f"window(...): expected a row to be in at most {_MOST_WINDOWS} windows, found {size // slide}")
    return WindowSpec(size, slide, offset)


def _session(shape: Shape, grouped: Select, args: Sequence[exp.Expr]) -> SessionSpec:
    """The gap may be a text, or an expression over the row that chooses between texts or gives an interval."""
    refused, gap, lengths = partial(_at_window, shape, grouped), args[1], [0]
    choices = list(_choices(gap))
    texts = [choice for choice in choices if isinstance(choice, _CONSTANTS)]
    for text in texts:
        lengths.append(_length(refused, "session_window", text, False))
        if lengths[-1] <= 0:
            raise refused(f"session_window(...): expected a gap above 0, found {text.sql('spark')}")
    return SessionSpec(gap.sql("spark"), max(lengths) if texts == choices else None)


# Of each function: how many arguments it has at most, and what reads them.
_FORMS: dict[str, tuple[int, Callable[[Shape, Select, Sequence[exp.Expr]], GroupSpec]]] = {
    "window": (4, _window),
    "session_window": (2, _session),
}


_CONSTANTS = (exp.Literal, exp.Boolean, exp.Null, exp.Binary)


def _choices(gap: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions of which one becomes the gap; only Spark knows the values of columns and functions."""
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
    else:
        yield gap


def _length(refused: Callable[[str], SqlAt], window: str, arg: exp.Expr, negative: bool) -> int:
    if not (isinstance(arg, exp.Literal) and arg.is_string):
        raise refused(f"{window}(...): expected a duration in quotes, found {arg.sql('spark')}")
    if re.search(r"\d[a-z]", arg.name, re.IGNORECASE):
        raise refused(f"{window}(...): Spark needs a space between number and unit in {arg.name!r}")
    try:
        return parse_duration(arg.name, negative=negative)
    except ValueError as error:
        raise refused(f"{window}(...): {error}") from None


def _event_time(shape: Shape, select: Select, call: exp.Anonymous, columns: Columns) -> Time:
    """The event time in the call, which must be that of every stream below: passed on or renamed, but not computed."""
    meaning = meaning_of(call.expressions[0], columns)
    if isinstance(meaning, Time):
        return meaning
    name, below = call.name.lower(), sorted(set().union(*(streams_of(source) for source in select.sources)))
    without = [stream for stream in below if shape.declared[stream] is None]
    if without:
        problem = f"{name}(...) needs the event time of stream {without[0]}: declare `event_time`"
        raise _at_window(shape, select, problem)
    expected = " and ".join(f"{shape.declared[stream]} of stream {stream}" for stream in below)
    raise _at_window(
        shape,
        select,
        f"{name}(...) must be over the event time: expected {expected}, unchanged or only renamed (and no `*` before "
        f"it in a UNION ALL), found {call.expressions[0].sql('spark')}",
    )


def streams_of(source: Source) -> set[str]:
    """The streams that `source` reads, as declared."""
    if isinstance(source, Stream | Lookup):
        return {source.name} if isinstance(source, Stream) else set()
    below = source.branches if isinstance(source, Union) else source.sources
    return set().union(*(streams_of(one) for one in below))


def lookups_of(source: Source) -> set[str]:
    """The lookup tables that `source` reads, as declared."""
    if isinstance(source, Stream | Lookup):
        return {source.name} if isinstance(source, Lookup) else set()
    below = source.branches if isinstance(source, Union) else source.sources
    return set().union(*(lookups_of(one) for one in below))


def _check_names(shape: Shape, select: Select, name: str, columns: Columns) -> None:
    """Refuse other columns with the window's name, by which the closing condition refers to its end."""
    if any(isinstance(column, Named) and column.name == name for column in columns):
        raise shape.at((name,), f"a column named {name} below the GROUP BY; rename it")
    where = select.node.args.get("where")
    if where is not None and names_first(where, name) and all(read.alias != name for read in select.reads):
        problem = f"{name} in WHERE, which decides which rows come into windows; write the condition into HAVING"
        raise shape.at((name,), problem, select.number, "where")
    for item in select.node.expressions:
        plain = _is_window(item.unalias()) or (isinstance(item.unalias(), exp.Column) and item.unalias().name == name)
        if isinstance(item, exp.Alias) and item.alias.lower() == name and not plain:
            raise shape.at((name,), f"AS {name}: only the window itself may have this name", select.number)
