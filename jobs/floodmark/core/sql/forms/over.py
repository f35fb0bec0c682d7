"""Analyses the `OVER (...)` of a SELECT: windows that follow each row, or an order among the rows of one window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from sqlglot import exp

from floodmark.core.sql.tree.columns import Columns, Part, Time, meaning_of
from floodmark.core.sql.tree.intervals import length_of, slack_of
from floodmark.core.sql.tree.shape import Select, Shape
from floodmark.core.sql.words.function_names import RANKS, TIED
from floodmark.core.sql.words.functions import NOT_YET, closing
from floodmark.core.sql.words.lexis import Word
from floodmark.errors import SqlAt

_FORM = (
    "write OVER ([PARTITION BY ...] ORDER BY event_time_column RANGE BETWEEN INTERVAL 'n' MINUTES PRECEDING AND "
    "CURRENT ROW)"
)
_BY_PLACE = ("first_value", "last_value", "nth_value")  # in a RANGE frame, equal rows share one position
_OF_WHOLE = ("lead", "ntile", "cume_dist", "percent_rank")  # for these every row depends on the rows after it
_BY_WINDOW = "PARTITION BY w, ... with w from FROM (SELECT window(ts, '1 hour') AS w, ... FROM ...)"


def overs_of(select: Select) -> list[exp.Window]:
    """Every OVER in the list of a SELECT."""
    return [window for item in select.node.expressions for window in item.find_all(exp.Window)]


def check_in_windows(shape: Shape, select: Select, columns: Columns) -> None:
    """Allow any order and frame for an OVER among the rows of one window; raises SqlAt if it crosses windows."""
    for over in overs_of(select):
        parts = [part for item in over.args.get("partition_by") or [] if (part := _part(item, columns))]
        if not parts:
            raise _at(shape, select, f"OVER above windows: expected the window in its PARTITION BY: {_BY_WINDOW}")
    check_places(shape, select)


def check_places(shape: Shape, select: Select) -> None:
    """Allow any order and frame for an OVER over complete rows, provided that it defines a row's position."""
    for over in overs_of(select):
        _check_place(shape, select, over)


def _check_place(shape: Shape, select: Select, over: exp.Window) -> None:
    name = _function(over)
    if name in RANKS and over.args.get("order") is None:
        raise _at(shape, select, f"{name}: expected ORDER BY in its OVER, because rows without an order have no place")
    if name in _BY_PLACE and _frame(over) != "ROWS" and not (name == "first_value" and _frame(over) is None):
        problem = (
            f"{name}: expected ROWS BETWEEN ... AND ..., because rows that are equal in the order have no "
            "defined position"
        )
        raise _at(shape, select, problem)
    if _frame(over) == "ROWS" and over.args.get("order") is None:
        raise _at(shape, select, "OVER with ROWS: expected ORDER BY, because rows without an order have no position")


def _function(over: exp.Window) -> str:
    return str((over.this.this if isinstance(over.this, exp.Filter) else over.this).name).lower()


def _frame(over: exp.Window) -> str | None:
    """ROWS or RANGE; None without a frame."""
    frame = over.args.get("spec")
    return frame.args.get("kind") if frame is not None else None


def _part(item: exp.Expr, columns: Columns) -> Part | None:
    meaning = meaning_of(item, columns)
    return meaning if isinstance(meaning, Part) and meaning.identifies_end else None


@dataclass(frozen=True)
class Reach:
    """The rows on which the OVERs of a SELECT depend: those within `span` of a row's event time, and those in `backs`.

    time: the event time of a row. places: whether an OVER distinguishes rows that are equal in its order.
    """

    time: exp.Expr
    span: Time
    backs: tuple[Back, ...] = ()
    places: bool = False


@dataclass(frozen=True)
class Back:
    """An OVER that looks `rows` rows back (None: to the first), however old, among rows equal in `parts`."""

    rows: int | None
    parts: tuple[exp.Expr, ...]


