"""Decides what a correction recomputes, after rows of a source were removed or changed. Times are in microseconds.

Results that epochs have written are replaced in the sinks, and the rows that others still need in the state. Nothing
outside of the interval depends on the rows that left and came.

Windows are known by their size. Of sessions, rows show where they begin and end, and intervals are of their starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from floodmark.core.lifecycle.backfills import (
    Interval,
    Shown,
    is_final,
    of_no_interval,
    reach_of,
    reasons_by_start,
    reasons_in_sinks,
    same_tables,
    scope_now,
    windows_of,
)
from floodmark.core.protocol.records.backfills import Gaps, Restated, Rewrite, Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts
from floodmark.core.rules.checks.recomputing import LATE_UNKNOWN, Scope, has_keys, reasons_for_all
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.forms.distinct import reach_us
from floodmark.core.sql.timecolumn import time_column_of
from floodmark.core.sql.windows import Reach, Sizes
from floodmark.errors import Refused

SECOND = 1_000_000  # microseconds
MOST_GAPS = 63  # of an interval: each is a condition on every row that is read
BEFORE = 2  # gaps: as far before a session a row can lie that joins it with another one
Parts = list[tuple[int, int]]  # intervals from (inclusive) to (exclusive), in order and apart


def touched_interval(rule: Rule, times: Sequence[tuple[int, int]], needed: int | None) -> Interval:
    """The interval of all results that depend on a row of these event times, with gaps where none does.

    times: in order, from and to, both included. needed: an event time from which on state needs the rows, so that there
    is no gap; None: it needs all.
    """
    windows, reach = windows_of(rule), reach_of(rule)
    found = [_touched(windows, reach, oldest, newest) for oldest, newest in times]
    whole = Interval.of(rule, found[0][0], max(end for _, end in found), final=True)
    # How far its last windows reach beyond an interval differs between intervals if sizes do not divide each other.
    beyond = max(windows.end_of(end) - end for _, end in found) if windows else 0
    whole = replace(whole, high=whole.end + beyond + reach.after_us)
    gaps = [] if needed is None else _gaps(found, windows, needed - (whole.high - whole.end))
    return replace(whole, gaps=_widest(gaps))


def _touched(windows: Sizes | None, reach: Reach, oldest: int, newest: int) -> tuple[int, int]:
    """The results that depend on a row between these event times."""
    oldest, newest = oldest - reach.after_us, newest + reach.before_us
    return windows.around(oldest, newest) if windows else (oldest, newest + 1)


def _gaps(found: Sequence[tuple[int, int]], windows: Sizes | None, before: int) -> Iterator[tuple[int, int]]:
    """What lies between these intervals, and before a time."""
    last = found[0][1]
    for begin, end in found[1:]:
        until = min(begin, windows.start_at(before) if windows else before)
        if last < until:
            yield last, until
        last = max(last, end)


def _widest(gaps: Iterable[tuple[int, int]]) -> Gaps:
    """As many of them as an interval has at most, in order."""
    return tuple(sorted(sorted(gaps, key=_width)[-MOST_GAPS:]))


def _width(gap: tuple[int, int]) -> int:
    return gap[1] - gap[0]


def grain_of(rule: Rule, oldest: int, newest: int) -> int:
    """How finely the event times of rows are told apart to find gaps: there are at most some thousands."""
    windows = windows_of(rule)
    return max(windows.longest.slide_us if windows else SECOND, (newest - oldest) // 10_000)


def times_of(parts: Iterable[int | None], grain: int) -> list[tuple[int, int]]:
    """The event times of rows in these parts, each `grain` long, with parts in a row as one.

    None: rows without an event time. These are dead, and no result depends on them.
    """
    found: list[tuple[int, int]] = []
    for part in sorted(part for part in parts if part is not None):
        begin, end = part * grain, (part + 1) * grain - 1
        if found and found[-1][1] + 1 == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def nothing_touched(rule: Rule) -> Interval:
    """An interval without any result, which depends on no row."""
    return replace(Interval.of(rule, 0, 0, final=True), low=0, high=0)


def parted(found: Iterable[tuple[int, int]], apart: int) -> Parts:
    """These intervals as parts: those less than `apart` from each other are joined, and further ones if too many."""
    parts: Parts = []
    for begin, end in sorted(found):
        if parts and begin < parts[-1][1] + apart:
            parts[-1] = (parts[-1][0], max(parts[-1][1], end))
        else:
            parts.append((begin, end))
    if not parts:
        return []
    edges = [parts[0][0], *(edge for gap in _widest(_between(parts)) for edge in gap), parts[-1][1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _between(parts: Parts) -> Gaps:
    return tuple((one[1], other[0]) for one, other in pairwise(parts))


def spanning(parts: Parts, before: int, after: int, upto: int) -> Restated:
    """These parts, with the rows from so long before each to so long after it, of the epochs up to `upto`."""
    begin, end = parts[0][0], parts[-1][1]
    return Restated(begin=begin, end=end, low=begin - before, high=end + after, upto=upto, gaps=_between(parts))


def of_sessions(rule: Rule, span: Restated, until: int | None, watermark: int | None) -> Interval:
    """The interval of the sessions that start in the parts of a span. until: when the last one of them ends."""
    time_column = time_column_of(rule.sql, rule.event_times, rule.lookups)
    assert time_column is not None
    final = until is None or (watermark is not None and until < watermark)
    return Interval(span.begin, span.end, span.first, span.high, time_column, None, final, span.gaps)


def check_uncut(
    rule: Rule, interval: Interval, wider: Parts | None, settled: int | None, watermark: int | None
) -> None:
    """Raise Refused for an interval that would have results of a late row without those of its duplicates.

    wider: the interval with the results of both; None: not all late rows were kept. settled: the watermark after which
    no more duplicates come.
    """
    if wider is None:
        raise of_no_interval(rule.rule, LATE_UNKNOWN)
    begin, end, shown = wider[0][0], wider[-1][1], interval.shown
    about = f"rule {rule.rule}: a row that was late and a row of its key"
    if (begin, end) != (interval.begin, interval.end):
        raise Refused(
            f"{about}, within the horizon of `distinct`, are on both sides of a bound: the key would have two results, "
            f"or none. Name an interval with both, --from {shown(begin)} --to {shown(end)}, or recompute everything "
            f"with `floodmark backfill {rule.rule} --all`"
        )
    if settled is not None and (watermark is None or watermark <= settled):
        found = "no watermark yet" if watermark is None else shown(watermark)
        raise Refused(
            f"{about} that is yet to come could both have results: expected the watermark after {shown(settled)}, "
            f"where the horizon of the interval's late rows ends, found {found}. Wait for newer rows, end the interval "
            f"before these late rows, or recompute everything with `floodmark backfill {rule.rule} --all`"
        )


def check_ended(rule: str, interval: Interval, until: int | None, watermark: int | None, shown: Shown) -> None:
    """Raise Refused unless all sessions of the interval are final. until: when the last one ends."""
    if interval.final or until is None:
        return
    found = "no watermark yet" if watermark is None else shown(watermark)
    raise Refused(
        f"rule {rule}: the sessions of the interval are not final: expected the watermark after {shown(until)}, where "
        f"the last of them ends, found {found}. Until then, regular runs write them. Wait for newer rows, or treat the "
        f"input as complete with `floodmark run {rule} --close-until T`"
    )


def same_expectations(rule: Rule, earlier: Iterable[Rule]) -> bool:
    """Whether these texts of the rule expect the same of its streams' rows. Others have made other sessions of them."""
    now = {name: stream.expect for name, stream in rule.streams.items()}
    return all({name: stream.expect for name, stream in one.streams.items()} == now for one in earlier)


