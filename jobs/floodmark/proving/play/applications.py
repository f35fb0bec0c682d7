"""Run the applications of a play: real processes that carry out orders and report outcomes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import floodmark
from floodmark.errors import RunFailed
from floodmark.proving.faultplan import Case
from floodmark.proving.play.orders import Orders
from floodmark.proving.play.played import ProgressListener, Wish
from floodmark.proving.play.processes import started, wait_until
from floodmark.proving.scratch import Scratch

LIMIT = 3600.0  # seconds for one application, in case it hangs
WORKER = "floodmark.proving.play.worker"


class Applications:
    """Starts applications, one after another or in parallel, and waits for their reports."""

    def __init__(self, rule: str, wish: Wish, scratch: Scratch, teller: ProgressListener):
        self._rule, self._wish, self.scratch, self.teller = rule, wish, scratch, teller

    def orders(self, name: str, cases: Sequence[Case], **more: Any) -> Orders:
        return Orders(
            name,
            str(self.scratch.root),
            self._wish.master,
            [case.name for case in cases],
            close_until=self._wish.close_until,
            **more,
        )

    @contextmanager
    def application(self, orders: Orders, kills: Sequence[tuple[str, str]] = ()) -> Iterator[Popen[bytes]]:
        """One application with its orders. `kills`: cases, and the crash points at which they wait."""
        passing = self.scratch.root / "passing"  # for files that Spark cannot remove when it is killed
        passing.mkdir(exist_ok=True)
        env = {"SPARK_LOCAL_DIRS": str(passing), "PYTHONPATH": _with_our_own(os.environ.get("PYTHONPATH"))}
        if kills:
            marks = self.scratch.marks(orders.name)
            marks.mkdir(parents=True)
            at = ",".join(f"{case}:{point}" for case, point in kills)
            env |= {"FLOODMARK_CRASH_AT": at, "FLOODMARK_CRASH_MARKS": str(marks)}
        command = [sys.executable, "-m", WORKER, str(orders.write())]
        with started(command, env, self.scratch.log) as process:
            yield process

    def until(self, process: Popen[bytes], name: str, what: str) -> dict[str, Any]:
        """Wait for the application's report on `what`, and return it."""
        self.wait(process, lambda: self.scratch.outcome(name, what).exists(), f"it reported nothing about {what}")
        told = self.scratch.read_outcome(name, what)
        assert told is not None
        return told

    def wait(self, process: Popen[bytes], holds: Callable[[], bool], else_: str) -> None:
        if not wait_until(holds, process, LIMIT):
            raise RunFailed(
                f"rule {self._rule}: an application of the proof exited early or hung: {else_}. Its log "
                f"ends: {self._log_end()}"
            )

    def _log_end(self) -> str:
        text = self.scratch.log.read_text(errors="replace").strip() if self.scratch.log.exists() else ""
        return " / ".join(text.splitlines()[-3:]) or "empty"

    def ended(self, name: str, case: str) -> dict[str, Any]:
        """The outcome of a copy's run."""
        return self.scratch.read_outcome(name, case) or {
            "code": 1,
            "type": "RunFailed",
            "error": "it did not finish",
        }

    def see_ended(
        self,
        process: Popen[bytes],
        name: str,
        cases: Sequence[str],
        what: str,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until each copy has ended, and report how many have."""

        def all_ended() -> bool:
            meanwhile()
            done = sum(self.scratch.outcome(name, case).exists() for case in cases)
            self.teller.doing(what, done, len(cases))
            return done == len(cases)

        self.wait(process, all_ended, f"{what}: not all finished")


def _with_our_own(path: str | None) -> str:
    """The path on which the worker finds this same package."""
    own = str(Path(floodmark.__file__).parents[1])
    return own if not path else f"{own}{os.pathsep}{path}"
