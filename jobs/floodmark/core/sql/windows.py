"""Kinds of window: each says which results are final, and which rows one that is not still needs.

To add a kind, subclass `Spec`, or `GroupSpec` where a function of the SQL makes its windows. Nothing asks which kind a
window is. Times are microseconds since 1970.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

from floodmark.core.text.durations import DAY, format_duration, parse_duration

Instant = Callable[[int, str], str]  # SQL for a time, to compare with the given column

LONGEST_GAP = 31 * DAY  # of sessions whose gap a column gives: silence closes no longer ones
_TEXTS = re.compile(r"'([^']*)'")


@dataclass(frozen=True)
class Grid:
    """Hopping windows: one of size S starts at every `offset + k * slide` and holds [start, start + S)."""

    size_us: int
    slide_us: int
    offset_us: int

    def live_from(self, watermark: int) -> int:
        """Rows at or after this event time are in a window that ends after `watermark`; rows before it are in none."""
        steps = (watermark - self.size_us - self.offset_us) // self.slide_us + 1
        return self.offset_us + steps * self.slide_us

    def newest_final_end(self, watermark: int) -> int:
        """End of the newest window that is final at `watermark`."""
        return self.live_from(watermark) - self.slide_us + self.size_us

    def start_at(self, at: int) -> int:
        """The newest start of a window at or before a time."""
        return at - (at - self.offset_us) % self.slide_us

    def start_from(self, at: int) -> int:
        """The oldest start of a window at or after a time."""
        return self.start_at(at + self.slide_us - 1)


class Reach(NamedTuple):
    """How far before and after a row, in event time, the rows lie on which its result depends, at most."""

    before_us: int = 0
    after_us: int = 0

    def __str__(self) -> str:
        return f"at most {format_duration(self.before_us)} before and {format_duration(self.after_us)} after it"


class Spec(ABC):
    """When the results of a part of a query are final, and how long rows are kept for it."""

    @property
    @abstractmethod
    def grid(self) -> Grid | None:
        """The windows, where their times are the same for all rows and keys; None otherwise."""

    @property
    @abstractmethod
    def merges(self) -> bool:
        """Whether rows can move the end of a window, as they do where windows that touch are merged.

        Then a row alone does not tell its window, and `needed_from` is None.
        """

    @property
    @abstractmethod
    def reach(self) -> Reach:
        """On which other rows a single row of it depends: on none, but after a join or an OVER."""

    @property
    @abstractmethod
    def extent_us(self) -> int:
        """How far beyond a row the watermark has to be for the row's results to be final, if no other row comes."""

    @property
    def silent_us(self) -> int:
        """How far beyond the newest row silence moves the watermark, until all results are surely final."""
        return self.extent_us

    @abstractmethod
    def describe(self) -> Iterator[str]:
        """For people: sentences without a capital and a full stop."""

    @abstractmethod
    def becoming_final(self, at: str, low: int | None, high: int, instant: Instant) -> str:
        """SQL for the results that become final between two watermarks (`low` None: before any).

        `at`: SQL for the end of the window, or for the time of the row.
        """

    @abstractmethod
    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a result may become final between two watermarks; `before` None: before any."""

    @abstractmethod
    def needed_from(self, watermark: int) -> int | None:
        """Rows before this event time matter to nothing that is not final at `watermark`; None: time cannot tell."""

    @abstractmethod
    def aligned(self, others: Iterable[Spec]) -> Self:
        """The same, where those of `others` whose windows it shares become final together with its own."""

    @property
    def tumbles(self) -> bool:
        """Whether every moment lies in one window only, and nothing else of the input matters to it."""
        return self.grid is not None and self.grid.size_us == self.grid.slide_us and self.reach == Reach()


class GroupSpec(Spec):
    """Windows that a function of the SQL makes, by which its rows can be grouped."""

    @property
    @abstractmethod
    def function(self) -> str:
        """Its name, which is that of the column that Spark adds for it, too."""

    @abstractmethod
    def having(self, condition: str) -> str:
        """SQL for a condition on whole windows, in HAVING."""

    @abstractmethod
    def reaching(self, reach: Reach) -> Self | None:
        """The same windows, of rows that depend on others; None where these cannot be of such rows."""

    @property
    def fixed_gap_us(self) -> int | None:
        """The longest that the gap lasts after which windows that merge end.

        None where they do not merge, or where rows have gaps of their own.
        """
        return None

    @property
    def start(self) -> str:
        """SQL for the start of a window."""
        return f"{self.function}.start"

    @property
    def end(self) -> str:
        """SQL for the end of a window."""
        return f"{self.function}.end"


@dataclass(frozen=True)
class WindowSpec(GroupSpec):
    """A window of `size_us` starts every `slide_us`, at `offset_us` after 1970-01-01 00:00 UTC; microseconds.

    A row of a window depends on rows whose event time is at most `before_us` before and `after_us` after its own. Both
    are 0 unless the row comes out of a join, or of windows that follow each row.
    """

    size_us: int
    slide_us: int
    offset_us: int
    before_us: int = 0
    after_us: int = 0
    function: ClassVar[str] = "window"
    merges: ClassVar[bool] = False

    @property
    def grid(self) -> Grid:
        return Grid(self.size_us, self.slide_us, self.offset_us)

    @property
    def reach(self) -> Reach:
        return Reach(self.before_us, self.after_us)

    @property
    def extent_us(self) -> int:
        return self.size_us + self.after_us

    def describe(self) -> Iterator[str]:
        size, slide = format_duration(self.size_us), format_duration(self.slide_us)
        yield f"windows of {size}, a new one every {slide}" + (
            ", without overlap" if size == slide else ", overlapping"
        )
        if self.offset_us:
            yield f"starting {format_duration(self.offset_us)} after 1970-01-01T00:00:00Z"
        if any(self.reach):
            yield f"a row of a window depends on rows {self.reach} in event time"

    def becoming_final(self, at: str, low: int | None, high: int, instant: Instant) -> str:
        """A window that ends at the watermark is final: it holds no row of that time."""
        upper = f"{at} <= {instant(high - self.after_us, at)}"
        return upper if low is None else f"{at} > {instant(low - self.after_us, at)} AND {upper}"

    def having(self, condition: str) -> str:
        return condition

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a window ends in (before, after]."""
        return before is None or self.grid.newest_final_end(after - self.after_us) > before - self.after_us

    def needed_from(self, watermark: int) -> int:
        return self.grid.live_from(watermark - self.after_us) - self.before_us

    def aligned(self, others: Iterable[Spec]) -> Self:
        """With the reach of all windows of its size and slide: what is above a join of them waits for all."""
        same = [self.reach, *(other.reach for other in others if other.grid == self.grid)]
        return self.reaching(Reach(*(max(far) for far in zip(*same, strict=True))))

    def reaching(self, reach: Reach) -> Self:
        return replace(self, before_us=reach.before_us, after_us=reach.after_us)


