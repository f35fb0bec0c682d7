"""Analyses the joins of a SELECT: how far apart in event time joined rows may be, or that they share a window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter

from sqlglot import exp

from floodmark.core.sql.tree.columns import Column, Columns, Meaning, Named, Part, Rest, Time, lookup, meaning_of, under
from floodmark.core.sql.tree.intervals import length_of, slack_of
from floodmark.core.sql.tree.shape import Select, Shape
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import SqlAt

BOUNDED = (
    "write ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '5' MINUTES AND a.ts + INTERVAL '10' MINUTES, of the event "
    "times; or join windows: FROM (SELECT window(ts, '10 minutes') AS w, ... FROM a) a JOIN (...) b ON a.w = b.w; "
    "or, to allow an inner join that keeps every row forever, `unbounded: true`"
)
_COMPARED: dict[type[exp.Expr], str] = {exp.LT: "<", exp.LTE: "<", exp.GT: ">", exp.GTE: ">", exp.EQ: "="}
_SIDES = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True)
class Joined:
    """The columns of all relations of a SELECT.

    times: the event times that decide when a row of the join is final, as SQL; the second applies if the first is NULL
    (in a FULL JOIN). endless: its rows may be any time apart.
    """

    columns: Columns
    times: tuple[tuple[str, Time], ...] = ()
    endless: bool = False


@dataclass(frozen=True)
class _Clock:
    """An event time of one of the relations: the relation's number and name, and the column's name."""

    read: int
    relation: str
    name: str
    time: Time

    @property
    def sql(self) -> str:
        return f"{quoted(self.relation)}.{quoted(self.name)}" if self.relation else quoted(self.name)


def side_of(join: exp.Join | None) -> str:
    """inner, left, right, full, semi or anti; first for a relation that is not joined to one before it."""
    if join is None:
        return "first"
    kind = (join.args.get("kind") or "").upper()
    return kind.lower() if kind in ("SEMI", "ANTI") else _SIDES.get((join.args.get("side") or "").upper(), "inner")


def join_windows(shape: Shape, select: Select, columns: Sequence[Columns]) -> Joined:
    """Join relations of windows, each by the window to one before it; raises SqlAt for one that is not."""
    for number in range(1, len(select.reads)):
        if not any((*_equal_windows(select, columns, number), *_used_windows(select, columns, number))):
            raise _at(shape, select, "JOIN of windows: expected ON ... AND a.w = b.w, the windows of both sides (of "
                      "one size and slide), or their ends")  # fmt: skip
    return Joined(_output(select, columns, {}))


def join_rows(shape: Shape, select: Select, columns: Sequence[Columns]) -> Joined:
    """Join relations of single rows with bounded distances in event time; raises SqlAt if one is not bounded."""
    clocks = [list(_clocks(number, read.alias, columns[number])) for number, read in enumerate(select.reads)]
    for read, found in zip(select.reads, clocks, strict=True):
        if not found:
            raise _at(shape, select, f"JOIN: {read.alias or 'a subquery'} has no event time to bound it by; {BOUNDED}")
    distances = _distances(select, columns, [clock for found in clocks for clock in found])
    if shape.unbounded and _is_endless(select, distances):
        return _endless(select, columns, clocks)
    preserved, full = _preserved(select), _is_full(select)
    reached = {
        clock: _reach(shape, select, clock, clocks, distances) for number in preserved for clock in clocks[number]
    }
    soonest = min(reached, key=lambda clock: reached[clock].after_us)
    ends = [clocks[number][0] for number in preserved] if full else [soonest]
    times = {(clock.read, clock.name): time for clock, time in reached.items()}
    return Joined(_output(select, columns, times), _final_by(select, {clock: reached[clock] for clock in ends}))


def _final_by(select: Select, ends: Mapping[_Clock, Time]) -> tuple[tuple[str, Time], ...]:
    """The times that decide when a row is final. The two of a FULL JOIN that USING has merged are one column: a name
    before it could mean another column, such as a struct."""
    (name, *others) = {clock.name for clock in ends}
    one_column = len(ends) == len(select.reads) == 2 and not others and name in using(select.reads[1].join)
    if not one_column:
        return tuple((clock.sql, time) for clock, time in ends.items())
    either = Time(max(one.before_us for one in ends.values()), max(one.after_us for one in ends.values()))
    return ((quoted(name), either),)


def _is_endless(select: Select, distances: _Distances) -> bool:
    """Whether rows of inner joins may be any time apart; then a joined row is final when its own rows are."""
    return len(_preserved(select)) == len(select.reads) and not _is_full(select) and math.inf in distances.values()


def _endless(select: Select, columns: Sequence[Columns], clocks: Sequence[Sequence[_Clock]]) -> Joined:
    latest = f"greatest({', '.join(found[0].sql for found in clocks)})"
    after = max(clock.time.after_us for found in clocks for clock in found)
    return Joined(_output(select, columns, {}), ((latest, Time(0, after)),), endless=True)


def _at(shape: Shape, select: Select, problem: str) -> SqlAt:
    mine = [word for word in shape.words if word.select == select.number and word.clause == "from"]
    return next(word for word in mine if word.name in ("join", ",")).refuse(shape.sql, problem)


def _conditions(select: Select, number: int) -> Iterator[exp.Expr]:
    """The conditions that hold for all rows in which the relation with this number is joined."""
    join = select.reads[number].join
    if join is not None and join.args.get("on") is not None:
        yield from conjuncts(join.args["on"])
    where = select.node.args.get("where")
    if where is not None and all(side_of(read.join) in ("first", "inner") for read in select.reads):
        yield from conjuncts(where.this)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that all hold where this one does."""
    if isinstance(node, exp.Paren):
        yield from conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def _owned(node: exp.Expr, select: Select, columns: Sequence[Columns]) -> tuple[int, Meaning]:
    """The relation and meaning of a column; -1 and None if it has no meaning or is ambiguous."""
    found = [
        (number, meaning)
        for number, read in enumerate(select.reads)
        if (meaning := meaning_of(node, under(columns[number], read.alias))) is not None
    ]
    return found[0] if len(found) == 1 else (-1, None)


