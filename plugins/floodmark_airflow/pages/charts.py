"""From thousands of epochs to some hundred points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from floodmark.views.history import End, sums

POINTS = 300  # that a chart gets
LINES = 24  # of the table that says the same


def buckets(ends: Sequence[End], most: int) -> Iterator[Sequence[End]]:
    """Epochs that follow each other, in at most `most` buckets of one size; the last may have fewer."""
    size = per_point(ends, most)
    return (ends[at : at + size] for at in range(0, len(ends), size))


def per_point(ends: Sequence[End], most: int = POINTS) -> int:
    """How many epochs one bucket has."""
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
    """The points by column, as the chart library has them; times never go back."""
    found = points(ends)
    columns: dict[str, list[Any]] = {name: [point[name] for point in found] for name in (found[0] if found else ())}
    latest = 0.0
    for place, at in enumerate(columns.get("at", [])):
        latest = columns["at"][place] = max(latest, at)
    return columns
