"""Find a rule's open windows, and what holds back the watermark that they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.zones import zoned
from floodmark.core.protocol.watermark import holding
from floodmark.core.sql.windows import Grid, Starts, grids, joined, needed_from
from floodmark.core.text.durations import format_duration
from floodmark.errors import Refused
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.datafiles import query
from floodmark.ledger.home import Home
from floodmark.views.contents.tablerows import committed, quoted
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule, Stream


SLICES = "slices"  # the state table of windows that fold by partial aggregates


@dataclass(frozen=True)
class WatermarkHold:
    """The watermark, and what holds it back; times in microseconds since 1970.

    `by`: the stream that holds it back; `needs`: the event time that this stream has to reach for the pending results
    (None: the watermark does not move for another reason, `why`).
    """

    watermark: int | None
    by: str | None
    needs: int | None
    why: str | None
    zoned: bool

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {
            "watermark": iso(self.watermark, self.zoned),
            "held_by": self.by,
            "needs_event_time": iso(self.needs, self.zoned),
            "why": self.why,
        }

    def text(self) -> str:
        """For people, the end of a sentence."""
        now = f"the watermark is {iso(self.watermark, self.zoned) or 'not set yet'}"
        if self.by is None:
            return f"{now} ({self.why})" if self.why else now
        held = f"{now}, held back by stream {self.by} ({self.why})"
        return held if self.needs is None else f"{held}: an event at {iso(self.needs, self.zoned)} or later advances it"


@dataclass(frozen=True)
class OpenWindows:
    """`count` windows that have input and no result yet; start and end of two, in microseconds since 1970.

    The oldest is final at watermark `oldest[1]`, all of them at `newest[1]`.
    """

    count: int
    oldest: tuple[int, int] | None
    newest: tuple[int, int] | None
    held: WatermarkHold

    def facts(self) -> dict[str, Any]:
        """For --json."""
        start, end = (iso(at, self.held.zoned) for at in self.oldest or (None, None))
        first, last = (iso(at, self.held.zoned) for at in self.newest or (None, None))
        found = {"count": self.count, "oldest_start": start, "oldest_end": end, "newest_start": first}
        return {**found, "newest_end": last, **self.held.facts()}

    def text(self) -> str:
        """For people, in one or two sentences."""
        if self.oldest is None:
            return "no window is open"
        start, end = (iso(at, self.held.zoned) for at in self.oldest)
        if self.count == 1 or self.newest is None:
            return f"1 window is open, {start} to {end}. Final at watermark {end}; {self.held.text()}"
        first, last = (iso(at, self.held.zoned) for at in self.newest)
        return (
            f"{self.count} windows are open, the oldest {start} to {end}, the newest {first} to {last}. "
            f"The oldest is final at watermark {end}; {self.held.text()}"
        )


def open_windows(rule: Rule, head: Head, root: Path) -> OpenWindows | None:
    """What is open at the ledger's head; None for a rule without windows of a fixed size."""
    kinds = grids(spec for spec in rule.query.windows if not spec.reach.after_us)
    if not kinds or rule.rebuild:  # which keeps nothing to tell by
        return None
    names = timed(rule) if rule.slices is None else (SLICES, *timed(rule))
    found = [(kind, run) for kind in kinds for run in _open_runs(rule, head, root, names, kind)]
    oldest = min(((run.first, run.first + kind.size_us) for kind, run in found), key=itemgetter(1), default=None)
    newest = max(((run.last, run.last + kind.size_us) for kind, run in found), key=itemgetter(1), default=None)
    count = sum(run.count for _, run in found)
    return OpenWindows(count, oldest, newest, watermark_hold(rule, head, oldest[1] if oldest else None))


def _open_runs(rule: Rule, head: Head, root: Path, names: Iterable[str], kind: Grid) -> list[Starts]:
    """The windows of one kind that hold a kept row of any of the streams, and are not final."""
    runs = joined(run for name in names for run in _runs(rule, head, root, name, kind))
    if head.watermark is None:
        return runs
    return [left for run in runs if (left := run.after(head.watermark - kind.size_us))]


def timed(rule: Rule) -> dict[str, Stream]:
    """The streams that have an event time."""
    return {name: stream for name, stream in rule.streams.items() if stream.event_time}


