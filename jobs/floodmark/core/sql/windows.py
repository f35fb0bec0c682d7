"""Which results are final, and which rows one that is not still needs. Times are microseconds since 1970.

A window of size S and slide D starts at every `offset + k * D` and holds [start, start + S). A session starts with a
row and ends one gap after its last row; sessions that touch are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

Instant = Callable[[int, str], str]  # SQL for a time, to be compared with the column named


@dataclass(frozen=True)
class WindowSpec:
    """A window of `size_us` starts every `slide_us`, at `offset_us` after 1970-01-01 00:00 UTC; microseconds.

    What a row of it hangs on lies, in event time, at most `before_us` before and `after_us` after that row: 0 but where
    it comes out of a join, or of windows that follow each row.
    """

    size_us: int
    slide_us: int
    offset_us: int
    before_us: int = 0
    after_us: int = 0
    column: ClassVar[str] = "window.end"

    @property
    def tumbles(self) -> bool:
        """Whether every moment lies in one window only, and nothing else of the input matters to it."""
        return self.size_us == self.slide_us and not self.before_us and not self.after_us

    def becoming_final(self, end: str, low: int | None, high: int, instant: Instant) -> str:
        """SQL for the windows that become final between two watermarks (None: before any); end = watermark is final."""
        upper = f"{end} <= {instant(high - self.after_us, end)}"
        return upper if low is None else f"{end} > {instant(low - self.after_us, end)} AND {upper}"

    def having(self, condition: str) -> str:
        """SQL for a condition on windows."""
        return condition

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a window ends in (before, after]."""
        return before is None or newest_final_end(self, after - self.after_us) > before - self.after_us

    def needed_from(self, watermark: int) -> int | None:
        """Rows before this event time matter to no window that is not final at `watermark`."""
        return live_from(self, watermark - self.after_us) - self.before_us


@dataclass(frozen=True)
class SessionSpec:
    """Sessions that end after `gap`, SQL over the row (a text in quotes where it is the same for every row)."""

    gap: str
    column: ClassVar[str] = "session_window.end"
    tumbles: ClassVar[bool] = False

    def becoming_final(self, end: str, low: int | None, high: int, instant: Instant) -> str:
        """As for a window; but a session that ends at the watermark is open: a row there would go on with it."""
        upper = f"{end} < {instant(high, end)}"
        return upper if low is None else f"{end} >= {instant(low, end)} AND {upper}"

    def having(self, condition: str) -> str:
        """SQL for a condition on merged sessions.

        Spark 4.2 pushes one that speaks of nothing but the session below the aggregation, where it meets single rows
        that are not merged yet; one that needs a result of the aggregation stays where it is.
        """
        return f"CASE WHEN count(*) > 0 THEN {condition} END"

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a session may end between two watermarks: which do is known by their rows alone."""
        return before is None or before < after

    def needed_from(self, watermark: int) -> int | None:
        """None: how far an open session reaches back is known by its rows alone."""
        return None


@dataclass(frozen=True)
class RowSpec:
    """A result for each row, which hangs on rows that lie so many microseconds before and after it."""

    before_us: int
    after_us: int
    tumbles: ClassVar[bool] = False

    def becoming_final(self, time: str, low: int | None, high: int, instant: Instant) -> str:
        """SQL for the rows whose results become final: at the watermark itself more rows may come, its peers."""
        upper = f"{time} < {instant(high - self.after_us, time)}"
        return upper if low is None else f"{time} >= {instant(low - self.after_us, time)} AND {upper}"

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a row may lie between two watermarks."""
        return before is None or before < after

    def needed_from(self, watermark: int) -> int | None:
        """Rows before this event time are not final themselves, nor matter to one that is not."""
        return watermark - self.after_us - self.before_us


Spec = WindowSpec | SessionSpec | RowSpec


@dataclass(frozen=True, order=True)
class Starts:
    """Starts of windows from `first` to `last`, `slide` apart; microseconds. They may be too many to be listed."""

    first: int
    last: int
    slide: int

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.slide + 1

    def after(self, moment: int) -> Starts | None:
        """Those beyond the moment."""
        first = self.first + max(0, (moment - self.first) // self.slide + 1) * self.slide
        return Starts(first, self.last, self.slide) if first <= self.last else None


def joined(runs: Iterable[Starts]) -> list[Starts]:
    """Runs of one kind of windows, in order, each start once."""
    found: list[Starts] = []
    for run in sorted(runs):
        if found and run.first <= found[-1].last + run.slide:
            found[-1] = Starts(found[-1].first, max(found[-1].last, run.last), run.slide)
        else:
            found.append(run)
    return found


def needed_from(specs: Iterable[Spec], watermark: int) -> int | None:
    """Rows before this event time belong to nothing that is not final at `watermark`; None: time alone cannot tell."""
    found = [spec.needed_from(watermark) for spec in specs]
    return None if None in found else min(one for one in found if one is not None)


def live_from(spec: WindowSpec, watermark: int) -> int:
    """Rows at or after this event time are in a window that ends after `watermark`; rows before it are in none."""
    steps = (watermark - spec.size_us - spec.offset_us) // spec.slide_us + 1
    return spec.offset_us + steps * spec.slide_us


def newest_final_end(spec: WindowSpec, watermark: int) -> int:
    """End of the newest window that is final at `watermark`."""
    return live_from(spec, watermark) - spec.slide_us + spec.size_us