def reach_of(shape: Shape, select: Select, columns: Columns) -> Reach:
    """The rows that the OVERs of a SELECT over rows depend on. Raises SqlAt for an OVER that cannot be folded."""
    found = [_reach(shape, select, over, columns) for over in overs_of(select)]
    time, *others = (one.time for one in found)
    if any(other.sql("spark").lower() != time.sql("spark").lower() for other in others):
        raise _at(shape, select, f"OVER with another event time than in the OVER before it {NOT_YET}")
    span = Time(max(one.span.before_us for one in found), max(one.span.after_us for one in found))
    backs = tuple(back for one in found for back in one.backs)
    return Reach(time, span, backs, any(one.places for one in found))


def _reach(shape: Shape, select: Select, over: exp.Window, columns: Columns) -> Reach:
    parts: list[exp.Expr] = over.args.get("partition_by") or []
    moment = next((item for item in parts if isinstance(meaning_of(item, columns), Time)), None)
    if moment is not None:  # among rows of one event time
        _check_place(shape, select, over)
        span = meaning_of(moment, columns)
        assert isinstance(span, Time)
        return Reach(moment, span, places=True)
    if over.args.get("order") is None:
        raise _at(shape, select, f"OVER {over.alias or '()'}: a window without an order of its own {NOT_YET}")
    if _goes_by_time(over):
        return _by_time(shape, select, over, columns)
    time = _ordering_time(shape, select, over.args["order"].expressions[:1], columns)
    if time != Time():
        raise _at(shape, select, f"OVER by rows above a JOIN or OVER {NOT_YET}")
    _check_place(shape, select, over)
    rows = _rows_back(shape, select, over)
    backs = () if rows == 0 else (Back(rows, tuple(parts)),)
    return Reach(over.args["order"].expressions[0].this, time, backs, places=True)


def _goes_by_time(over: exp.Window) -> bool:
    """Whether its frame is one of event time with bounds on both sides."""
    frame = over.args.get("spec")
    return _function(over) not in RANKS - set(_BY_PLACE) and (
        frame is not None and _frame(over) == "RANGE" and frame.args.get("start") != "UNBOUNDED"
    )


def _by_time(shape: Shape, select: Select, over: exp.Window, columns: Columns) -> Reach:
    _check_place(shape, select, over)
    order, frame = over.args["order"].expressions, over.args["spec"]
    time = _ordering_time(shape, select, order, columns)
    begin = _bound(shape, select, frame.args.get("start"), frame.args.get("start_side"))
    end = _bound(shape, select, frame.args.get("end") or "CURRENT ROW", frame.args.get("end_side"))
    before, after = max(0, -begin), max(0, end)
    span = Time(time.before_us + before + slack_of(before), time.after_us + after + slack_of(after))
    return Reach(order[0].this, span)


def _rows_back(shape: Shape, select: Select, over: exp.Window) -> int | None:
    """How many rows before its own an OVER reads; None: all."""
    name, frame = _function(over), over.args.get("spec")
    if name in _OF_WHOLE or (frame is not None and frame.args.get("end_side") == "FOLLOWING"):
        problem = f"{name}: OVER that depends on later rows is never final; in a window: {_BY_WINDOW}"
        raise _at(shape, select, problem)
    bounds = [_places(shape, select, over, end) for end in ("start", "end")] if frame is not None else []
    if name == "lag":
        return _offset(shape, select, over)
    return None if name in RANKS - set(_BY_PLACE) or frame is None else bounds[0]


