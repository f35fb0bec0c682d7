"""Decides which results are final, and which rows later results still need. Times are microseconds since 1970.

A window of size S and slide D starts at every `offset + k * D` and holds [start, start + S). A session starts with a
row and ends one gap after its last row; sessions that touch are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

Instant = Callable[[int, str], str]  # SQL for a time, to compare with the given column


@dataclass(frozen=True)
class WindowSpec:
    """Windows of `size_us` that start every `slide_us`, at `offset_us` after 1970-01-01 00:00 UTC; microseconds.

    A row of a window depends on rows whose event time is at most `before_us` before and `after_us` after its own. Both
    are 0 unless the row comes out of a join, or of windows that follow each row.
    """

    size_us: int
    slide_us: int
    offset_us: int
    before_us: int = 0
    after_us: int = 0
    column: ClassVar[str] = "window.end"

    @property
    def tumbles(self) -> bool:
        """Whether every moment lies in exactly one window, and a window depends on no rows outside of it."""
        return self.size_us == self.slide_us and not self.before_us and not self.after_us

    def becoming_final(self, end: str, low: int | None, high: int, instant: Instant) -> str:
        """SQL for the windows that become final between two watermarks (low None: since the start).

        A window is final once the watermark reaches its end.
        """
        upper = f"{end} <= {instant(high - self.after_us, end)}"
        return upper if low is None else f"{end} > {instant(low - self.after_us, end)} AND {upper}"

    def having(self, condition: str) -> str:
        """SQL for a condition on windows."""
        return condition

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a window ends in (before, after]."""
        return before is None or newest_final_end(self, after - self.after_us) > before - self.after_us

    def needed_from(self, watermark: int) -> int | None:
        """The event time from which windows that are not final at `watermark` need rows."""
        return live_from(self, watermark - self.after_us) - self.before_us


@dataclass(frozen=True)
class SessionSpec:
    """Sessions that end after `gap`: SQL over the row, or a quoted text if it is the same for every row."""

    gap: str
    column: ClassVar[str] = "session_window.end"
    tumbles: ClassVar[bool] = False

    def becoming_final(self, end: str, low: int | None, high: int, instant: Instant) -> str:
        """As for a window, but a session that ends at the watermark is still open: a row there would extend it."""
        upper = f"{end} < {instant(high, end)}"
        return upper if low is None else f"{end} >= {instant(low, end)} AND {upper}"

    def having(self, condition: str) -> str:
        """SQL for a condition on merged sessions.

        Spark 4.2 pushes a condition on the session alone below the aggregation, where it applies to single rows that
        are not merged yet. A condition that needs a result of the aggregation is not pushed down.
        """
        return f"CASE WHEN count(*) > 0 THEN {condition} END"

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a session may end between two watermarks; only the rows show which sessions do."""
        return before is None or before < after

    def needed_from(self, watermark: int) -> int | None:
        """None, because only the rows show how far an open session reaches back."""
        return None


@dataclass(frozen=True)
class RowSpec:
    """A result for each row, which depends on rows up to `before_us` before and `after_us` after it."""

    before_us: int
    after_us: int
    tumbles: ClassVar[bool] = False

    def becoming_final(self, time: str, low: int | None, high: int, instant: Instant) -> str:
        """SQL for the rows whose results become final; at the watermark none are, because peers may still arrive."""
        upper = f"{time} < {instant(high - self.after_us, time)}"
        return upper if low is None else f"{time} >= {instant(low - self.after_us, time)} AND {upper}"

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a row may lie between two watermarks."""
        return before is None or before < after

    def needed_from(self, watermark: int) -> int | None:
        """Rows before this event time are final, and no row that is not final depends on them."""
        return watermark - self.after_us - self.before_us


Spec = WindowSpec | SessionSpec | RowSpec


@dataclass(frozen=True, order=True)
class Starts:
    """Starts of windows from `first` to `last`, `slide` apart; microseconds. They may be too many to list."""

    first: int
    last: int
    slide: int

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.slide + 1

    def after(self, moment: int) -> Starts | None:
        """The starts after `moment`."""
        first = self.first + max(0, (moment - self.first) // self.slide + 1) * self.slide
        return Starts(first, self.last, self.slide) if first <= self.last else None


def joined(runs: Iterable[Starts]) -> list[Starts]:
    """Merge runs of one kind of window: in order, each start once."""
    found: list[Starts] = []
    for run in sorted(runs):
        if found and run.first <= found[-1].last + run.slide:
            found[-1] = Starts(found[-1].first, max(found[-1].last, run.last), run.slide)
        else:
            found.append(run)
    return found


def needed_from(specs: Iterable[Spec], watermark: int) -> int | None:
    """The event time from which results that are not final at `watermark` need rows; None if only rows show it."""
    found = [spec.needed_from(watermark) for spec in specs]
    return None if None in found else min(one for one in found if one is not None)


def live_from(spec: WindowSpec, watermark: int) -> int:
    """Rows at or after this event time are in a window that ends after `watermark`; rows before it are in none."""
    steps = (watermark - spec.size_us - spec.offset_us) // spec.slide_us + 1
    return spec.offset_us + steps * spec.slide_us


def newest_final_end(spec: WindowSpec, watermark: int) -> int:
    """End of the newest window that is final at `watermark`."""
    return live_from(spec, watermark) - spec.slide_us + spec.size_us