def keep_late(texts: Iterable[Rule]) -> bool:
    """Whether by all these texts of the rule late rows were kept, so that it is known which rows were late."""
    return all(text.late != "drop" for text in texts)


def may_be_cut(rule: Rule, parts: Parts, late: Parts) -> Parts:
    """Of times of late rows, those on which results in the parts depend, and results beside them."""
    windows, reach = windows_of(rule), reach_of(rule)
    return [one for one in late if _cuts(parts, _touched(windows, reach, one[0], one[1] - 1))]


def uncut(rule: Rule, parts: Parts, pairs: Parts) -> Parts:
    """The parts, widened by the results of pairs of which they have but one row's.

    pairs: the times of a late row of a `distinct` stream, and of a duplicate of it. With the first alone, its key would
    be in the results twice; with the second alone, not at all.
    """
    windows, reach = windows_of(rule), reach_of(rule)
    rest = Reach(reach.before_us - min(_horizons(rule)), reach.after_us)
    found = [_touched(windows, rest, first, last) for first, last in pairs]
    return parted([*parts, *(one for one in found if _cuts(parts, one))], 0)


def _cuts(parts: Parts, interval: tuple[int, int]) -> bool:
    """Whether an edge of one of the parts lies within the interval."""
    return any(interval[0] < edge < interval[1] for part in parts for edge in part)