def _equal_windows(select: Select, columns: Sequence[Columns], number: int) -> Iterator[Part]:
    """The window parts that are equal in this relation and in one before it."""
    for node in _conditions(select, number):
        if isinstance(node, (exp.EQ, exp.NullSafeEQ)):
            sides = (_owned(side, select, columns) for side in (node.left, node.right))
            (a, left), (b, right) = sorted(sides, key=itemgetter(0))
            if isinstance(left, Part) and left == right and left.identifies_end and a < b == number:
                yield left


def _used_windows(select: Select, columns: Sequence[Columns], number: int) -> Iterator[Part]:
    """The window parts that USING makes equal in this relation and in one before it."""
    for name in using(select.reads[number].join):
        right = lookup(columns[number], name)
        if (
            isinstance(right, Part)
            and right.identifies_end
            and right in (lookup(own, name) for own in columns[:number])
        ):
            yield right


def using(join: exp.Join | None) -> list[str]:
    return [column.name.lower() for column in join.args.get("using") or []] if join is not None else []


def _clocks(number: int, relation: str, columns: Columns) -> Iterator[_Clock]:
    for column in columns:
        if isinstance(column.meaning, Time) and column.known and lookup(columns, column.known):
            yield _Clock(number, relation, column.known, column.meaning)


def _preserved(select: Select) -> list[int]:
    """The numbers of the relations that have a row in every row of the join; of a FULL JOIN, both."""
    sides = [side_of(read.join) for read in select.reads]
    if "right" in sides:
        return [sides.index("right")]
    return [number for number, side in enumerate(sides) if side in ("first", "inner", "full")]


def _is_full(select: Select) -> bool:
    return any(side_of(read.join) == "full" for read in select.reads)


# (a, b) -> by how many microseconds, at most, b is later than a.
_Distances = dict[tuple[_Clock, _Clock], float]
# An event time, and the bounds of the offset added to it.
_Moment = tuple[_Clock, int, int]


def _distances(select: Select, columns: Sequence[Columns], clocks: Sequence[_Clock]) -> _Distances:
    """The distance between each two event times that follows from the conditions on which a joined row depends.

    Conditions of a LEFT or ANTI join say nothing of the rows that it keeps, only of those of its own relation.
    """
    compared = list(_compared(select, columns, clocks))
    joined = range(1, len(select.reads))
    optional = frozenset(number for number in joined if side_of(select.reads[number].join) in ("left", "anti"))
    always = _matched(compared, frozenset(joined) - optional, optional)
    closed = cache(lambda numbers: _closed(clocks, [one for one in compared if one.number in numbers]))
    found: _Distances = {}
    for a, b in itertools.product(clocks, repeat=2):
        found[a, b] = closed(_matched(compared, always | ({a.read, b.read} & optional), optional))[a, b]
    return found


@dataclass(frozen=True)
class _Compared:
    """left < right, left > right or left = right, by a condition of the join with this number."""

    number: int
    left: _Moment
    op: str
    right: _Moment


def _compared(select: Select, columns: Sequence[Columns], clocks: Sequence[_Clock]) -> Iterator[_Compared]:
    places = {(clock.read, clock.name): clock for clock in clocks}
    for number in range(1, len(select.reads)):
        for node in _conditions(select, number):
            for left, op, right in _comparisons(node):
                moments = [_moment(side, select, columns, places) for side in (left, right)]
                if moments[0] is not None and moments[1] is not None:
                    yield _Compared(number, moments[0], op, moments[1])
        for name in using(select.reads[number].join):
            same = [clock for clock in clocks if clock.name == name and clock.read <= number]
            for clock in same[1:]:
                yield _Compared(number, (same[0], 0, 0), "=", (clock, 0, 0))


