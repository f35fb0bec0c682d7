"""The ends of a run's epochs, for a source that Spark does not plan itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from floodmark.core.rules.rule import EpochLimits
from floodmark.errors import SourceBroken

if TYPE_CHECKING:
    from floodmark.connectors.ports.source import Source, Stepped


def steps(source: Source, since: str, limits: EpochLimits) -> list[str]:
    """`since`, and the ends of the epochs that read all present data from there on. Raises SourceBroken.

    Without any, an epoch without rows may follow the source's log.
    """
    found, end = [since], source.take_end(since)
    while source.news(found[-1], end):
        found.append(_after(source, found[-1], end, limits))
    if found == [since] and source.is_to_follow(since, time.time_ns() // 1000):
        found.append(end)
    return found


def next_end(source: Source, since: str, upto: str, limits: EpochLimits) -> str:
    """Where an epoch ends that starts at `since`, within the limits and not beyond `upto`. Raises SourceBroken."""
    return _after(source, since, upto, limits) if source.news(since, upto) else upto


def _after(source: Source, since: str, upto: str, limits: EpochLimits) -> str:
    if limits == EpochLimits():
        return upto
    found = cast("Stepped", source).after(since, upto, limits)
    if found == since:
        raise SourceBroken(
            f"stream {source.name}: expected an offset beyond {since} for an epoch that reads more, found the same "
            f"offset. {type(source).__name__}.after has to advance, whatever its limits"
        )
    return found
