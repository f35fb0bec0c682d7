"""Decides which intervals of a rule can be computed again beside its live runs. Times are in microseconds.

An interval is one of results: windows by their start, rows of a stateless rule by their event time. In a final interval
no later epoch writes results, so it may be computed at one time and replaced at another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.core.lifecycle.changes import same_results
from floodmark.core.protocol.places import PREFIX, places_of
from floodmark.core.protocol.records.backfills import Backfill, Gaps, Restated
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.lookedup import SameVersions
from floodmark.core.protocol.records.rows import Pinned
from floodmark.core.rules.checks.recomputing import (
    Scope,
    has_keys,
    has_time_column,
    narrow_reasons,
    reasons_by_emptying,
    reasons_for_all,
    scope_of,
)
from floodmark.core.rules.kinds import sink_can
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.sql.timecolumn import TimeColumn, older_time_column, time_column_of
from floodmark.core.sql.windows import Reach, Sizes, grids
from floodmark.core.text.addresses import location
from floodmark.errors import Refused, RunFailed, SqlRefused

MOST_VERSIONS = 100  # each is a query of its own in Spark's plan
NO_COLUMN = TimeColumn("")  # of results whose interval no column shows
EVER = 1 << 62  # microseconds: later than any event time
Shown = Callable[[int], str]  # a time as people read it


@dataclass(frozen=True)
class Interval:
    """[begin, end) of results; they depend on rows of event times in [low, high).

    gaps: intervals in between, in order, whose results stay as they are. time_column: the column that shows their time.
    windows: None for a rule without any of a fixed size. final: whether no later epoch writes to it. whole: it is of
    all results, of any time, or of none. then: lookup tables are read as each epoch read them, else as they are now.
    shown: how messages show its times.
    """

    begin: int
    end: int
    low: int
    high: int
    time_column: TimeColumn
    windows: Sizes | None
    final: bool
    gaps: Gaps = ()
    whole: bool = False
    then: bool = False
    shown: Shown = field(default=str, compare=False)

    @classmethod
    def of(cls, rule: Rule, begin: int, end: int, final: bool = False) -> Interval:
        """The interval of a rule whose results can be computed again."""
        time_column = time_column_of(rule.sql, rule.event_times, rule.lookups)
        windows, reach = windows_of(rule), reach_of(rule)
        assert time_column is not None
        high = reach.after_us + (windows.end_of(end) if windows else end)
        return cls(begin, end, begin - reach.before_us, high, time_column, windows, final)


EVERYTHING = Interval(-EVER, EVER, -EVER, EVER, NO_COLUMN, None, final=False, whole=True)


def reach_of(rule: Rule) -> Reach:
    """How far before and after its time the rows lie on which a result depends; beside the rows of its window."""
    time_column = time_column_of(rule.sql, rule.event_times, rule.lookups)
    reaches = [spec.reach for spec in rule.query.windows] + ([time_column.reach] if time_column else [])
    return Reach(max((one.before_us for one in reaches), default=0), max((one.after_us for one in reaches), default=0))


def windows_of(rule: Rule) -> Sizes | None:
    """The windows that say where intervals may begin and end; None for a rule without any of a fixed size."""
    found = grids(rule.query.windows)
    return Sizes(tuple(found)) if found else None


def starting_in(rule: Rule, begin: int, end: int) -> tuple[int, int]:
    """The interval of the windows that start in [begin, end); equal bounds if none does."""
    windows = windows_of(rule)
    if windows is None:
        return begin, end
    return windows.start_from(begin), windows.start_from(end)


def requested_interval(rule: Rule, head: Head, begin: int, end: int, shown: Shown, then: bool = False) -> Interval:
    """The interval, if it can be replaced beside live runs. Raises Refused, with the alternatives.

    Of a rule that is recomputed by key it is one of rows, whose keys' results are replaced. Of sessions it is one of
    their starts, and only rows show which are final (`sessions`). then: as in `Interval`.
    """
    if begin >= end:
        raise Refused(
            f"expected --from before --to, found {shown(begin)} and {shown(end)}: name an interval that is not empty"
        )
    _check_possible(rule, head, scope_now(rule, head), then)
    reason = next(_why_not(rule, head), None)
    if reason is not None:
        raise of_no_interval(rule.rule, reason)
    if has_keys(rule):
        return Interval(begin, end, begin, end, NO_COLUMN, None, final=False)
    windows = windows_of(rule)
    _check_bounds(begin, end, windows, shown)
    interval = replace(Interval.of(rule, begin, end), shown=shown)
    if rule.query.lone_sessions is not None:
        return interval
    final = is_final(rule, interval.high, head.watermark)
    if windows is not None and not final:
        raise Refused(_not_final(rule, interval, rule.late_below(head.watermark), shown))
    return replace(interval, final=final, then=then)


def of_no_interval(rule: str, reason: str) -> Refused:
    """The error that only everything can be backfilled."""
    return Refused(
        f"rule {rule} cannot be backfilled by interval: {reason}. Instead, `floodmark backfill {rule} --all` "
        "recomputes everything, and replaces what its sinks hold in one commit for each"
    )


def requested_whole(rule: Rule, head: Head, then: bool = False) -> Interval:
    """All results, if they can be replaced beside live runs. Raises Refused, with the alternatives.

    then: as in `Interval`.
    """
    _check_possible(rule, head, Scope.ALL, then)
    return replace(EVERYTHING, then=then)


def why_not_at_all(rule: Rule, head: Head, scope: Scope = Scope.ALL) -> str | None:
    """The first reason why results of this scope, or any, cannot be computed again and replaced; None if they can."""
    return next(_why_not_at_all(rule, head, scope), None)


def _check_possible(rule: Rule, head: Head, scope: Scope, then: bool) -> None:
    """Raise Refused unless results of this scope can be replaced beside live runs."""
    reason = why_not_at_all(rule, head, scope)
    if reason is not None:
        raise Refused(
            f"rule {rule.rule} cannot be backfilled: {reason}. Instead, `floodmark reset {rule.rule}` recomputes "
            "everything from the start of the input. So does a second rule with another name and new sinks"
        )
    why_not = next(_why_not_then(rule, head), None) if then else None
    if why_not is not None:
        raise Refused(
            f"rule {rule.rule} cannot be backfilled with its lookup tables as each epoch read them: {why_not}. Leave "
            "out `lookups` to read them as they are now"
        )


def scope_now(rule: Rule, head: Head) -> Scope:
    """The least that is computed again after a rewrite, by the rule's text and its progress."""
    found = scope_of(rule)
    if found is not Scope.ALL and next(_of_older_texts(rule, head), None) is not None:
        return Scope.ALL
    return found


