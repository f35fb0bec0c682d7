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


def running(events: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """(k, count, sum of v, max of n) of all events of each k, sorted."""
    groups: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for one in events:
        groups[one["k"]].append(one)
    return ordered((k, len(rows), _sum(rows, "v"), _max(rows, "n")) for k, rows in groups.items())


def sessions(events: Iterable[Mapping[str, Any]], watermark: datetime, seconds: int = 40) -> list[tuple[Any, ...]]:
    """(start, k, count, sum of v, max of n) of every session that ends before the watermark, sorted."""
    gap, found = timedelta(seconds=seconds), []
    open_ones: dict[Any, list[Mapping[str, Any]]] = {}
    for one in sorted(events, key=lambda event: event["at"]):
        rows = open_ones.get(one["k"])
        if rows is None or rows[-1]["at"] + gap < one["at"]:
            found.append(open_ones.setdefault(one["k"], []) if rows is None else [])
            open_ones[one["k"]] = found[-1]
        open_ones[one["k"]].append(one)
    over = (rows for rows in found if rows[-1]["at"] + gap < watermark)
    return ordered((rows[0]["at"], rows[0]["k"], len(rows), _sum(rows, "v"), _max(rows, "n")) for rows in over)


def newest_by_key(portions: Iterable[Iterable[Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
    """(k, at, v, n) of each k's event with the largest `at`, of several that with the largest n, then v; sorted."""
    best: dict[Any, tuple[Any, ...]] = {}
    for k, *rest in (_event(one) for portion in portions for one in portion):
        best[k] = max(best.get(k, (k, *rest)), (k, *rest), key=lambda row: (row[1], row[3], row[2]))
    return ordered(best.values())


def latest_but_gone(portions: Iterable[Iterable[Mapping[str, Any]]]) -> list[tuple[Any, ...]]:
    """(k, at, v, n) of the last event that came for each (k, at), unless its n is 9, sorted."""
    last = {(one["k"], one["at"]): one for portion in portions for one in portion}
    return ordered(_event(one) for one in last.values() if one["n"] != 9)


def _event(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["k"], one["at"], one["v"], one["n"]


def totals(events: Iterable[Mapping[str, Any]], watermark: datetime) -> list[tuple[Any, ...]]:
    """What the class Totals of the test rules gives for all rows and timers before the watermark, sorted."""
    found: list[tuple[Any, ...]] = []
    by_key: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for one in events:
        if one["at"] < watermark:
            by_key[one["k"]].append(one)
    for k, rows in by_key.items():
        found += _totals_of(k, sorted(rows, key=lambda row: (row["at"], _null_first(row["n"]))), watermark)
    return ordered(found)


def _null_first(n: int | None) -> tuple[bool, int]:
    return n is not None, n or 0


def _totals_of(k: Any, rows: list[Mapping[str, Any]], watermark: datetime) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    last: tuple[datetime, Any, list[Any]] | None = None
    quiet = timedelta(seconds=40)
    for count, row in enumerate(rows, 1):
        if count > 1 and rows[count - 2]["at"] + quiet < row["at"]:
            alarm = rows[count - 2]["at"] + quiet
            found.append((k, alarm, "quiet", last and last[1], None))
            last = (alarm, -1, [])
        gap = None if last is None else (row["at"] - last[0]).total_seconds()
        found.append((k, row["at"], f"row {last and last[2]}", count, gap))
        last = None if row["n"] == 3 else (row["at"], row["n"], [*(last[2] if last else []), row["n"]][-3:])
    alarm = rows[-1]["at"] + quiet
    return [*found, (k, alarm, "quiet", last and last[1], None)] if alarm < watermark else found


def ordered(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def _sum(rows: list[Mapping[str, Any]], name: str) -> float | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _max(rows: list[Mapping[str, Any]], name: str) -> int | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)