def _places(shape: Shape, select: Select, over: exp.Window, end: str) -> int | None:
    """How many rows before its own a frame's bound is; None: unknown, but not after it.

    Only a bound that is a plain number is accepted: Spark reads `-1 PRECEDING` as `1 FOLLOWING`, and computes
    expressions.
    """
    frame = over.args["spec"]
    bound, side = frame.args.get(end), frame.args.get(f"{end}_side")
    if bound in ("CURRENT ROW", None):
        return 0
    if bound == "UNBOUNDED" and side == "PRECEDING":
        return None
    if _frame(over) == "RANGE" and isinstance(bound, exp.Interval):
        _bound(shape, select, bound, side)
        return None
    if _frame(over) == "ROWS" and side == "PRECEDING" and isinstance(bound, exp.Literal) and bound.name.isdecimal():
        return int(bound.name)
    shown = bound.sql("spark") if isinstance(bound, exp.Expr) else bound
    before = "a whole number of rows" if _frame(over) == "ROWS" else "a length such as INTERVAL '5' MINUTES"
    problem = f"expected {before} of at least 0, or UNBOUNDED, before PRECEDING, or CURRENT ROW"
    raise _at(shape, select, f"OVER: a frame that reaches {shown} {side}: {problem}")


def _offset(shape: Shape, select: Select, over: exp.Window) -> int:
    given = over.this.expressions[1:2]
    if given and not (isinstance(given[0], exp.Literal) and given[0].name.isdigit()):
        raise _at(shape, select, f"lag: expected a number of rows of at least 0, found {given[0].sql('spark')}")
    return int(given[0].name) if given else 1


def _ordering_time(shape: Shape, select: Select, order: list[exp.Expr], columns: Columns) -> Time:
    ordered = order[0]
    if len(order) > 1 or not isinstance(ordered, exp.Ordered) or ordered.args.get("desc"):
        raise _at(shape, select, f"OVER: expected ORDER BY the event time alone, oldest first; {_FORM}")
    meaning = meaning_of(ordered.this, columns)
    if not isinstance(meaning, Time):
        raise _at(shape, select, f"OVER must be ordered by the event time, found {ordered.this.sql('spark')}; {_FORM}")
    return meaning


def _bound(shape: Shape, select: Select, bound: exp.Expr | str, side: str | None) -> int:
    """Microseconds after the row (negative: before it)."""
    if bound == "CURRENT ROW":
        return 0
    if not isinstance(bound, exp.Expr):
        raise _at(shape, select, f"OVER: a frame that reaches {bound} {NOT_YET}; {_FORM}")
    if not isinstance(bound, exp.Interval):
        raise _at(shape, select, f"OVER: a frame that reaches {bound.sql('spark')} {NOT_YET}; {_FORM}")
    try:
        length = length_of(bound)
    except ValueError as error:
        raise _at(shape, select, f"OVER: {error}") from None
    return -length if side == "PRECEDING" else length


def _at(shape: Shape, select: Select, problem: str) -> SqlAt:
    return shape.at(("over",), problem, select.number)


def tie_breaks(words: Sequence[Word], numbers: Set[int]) -> Iterator[int]:
    """The offsets where ORDER BYs of these SELECTs' OVERs end, if the OVER distinguishes rows that are equal in it.

    Adding `, struct(*)` there makes the order independent of when and in which epochs the rows arrived.
    """
    for i, word in enumerate(words):
        if word.name == "over" and word.kind == "word" and word.select in numbers and words[i + 1].text == "(":
            end = closing(words, i + 1)
            inside = range(i + 2, end)
            frame = next((k for k in inside if words[k].name in ("rows", "range") and _begins_frame(words, k)), end)
            ordered = any(words[k].name == "order" for k in inside)
            if ordered and (_function_before(words, i) in TIED or words[frame].name == "rows"):
                yield words[frame - 1].end


def _begins_frame(words: Sequence[Word], k: int) -> bool:
    after = words[k + 1]
    return words[k].kind == "word" and (
        after.kind == "number" or after.name in ("between", "unbounded", "current", "interval")
    )


def _function_before(words: Sequence[Word], i: int) -> str:
    """The name of the function whose call ends before word `i`."""
    depth = 0
    for k in range(i - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(words[k].text, 0)
        if depth == 0 and words[k].text == "(" and words[k - 1].name != "filter":
            return words[k - 1].name
    return ""
