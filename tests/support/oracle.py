"""The expected results, computed in plain Python from the events alone. Shares no code with the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tumbling(events: Iterable[Mapping[str, Any]], watermark: datetime, minutes: int = 1) -> list[tuple[Any, ...]]:
    """(start, k, count, sum of v, max of n) of every window that ends at or before the watermark, sorted."""
    size = timedelta(minutes=minutes)
    groups: dict[tuple[datetime, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for one in events:
        start = one["at"] - (one["at"] - EPOCH) % size
        if start + size <= watermark:
            groups[start, one["k"]].append(one)
    return ordered((start, k, len(rows), _sum(rows, "v"), _max(rows, "n")) for (start, k), rows in groups.items())


def ordered(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def _sum(rows: list[Mapping[str, Any]], name: str) -> float | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _max(rows: list[Mapping[str, Any]], name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)