def without_results(rule: Rule, parts: Parts, late: Parts, kept: Parts) -> Parts:
    """Of times of late rows in these spans of the state, those of rows without results in the parts.

    Nothing has written their results. In the state, they would make rows duplicates that are yet to come, so that their
    keys would have no result at all.
    """
    windows = windows_of(rule)
    found = [one for one in late if any(one[0] < end and begin < one[1] for begin, end in kept)]
    own = [(one, _touched(windows, Reach(), one[0], one[1] - 1)) for one in found]
    return [one for one, at in own if not any(begin <= at[0] and at[1] <= end for begin, end in parts)]


def settled_at(rule: Rule, parts: Parts, late: Parts) -> int | None:
    """The watermark after which no row can come that is a duplicate of a late row with results in the parts."""
    windows, furthest = windows_of(rule), max(_horizons(rule))
    found = [(_touched(windows, Reach(), first, last - 1), last) for first, last in late]
    held = (last for own, last in found if any(own[0] < end and begin < own[1] for begin, end in parts))
    return max((last + furthest for last in held), default=None)


def _horizons(rule: Rule) -> list[int]:
    """How far before a row, at most, a row lies of which it is a duplicate; of each `distinct` stream."""
    return [reach_us(stream.distinct.within_us) for stream in rule.streams.values() if stream.distinct is not None]


def check_correctable(
    rule: Rule, head: Head, scope: Scope | None = None, rewritten: Collection[str] | None = None
) -> None:
    """Raise Refused where the rule's text, as of now, or its progress does not let its results be corrected.

    The error names the ways that work. The text is checked again, because an edit can come while a correction waits.

    scope: what is computed again; None: the least that can be. rewritten: the streams with rewrites that no run has
    read; None: unknown.
    """
    reasons = chain(
        reasons_for_all(rule),
        reasons_by_start(rule, head),
        reasons_in_sinks(rule, head, scope or scope_now(rule, head)),
    )
    found = next(reasons, None)
    if found is not None:
        raise Refused(
            f"rule {rule.rule}: a source was rewritten, and the rule cannot be corrected: {found}. Nothing was read. "
            f"Instead, `floodmark reset {rule.rule}` recomputes everything from the start of the input"
            f"{_way_past(rule, head, rewritten)}"
        )


def _way_past(rule: Rule, head: Head, rewritten: Collection[str] | None) -> str:
    """How rewrites that cannot be corrected are passed over, where `check_keeps_corrections` and `skips` allow that."""
    following = [name for name, one in rule.streams.items() if one.on_rewrite == "correct"]
    unread = [name for name in following if name not in head.followed] if rewritten is None else rewritten
    if any(name in head.corrected for name in unread):
        return ""
    if head.deferred:
        streams = "".join(f" --stream {name}" for name in dict.fromkeys([*head.deferred, *unread]))
        return f", and `floodmark correct {rule.rule} --skip{streams}` gives the correction up"
    names = ", ".join(unread)
    return f", and `on_rewrite: skip` at stream {names} passes such commits over" if names else ""


@dataclass(frozen=True)
class Skips:
    """What `correct --skip` acts on, by stream: rewrites that its run passes over, and deferred ones it gives up.

    `answered`: streams that were named, and have none left.
    """

    over: Mapping[str, Rewrite]
    given_up: Mapping[str, Sequence[Rewrite]]
    answered: Collection[str] = ()

    def described(self) -> Iterator[str]:
        """For people, before it is done."""
        for name, one in self.over.items():
            yield f"stream {name}: commits that remove or change rows will be passed over, from {one.commits[0]} on"
        for name, ones in self.given_up.items():
            yield f"stream {name}: the correction of {', '.join(commits_of(ones))} will be given up"
        for name in self.answered:
            yield f"stream {name}: no commit is left to pass over"


