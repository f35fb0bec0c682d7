"""What rules about the rows of a key must give, by plain Python over rows that were folded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

Row = dict[str, Any]
Answer = Callable[[list[Row]], Iterable[tuple[Any, ...]]]


@dataclass(frozen=True)
class Kind:
    """A rule's SQL and settings, and the answer; `passed`: of rows that the watermark has passed, else of all.

    `windows`: the answer is of windows of a minute that begin at the first column; those that are final count.
    """

    sql: str
    answer: Answer
    settings: dict[str, Any] = field(default_factory=dict)
    stream: dict[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    passed: bool = True
    windows: bool = False


def micros(at: datetime) -> int:
    return (at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def ordered(value: Any) -> Any:
    """As Spark orders: nulls first, not-a-numbers last, texts by their bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


def by(*names: str) -> Callable[[Row], Any]:
    return lambda row: tuple(ordered(row[name]) for name in names)


def of_keys(rows: list[Row], *order: str) -> Iterator[tuple[Any, list[Row]]]:
    """The rows of each k, in order."""
    for key, found in groupby(sorted(rows, key=by("k", *order)), key=lambda row: row["k"]):
        yield key, list(found)


def _counted(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """Windows of three rows, a new one every two."""
    for key, mine in of_keys([row for row in rows if row["n"] != 1], "at", "k", "n"):
        for end in range(3, len(mine) + 1, 2):
            yield _summed(key, mine[end - 3 : end])


def _summed(key: Any, window: list[Row]) -> tuple[Any, ...]:
    numbers = [row["n"] for row in window if row["n"] is not None]
    return key, window[0]["at"], window[-1]["at"], len(window), sum(numbers) if numbers else None


def _from_to(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """From a negative n to one above two."""
    for key, mine in of_keys(rows, "at", "k", "n"):
        window: list[Row] = []
        for row in mine:
            if window or (row["n"] is not None and row["n"] < 0):
                window.append(row)
            if window and row["n"] is not None and row["n"] > 2:
                yield _summed(key, window)
                window = []


def _top(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    for key, mine in of_keys([row for row in rows if row["n"] is not None], "at", "k", "v", "n"):
        best = sorted(mine, key=lambda row: (-row["n"], ordered(row["v"])))[:2]
        yield from ((key, row["n"], row["v"], row["at"], place) for place, row in enumerate(best, 1))


def _newest(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    for key, mine in of_keys(rows, "at", "k", "n"):
        newest = max(row["at"] for row in mine)
        yield key, next((row["n"], row["at"]) for row in mine if row["at"] == newest)[0], newest


def _distinct(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """Rows whose k and n were not seen in the minute before; of rows of one time, the first."""
    seen: dict[Any, datetime] = {}
    for row in sorted(rows, key=by("at", "k", "v", "n")):
        last = seen.get((row["k"], row["n"]))
        if last is None or row["at"] - last > timedelta(minutes=1):
            yield row["at"], row["k"], row["v"], row["n"]
        seen[row["k"], row["n"]] = row["at"]


def _by_minute(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """Counts and sums by k and minute."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        start = row["at"].replace(second=0, microsecond=0)
        found.setdefault((start, row["k"]), []).append(row)
    for (start, key), mine in found.items():
        numbers = [row["n"] for row in mine if row["n"] is not None]
        yield start, key, len(mine), sum(numbers) if numbers else None


ENDLESS = {"unbounded": True}
KINDS = {
    "count": Kind(
        """SELECT k, count_window.start AS start, count_window.end AS stop, count(*) AS c, sum(n) AS total
           FROM events WHERE n IS NULL OR n <> 1 GROUP BY k, count_window(3, 2)""",
        _counted,
        ENDLESS,
    ),
    "state": Kind(
        """SELECT e.k, state_window.start AS start, state_window.end AS stop, count(*) AS c, sum(n) AS total
           FROM events AS e GROUP BY state_window(n < 0, e.n > 2), e.k HAVING count(*) > 0""",
        _from_to,
        ENDLESS,
    ),
    "top": Kind(
        """SELECT k, n, v, at, place FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC, v) AS place
           FROM events WHERE n IS NOT NULL) WHERE place <= 2""",
        _top,
        ENDLESS,
        key=("k", "place"),
        passed=False,
    ),
    "newest": Kind(
        """SELECT k AS key, n, at FROM (SELECT at, k, n, row_number() OVER (PARTITION BY events.k ORDER BY at DESC) AS r
           FROM events) AS x WHERE x.r = 1""",
        _newest,
        ENDLESS,
        key=("key",),
        passed=False,
    ),
    "amend": Kind(
        """SELECT window.start AS start, k, count(*) AS c, sum(n) AS total FROM events
           GROUP BY k, window(at, '1 minute')""",
        _by_minute,
        {"late": {"amend": "2 minutes"}},
        key=("start", "k"),
        passed=False,
        windows=True,
    ),
    "distinct": Kind(
        "SELECT at, k, v, n FROM events",
        _distinct,
        stream={"distinct": {"key": ["k", "n"], "within": "1 minute"}},
    ),
}