@dataclass(frozen=True)
class SessionSpec(GroupSpec):
    """Sessions that end after `gap`, SQL over the row (a text in quotes where it is the same for every row).

    A session starts with a row and ends one gap after its last row; sessions that touch are one. longest_us: the
    longest gap; None if it is not one of some texts, as where a column gives it.
    """

    gap: str
    longest_us: int | None = field(default=None, compare=False)
    function: ClassVar[str] = "session_window"
    grid: ClassVar[None] = None
    merges: ClassVar[bool] = True
    reach: ClassVar[Reach] = Reach()

    @property
    def fixed_gap_us(self) -> int | None:
        return _longest(_length(self.gap[1:-1])) if _TEXTS.fullmatch(self.gap) else None

    @property
    def extent_us(self) -> int:
        """One longest gap; where no text in it is a gap, as of a column, a day."""
        return (max(map(_length, _TEXTS.findall(self.gap)), default=0) or DAY) + 1

    @property
    def silent_us(self) -> int:
        """One longest gap, with its days by the calendar; of unknown gaps, a month."""
        return (LONGEST_GAP if self.longest_us is None else _longest(self.longest_us)) + 1

    def describe(self) -> Iterator[str]:
        yield f"sessions that end after a gap of {self.gap}; overlapping sessions are merged"

    def becoming_final(self, at: str, low: int | None, high: int, instant: Instant) -> str:
        """A session that ends at the watermark is open: a row there would go on with it."""
        upper = f"{at} < {instant(high, at)}"
        return upper if low is None else f"{at} >= {instant(low, at)} AND {upper}"

    def having(self, condition: str) -> str:
        """Holds Spark 4.2 back from applying the condition too early.

        Spark pushes one that speaks of nothing but the session below the aggregation, where it meets single rows
        that are not merged yet; one that needs a result of the aggregation stays where it is.
        """
        return f"CASE WHEN count(*) > 0 THEN {condition} END"

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether the watermark has moved: which sessions end is known by their rows alone."""
        return before is None or before < after

    def needed_from(self, watermark: int) -> int | None:
        """None, because only the rows show how far an open session reaches back."""
        return None

    def aligned(self, others: Iterable[Spec]) -> Self:
        return self

    def reaching(self, reach: Reach) -> Self | None:
        return self if reach == self.reach else None


@dataclass(frozen=True)
class RowSpec(Spec):
    """A result for each row, which hangs on rows that lie so many microseconds before and after it."""

    before_us: int
    after_us: int
    grid: ClassVar[None] = None
    merges: ClassVar[bool] = False

    @property
    def reach(self) -> Reach:
        return Reach(self.before_us, self.after_us)

    @property
    def extent_us(self) -> int:
        return self.after_us + 1

    def describe(self) -> Iterator[str]:
        yield f"each row (OVER, JOIN) with rows {self.reach} in event time"

    def becoming_final(self, at: str, low: int | None, high: int, instant: Instant) -> str:
        """A row at the watermark is not final: more rows of its time may come, its peers."""
        upper = f"{at} < {instant(high - self.after_us, at)}"
        return upper if low is None else f"{at} >= {instant(low - self.after_us, at)} AND {upper}"

    def any_becomes_final(self, before: int | None, after: int) -> bool:
        """Whether a row may lie between two watermarks."""
        return before is None or before < after

    def needed_from(self, watermark: int) -> int:
        """Rows before this event time are not final themselves, nor matter to one that is not."""
        return watermark - self.after_us - self.before_us

    def aligned(self, others: Iterable[Spec]) -> Self:
        return self


def _longest(gap_us: int) -> int:
    """How long a gap lasts at most: Spark counts its days by the calendar, on which clocks may be turned back."""
    return gap_us + (DAY if gap_us >= DAY else 0)


def _length(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:  # a text that the gap is compared with, not a gap
        return 0


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


def grids(specs: Iterable[Spec]) -> list[Grid]:
    """Those of all windows that have one, each once."""
    return list(dict.fromkeys(spec.grid for spec in specs if spec.grid is not None))


@dataclass(frozen=True)
class Sizes:
    """Windows of one or several sizes together. Intervals of them begin and end where one with the longest slide does.

    A window lies in an interval if it starts there.
    """

    grids: tuple[Grid, ...]

    @property
    def longest(self) -> Grid:
        return max(self.grids, key=lambda grid: (grid.slide_us, grid.size_us, grid.offset_us))

    def start_at(self, at: int) -> int:
        """The last bound of an interval at or before a time."""
        return self.longest.start_at(at)

    def start_from(self, at: int) -> int:
        """The first bound of an interval at or after a time."""
        return self.longest.start_from(at)

    def end_of(self, end: int) -> int:
        """The end of the last window that starts before `end`."""
        return max(grid.start_at(end - 1) + grid.size_us for grid in self.grids)

    def around(self, oldest: int, newest: int) -> tuple[int, int]:
        """The interval of all windows that hold a row between these event times, both included."""
        first = min(grid.start_from(oldest - grid.size_us + 1) for grid in self.grids)
        return self.start_at(first), self.start_at(newest) + self.longest.slide_us

    def live_from(self, watermark: int) -> int:
        """The last bound before which no window starts that ends after `watermark`."""
        return self.start_at(min(grid.live_from(watermark) for grid in self.grids))


def needed_from(specs: Iterable[Spec], watermark: int) -> int | None:
    """The event time from which results that are not final at `watermark` need rows; None if only rows show it."""
    found = [spec.needed_from(watermark) for spec in specs]
    return None if None in found else min(one for one in found if one is not None)
