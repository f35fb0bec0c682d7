"""Converts a rule file's models to the rule's model."""

from __future__ import annotations

from datetime import UTC
from typing import Any, Literal
from zoneinfo import ZoneInfo

from floodmark.core.rules.file.kindkeys import options_of
from floodmark.core.rules.file.schedule import WrittenFreshness
from floodmark.core.rules.file.sinks import WrittenSink
from floodmark.core.rules.file.streams import (
    DEFAULT_MAX_AHEAD,
    WrittenDistinct,
    WrittenExpectation,
    WrittenLanding,
    WrittenLookup,
    WrittenStart,
    WrittenStream,
    instant_of,
)
from floodmark.core.rules.kinds import CODE, sink_kind, source_can, source_kind
from floodmark.core.rules.model import (
    Distinct,
    EventTime,
    Expectation,
    Freshness,
    Landing,
    Lookup,
    Qos,
    Sink,
    StartAt,
    Stream,
)
from floodmark.core.rules.sinks.outboxes import outbox_of
from floodmark.core.text.durations import parse_duration


def freshness_of(written: WrittenFreshness | None) -> Freshness | None:
    if written is None:
        return None
    return Freshness(max_lag_us=written.max_lag, max_late_percent=written.max_late, on_exceed=written.on_exceed)


def level_of(qos: int) -> Qos:
    levels: tuple[Qos, ...] = (0, 1, 2)
    return levels[qos]


def stream_of(written: WrittenStream, zone: str, chained: tuple[str, int] | None, code: str | None = None) -> Stream:
    kind, address, options, qos = _source_of(written, chained)
    time = written.event_time
    ahead = written.max_ahead
    if time is not None and ahead is None:
        ahead = parse_duration(DEFAULT_MAX_AHEAD)
    return Stream(
        kind=kind,
        address=address,
        options=options if code is None else {**options, CODE: code},
        rule=written.rule,
        sink=written.sink,
        qos=level_of(qos),
        event_time=EventTime(name=time) if isinstance(time, str) else time and EventTime(**time.model_dump()),
        lateness_us=written.lateness,
        max_ahead_us=ahead,
        idle_after_us=written.idle_after,
        where=written.where,
        start=_start_at(written.start, zone),
        distinct=_distinct(written.distinct),
        expect=expectations_of(written.expect),
        on_rewrite=written.on_rewrite,
        landing=_landing(written.landing, kind),
        changes=written.changes,
    )


def _landing(written: bool | WrittenLanding | None, kind: str) -> Landing | None:
    """On by default where a kind's rows can be read only until they are landed."""
    if isinstance(written, WrittenLanding):
        return Landing(keep_us=written.keep)
    asked = source_can(kind).lands if written is None else written
    return Landing() if asked else None


def _source_of(written: WrittenStream, chained: tuple[str, int] | None) -> tuple[str, str, dict[str, Any], int]:
    """Kind, address, options and highest qos of a stream. Another rule's sink is a table."""
    if chained is not None:
        return "delta", chained[0], {}, chained[1]
    for name, said in written.kind.items():
        kind = source_kind(name)
        return name, kind.address(said), options_of(said), 2
    return "delta", "", {}, 2


def expectations_of(written: dict[str, WrittenExpectation]) -> dict[str, Expectation]:
    return {name: Expectation(check=one.check, on_fail=one.on_fail) for name, one in written.items()}


def _distinct(written: WrittenDistinct | None) -> Distinct | None:
    return None if written is None else Distinct(key=tuple(written.key), within_us=written.within)


def lookup_of(written: WrittenLookup) -> Lookup:
    return Lookup(kind="delta", address=written.delta, history=written.history)


def _start_at(start: Literal["earliest", "latest"] | WrittenStart, zone: str) -> Any:
    if not isinstance(start, WrittenStart):
        return start
    if start.timestamp is None:
        return StartAt(version=start.version)
    instant = instant_of(start.timestamp)
    aware = instant if instant.tzinfo else instant.replace(tzinfo=ZoneInfo(zone))
    return StartAt(timestamp=aware.astimezone(UTC).isoformat())


def sink_of(written: WrittenSink, qos: int, code: str | None = None) -> Sink:
    kind, said = next(iter(written.kind.items()))
    address = sink_kind(kind).address(said)
    return Sink(
        kind=kind,
        address=address,
        options=options_of(said) if code is None else {**options_of(said), CODE: code},
        name=written.name,
        qos=level_of(qos if written.qos is None else written.qos),
        key=tuple(written.key or ()),
        newest=written.newest,
        delete=written.delete,
        properties=written.properties,
        columns=tuple(written.columns or ()),
        where=written.where,
        partition_by=tuple(written.partition_by or ()),
        cluster_by=tuple(written.cluster_by or ()),
        adds_columns=written.evolves == "add_columns",
        epoch_columns=written.epoch_columns,
        outbox=outbox_of(address) if address and sink_kind(kind).can.target else None,
        outbox_bytes=written.outbox and written.outbox.max_bytes,
        **({} if written.outbox is None else {"outbox_keep_us": written.outbox.keep}),
        on_reset=written.on_reset,
        on_error=written.on_error,
    )
