"""Decides whether a rule's event times have a zone, for printing them and for reading times in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule


def zoned(rule: Rule, head: Head | None) -> bool:
    """Whether event times have a zone, by the ledger; assumed for a rule that has not run, as most have."""
    columns = head.begun_with.columns if head else {}
    times = {name: stream.event_time.name.lower() for name, stream in rule.streams.items() if stream.event_time}
    kinds = [kind for name, time in times.items() for column, kind in columns.get(name, ()) if column.lower() == time]
    return "timestamp_ntz" not in kinds


def micros_of(at: datetime, rule: Rule, zoned: bool) -> int:
    """A moment as one of the rule's event times, in microseconds; without a zone of its own it is in the rule's."""
    own = ZoneInfo(rule.timezone)
    moment = at if at.tzinfo else at.replace(tzinfo=own)
    shown = moment.astimezone(UTC) if zoned else moment.astimezone(own).replace(tzinfo=UTC)
    return (shown - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def zone_offset_ms(zone: str, clock_ms: int) -> int:
    """How far the zone's clock is ahead of UTC at that moment, in milliseconds."""
    moment = datetime.fromtimestamp(clock_ms / 1000, UTC).astimezone(ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds() * 1000)
