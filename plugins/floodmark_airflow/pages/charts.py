"""Aggregates thousands of epochs into a few hundred points of a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from floodmark.views.history import End, sums

POINTS = 300  # most points of a chart
LINES = 24  # most lines of the table with the same numbers


def buckets(ends: Sequence[End], most: int) -> Iterator[Sequence[End]]:
    """Consecutive epochs in at most `most` buckets of equal size; the last may have fewer."""
    size = per_point(ends, most)
    return (ends[at : at + size] for at in range(0, len(ends), size))


def per_point(ends: Sequence[End], most: int = POINTS) -> int:
    """The number of epochs in one bucket."""
    return max(1, -(-len(ends) // most))


def points(ends: Sequence[End], most: int = POINTS) -> list[dict[str, Any]]:
    """One point for each bucket, at the time when it ended.

    Rows are sums; `slowest`: seconds of the slowest epoch, `mean` of them all; `watermark`: the last, in seconds since
    1970.
    """
    return [_point(bucket) for bucket in buckets(ends, most)]


def _point(bucket: Sequence[End]) -> dict[str, Any]:
    rows, last = sums(bucket), bucket[-1]
    spent = [end.seconds for end in bucket if end.seconds is not None]
    return {
        "at": last.at,
        "first": bucket[0].epoch,
        "last": last.epoch,
        "read": rows["read"],
        "output": rows["output"],
        "late": rows["late"],
        "dead": rows["dead"],
        "rejected": rows["rejected"],
        "slowest": max(spent, default=None),
        "mean": round(sum(spent) / len(spent), 3) if spent else None,
        "watermark": None if last.watermark is None else last.watermark / 1e6,
    }


def series(ends: Sequence[End]) -> dict[str, list[Any]]:
    """The points by column, as the chart library requires; times never decrease."""
    found = points(ends)
    columns: dict[str, list[Any]] = {name: [point[name] for point in found] for name in (found[0] if found else ())}
    latest = 0.0
    for place, at in enumerate(columns.get("at", [])):
        latest = columns["at"][place] = max(latest, at)
    return columns
