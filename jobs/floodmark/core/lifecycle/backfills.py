"""Decides which intervals of a rule can be computed again beside its live runs. Times are in microseconds.

An interval is one of results: windows by their start, rows of a stateless rule by their event time. In a final interval
no later epoch writes results, so it may be computed at one time and replaced at another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.core.protocol.places import PREFIX, places_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Restated
from floodmark.core.rules.kinds import once_only, sink_can
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.sql.timecolumn import TimeColumn, time_column_of
from floodmark.core.sql.windows import Grid, Reach, grids
from floodmark.core.sql.words.clock import at_clock
from floodmark.core.text.addresses import location
from floodmark.errors import Refused, RunFailed

Shown = Callable[[int], str]  # a time as people read it


@dataclass(frozen=True)
class Interval:
    """[begin, end) of results; they depend on rows of event times from `begin` to before `high`.

    told: the column that shows their time. window: None for a stateless rule. final: whether no later epoch writes to
    it.
    """

    begin: int
    end: int
    time_column: TimeColumn
    window: Grid | None
    final: bool

    @property
    def high(self) -> int:
        return self.end + (self.window.size_us - self.window.slide_us if self.window else 0)

    @property
    def bounds(self) -> tuple[int, int]:
        """The watermarks between which exactly its windows become final."""
        assert self.window is not None
        ahead = self.window.size_us - self.window.slide_us
        return self.begin + ahead, self.end + ahead


def window_of(rule: Rule) -> Grid | None:
    """The window that says where intervals may begin and end; None for a rule without any of a fixed size."""
    return next(iter(grids(rule.query.windows)), None)


def starting_in(rule: Rule, begin: int, end: int) -> tuple[int, int]:
    """The interval of the windows that start in [begin, end); equal bounds if none does."""
    window = window_of(rule)
    if window is None:
        return begin, end
    return window.start_from(begin), window.start_from(end)


def requested_interval(rule: Rule, head: Head, begin: int, end: int, shown: Shown) -> Interval:
    """The interval, if it can be replaced beside live runs. Raises Refused, with the alternatives."""
    if begin >= end:
        raise Refused(
            f"expected --from before --to, found {shown(begin)} and {shown(end)}: name an interval that is not empty"
        )
    reason = next(_why_not(rule, head), None)
    if reason is not None:
        raise Refused(f"rule {rule.rule} cannot be backfilled: {reason}. {_ways(rule)}")
    time_column = time_column_of(rule.sql, rule.event_times)
    assert time_column is not None
    window = window_of(rule)
    _check_bounds(begin, end, window, shown)
    interval = Interval(begin, end, time_column, window, final=False)
    watermark = rule.late_below(head.watermark)
    timed = all(stream.lateness_us is not None for stream in rule.streams.values())  # of another no row is ever late
    final = timed and watermark is not None and interval.high <= watermark
    if window is not None and not final:
        raise Refused(_not_final(rule, interval, watermark, shown))
    return replace(interval, final=final)


def _why_not(rule: Rule, head: Head) -> Iterator[str]:
    """The reasons why a rule cannot be backfilled, whatever the interval."""
    if rule.rebuild:
        yield "each run recomputes all of it (`rebuild: true`)"
        return
    if rule.process is not None:
        yield "the effect of a row in its class depends on all rows before it"
        return
    yield from (f"{why}, and a backfill reads them again" for why in once_only(rule))
    yield from _of_query(rule)
    yield from _of_sinks(rule, head)
    yield from _of_older_texts(rule, head)
    if rule.qos == 0:
        yield "at qos 0 epochs may be lost, and a backfill would restore their rows"
    if head.kept_output:
        yield "its sinks have rows from before a reset, which this generation has not read"


def _of_query(rule: Rule) -> Iterator[str]:
    query = rule.query
    if query.running or query.top or query.collected or query.lasts:
        yield "its results depend on all rows before them (running totals, first rows of a key, windows of rows)"
    elif query.lookups:
        yield "each of its epochs has read other versions of its lookup tables"
    elif any(stream.distinct for stream in rule.streams.values()):
        yield "its streams are `distinct`: which of several equal rows is read depends on rows before the interval"
    elif any(spec.grid is None or spec.reach != Reach() for spec in query.windows) or len(set(query.windows)) > 1:
        yield "it has sessions, joins, OVER or several windows; expected none, or one window(...) of a fixed size"
    elif any(at_clock(text, 0) != text for text in _texts(rule)):
        yield "it reads the clock (current_timestamp), which differed in each epoch"
    elif time_column_of(rule.sql, rule.event_times) is None:
        what = "window.start or window.end" if query.windows else "the unchanged event time"
        yield f"no column of its results has their time: expected {what} in the SELECT"


def _texts(rule: Rule) -> list[str]:
    """Its SQL, and the expressions of its event times."""
    times = [stream.event_time for stream in rule.streams.values()]
    return [rule.query.sql, *(time.expr for time in times if time and time.expr)]


def _of_sinks(rule: Rule, head: Head) -> Iterator[str]:
    tables, time_column = (
        [sink for sink in rule.sinks if sink_can(sink.kind).stores_rows],
        time_column_of(rule.sql, rule.event_times),
    )
    if not tables:
        yield "it has no sink that is a table"
    for sink in tables:
        if not sink_can(sink.kind).replaces:
            yield f"sink {sink.label} is of kind {sink.kind}, in which no rows can be replaced"
        elif sink.key:
            yield f"sink {sink.label} has a key: a later result may have replaced an earlier one"
        elif time_column is not None and not _has_time_column(sink.columns, time_column):
            yield (
                f"sink {sink.label} leaves out {time_column.column} (`columns`), which identifies the time of "
                "its results"
            )
        elif not _is_known(sink, head):
            yield f"sink {sink.label} is new, and no epoch has written to it yet: run the rule first"


def _is_known(sink: Sink, head: Head) -> bool:
    if sink_can(sink.kind).table:
        return location(str(sink.address)) in places_of(head).values()
    return PREFIX + str(sink.address) in head.table_ids


def _has_time_column(columns: Sequence[str], time_column: TimeColumn) -> bool:
    """Whether a sink that takes these columns (none: all) has the one that shows a result's time."""
    return not columns or time_column.column in map(str.lower, columns)


