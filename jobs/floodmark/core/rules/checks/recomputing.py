"""Why results of an interval of time, or of keys, cannot be computed again and put in the place of those in sinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from floodmark.core.rules.checks.columns import Problem
from floodmark.core.rules.kinds import can_of, once_only, sink_can, sink_kind, stream_can
from floodmark.core.rules.model import Process, Rule, Sink
from floodmark.core.sql.windows import grids
from floodmark.core.sql.words.clock import at_clock
from floodmark.core.text.problems import with_article

if TYPE_CHECKING:
    from floodmark.core.sql.query import Query
    from floodmark.core.sql.timecolumn import TimeColumn

LATE_UNKNOWN = (
    "late rows were dropped (`late: drop`), and nothing says which rows beyond the interval they make duplicates, or "
    "join into one session"
)
_ANSWERS = "expected stop, or skip unless commits of this stream were corrected or wait for a correction"
_REBUILT = "each run recomputes all of it (`rebuild: true`)"


class Scope(Enum):
    """What a rule computes again after rows of a source were removed or changed, at least."""

    INTERVAL = "the results of an interval of event time"
    KEYS = "all results of some keys"
    ALL = "all results"


def scope_of(rule: Rule) -> Scope:
    """The least that the rule's text lets be computed again, where anything can be at all (`reasons_for_all`)."""
    if next(narrow_reasons(rule), None) is not None:
        return Scope.ALL
    return Scope.KEYS if has_keys(rule) else Scope.INTERVAL


def narrow_reasons(rule: Rule) -> Iterator[str]:
    """Why neither an interval nor some keys can be computed again, by the rule's text alone."""
    yield from reasons_by_key(rule) if has_keys(rule) else reasons_in_rule(rule)


def reasons_for_all(rule: Rule) -> Iterator[str]:
    """Why nothing can be computed again and replaced, not even all results together, by the rule's text alone.

    What can be done by key needs no sink that can be emptied.
    """
    if rule.rebuild:
        yield _REBUILT
        return
    yield from _of_rows(rule)
    yield from _of_no_table(rule)
    if not (has_keys(rule) and next(reasons_by_key(rule), None) is None):
        yield from reasons_by_emptying(rule)
    yield from _of_order(rule)


def check_rewrites(rule: Rule) -> Iterator[Problem]:
    """Check `on_rewrite`: only results that can be computed again can be corrected."""
    for name, stream in rule.streams.items():
        field = ("streams", name, "on_rewrite")
        if stream.landing is not None or stream.changes:
            continue  # `check_landing` and `check_changes` refuse it
        if stream.on_rewrite != "stop" and not stream_can(stream).rewrites:
            yield (
                field,
                f"expected none at {with_article(stream.kind)} source, which cannot say which rows were removed or "
                "changed",
            )
        elif stream.on_rewrite != "stop" and rule.rebuild:
            yield field, "expected none with `rebuild: true`: each run reads what the source holds now"
        elif stream.on_rewrite == "correct":
            yield from ((field, f"{_ANSWERS}: {why}") for why in why_not_corrected(rule, name))


def why_not_corrected(rule: Rule, name: str) -> Iterator[str]:
    """The first reason why rewrites of a stream cannot be corrected, if its kind can say which rows they changed."""
    if rule.streams[name].start != "earliest":
        yield "with another `start` than earliest, the rule has not read all rows that can be removed or changed"
    else:
        yield from list(reasons_for_all(rule))[:1]


def has_keys(rule: Rule) -> bool:
    """Whether its results are recomputed by key: no interval of time bounds them, but each depends on one key's rows.

    So it is with running totals, the first rows of a key, and single rows in a sink whose key leaves their time out.
    """
    if rule.process is not None or rule.rebuild:
        return False
    if rule.query.running or rule.query.top:
        return True
    return not rule.query.stateful and any(sink.key and not _keeps_time(rule, sink) for sink in rule.sinks)


def reasons_by_key(rule: Rule) -> Iterator[str]:
    """Why a rule that has keys cannot be corrected all the same, by its text alone."""
    yield from _of_rows(rule)
    if rule.query.lookups:
        yield "its keys may depend on lookup tables, of which each epoch has read another version"
    for name, stream in rule.streams.items():
        if stream.lateness_us is not None:
            yield f"stream {name} has a `lateness`, and which rows were late is not known by key: leave it out"
    yield from _of_no_table(rule)
    for sink in _tables(rule):
        if not sink.key:
            yield f"sink {sink.label} has no `key`, and another sink's key leaves out the time of results"


def _keeps_time(rule: Rule, sink: Sink) -> bool:
    """Whether a keyed sink's key includes the column that shows a result's time."""
    from floodmark.core.sql.timecolumn import time_column_of

    found = time_column_of(rule.sql, rule.event_times, rule.lookups)
    return found is not None and found.column in map(str.lower, sink.key)


def reasons_in_rule(rule: Rule) -> Iterator[str]:
    """Why no interval can be computed again, by the rule's text alone."""
    if rule.rebuild:
        yield _REBUILT
        return
    if rule.process is not None:
        yield "the effect of a row in its class depends on all rows before it"
        return
    yield from _of_rows(rule)
    yield from _of_query(rule)
    yield from _of_sinks(rule)