def is_final(rule: Rule, high: int, watermark: int | None) -> bool:
    """Whether no later epoch writes results that depend only on rows of event times before `high`."""
    timed = all(stream.lateness_us is not None for stream in rule.streams.values())  # of another no row is ever late
    late_below = rule.late_below(watermark)
    return timed and late_below is not None and high + _waiting(rule) <= late_below


def _waiting(rule: Rule) -> int:
    """How much longer than for its rows a joined result may wait: its other side's time decides when it is final."""
    return max((spec.reach.after_us for spec in rule.query.windows if spec.grid is None), default=0)


def _why_not(rule: Rule, head: Head) -> Iterator[str]:
    """The reasons why neither an interval nor keys can be backfilled, where everything can."""
    yield from narrow_reasons(rule)
    timeless = [name for name, stream in rule.streams.items() if stream.event_time is None]
    if timeless:
        yield f"stream {timeless[0]} has no `event_time`, so no rows lie in the interval"
    yield from _of_older_texts(rule, head)


def _why_not_at_all(rule: Rule, head: Head, scope: Scope) -> Iterator[str]:
    """The reasons why results of this scope, or any, cannot be computed again and replaced."""
    yield from reasons_for_all(rule)
    yield from _of_new_sinks(rule, head)
    yield from reasons_in_sinks(rule, head, scope)
    yield from _of_kept_rows(rule, head)
    if head.is_rewritten:
        yield from reasons_by_start(rule, head)


def _why_not_then(rule: Rule, head: Head) -> Iterator[str]:
    """The reasons why it is unknown which versions of lookup tables a result was computed with."""
    query = rule.query
    if not query.lookups:
        yield "it has none"
    elif query.running or query.top or query.collected or query.lasts:
        yield "a result depends on rows of several epochs, each joined as of its own"
    elif head.is_rewritten and not query.windows:
        yield "rows of its sources were changed since, and nothing says which epoch has read those that are there now"


