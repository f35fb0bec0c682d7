"""Decides on ticks: epochs without input that advance the watermark, because a user or the rule says no more will come.

A tick's intent has the offsets of the head, so that Spark replays it as a batch without rows. Its `ticks` field records
how far the watermark advances. So a tick is folded, retried after a crash, and audited like any other epoch. Times are
in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.watermark import advance, holding, later
from floodmark.core.sql.words.clock import at_clock

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule

MOST_BACK_MS = 3_600_000  # of a clock that is an event time


def onwards(rule: Rule, head: Head, planned: Entry) -> Entry:
    """The entry of a new epoch. Where the clock is an event time, it does not go back: all rows would be late.

    After a clock that was far ahead they are: with that clock, all rows would be in one window that does not close.
    """
    times = (stream.event_time.expr for stream in rule.streams.values() if stream.event_time)
    back_ms = head.entry.clock_ms - planned.clock_ms
    if 0 < back_ms <= MOST_BACK_MS and any(expr is not None and at_clock(expr, 0) != expr for expr in times):
        return Entry(head.entry.clock_ms, planned.offsets)
    return planned


def tick(watermark: int) -> tuple[str, ...]:
    """The `ticks` field of a tick's intent."""
    return (f"until {watermark}",)


def watermark_of(ticks: Sequence[str]) -> int | None:
    """The time to which a tick advances the watermark; None for an epoch that is no tick."""
    return max((int(one.rpartition(" ")[2]) for one in ticks), default=None)


def tick_target(rule: Rule, head: Head, clock: int, close_until: int | None) -> int | None:
    """How far to advance the watermark without input: to the time a user gave, or by the rule; None: do not."""
    if close_until is not None and (head.watermark is None or head.watermark < close_until):
        return close_until
    return later(quiet_until(rule, head, clock), excused_until(rule, head, clock))


def quiet_until(rule: Rule, head: Head, clock: int) -> int | None:
    """How far `close_idle_after` advances the watermark if no row has been folded until `clock`; None: no tick is due.

    Silence counts as event time: the watermark advances by as much as the clock has since the newest epoch that folded
    rows or moved the watermark, but not beyond what is open: a clock that was behind makes the silence look long. The
    result is also None if everything that the rule has seen is closed.
    """
    after = rule.close_idle_after_us
    quiet = clock - head.quiet_since_ms * 1000
    if after is None or head.watermark is None or head.open is not None or quiet < after:
        return None
    newest = max((at for at in head.maxima.values() if at is not None), default=head.watermark)
    open_until = newest + max((spec.silent_us for spec in rule.query.windows), default=0)
    return min(head.watermark + quiet, open_until + 1) if head.watermark <= open_until else None


def excused_until(rule: Rule, head: Head, clock: int) -> int | None:
    """How far the watermark advances because a stream, silent until `clock`, no longer holds it; None: no tick is due.

    The caller checks first that there is no new data. So no first snapshot has rows left, and no stream has rows that
    would end its silence.
    """
    if not head.heard or head.open is not None:
        return None
    reached = advance(head.watermark, head.maxima, holding(rule, head.heard, clock), in_snapshot=False)
    return None if reached == head.watermark else reached


def due_watermark(rule: Rule, head: Head) -> int | None:
    """How far the watermark is to advance because a correction has brought newer rows; None: it is not.

    Only an epoch advances it. One without input does, if nothing else is new. The caller checks that no stream is in
    its first snapshot.
    """
    if not head.corrections or head.open is not None or head.backfill is not None:
        return None
    lateness = holding(rule, head.heard, head.entry.clock_ms * 1000)
    reached = advance(head.watermark, head.maxima, lateness, in_snapshot=False)
    return None if reached == head.watermark else reached
