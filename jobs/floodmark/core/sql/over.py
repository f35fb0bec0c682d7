"""The `OVER (...)` of a SELECT: windows that follow each row, by a range of the event time."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from floodmark.core.durations import parse_duration
from floodmark.core.sql.functions import NOT_THERE_YET
from floodmark.core.sql.lexis import SqlAt
from floodmark.core.sql.shape import Select, Shape
from floodmark.core.sql.window import is_event_time
from floodmark.core.windows import OverSpec

_FORM = (
    "write OVER ([PARTITION BY ...] ORDER BY event_time_column RANGE BETWEEN INTERVAL 'n' MINUTES PRECEDING AND "
    "CURRENT ROW)"
)


def check_over(shape: Shape, select: Select) -> OverSpec:
    """How far the windows of a SELECT reach, all of them together. Raises SqlAt for what cannot be folded."""
    found = [_reach(shape, select, window) for window in _windows(select)]
    return OverSpec(max(before for before, _ in found), max(after for _, after in found))


def time_of(select: Select) -> str:
    """The event time as the SELECT's own ORDER BY writes it."""
    return str(next(_windows(select)).args["order"].expressions[0].this.sql("spark"))


def _windows(select: Select) -> Iterator[exp.Window]:
    for item in select.node.expressions:
        yield from item.find_all(exp.Window)


def _reach(shape: Shape, select: Select, window: exp.Window) -> tuple[int, int]:
    """Microseconds before and after a row that its window holds."""
    if window.args.get("order") is None:
        raise _at(shape, select, f"OVER {window.alias or '()'}: a window without an order of its own {NOT_THERE_YET}")
    _check_order(shape, select, window.args["order"].expressions)
    frame = window.args.get("spec")
    if frame is None or frame.args.get("kind") != "RANGE":
        kind = "without a frame" if frame is None else f"with {frame.args.get('kind')}"
        raise _at(shape, select, f"OVER {kind} {NOT_THERE_YET}; {_FORM}")
    before = _bound(shape, select, frame.args.get("start"), frame.args.get("start_side"))
    after = _bound(shape, select, frame.args.get("end") or "CURRENT ROW", frame.args.get("end_side"))
    return max(0, -before), max(0, after)


def _check_order(shape: Shape, select: Select, order: list[exp.Expr]) -> None:
    ordered = order[0]
    if len(order) > 1 or not isinstance(ordered, exp.Ordered) or ordered.args.get("desc"):
        raise _at(shape, select, f"OVER: expected ORDER BY the event time alone, oldest first; {_FORM}")
    if not is_event_time(shape, select, ordered.this):
        raise _at(shape, select, f"OVER must be ordered by the event time, found {ordered.this.sql('spark')}; {_FORM}")


def _bound(shape: Shape, select: Select, bound: exp.Expr | str, side: str | None) -> int:
    """Microseconds after the row (negative: before it)."""
    if bound == "CURRENT ROW":
        return 0
    if not isinstance(bound, exp.Interval):
        raise _at(shape, select, f"OVER: a frame that reaches {bound} {NOT_THERE_YET}; {_FORM}")
    length = _length(shape, select, bound)
    return -length if side == "PRECEDING" else length


def _length(shape: Shape, select: Select, bound: exp.Interval) -> int:
    unit = bound.args.get("unit")
    text = f"{bound.this.name} {unit.name if isinstance(unit, exp.Var) else ''}".strip()
    if not isinstance(bound.this, exp.Literal):
        raise _at(shape, select, f"OVER: expected a length such as INTERVAL '5' MINUTES, found {bound.sql('spark')}")
    try:
        return parse_duration(text)
    except ValueError as error:
        raise _at(shape, select, f"OVER: {error}") from None


def _at(shape: Shape, select: Select, problem: str) -> SqlAt:
    return shape.at(("over",), problem, select.number)
