"""Progress of a run: a live line for each rule on a terminal, one plain line for each epoch elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from floodmark.cli.shared import output
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from floodmark.spark.rule.epochs.reports import EpochReport
    from floodmark.spark.rule.landing import LandedReport

Zoned = Callable[[str], bool]


class RunProgress:
    """Shows what the rules' threads report on one console. `zoned`: whether a rule's event times have a zone."""

    def __init__(self, console: Console, zoned: Zoned, live: Progress | None):
        self._console, self._zoned, self._live = console, zoned, live
        self._tasks: dict[str, TaskID] = {}
        self._one_at_a_time = threading.Lock()

    def starting_spark(self, why: dict[str, str]) -> None:
        for rule, reason in why.items():
            self._say(f"{rule}: {reason}")
        if self._live:
            self._tasks[""] = self._live.add_task("starting Spark")

    def started(self, rule: str) -> None:
        with self._one_at_a_time:
            if self._live:
                self._drop("")
                self._tasks[rule] = self._live.add_task(f"{rule}: reading what is new")

    def committed(self, epoch: EpochReport) -> None:
        self._report(epoch.rule, epoch_line(epoch, self._zoned(epoch.rule)), f"epoch {epoch.epoch}")

    def landed(self, copy: LandedReport) -> None:
        self._report(copy.rule, landed_line(copy), f"copy {copy.chunk} of {copy.stream}")

    def _report(self, rule: str, line: str, after: str) -> None:
        with self._one_at_a_time:
            self._say(line)
            if self._live:
                self._live.update(self._tasks[rule], description=f"{rule}: after {after}")

    def ended(self, rule: str) -> None:
        with self._one_at_a_time:
            self._drop(rule)

    def _drop(self, task: str) -> None:
        found = self._tasks.pop(task, None)
        if self._live and found is not None:
            self._live.remove_task(found)

    def _say(self, text: str) -> None:
        console = self._live.console if self._live else self._console
        console.print(Text(text), soft_wrap=True)
        sys.stdout.flush()


def epoch_line(epoch: EpochReport, zoned: bool) -> str:
    """One committed epoch in one line."""
    again = f" (attempt {epoch.attempt})" if epoch.attempt > 1 else ""
    words = (("dropped", epoch.dropped), ("late", epoch.late), ("dead", epoch.dead))
    apart = "".join(f", {count} {word}" for word, count in words if count)
    failed = "".join(f"; {count} failed {name}" for name, count in epoch.failed.items())
    mark = f", watermark {iso(epoch.watermark, zoned)}" if epoch.watermark is not None else ""
    return (
        f"{epoch.rule}: epoch {epoch.epoch}{again} committed: {epoch.read} read, {epoch.folded} folded{apart}, "
        f"{epoch.output} out{mark}, {epoch.seconds:.1f} s{failed}"
    )


def landed_line(copy: LandedReport) -> str:
    """One committed copy of rows into a landing in one line."""
    lacking = f"; NULL in these rows, because the source has no such column: {', '.join(copy.lacking)}"
    more = lacking if copy.lacking else ""
    return f"{copy.rule}: {copy.rows} rows of {copy.stream} landed, up to {copy.upto}, {copy.seconds:.1f} s{more}"


@contextmanager
def run_progress(zoned: Zoned, err: bool) -> Iterator[RunProgress]:
    """Show progress during a run. `err`: on standard error, because standard output carries a document."""
    console = output.console(err=err)
    if not console.is_terminal:
        yield RunProgress(console, zoned, None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as live:
        yield RunProgress(console, zoned, live)
