"""Format times and sizes for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from floodmark.core.lifecycle.zones import far_text
from floodmark.core.text.durations import SECOND, format_duration

EPOCH_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def iso(at: int | None, zoned: bool = True) -> str | None:
    """Microseconds since 1970 as ISO 8601: in UTC with a Z, or, for times without a zone, as their clock shows it."""
    if at is None:
        return None
    try:
        moment = EPOCH_ZERO + timedelta(microseconds=at)
    except OverflowError:
        return far_text(at) + ("Z" if zoned else "")
    return moment.replace(tzinfo=None).isoformat() + ("Z" if zoned else "")


def duration(seconds: float) -> str:
    """A duration in words, by its two largest units."""
    whole = format_duration(int(seconds) * SECOND).split()
    return " ".join(whole[:4])


def size(count: int) -> str:
    """A number of bytes, formatted for people."""
    amount, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 1000 and unit != "TB":
        amount, unit = amount / 1000, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
