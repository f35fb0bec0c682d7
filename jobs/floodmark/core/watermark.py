"""Event time up to which a rule takes its input as complete. All times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping

Maxima = Mapping[str, int | None]  # stream -> largest event time folded so far


def merge(before: Maxima, seen: Maxima) -> dict[str, int | None]:
    """The largest event time of each stream after an epoch that saw `seen`."""
    return {name: later(before.get(name), seen.get(name)) for name in {**before, **seen}}


def advance(before: int | None, maxima: Maxima, lateness: Mapping[str, int], in_snapshot: bool) -> int | None:
    """The watermark after an epoch. It never goes back, and stands still while a stream is in its first snapshot.

    `lateness` names the streams that have a watermark; one of them without a row yet holds the others.
    """
    tops = [maxima.get(name) for name in lateness]
    if in_snapshot or not tops or None in tops:
        return before
    reached = min(top - lateness[name] for name, top in zip(lateness, tops, strict=True) if top is not None)
    return later(before, reached)


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times; one that is None does not count."""
    return max((value for value in (one, other) if value is not None), default=None)