def may_have_written(rule: Rule, interval: Interval, epochs: SameVersions) -> bool:
    """Whether the epochs may have written results of the interval.

    A result of a window becomes final when the watermark is past its rows, and those of the other side of a join.
    """
    if not rule.query.windows:
        return interval.whole or (epochs.newest is not None and interval.low <= epochs.newest)
    if epochs.high is None:
        return False
    latest = interval.high + _waiting(rule)
    return interval.begin <= epochs.high and (epochs.low is None or epochs.low <= latest)


def check_versions(rule: Rule, epochs: Sequence[SameVersions]) -> None:
    """Raise Refused if epochs with results of an interval have read too many versions of its lookup tables."""
    if len(epochs) > MOST_VERSIONS:
        raise Refused(
            f"rule {rule.rule}: the epochs of this interval have read {len(epochs)} different versions of the lookup "
            f"tables; expected at most {MOST_VERSIONS}. Backfill shorter intervals one by one, or leave out `lookups` "
            "to read the tables as they are now"
        )


def _of_new_sinks(rule: Rule, head: Head) -> Iterator[str]:
    for sink in rule.sinks:
        if sink_can(sink.kind).stores_rows and not _is_known(sink, head):
            yield f"sink {sink.label} is new, and no epoch has written to it yet: run the rule first"


def reasons_in_sinks(rule: Rule, head: Head, scope: Scope) -> Iterator[str]:
    """The reasons why what its sinks hold cannot be replaced, as far as `scope` says."""
    if head.kept_output:
        yield "its sinks have rows from before a reset, which this generation has not read"
    if scope is Scope.ALL:
        yield from reasons_by_emptying(rule)
    yield from _of_kept_rows(rule, head, scope)


def reasons_by_start(rule: Rule, head: Head) -> Iterator[str]:
    """Why rows that were removed or changed cannot be read again as they are: a generation that began behind some rows
    reads what was added since, as it came. An edit of `start` counts from the next reset."""
    begun = Rule.from_json(str(head.begun_with.rule)).streams
    for name, stream in rule.streams.items():
        if stream.on_rewrite == "correct" and name in begun and begun[name].start != "earliest":
            yield f"the generation began with another `start` of stream {name} than earliest"


def _of_kept_rows(rule: Rule, head: Head, scope: Scope = Scope.ALL) -> Iterator[str]:
    """Why rows in targets that a reset has kept would go. An edit of `on_reset` counts from the next reset.

    A key of this generation has replaced the older row, unless that one is newer, or expectations left rows out.
    """
    begun = Rule.from_json(str(head.begun_with.rule)).sinks if head.generation > 1 else ()
    kept = {sink.address for sink in begun if sink.on_reset == "keep"}
    checks = (one for stream in rule.streams.values() for one in stream.expect.values())
    leaves_out = any(one.on_fail in ("dead", "drop") for one in checks)
    for sink in rule.sinks:
        if sink.address in kept and (scope is not Scope.KEYS or leaves_out or sink.newest):
            yield f"sink {sink.label} has rows from before a reset (`on_reset: keep`), which would go, too"


def _is_known(sink: Sink, head: Head) -> bool:
    if sink_can(sink.kind).table:
        return location(str(sink.address)) in places_of(head).values()
    return PREFIX + str(sink.address) in head.table_ids


def _of_older_texts(rule: Rule, head: Head) -> Iterator[str]:
    """Reasons from older rule texts: sinks hold rows from SQL whose time column, or keys, may have been others."""
    if has_keys(rule):
        if not rule.query.stateful and any(text.sql != rule.sql for text in head.texts):
            yield "epochs before an edit have written rows by other SQL, which may have given them other keys"
        return
    time_column = time_column_of(rule.sql, rule.event_times, rule.lookups)
    if time_column is None:
        return
    for text in head.texts:
        taken = (columns for _, columns in text.columns)  # no sink can be removed within a generation
        same = _older_time_column(text.sql, rule) == time_column
        if not same or not all(has_time_column(columns, time_column) for columns in taken):
            yield f"epochs before an edit have written rows in which {time_column.column} is not their time"
            return


def _older_time_column(sql: str, rule: Rule) -> TimeColumn | None:
    """The time column of a text of before; None, too, for one that this version refuses."""
    try:
        return older_time_column(sql, rule.event_times)
    except SqlRefused:
        return None


