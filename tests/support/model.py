"""What a rule must have done, in plain Python: which rows are late, where the watermark stands, which windows are due.

Shares no code with the engine. Times are datetimes; an epoch is the list of the events that it read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from support.oracle import tumbling

LATENESS = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)
Event = Mapping[str, Any]


@dataclass
class Told:
    """What an epoch makes of its rows. `due`: the windows that it is to write, over all that counts up to it."""

    folded: list[Event]
    late: list[Event]
    dead: list[Event]
    before: datetime | None
    watermark: datetime | None
    due: list[tuple[Any, ...]] = field(default_factory=list)


def tell(epochs: Iterable[tuple[list[Event], bool]]) -> list[Told]:
    """Each epoch's part, oldest first. An epoch is its events and whether it was lost: then its rows count no further,
    yet the watermark goes on."""
    found: list[Told] = []
    kept: list[Event] = []
    largest: datetime | None = None
    mark: datetime | None = None
    for events, lost in epochs:
        one = _sorted_out(events, mark)
        times = [event["at"] for event in one.folded] + ([largest] if largest else [])
        largest = max(times, default=None)
        one.watermark = mark = None if largest is None else largest - LATENESS
        one.due = due(kept + one.folded, one.before, one.watermark)
        kept += [] if lost else one.folded
        found.append(one)
    return found


def _sorted_out(events: Iterable[Event], mark: datetime | None) -> Told:
    one = Told([], [], [], mark, mark)
    for event in events:
        part = one.dead if event["at"] is None else one.late if mark and event["at"] < mark else one.folded
        part.append(event)
    return one


def due(rows: list[Event], since: datetime | None, until: datetime | None) -> list[tuple[Any, ...]]:
    """The windows of one minute that end after `since` and not after `until`."""
    if until is None:
        return []
    return [window for window in tumbling(rows, until) if since is None or window[0] + MINUTE > since]
