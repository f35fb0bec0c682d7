"""Computes the event time up to which a rule treats its input as complete. All times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule

Maxima = Mapping[str, int | None]  # stream -> largest event time folded so far
Heard = Mapping[str, int]  # stream with `idle_after` -> clock of the newest epoch that folded a row of it


def merge(before: Maxima, seen: Maxima) -> dict[str, int | None]:
    """The largest event time of each stream after an epoch that saw `seen`."""
    return {name: later(before.get(name), seen.get(name)) for name in {**before, **seen}}


def advance(before: int | None, maxima: Maxima, lateness: Mapping[str, int], in_snapshot: bool) -> int | None:
    """The watermark after an epoch. It never goes back, and does not move while a stream is in its first snapshot.

    lateness: the streams that have a watermark; one of them without a row yet holds the others.
    """
    tops = [maxima.get(name) for name in lateness]
    if in_snapshot or not tops or None in tops:
        return before
    reached = min(top - lateness[name] for name, top in zip(lateness, tops, strict=True) if top is not None)
    return later(before, reached)


def hear(before: Heard, speaking: Collection[str], clock: int) -> dict[str, int]:
    """The clock at which each stream with `idle_after` was last heard, after an epoch of recorded clock `clock`."""
    return {name: clock if name in speaking else at for name, at in before.items()}


def excused(heard: Heard, idle_after: Mapping[str, int], timed: Collection[str], clock: int) -> set[str]:
    """Those `timed` streams (with a watermark) that have been silent for their `idle_after`; never all of them."""
    silent = {name for name, after in idle_after.items() if clock - heard.get(name, clock) >= after}
    return silent if silent < set(timed) else set()


def holding(rule: Rule, heard: Heard, clock: int) -> dict[str, int]:
    """The lateness of each stream that the watermark waits for at recorded clock `clock`."""
    out = silent(rule, heard, clock)
    return {name: lateness for name, lateness in _timed(rule).items() if name not in out}


def silent(rule: Rule, heard: Heard, clock: int) -> set[str]:
    """Streams with a lateness that the watermark does not wait for. After an edit, `heard` may name other streams."""
    idle_after = {name: s.idle_after_us for name, s in rule.streams.items() if s.idle_after_us is not None}
    return excused(heard, idle_after, _timed(rule), clock)


def _timed(rule: Rule) -> dict[str, int]:
    return {name: stream.lateness_us for name, stream in rule.streams.items() if stream.lateness_us is not None}


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times, ignoring None."""
    return max((value for value in (one, other) if value is not None), default=None)
