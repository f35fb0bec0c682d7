"""Decides whether a rule's event times have a zone, for printing them and for reading times in words.

It also writes and reads times of years that Python lacks.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from floodmark.core.text.durations import DAY

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule

CYCLE_US = 146_097 * DAY  # 400 years: all of them have equal days
_YEAR = re.compile(r"([+-]?\d{4,})(-.*)")


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


def earliest_moment(local_us: int, zone: str) -> int:
    """The earliest moment at which a clock of the zone may show this time or a later one, in microseconds.

    Where the clock is put forward, a time that it leaves out counts by the offset after, as no later time comes before.
    """
    try:
        shown = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(microseconds=local_us)
        offsets = [shown.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1)]
    except OverflowError:  # of a year that Python lacks
        return local_us - DAY
    return local_us - max(offsets) // timedelta(microseconds=1)


def far_text(micros: int) -> str:
    """A moment of any year in ISO 8601, without a zone. A year after 9999 has a sign, as in `+32971-10-06T00:00:00`."""
    cycles, rest = divmod(micros, CYCLE_US)
    near = datetime(1970, 1, 1) + timedelta(microseconds=rest)
    year = near.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > MAXYEAR else ""
    return f"{sign}{abs(year):04}{near.isoformat()[4:]}"


def near_text(text: str) -> tuple[str, int]:
    """A date or time in ISO 8601 in a year that Python has, and how often 400 years lie between. Raises ValueError."""
    found = _YEAR.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a date or a time in ISO 8601, found {text!r}")
    year = int(found[1])
    cycles = 0 if MINYEAR <= year <= MAXYEAR else (year - 2000) // 400
    return f"{year - 400 * cycles:04}{found[2]}", cycles


def micros_of_text(text: str, rule: Rule) -> int:
    """The event time of the rule that a table's row shows; its year may be one that Python lacks."""
    near, cycles = near_text(text)
    return micros_of(datetime.fromisoformat(near), rule, text.endswith("Z")) + cycles * CYCLE_US


def zone_offset_ms(zone: str, clock_ms: int) -> int:
    """How far the zone's clock is ahead of UTC at that moment, in milliseconds."""
    moment = datetime.fromtimestamp(clock_ms / 1000, UTC).astimezone(ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds() * 1000)


def furthest_offset_ms(zone: str, clock_ms: int) -> int:
    """The same, of this moment and of those up to two hours before, whose rows may come only now.

    Where clocks were turned back, they show a later time than clocks do now.
    """
    return max(zone_offset_ms(zone, clock_ms - hours * 3_600_000) for hours in (0, 2))
