"""What becomes of rows of which something is expected, in plain Python. Shares no code with the engine.

Expected of the streams: `positive` (v > 0, drop), `small` (n < 4, dead), `number` (CAST(k AS INT) >= 0, warn).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from support.flow import event

EXPECT = {
    "number": {"check": "CAST(k AS INT) >= 0", "on_fail": "warn"},
    "positive": {"check": "v > 0", "on_fail": "drop"},
    "small": {"check": "n < 4", "on_fail": "dead"},
}
Event = Mapping[str, Any]


def drawn(seed: int, files: int = 4, rows: int = 12) -> list[list[dict[str, Any]]]:
    """Files of events, some of them late, some without an event time, values missing here and there."""
    random = Random(seed)
    return [
        [
            event(
                None if random.random() < 0.05 else 50 * number + random.randint(-60, 60) + place / 1000,
                random.choice(["0", "1", "x", None]),
                random.choice([None, -1.0, 0.0, 1.0, 2.0, 4.0]),
                random.choice([None, 0, 1, 2, 3, 4, 9]),
            )
            for place in range(rows)
        ]
        for number in range(files)
    ]


@dataclass
class Sorted:
    """What became of all rows. `dead`: with their reasons; `failed`, `taken`: rows by expectation."""

    folded: list[Event] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    dropped: list[Event] = field(default_factory=list)
    dead: list[tuple[Event, str]] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    watermark: datetime | None = None

    @property
    def counts(self) -> dict[str, int]:
        parts = {name: len(getattr(self, name)) for name in ("dropped", "dead", "late", "folded")}
        return {"read": sum(parts.values()), "filtered": 0, **parts}

    def take(self, rows: Iterable[Event], lateness: timedelta | None) -> None:
        """One epoch."""
        before = self.watermark
        for row in rows:
            self._sort(row, before)
        times = [row["at"] for row in self.folded]
        if times and lateness is not None:
            self.watermark = max(times) - lateness

    def _sort(self, row: Event, before: datetime | None) -> None:
        if row["at"] is None:
            self.dead.append((row, "no event time"))
        elif before is not None and row["at"] < before:
            self.late.append(row)
        else:
            self._ask(row)

    def _ask(self, row: Event) -> None:
        small = row["n"] is not None and row["n"] < 4
        positive = row["v"] is not None and row["v"] > 0
        number = row["k"] in ("0", "1")
        self.failed.update(small=not small, positive=not positive, number=not number)
        if not small:
            self.taken["small"] += 1
            self.dead.append((row, "expect small fails: n < 4"))
        elif not positive:
            self.taken["positive"] += 1
            self.dropped.append(row)
        else:
            self.folded.append(row)


def sort(files: Sequence[Iterable[Event]], lateness: timedelta | None) -> Sorted:
    """Each file an epoch. The watermark comes of folded rows alone."""
    found = Sorted()
    for rows in files:
        found.take(rows, lateness)
    return found