def _check_bounds(begin: int, end: int, windows: Sizes | None, shown: Shown) -> None:
    """Raise Refused for an interval that cuts through windows' starts."""
    if windows is None:
        return
    low, wide = windows.start_at(begin), windows.start_from(end)
    if (low, wide) != (begin, end):
        raise Refused(
            f"expected bounds at which windows start, found {shown(begin)} to {shown(end)}; the nearest interval "
            f"around them: --from {shown(low)} --to {shown(wide)}"
        )


def _not_final(rule: Rule, interval: Interval, watermark: int | None, shown: Shown) -> str:
    assert interval.windows is not None
    found = "no watermark yet"
    if watermark is not None:
        newest = interval.windows.live_from(watermark)
        found = f"{shown(watermark)}; the last --to that is final: {shown(newest)}"
    return (
        f"rule {rule.rule}: the windows up to {shown(interval.end)} are not final: expected the watermark at "
        f"{shown(interval.high)}, found {found}. Until then, regular runs write them. Wait for newer rows, or treat "
        f"the input as complete with `floodmark run {rule.rule} --close-until T`"
    )


def is_still_valid(interval: Interval, basis: Head, now: Head) -> bool:
    """Whether results computed from the head `basis` may still be put into the sinks at the head `now`.

    asked: of `basis`. What was recomputed since by key, or as a whole, has no bounds in time. An interval that has
    become final since may have got rows that were not computed. Once a stream has gained a column, the computed results
    lack it. Once rows are forgotten, a retry counts other late and dead ones.
    """
    if not same_tables(basis, now):
        return False
    since = [span for number, span in now.backfills.items() if number not in basis.backfills]
    overlapped = any(not span.is_bounded or _overlap(span, interval) for span in since)
    return not overlapped and (interval.final or basis.epoch == now.epoch)


def _overlap(span: Restated, interval: Interval) -> bool:
    return span.begin < interval.end and interval.begin < span.end


def as_computed(rule: Rule, asked: Interval, done: Restated) -> Interval:
    """The interval that was computed: one of sessions may be wider than asked, and all that it holds are final."""
    if asked.whole or rule.query.lone_sessions is None:
        return asked
    return replace(asked, begin=done.begin, end=done.end, final=True)


def holds(done: Restated, asked: Interval) -> bool:
    """Whether a backfill has computed all of an interval."""
    return done.begin <= asked.begin and asked.end <= done.end


def is_requested(found: Backfill, rule: Rule, asked: Interval, lookups: Mapping[str, Pinned]) -> bool:
    """Whether a backfill that was left open has computed what is asked for now. A correction has not.

    lookups: the versions of lookup tables as they are now. A table may have been corrected since the backfill began.
    """
    same = bool(found.then) == asked.then and (asked.then or found.lookups == lookups)
    return same and holds(found, asked) and found.rule == rule.to_json() and not found.rewrites


def same_tables(basis: Head, now: Head) -> bool:
    """Whether both are of one generation, with the same columns of its streams and the same rows forgotten."""
    names = ("generation", "token", "columns", "forgets")
    return all(getattr(basis, name) == getattr(now, name) for name in names)


def check_text(rule: Rule, basis: Head, now: Head) -> None:
    """Raise RunFailed if an epoch since `basis` was written by another text than the backfill's `rule`.

    basis: the head at which the input was read. now: the current head.
    """
    if not any(now.rule.hash == one.hash and same_results(now.rule, one) for one in (basis.rule, rule)):
        raise RunFailed(
            f"rule {rule.rule}: its file, or a variable in it, was edited after this backfill started, and epoch "
            f"{now.epoch} was written by the new version; nothing was replaced. Start the backfill again: it then "
            "uses the new version, too"
        )


def restated_in(at: int, epoch: int, backfills: Mapping[int, Restated]) -> str | None:
    """The newest backfill that read a late row of event time `at` from the late table of `epoch`; None: none has.

    Not all results that depend on a row may be in the interval: `in part`.
    """
    for number, span in sorted(backfills.items(), reverse=True):
        before, after = span.begin - span.first, span.high - span.end
        if epoch > span.upto or not any(low <= at < high for low, high in span.reads):
            continue
        whole = any(begin + after <= at < end - before for begin, end in span.parts)
        return str(number) if whole else f"{number} in part"
    return None