def state_table(rule: Rule, head: Head, root: Path, name: str) -> DeltaTable | None:
    """The state table of stream `name`; None if it does not exist."""
    return tables.open_table(Home(root, rule.rule).state(head.generation, name))


def still_needed(rule: Rule, head: Head, name: str, table: DeltaTable) -> str:
    """The condition for state rows of committed epochs that a window not yet final needs."""
    if head.watermark is None or rule.query.lasts:
        return committed(head)
    since = needed_from(rule.query.windows, head.watermark - (rule.amend_us or 0))
    return committed(head) if since is None else f"{committed(head)} AND {micros(rule, name, table)} >= {since}"


def micros(rule: Rule, name: str, table: DeltaTable) -> str:
    """SQL for a state row's event time in microseconds, which is how its column is stored.

    Raises Refused if the state table has no such column.
    """
    time = rule.slices.time if name == SLICES and rule.slices else rule.event_times[name]
    assert time is not None
    columns = tables.columns_of(table)
    column = next((found for found in columns if found.lower() == time.lower()), None)
    if column is None:
        raise Refused(
            f"rule {rule.rule}: expected the event time {time} in the state of {name}, found the columns "
            f"{', '.join(columns)}: the rule was edited since. Undo the edit, or `floodmark reset {rule.rule}`"
        )
    return f"CAST({quoted(column)} AS BIGINT)"


def _runs(rule: Rule, head: Head, root: Path, name: str, window: Grid) -> list[Starts]:
    """The starts of all windows of one kind that hold a kept row of the stream."""
    table = state_table(rule, head, root, name)
    if table is None:
        return []
    at, size, slide = micros(rule, name, table), window.size_us, window.slide_us
    # A row's distance from the start of the newest window with it; earlier windows have it, too, as far as they reach.
    into = f"(({at} - {window.offset_us}) % {slide} + {slide}) % {slide}"
    found = query(
        table,
        f"SELECT newest, max(held) AS held FROM (SELECT {at} - {into} AS newest, "  # noqa: S608 - all of it is ours
        f"({size} - {into} + {slide} - 1) / {slide} AS held FROM t WHERE {still_needed(rule, head, name, table)}) "
        "GROUP BY newest",
    )
    return [Starts(row["newest"] - (row["held"] - 1) * slide, row["newest"], slide) for row in found if row["held"]]


def watermark_hold(rule: Rule, head: Head, until: int | None) -> WatermarkHold:
    """What holds back the watermark of a rule that waits for it to reach `until`."""
    by, needs, why = _holding_stream(rule, head, until)
    writer = rule.streams[by].rule if by else None
    said = f"{why}; rule {writer} writes it, and may be waiting itself" if writer else why
    return WatermarkHold(head.watermark, by, needs, said, zoned(rule, head))


def _holding_stream(rule: Rule, head: Head, until: int | None) -> tuple[str | None, int | None, str | None]:
    """The stream that holds the watermark, the event time it must reach, and why."""
    lateness = holding(rule, head.heard, head.entry.clock_ms * 1000)
    waiting = [name for name in lateness if head.maxima.get(name) is None]
    if waiting:
        return waiting[0], None if until is None else until + lateness[waiting[0]], "it has no row yet"
    snapshot = _in_snapshot(rule, head, head.heard.keys() - lateness.keys())
    if snapshot:
        return (
            snapshot,
            None,
            "it is in its first snapshot, and the epoch that ends the snapshot advances the watermark",
        )
    if not lateness:
        return None, None, "no stream has a lateness"
    tops = {name: head.maxima[name] for name in lateness}
    holds = min(lateness, key=lambda name: (tops[name] or 0) - lateness[name])
    zone = zoned(rule, head)
    why = f"its newest event is at {iso(tops[holds], zone)}, its lateness {format_duration(lateness[holds])}"
    return holds, None if until is None else until + lateness[holds], why


def _in_snapshot(rule: Rule, head: Head, excused: Set[str]) -> str | None:
    lines = ((name, source, head.lines.get(name)) for name, source in sources(rule, None).items())
    return next(
        (name for name, source, line in lines if line and source.in_snapshot(line) and name not in excused), None
    )