def skips(rule: Rule, head: Head, unread: Mapping[str, Rewrite], only: Collection[str] = ()) -> Skips:
    """What is skipped: of the streams in `only`; of none, those that have stopped; else what is deferred.

    unread: by stream, the rewrites beyond what was read. Raises Refused where that is not possible.
    """
    stops = [name for name in unread if rule.streams[name].on_rewrite == "stop"]
    wanted = only or stops
    given_up = {name: ones for name, ones in head.deferred.items() if not wanted or name in wanted}
    over = {name: one for name, one in unread.items() if name in wanted}
    kept = [name for name in over if name in head.corrected]
    left = [name for name in only if name in unread or name in head.deferred]
    problems = chain(
        # After a kill, a repetition finds some of them answered.
        _not_rewritten([*unread, *head.deferred], [name for name in only if name not in (left and rule.streams)]),
        _stopping([name for name in stops if name not in wanted]),
        _corrected(rule.rule, [name for name in kept if name in stops or name not in given_up]),
    )
    problem = next(problems, None)
    if problem is not None:
        raise Refused(f"rule {rule.rule}: {problem}")
    answered = [name for name in only if name not in left]
    return Skips({name: one for name, one in over.items() if name not in kept}, given_up, answered)


def given_up(head: Head, shown: Mapping[str, Sequence[Rewrite]]) -> dict[str, list[str]]:
    """The commits that are deferred now and given up, by stream. shown: the rewrites that somebody has decided about.

    Raises Refused if another run has deferred more of a stream since: somebody has to decide, and no retry by itself.
    """
    found = {name: head.deferred[name] for name in shown if name in head.deferred}
    for name, ones in found.items():
        if ones[-1].upto != shown[name][-1].upto:
            raise Refused(
                f"rule {head.rule.rule}: stream {name}: expected to give up the correction of "
                f"{', '.join(commits_of(shown[name]))}, found that another run has since deferred more: "
                f"{', '.join(commits_of(ones))}. Nothing was given up; look at them, and run it again"
            )
    return {name: commits_of(ones) for name, ones in found.items()}


def _not_rewritten(known: Sequence[str], others: Iterable[str]) -> Iterator[str]:
    for name in others:
        yield (
            f"--stream {name}: expected a stream with commits that remove or change rows and have yet to be corrected "
            f"or passed over, found these: {', '.join(dict.fromkeys(known)) or 'none'}"
        )


def _stopping(left: Iterable[str]) -> Iterator[str]:
    for name in left:
        yield (
            f"stream {name} has stopped the rule, too, and no run gets past it: add `--stream {name}`, or write its "
            "answer into the file (`on_rewrite: correct` or `skip`)"
        )


def _corrected(rule: str, streams: Iterable[str]) -> Iterator[str]:
    for name in streams:
        yield (
            f"stream {name}: this generation corrects its earlier commits, and cannot forget them, so later ones "
            f"cannot be passed over. Correct these, too, with `floodmark correct {rule}`, or start over with "
            f"`floodmark reset {rule}`"
        )


def still_valid(rule: Rule, done: Restated, basis: Head, now: Head) -> bool | None:
    """Whether a correction that was computed as of the head `basis` may be put into the tables as of `now`.

    None: it may if no row that epochs have folded since touches it.
    """
    if not same_tables(basis, now) or basis.backfills.keys() != now.backfills.keys():
        return False
    if done.whole:
        return basis.epoch == now.epoch
    if basis.epoch == now.epoch or (not has_keys(rule) and (done.is_empty or _was_final(rule, done, basis))):
        return True
    closed = rule.query.windows and basis.watermark != now.watermark  # results may have become final that it lacks
    reads_more = basis.replays != now.replays or basis.deferred != now.deferred
    return False if closed or reads_more else None


def _was_final(rule: Rule, done: Restated, basis: Head) -> bool:
    return is_final(rule, done.high, basis.watermark)


def has_passed_over(rule: Rule, head: Head) -> bool:
    """Whether a stream is read as it is now, although commits that remove rows were passed over once."""
    return any(count and rule.streams[name].on_rewrite != "skip" for name, count in head.skipped.items())


def still_there(late: Mapping[str, int], counts: Mapping[str, Counts]) -> dict[str, int]:
    """How many of the late rows may be among those that a rewritten source still holds, by stream, at most."""
    return {name: min(rows, counts[name].folded + counts[name].dropped) for name, rows in late.items()}


def commits_of(rewrites: Iterable[Rewrite]) -> list[str]:
    """The commits of these rewrites, for people."""
    return [commit for one in rewrites for commit in one.commits]


def counts_of(rewrites: Mapping[str, Rewritten]) -> tuple[int, int]:
    """How many rows left and came, over all streams."""
    return sum(one.left.rows for one in rewrites.values()), sum(one.came.rows for one in rewrites.values())
