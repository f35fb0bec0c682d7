"""Checks epochs, schedules and freshness."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from floodmark.core.rules.checks.columns import Problem
from floodmark.core.rules.file.schedule import UPSTREAM
from floodmark.core.rules.kinds import sink_can, stream_can
from floodmark.core.rules.model import Rule
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt


def input_files(rule: Rule) -> dict[str, str]:
    """The addresses that the rule reads."""
    streams = {f"stream {name}": stream.address for name, stream in rule.streams.items()}
    return {**streams, **{f"lookup {name}": lookup.address for name, lookup in rule.lookups.items()}}


def is_stateful(rule: Rule) -> bool:
    try:
        return rule.query.stateful
    except SqlAt:  # reported by `check_sql`
        return False


_WHY_NOT: dict[str, str] = {"max_rows": "cannot count rows before they read them"}


def check_epoch(rule: Rule) -> Iterator[Problem]:
    asked = [key for key, most in rule.epoch.model_dump().items() if most is not None]
    kinds = {
        "Landed" if stream.landing else stream.kind.title(): stream_can(stream).limits
        for stream in rule.streams.values()
    }
    for kind, limits in kinds.items():
        for key in (key for key in asked if key not in limits):
            why = _WHY_NOT.get(key, f"cannot be bounded by {key}")
            others = f"use {' or '.join(sorted(limits))}" if limits else "leave it out"
            yield ("epoch", key), f"{kind} streams {why}: {others}"


_REPLACED = "expected no `key` with `rebuild: true`: each run replaces the whole table"
_AT_ONCE = "with `rebuild: true`: each run reads everything at once and keeps nothing for the next one"
ROWS_PER_WINDOW: Field = ("max_rows_per_window",)


def check_rebuild(rule: Rule) -> Iterator[Problem]:
    """Report settings that need earlier input or state, which a rule rebuilt by each run does not have."""
    if not rule.rebuild:
        return
    for i, sink in enumerate(rule.sinks):
        if sink.key:
            yield ("sinks", i, "key"), f"{_REPLACED}, found {', '.join(sink.key)}"
        can = sink_can(sink.kind)
        if can.stores_rows and not can.replaces:
            yield (
                ("sinks", i, sink.kind),
                "expected a sink whose rows can be replaced with `rebuild: true`, because each run replaces all of "
                f"them; found {sink.kind}",
            )
    for name, stream in rule.streams.items():
        if stream.start == "latest":
            yield ("streams", name, "start"), "expected earliest, a version or a time: each run would read nothing"
        if stream.idle_after_us is not None:
            yield ("streams", name, "idle_after"), f"expected none {_AT_ONCE}"
    if rule.amend_us is not None:
        yield ("late",), f"expected no {{amend: ...}} {_AT_ONCE}, so no row is late"
    if rule.close_idle_after_us is not None:
        yield ("close_idle_after",), f"expected none {_AT_ONCE}; `run --close-until T` closes windows"
    if rule.process is not None and rule.process.clock_timers:
        yield ("process",), f"expected a class without clock timers {_AT_ONCE}"


def check_rows_per_window(rule: Rule) -> Iterator[Problem]:
    if rule.max_rows_per_window is None:
        return
    windows = () if rule.process is not None else rule.query.windows
    if not windows or any(spec.grid is None for spec in windows):
        yield (
            ROWS_PER_WINDOW,
            "expected SQL with windows of fixed sizes, `window(...)`, and no others: only those tell from a single "
            "row which window it is in",
        )
    elif rule.windows == "slices":
        yield (
            ROWS_PER_WINDOW,
            ("expected `windows: rows` next to it: slices do not record how many rows are in a window"),
        )


def check_schedule(rule: Rule) -> Iterator[Problem]:
    from croniter import croniter  # type: ignore[import-untyped]  # the library by which Airflow reads schedules

    if rule.schedule == UPSTREAM:
        if all(stream.rule is None for stream in rule.streams.values()):
            yield (
                ("schedule",),
                "expected a stream that names the rule it reads (`rule: NAME`) with `upstream`, found none: name "
                "one, or give {assets: [uri]} or cron",
            )
    elif not isinstance(rule.schedule, str) or rule.schedule.startswith("@"):
        return
    elif not croniter.is_valid(rule.schedule):
        yield (
            ("schedule",),
            (
                "expected cron with five fields (minute, hour, day of month, month, day of week), each within its "
                f"bounds, such as '*/5 * * * *', found {rule.schedule!r}"
            ),
        )
    elif not _ever(rule.schedule):
        yield ("schedule",), f"expected cron with days that exist in its months, found {rule.schedule!r}"


def _ever(cron: str) -> bool:
    """Whether the schedule has a moment before and after any day; Airflow computes both."""
    from croniter import CroniterBadDateError, croniter

    try:
        for look in (croniter.get_next, croniter.get_prev):
            look(croniter(cron, datetime(2024, 1, 1)))
    except CroniterBadDateError:
        return False
    return True


def check_freshness(rule: Rule) -> Iterator[Problem]:
    if rule.freshness is None:
        return
    if rule.freshness.max_lag_us is not None and not any(stream.event_time for stream in rule.streams.values()):
        yield ("freshness", "max_lag"), "expected a stream with `event_time`: lag is measured in event time"
    if rule.freshness.max_late_percent is not None and all(s.lateness_us is None for s in rule.streams.values()):
        yield ("freshness", "max_late"), "expected a stream with `lateness`: without one, no row is late"