def _of_rows(rule: Rule) -> Iterator[str]:
    """Why the rows that a result was computed from cannot be read again as they were."""
    yield from (f"{why}, and a backfill reads them again" for why in once_only(rule))
    if any(at_clock(text, 0) != text for text in _texts(rule)):
        yield "it reads the clock (current_timestamp), which differed in each epoch"
    if rule.process is not None:
        yield from of_class(rule.process)
    if rule.qos == 0:
        yield "at qos 0 epochs may be lost, and a backfill would restore their rows"


def of_class(process: Process) -> Iterator[str]:
    """Why its class would give other results for the same rows."""
    from floodmark.core.process.stable import of_its_epoch

    if process.clock_timers:
        yield "its class has timers by the clock, which differed in each epoch"
    found = next(of_its_epoch(process.source, process.file, process.name), None)
    if found is not None:
        yield (
            f"its class reads what differed in each epoch ({found}): expected values of its rows only, such as their "
            "event time"
        )


def _of_query(rule: Rule) -> Iterator[str]:
    from floodmark.core.sql.timecolumn import time_column_of  # parses SQL, which a run with nothing to do can avoid

    query = rule.query
    if query.running or query.top or query.collected or query.lasts:
        yield "its results depend on all rows before them (running totals, first rows of a key, windows of rows)"
    elif query.sessions and query.lone_sessions is None:
        yield (
            "nothing bounds its sessions: expected no other windows and no lookup tables beside them, one fixed gap, "
            "and a stream that they read directly"
        )
    elif rule.late == "drop" and (query.sessions or any(stream.distinct for stream in rule.streams.values())):
        yield LATE_UNKNOWN
    elif query.is_full_join:
        yield "it has a FULL JOIN, of whose results each event time may be NULL"
    elif time_column_of(rule.sql, rule.event_times, rule.lookups) is None:
        yield f"no column of its results has their time: expected {_time_of(query)} in the SELECT"


def _time_of(query: Query) -> str:
    """The columns that show a result's time, for people."""
    if query.sessions:
        return "session_window.start"
    sizes = len(grids(query.windows))
    return "window.start" if sizes > 1 else "window.start or window.end" if sizes else "the unchanged event time"


def _texts(rule: Rule) -> list[str]:
    """Its SQL, and the expressions of its event times."""
    times = [stream.event_time for stream in rule.streams.values()]
    return [rule.query.sql, *(time.expr for time in times if time and time.expr)]


def _of_sinks(rule: Rule) -> Iterator[str]:
    from floodmark.core.sql.timecolumn import time_column_of

    time_column = time_column_of(rule.sql, rule.event_times, rule.lookups)
    yield from _of_no_table(rule)
    yield from _of_kinds(rule)
    for sink in _tables(rule):
        if sink.key and not _keeps_time(rule, sink):
            yield f"sink {sink.label} has a key without its results' time: a later one may have replaced an earlier one"
        elif time_column is not None and not has_time_column(sink.columns, time_column):
            yield (
                f"sink {sink.label} leaves out {time_column.column} (`columns`), which identifies the time of "
                "its results"
            )


def _of_order(rule: Rule) -> Iterator[str]:
    """Sinks in which results of several times share a key, and only the epochs' order has said which remains."""
    from floodmark.core.sql.timecolumn import time_column_of

    if rule.process is not None or has_keys(rule) or time_column_of(rule.sql, rule.event_times, rule.lookups) is None:
        return
    for sink in _tables(rule):
        if sink.key and not sink.newest and not _keeps_time(rule, sink):
            yield (
                f"sink {sink.label} has a key without its results' time, and no `newest`: nothing but the order of "
                "epochs says which of several results remains"
            )


def _of_kinds(rule: Rule) -> Iterator[str]:
    """Sinks in which no rows of an interval can be replaced."""
    for sink in _tables(rule):
        if not can_of(sink).replaces:
            yield _of_kind(sink, "replaces", "no rows of an interval can be replaced")


def reasons_by_emptying(rule: Rule) -> Iterator[str]:
    """Sinks in which not even all rows can be replaced. A target is emptied before the new ones come."""
    for sink in _tables(rule):
        can = can_of(sink)
        if not (can.empties if can.target else can.replaces):
            yield _of_kind(sink, "empties", "no rows can be replaced")


def _of_kind(sink: Sink, lacks: str, problem: str) -> str:
    needs = sink_kind(sink.kind).lacks.get(lacks)
    return f"sink {sink.label} is of kind {sink.kind}, in which {problem}{f': expected {needs}' if needs else ''}"


def _tables(rule: Rule) -> list[Sink]:
    return [sink for sink in rule.sinks if sink_can(sink.kind).stores_rows]


def _of_no_table(rule: Rule) -> Iterator[str]:
    if not _tables(rule):
        yield "it has no sink that is a table"


def has_time_column(columns: Sequence[str], time_column: TimeColumn) -> bool:
    """Whether a sink that takes these columns (none: all) has the one that shows a result's time."""
    return not columns or time_column.column in map(str.lower, columns)
