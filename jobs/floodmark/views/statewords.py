"""Describe a rule's state in words: what is kept, for how long, and when results are emitted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floodmark.core.text.durations import format_duration

if TYPE_CHECKING:
    from floodmark.core.rules.model import Process, Rule
    from floodmark.core.sql.forms.bounds import Last
    from floodmark.core.sql.state.collected import Collected
    from floodmark.core.sql.state.running import Running
    from floodmark.core.sql.state.tops import Top


def describe_state(rule: Rule) -> Iterator[str]:
    """Describe what a rule keeps between epochs, and when it emits results: one sentence each."""
    if rule.rebuild:
        yield "nothing is stored: each run reads the whole input again, as one epoch"
        yield "replaced: all rows of each sink, in one commit, by the final results"
        return
    if rule.process is not None:
        yield from _class(rule.process)
        return
    if rule.query.running is not None:
        yield from _totals(rule.query.running)
        return
    if rule.query.top is not None:
        yield from _top(rule.query.top)
        return
    if rule.query.collected is not None:
        yield from _collected(rule.query.collected)
        return
    if not rule.query.windows:
        yield "stateless: each epoch's rows go through the SQL, nothing is stored"
        return
    for window in dict.fromkeys(rule.query.windows):
        yield from window.describe()
    yield from _describe_windows(rule)
    yield "emitted: each result, once, when it is final"
    if rule.amend_us is not None:
        yield f"amended: by rows that are at most {format_duration(rule.amend_us)} late; input rows are kept for this"
    if rule.close_idle_after_us is not None:
        quiet = format_duration(rule.close_idle_after_us)
        yield f"closed when idle: a run without new input {quiet} after the last epoch advances the watermark"


def _describe_windows(rule: Rule) -> Iterator[str]:
    if rule.slices is not None:
        parts = ", ".join(partial.name for partial in rule.slices.partials) or "only the key"
        why = "as `windows: slices` says" if rule.windows else "because each row is in many windows"
        yield f"kept: partial aggregates ({parts}) by key and slice of time, {why}"
        if rule.slices.means:
            yield "averages of decimals would be kept as input rows instead: their parts cannot be merged exactly"
        if rule.slices.sums and not rule.ansi:
            yield "sums of decimals of more than 28 digits would be kept as input rows instead: they may overflow"
        return
    why = " (`windows: rows`)" if rule.windows else ""
    yield f"kept: the input rows that open windows need{why}"
    for last in rule.query.lasts:
        yield _looking_back(last)
    if rule.query.star:
        yield "all columns of the input are kept, because the SQL selects *"


def _looking_back(last: Last) -> str:
    if last.rows is None:
        why = "OVER counts from the first row" if last.time else "JOIN has no bound in time"
        return f"and all earlier rows, forever, because {why} (`unbounded: true`)"
    if last.keys is None:
        return "and all earlier rows, forever: PARTITION BY columns of a stream that is read directly would keep fewer"
    of = f" of every ({', '.join(last.keys)})" if last.keys else ""
    return f"and the last {last.rows} rows before that{of}, forever (`unbounded: true`)"


def _totals(running: Running) -> Iterator[str]:
    parts = ", ".join(partial.name for partial in running.partials) or "only the key"
    yield f"totals by ({', '.join(running.keys)}): what each epoch adds to a key ({parts})"
    yield "unbounded: one row for every key, forever (`unbounded: true`)"
    yield "emitted: in each epoch, the new result of every key that it touches"


def _top(top: Top) -> Iterator[str]:
    of = f" of every ({', '.join(top.keys)})" if top.keys else ""
    yield f"the first {top.rows} rows{of}, forever (`unbounded: true`), with the columns that the SQL reads"
    yield "emitted: in each epoch, all first rows of every key that it touches"


def _collected(how: Collected) -> Iterator[str]:
    of = f" of every ({', '.join(how.keys)})" if how.keys else ""
    yield how.window.describe(of)
    yield "kept: the rows that the watermark has not passed, and those of open windows (`unbounded: true`)"
    yield "emitted: each window, once, when the watermark has passed its last row"


def _class(process: Process) -> Iterator[str]:
    yield f"class {process.module}:{process.name}, called for each {', '.join(process.key)} and event time"
    for name in process.tables:
        columns = f" ({process.state[name]})" if name in process.state else ""
        lives = process.ttl_us.get(name)
        until = f"{format_duration(lives)} after it was put" if lives else "deleted"
        timed = f"{name}: those that have not fired" if name not in (*process.state, "counters") else ""
        yield timed or f"{name}{columns}: the newest value of each key, until {until}"
    yield "also kept: the input rows that the watermark has not passed, with all columns"
    yield "emitted: the output of the class for a row, once, when the watermark has passed the row"
    if process.clock_timers:
        yield "clock timers fire in an epoch: without new input there is none"
