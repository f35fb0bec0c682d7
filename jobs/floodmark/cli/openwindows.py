"""The first question everyone asks of a windowed rule: what is still open, and what is it waiting for?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from floodmark.cli.output import iso
from floodmark.connectors.registry import sources
from floodmark.core.durations import format_duration
from floodmark.core.windows import live_from
from floodmark.ledger import tables
from floodmark.ledger.home import Home

if TYPE_CHECKING:
    from floodmark.core.records import Head
    from floodmark.core.rules import Rule, Stream
    from floodmark.core.sql import WindowSpec


@dataclass(frozen=True)
class OpenWindows:
    """`count` windows with input and without a result yet; `oldest`: its start and end in microseconds since 1970.

    The oldest is final at watermark `oldest[1]`; `holds` is the stream that holds the watermark back, and `needs` the
    event time that this stream has to reach first (None: the watermark stands still for another reason, `why`).
    """

    count: int
    oldest: tuple[int, int] | None
    watermark: int | None
    holds: str | None
    needs: int | None
    why: str | None
    zoned: bool

    def facts(self) -> dict[str, Any]:
        """For --json."""
        start, end = self.oldest or (None, None)
        return {
            "count": self.count,
            "oldest_start": iso(start, self.zoned),
            "oldest_end": iso(end, self.zoned),
            "watermark": iso(self.watermark, self.zoned),
            "held_by": self.holds,
            "needs_event_time": iso(self.needs, self.zoned),
            "why": self.why,
        }

    def text(self) -> str:
        """For people, in one or two sentences."""
        if self.oldest is None:
            return "no window is open"
        start, end = (iso(at, self.zoned) for at in self.oldest)
        many = "1 window is open" if self.count == 1 else f"{self.count} windows are open"
        now = iso(self.watermark, self.zoned) or "not set yet"
        return f"{many}, the oldest {start} to {end}. It is final at watermark {end}; the watermark is {now}{self._held()}"

    def _held(self) -> str:
        if self.holds is None:
            return f" ({self.why})" if self.why else ""
        needs = f": it moves on with an event at {iso(self.needs, self.zoned)} or later" if self.needs is not None else ""
        return f", held by stream {self.holds} ({self.why}){needs}"


def open_windows(rule: Rule, head: Head, root: Path) -> OpenWindows | None:
    """What is open at the ledger's head; None for a rule without windows."""
    window = rule.query.window
    if window is None:
        return None
    ends = np.unique(np.concatenate([_starts(rule, head, root, name, window) for name in timed(rule)])) + window.size_us
    if head.watermark is not None:
        ends = ends[ends > head.watermark]
    oldest = (int(ends[0]) - window.size_us, int(ends[0])) if len(ends) else None
    holds, needs, why = _held_by(rule, head, oldest)
    return OpenWindows(len(ends), oldest, head.watermark, holds, needs, why, zoned(rule, head))


def timed(rule: Rule) -> dict[str, Stream]:
    """The streams that have an event time."""
    return {name: stream for name, stream in rule.streams.items() if stream.event_time}


def zoned(rule: Rule, head: Head | None) -> bool:
    """Whether the rule's event times have a zone, as far as the ledger tells."""
    columns = head.begun_with.columns if head else {}
    times = {name: stream.event_time.name.lower() for name, stream in rule.streams.items() if stream.event_time}
    kinds = [kind for name, time in times.items() for column, kind in columns.get(name, ()) if column.lower() == time]
    return "timestamp_ntz" not in kinds


def _starts(rule: Rule, head: Head, root: Path, name: str, window: WindowSpec) -> Any:
    """Starts of all windows that hold a kept row of the stream, in microseconds."""
    found = tables.open_table(Home(root, rule.rule).state(head.generation, name))
    if found is None:
        return np.empty(0, np.int64)
    time = rule.streams[name].event_time
    assert time is not None
    at = _times(found, time.name, head)
    if head.watermark is not None:
        at = at[at >= live_from(window, head.watermark)]
    at = np.unique(at)
    last = window.offset_us + (at - window.offset_us) // window.slide_us * window.slide_us
    steps = range(-(-window.size_us // window.slide_us))
    starts = [last - step * window.slide_us for step in steps]
    return np.concatenate([start[start > at - window.size_us] for start in starts])


def _times(table: DeltaTable, column: str, head: Head) -> Any:
    """Event times, in microseconds, of the rows that committed epochs kept."""
    name = next(found for found in tables.columns_of(table) if found.lower() == column.lower())
    rows = committed(table, head, [name])
    return pc.cast(rows[name], pa.int64()).drop_null().to_numpy()


def committed(table: DeltaTable, head: Head, columns: list[str] | None = None) -> pa.Table:
    """Rows of a table of the rule's own that committed epochs wrote; what an open or lost epoch wrote is left out."""
    seen = pc.field("_epoch") <= head.epoch
    if head.lost:
        seen &= ~pc.field("_epoch").isin(list(head.lost))
    return table.to_pyarrow_table(columns=columns, filters=seen)


def _held_by(rule: Rule, head: Head, oldest: tuple[int, int] | None) -> tuple[str | None, int | None, str | None]:
    """The stream that holds the watermark, the event time it must reach for the oldest window, and why."""
    lateness = {name: s.lateness_us for name, s in rule.streams.items() if s.lateness_us is not None}
    waiting = [name for name in lateness if head.maxima.get(name) is None]
    if waiting:
        return waiting[0], oldest[1] + lateness[waiting[0]] if oldest else None, "it has no row yet"
    snapshot = _in_snapshot(rule, head)
    if snapshot:
        return snapshot, None, "it is in its first snapshot, and the epoch that ends that moves the watermark"
    if not lateness:
        return None, None, "no stream has a lateness"
    tops = {name: head.maxima[name] for name in lateness}
    holds = min(lateness, key=lambda name: (tops[name] or 0) - lateness[name])
    zone = zoned(rule, head)
    why = f"its newest event is of {iso(tops[holds], zone)}, its lateness {format_duration(lateness[holds])}"
    return holds, oldest[1] + lateness[holds] if oldest else None, why


def _in_snapshot(rule: Rule, head: Head) -> str | None:
    lines = zip(sources(rule).items(), head.entry.offsets, strict=True)
    return next((name for (name, source), line in lines if source.in_snapshot(line)), None)
