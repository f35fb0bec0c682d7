"""Compute medians with their spread, and ratios, and print the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median

from bench.processor import seconds_so_far
from floodmark.cli.shared import output


@dataclass
class Measured:
    """Seconds, one for each repeat; `busy`: of processor time, if it was measured."""

    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def take(self, work: Callable[[], float]) -> None:
        """Measure `work`, which returns its seconds by the clock."""
        before = seconds_so_far()
        self.add(work())
        self.busy.append(seconds_so_far() - before)

    @property
    def median(self) -> float:
        return median(self.seconds)

    def text(self) -> str:
        low, high = min(self.seconds), max(self.seconds)
        if len(self.seconds) == 1:
            return _short(low)
        return f"{_short(self.median)} ({_short(low)} to {_short(high)})"


@dataclass(frozen=True)
class Line:
    """One row: the subject, its time, rows per second, the ratio of the two sides, the aim, and a note.

    `seconds`: the median.
    """

    what: str
    time: str
    rate: str = ""
    ratio: str = ""
    aim: str = ""
    note: str = ""
    seconds: float = 0.0
    busy: float = 0.0

    @classmethod
    def of(cls, what: str, times: Measured, below: float | None = None, note: str = "") -> Line:
        """`below`: the aim, in seconds."""
        aim = _aim(times.median < below, f"< {_short(below)}") if below else ""
        return cls(what, times.text(), aim=aim, note=note, seconds=times.median)

    @classmethod
    def rate_of(cls, what: str, times: Measured, rows: int, note: str = "") -> Line:
        busy = median(times.busy) if times.busy else 0.0
        note = f"processor {_short(busy)}" if busy and not note else note
        return cls(what, times.text(), f"{rows / times.median:,.0f}", note=note, seconds=times.median, busy=busy)

    def against(self, ours: Measured, at_least: float | None = None) -> Line:
        """Compare with `ours`: how many times as fast ours is; `at_least`: the aim."""
        ratio = self.seconds / ours.median
        aim = _aim(ratio >= at_least, f">= {at_least}") if at_least is not None else ""
        return replace(self, ratio=f"{ratio:.2f}", aim=aim, note=self._busy_beside(ours))

    def beside(self, other: Measured, at_most: float | None = None) -> Line:
        """Compare with another measurement of ours: how many times as long this takes; `at_most`: the aim."""
        ratio = self.seconds / other.median
        aim = _aim(ratio <= at_most, f"<= {at_most}") if at_most is not None else ""
        return replace(self, ratio=f"{ratio:.2f}", aim=aim, note=self._busy_beside(other))

    def _busy_beside(self, other: Measured) -> str:
        return f"{self.note}, ratio {self.busy / median(other.busy):.2f}" if self.busy and other.busy else self.note


def differing(theirs: int, ours: int) -> str:
    """A note if two sinks have different numbers of rows: each side has its own rule of what is final at the end."""
    return "" if theirs == ours else f"{theirs:,} rows, of Floodmark {ours:,}"


def _aim(met: bool, text: str) -> str:
    return f"{text} {'met' if met else 'MISSED'}"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def show(lines: list[Line], title: str) -> None:
    print(
        f"\n{title}; median (smallest to largest), or one run; ratio: Floodmark's speed over this line's\n", flush=True
    )
    columns = ("what", "time", "rows/s", "ratio", "aim", "note")
    output.table(columns, [(line.what, line.time, line.rate, line.ratio, line.aim, line.note) for line in lines])