def _of_older_texts(rule: Rule, head: Head) -> Iterator[str]:
    """Reasons from older rule texts: sinks hold rows from SQL whose time column may have been another."""
    time_column = time_column_of(rule.sql, rule.event_times)
    if time_column is None:
        return
    for text in head.texts:
        taken = (columns for _, columns in text.columns)  # no sink can be removed within a generation
        if time_column_of(text.sql, rule.event_times) != time_column or not all(
            _has_time_column(columns, time_column) for columns in taken
        ):
            yield f"epochs before an edit have written rows in which {time_column.column} is not their time"
            return


def _ways(rule: Rule) -> str:
    return (
        f"Instead, `floodmark reset {rule.rule}` recomputes everything from the start of the input. So does a second "
        "rule with another name and new sinks"
    )


def _check_bounds(begin: int, end: int, window: Grid | None, shown: Shown) -> None:
    """Raise Refused for an interval that cuts through windows' starts."""
    if window is None:
        return
    low, wide = window.start_at(begin), window.start_from(end)
    if (low, wide) != (begin, end):
        raise Refused(
            f"expected bounds at which windows start, found {shown(begin)} to {shown(end)}; the nearest interval "
            f"around them: --from {shown(low)} --to {shown(wide)}"
        )


def _not_final(rule: Rule, interval: Interval, watermark: int | None, shown: Shown) -> str:
    assert interval.window is not None
    found = "no watermark yet"
    if watermark is not None:
        newest = interval.window.live_from(watermark)
        found = f"{shown(watermark)}; the last --to that is final: {shown(newest)}"
    return (
        f"rule {rule.rule}: the windows up to {shown(interval.end)} are not final: expected the watermark at "
        f"{shown(interval.high)}, found {found}. Until then, regular runs write them. Wait for newer rows, or treat "
        f"the input as complete with `floodmark run {rule.rule} --close-until T`"
    )


def is_still_valid(interval: Interval, basis: Head, now: Head) -> bool:
    """Whether results computed from the head `basis` may still be put into the sinks at the head `now`.

    asked: of `basis`. An interval that has become final since may have got rows that were not computed. Once a stream
    has gained a column, the computed results lack it.
    """
    if (basis.generation, basis.token, basis.columns) != (now.generation, now.token, now.columns):
        return False
    since = [span for number, span in now.backfills.items() if number not in basis.backfills]
    overlapped = any(span.begin < interval.end and interval.begin < span.end for span in since)
    return not overlapped and (interval.final or basis.epoch == now.epoch)


def check_text(rule: Rule, basis: Head, now: Head) -> None:
    """Raise RunFailed if an epoch since `basis` was written by another text than the backfill's `rule`.

    basis: the head at which the input was read. now: the current head.
    """
    if now.rule.hash not in (basis.rule.hash, rule.hash):
        raise RunFailed(
            f"rule {rule.rule}: its file was edited after this backfill started, and epoch {now.epoch} was written "
            "by the new version; nothing was replaced. Start the backfill again: it then uses the new version, too"
        )


def restated_in(at: int, epoch: int, backfills: Mapping[int, Restated]) -> str | None:
    """The newest backfill that read a late row of event time `at` from the late table of `epoch`; None: none has.

    A row may be of several windows, not all of which are in the interval: `in part`.
    """
    for number, span in sorted(backfills.items(), reverse=True):
        if epoch > span.upto or not span.begin <= at < span.high:
            continue
        whole = span.begin + (span.high - span.end) <= at < span.end
        return str(number) if whole else f"{number} in part"
    return None
