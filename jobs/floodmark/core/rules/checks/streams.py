"""Checks streams and lookups."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.rules.checks.columns import Problem, check_expression
from floodmark.core.rules.kinds import Start, source_can, stream_can
from floodmark.core.rules.model import Rule, StartAt, Stream
from floodmark.core.text.problems import with_article
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt


def check_streams(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    for name, stream in rule.streams.items():
        for key, value in (("lateness", stream.lateness_us), ("max_ahead", stream.max_ahead_us)):
            if value is not None and stream.event_time is None:
                yield ("streams", name, key), f"expected `event_time` beside it: {key} is measured in event time"
        if stream.distinct is not None and stream.event_time is None:
            yield ("streams", name, "distinct"), "expected `event_time` beside it: a horizon is measured in event time"
        if stream.distinct is not None and rule.process is not None:
            yield (
                ("streams", name, "distinct"),
                "expected `sql` next to it; a class can remember what it has seen with get_state, put_state and a ttl",
            )
        expressions = {("where",): stream.where, ("event_time", "expr"): stream.event_time and stream.event_time.expr}
        for path, expression in expressions.items():
            if expression:
                yield from check_expression(("streams", name, *path), expression)


def check_kinds(rule: Rule) -> Iterator[tuple[Field, str]]:
    """Check that a stream's kind of source supports what the rule asks of it."""
    for name, stream in rule.streams.items():
        can = stream_can(stream)
        start = start_of(stream)
        if start not in can.starts:
            yield (
                ("streams", name, "start"),
                f"expected {' or '.join(sorted(can.starts))}, because {with_article(stream.kind)} source can start "
                f"nowhere else; found {start}",
            )
        if rule.qos > can.qos and not _lacks_landing(stream):
            yield (
                ("streams", name, stream.kind),
                f"expected a source whose rows can be read again, because the rule has `qos: {rule.qos}`; found a "
                f"{stream.kind} source, whose rows can be read only once: a crash would lose rows. {_LAND}, or give "
                f"the rule `qos: {can.qos}`",
            )
        if rule.rebuild and not can.rereads and not _lacks_landing(stream):
            yield (
                ("rebuild",),
                f"expected sources whose rows can be read again in each run, found stream {name}: rows of a "
                f"{stream.kind} source can be read only once. {_LAND}",
            )
        yield from check_landing(name, stream)
        yield from check_changes(name, stream)
        if rule.rebuild and stream.landing is not None and stream.landing.keep_us is not None:
            yield (
                ("streams", name, "landing", "keep"),
                "expected none with `rebuild: true`: each run reads all landed rows",
            )


_LAND = "Add `landing: true` to the stream, which copies its rows into the rule's home first"


def check_changes(name: str, stream: Stream) -> Iterator[tuple[Field, str]]:
    """Check `changes`: only a Delta table has a change feed, of which rewrites are rows."""
    if stream.changes and not source_can(stream.kind).table:
        yield (
            ("streams", name, "changes"),
            f"expected it beside `delta` or `rule`, because only Delta tables have a change feed; found {stream.kind}",
        )
    elif stream.changes and stream.on_rewrite != "stop":
        yield (
            ("streams", name, "on_rewrite"),
            "expected none beside `changes: true`: what a rewrite changes is read as rows",
        )


def check_landing(name: str, stream: Stream) -> Iterator[tuple[Field, str]]:
    """Check `landing`: whether the kind needs one, and what it cannot have beside it."""
    if _lacks_landing(stream):
        yield (
            ("streams", name, "landing"),
            f"expected true or {{keep: DURATION}}, found false: rows of a {stream.kind} source can be read only until "
            "they are landed",
        )
    if stream.landing is not None and not stream.changes and stream.on_rewrite != "stop":
        yield (
            ("streams", name, "on_rewrite"),
            "expected none beside `landing`: landed rows are a copy, which does not follow rewrites of the source",
        )


def _lacks_landing(stream: Stream) -> bool:
    return stream.landing is None and source_can(stream.kind).lands


def start_of(stream: Stream) -> Start:
    """The kind of start that the stream asks for."""
    if not isinstance(stream.start, StartAt):
        return stream.start
    return "timestamp" if stream.start.version is None else "version"


def check_lookups(rule: Rule) -> Iterator[Problem]:
    streams = {name.lower(): name for name in rule.streams}
    for name in rule.lookups:
        if name.lower() in streams:
            yield ("lookups", name), f"expected a name that no stream has, found that of stream {streams[name.lower()]}"
        if rule.process is not None:
            yield ("lookups", name), "expected `sql` next to it: for a class, lookup tables are not supported yet"


def check_late(rule: Rule) -> Iterator[Problem]:
    if rule.late == "drop" and all(stream.lateness_us is None for stream in rule.streams.values()):
        yield ("late",), "expected a stream with `lateness`: without one, no row is late"


def check_idle(rule: Rule) -> Iterator[Problem]:
    """Check `idle_after`: it needs another stream with a watermark, and something that waits for it."""
    timed = [name for name, stream in rule.streams.items() if stream.event_time and stream.lateness_us is not None]
    for name in (name for name, stream in rule.streams.items() if stream.idle_after_us is not None):
        if name not in timed:
            yield (
                ("streams", name, "idle_after"),
                "expected `event_time` and `lateness` next to it: without them, nothing waits for this stream",
            )
        elif len(timed) < 2:
            yield (
                ("streams", name, "idle_after"),
                "expected another stream with `event_time` and `lateness`, found none: to close windows while all "
                "streams are idle, use `close_idle_after`, a key of the rule",
            )