def _matched(compared: Sequence[_Compared], numbers: frozenset[int], optional: frozenset[int]) -> frozenset[int]:
    """These joins, and the optional ones that have a match where these have: NULL is never before or after a time."""
    read = {one[0].read for here in compared if here.number in numbers for one in (here.left, here.right)}
    more = numbers | (read & optional)
    return numbers if more == numbers else _matched(compared, more, optional)


def _closed(clocks: Sequence[_Clock], compared: Sequence[_Compared]) -> _Distances:
    """The distance between each two event times that follows from all these together."""
    known: _Distances = {(a, b): 0.0 if a == b else math.inf for a in clocks for b in clocks}
    for one in compared:
        _learn(known, one.left, one.op, one.right)
    for middle, a, b in itertools.product(clocks, repeat=3):
        known[a, b] = min(known[a, b], known[a, middle] + known[middle, b])
    return known


def _comparisons(node: exp.Expr) -> Iterator[tuple[exp.Expr, str, exp.Expr]]:
    if isinstance(node, exp.Between):
        yield node.this, ">", node.args["low"]
        yield node.this, "<", node.args["high"]
    elif type(node) in _COMPARED:
        yield node.args["this"], _COMPARED[type(node)], node.args["expression"]


def _moment(
    node: exp.Expr, select: Select, columns: Sequence[Columns], places: dict[tuple[int, str], _Clock]
) -> _Moment | None:
    if isinstance(node, exp.Paren):
        return _moment(node.this, select, columns, places)
    if isinstance(node, (exp.Add, exp.Sub)):
        return _moved(_moment(node.left, select, columns, places), node)
    number, meaning = _owned(node, select, columns)
    clock = places.get((number, node.name.lower())) if isinstance(meaning, Time) else None
    return (clock, 0, 0) if clock else None


def _moved(moment: _Moment | None, node: exp.Add | exp.Sub) -> _Moment | None:
    try:
        length = length_of(node.right)
    except ValueError:
        return None
    by, slack = length if isinstance(node, exp.Add) else -length, slack_of(length)
    return (moment[0], moment[1] + by - slack, moment[2] + by + slack) if moment else None


def _learn(known: _Distances, left: _Moment, op: str, right: _Moment) -> None:
    """Record left < right, left > right or left = right."""
    (a, a_low, a_high), (b, b_low, b_high) = left, right
    if op != ">":  # a + at least a_low <= b + at most b_high
        known[b, a] = min(known[b, a], b_high - a_low)
    if op != "<":
        known[a, b] = min(known[a, b], a_high - b_low)


def _reach(
    shape: Shape, select: Select, clock: _Clock, clocks: Sequence[Sequence[_Clock]], distances: _Distances
) -> Time:
    """How far from this event time the rows may be on which a row of the join depends."""
    before, after = clock.time.before_us, clock.time.after_us
    for number, others in enumerate(clocks):
        back = min(distances[one, clock] + one.time.before_us for one in others)
        ahead = min(distances[clock, one] + one.time.after_us for one in others)
        if math.inf in (back, ahead):
            name = select.reads[max(number, clock.read)].alias or "a subquery"
            missing = "no bound" if back == ahead else "a bound on one side only"
            raise _at(shape, select, f"JOIN of {name} with {missing} on how far event times may lie apart; {BOUNDED}")
        before, after = max(before, int(back)), max(after, int(ahead))
    return Time(before, after)


def _output(select: Select, columns: Sequence[Columns], times: dict[tuple[int, str], Time]) -> Columns:
    """The columns of the join; windows and event times keep their meaning where every row has a value."""
    certain = [] if _is_full(select) else _preserved(select)
    found: list[Column] = []
    for number, (read, own) in enumerate(zip(select.reads, columns, strict=True)):
        if side_of(read.join) in ("semi", "anti"):
            continue
        for column in own:
            meaning = column.meaning if number in certain else None
            if isinstance(meaning, Time):
                meaning = times.get((number, column.known or ""))
            found.append(replace(column, relation=read.alias, meaning=meaning))
    for read in select.reads:
        for name in using(read.join):
            found = merged(found, name)
    return tuple(found)


def merged(columns: Sequence[Column], name: str) -> list[Column]:
    """Merge a USING column: by name alone it is one column; by name and relation, those of both sides."""
    same = [column for column in columns if column.known == name]
    meaning = next((column.meaning for column in same if column.meaning is not None), None)
    rest: list[Column] = []
    for column in columns:
        if isinstance(column, Named):
            rest.append(replace(column, merged=column.merged or column.name == name))
        elif isinstance(column, Rest):
            rest.append(replace(column, hidden=column.hidden | {name}))
        else:
            rest.append(column)
    return [Named(name, meaning), *rest]
