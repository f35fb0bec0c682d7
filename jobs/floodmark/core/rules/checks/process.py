"""Checks a rule's class."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.rules.checks.columns import Problem
from floodmark.core.rules.model import Process, Rule


def check_process(rule: Rule, process: Process) -> Iterator[Problem]:
    if rule.amend_us is not None:
        yield ("late",), "expected keep or drop with `process`: the effects of a class cannot be amended"
    if rule.close_idle_after_us is not None:
        yield ("close_idle_after",), "expected `sql` with a window next to it: for a class it is not supported yet"
    for name, stream in rule.streams.items():
        if stream.event_time is None or stream.lateness_us is None:
            yield (
                ("streams", name),
                "expected `event_time` and `lateness` (a duration such as 30 minutes; 0 seconds if rows come in "
                "order): a class gets its rows in order of event time, after no earlier row can come",
            )
        if name.lower() in map(str.lower, process.tables):
            yield _taken(name, process)
    yield from _key(process)
    if rule.qos == 2:
        yield from _unstable(process)


def _taken(name: str, process: Process) -> Problem:
    """For a stream with the name of a state table. The class names its states, but not Floodmark's own tables."""
    from floodmark.core.process.declaration import OWN_TABLES

    if name.lower() not in OWN_TABLES:
        return ("process",), f"expected names of state that no stream has, found {name}: rename it in {process.file}"
    method = {"timers": "on_timer", "clock_timers": "on_clock"}.get(name.lower())
    way = f", or leave {method} out of {process.file}" if method else ""
    return (
        ("streams", name),
        f"expected another name than {', '.join(OWN_TABLES)}: a class has such tables; rename the stream{way}",
    )


def _key(process: Process) -> Iterator[Problem]:
    from floodmark.core.process.declaration import OWN_COLUMNS
    from floodmark.core.text.ddl import columns_of

    key = {name.lower(): name for name in process.key}
    taken = [name for column, name in key.items() if column in OWN_COLUMNS or column.startswith("_")]
    if taken:
        yield ("key",), f"expected columns without a leading _ and none of {', '.join(OWN_COLUMNS)}, found {taken[0]}"
    for state, ddl in process.state.items():
        for column in (column.name for column in columns_of(ddl) if column.name.lower() in key):
            yield (
                ("process",),
                (f"state[{state!r}]: expected columns that are not in the key, found {column}: rename it"),
            )


def _unstable(process: Process) -> Iterator[Problem]:
    from floodmark.core.process.stable import unstable

    yield from ((("process",), problem) for problem in unstable(process.source, process.file))
