"""Progress of a proof: a bar on a terminal, a line for each step elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from floodmark.cli.shared import output


class ProofProgress:
    """Shows the progress of a proof. `err`: on standard error, because standard output carries a document."""

    def __init__(self, err: bool):
        self._console = output.console(err=err)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._live = Progress(*columns, console=self._console, transient=True) if self._console.is_terminal else None
        self._task: TaskID | None = None
        self._what = ""

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._console.print(Text(text), soft_wrap=True)
        sys.stdout.flush()

    def doing(self, what: str, done: int = 0, of: int = 0) -> None:
        """Show the current step and its progress; called often."""
        if what != self._what:
            self._what = what
            self._begin(what)
        if self._live and self._task is not None:
            self._live.update(self._task, completed=done, total=of or None)

    def _begin(self, what: str) -> None:
        if not self._live:
            return self.say(what)
        if self._task is not None:
            self._live.remove_task(self._task)
        self._task = self._live.add_task(what, total=None)
        return None
