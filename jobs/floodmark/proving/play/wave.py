"""Play a group of cases that share their applications: first all faults, then the recovery of all."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from subprocess import Popen

from floodmark.proving.faultplan import Case
from floodmark.proving.play.applications import Applications
from floodmark.proving.play.played import Played
from floodmark.proving.play.processes import kill_all


class Wave:
    """A group of cases that share their applications."""

    def __init__(self, run: Applications, found: Played, cases: Sequence[Case], name: str, label: str):
        self._run, self._found, self._cases, self._name, self._label = run, found, cases, name, label

    def play(self) -> None:
        for number in range(max(len(case.kills) for case in self._cases)):
            self._faults(number)
        self._recover()

    def _faults(self, number: int) -> None:
        """Run one application until every case with this many kills waits at its point, then kill it."""
        cases = [case for case in self._cases if len(case.kills) > number]
        name = f"{self._name}.fault{number + 1}"
        kills = [(case.name, case.kills[number]) for case in cases]
        resets = [case.name for case in cases if case.how == "reset"]
        corrections = [case.name for case in cases if case.how == "correct"]
        stopped = [case for case in cases if case.fault == "stopped"]
        orders = self._run.orders(name, cases, resets=resets, corrections=corrections, threads=len(cases))
        with self._run.application(orders, kills) as process:
            self._see_waiting(process, name, cases, number)
            if stopped:
                self._stop(process, name, stopped)
            self._found.killed += kill_all(process.pid)

    def _see_waiting(self, process: Popen[bytes], name: str, cases: Sequence[Case], number: int) -> None:
        """Wait until each case waits at its point, or has ended without reaching it."""
        scratch, what = self._run.scratch, f"{self._label}kill {number + 1}: cases wait at their points"
        marks = {case.name: scratch.mark(name, case.name, case.kills[number]) for case in cases}

        def all_there() -> bool:
            here = sum(mark.exists() for mark in marks.values())
            self._run.teller.doing(what, here, len(cases))
            return all(mark.exists() or scratch.outcome(name, case).exists() for case, mark in marks.items())

        self._run.wait(process, all_there, "not all copies reached their crash points")
        for case, mark in marks.items():
            self._found.fired[case] = self._found.fired.get(case, 0) + mark.exists()
            if not mark.exists():
                self._found.strays[case] = self._run.ended(name, case)

    def _stop(self, process: Popen[bytes], name: str, cases: Sequence[Case]) -> None:
        """Stop the waiting driver, start a retry, wake the driver and let it continue."""
        kill_all(process.pid, signal.SIGSTOP)
        again = f"{name}.retry"
        with self._run.application(self._run.orders(again, cases)) as retry:
            names = [case.name for case in cases]
            self._run.see_ended(retry, again, names, f"{self._label}retries next to a stopped driver")
        self._found.retries |= {case.name: self._run.ended(again, case.name) for case in cases}
        kill_all(process.pid, signal.SIGCONT)
        marks = [self._run.scratch.mark(name, case.name, case.kills[0]) for case in cases]

        def go_on() -> None:
            """Called repeatedly: several tables of one epoch reach the same point at different times."""
            for mark in marks:
                mark.unlink(missing_ok=True)

        self._run.see_ended(process, name, names, f"{self._label}the resumed driver continues", go_on)
        self._found.ends |= {case.name: self._run.ended(name, case.name) for case in cases}

    def _recover(self) -> None:
        """Recover all killed cases in one new application."""
        cases = [case for case in self._cases if case.fault != "stopped"]
        if not cases:
            return
        name = f"{self._name}.recovery"
        orders = self._run.orders(name, cases, batch=self._found.ground.qos == 0)
        with self._run.application(orders) as process:
            names = [case.name for case in cases]
            self._run.see_ended(process, name, names, f"{self._label}recovery")
        self._found.ends |= {case.name: self._run.ended(name, case.name) for case in cases}
