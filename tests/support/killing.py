"""Many rules in one application, each held at a crash point of its own until one fault takes them all.

A held driver goes on once its mark is taken away, as one does that was stopped and is woken.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

from deltalake import DeltaTable

from floodmark.proving.play.processes import kill_all, of_session, started, wait_until
from support.flow import START, STATELESS, Flow, event, rows_of
from support.oracle import ordered, totals, tumbling

CHECKOUT = Path(__file__).parents[2]
LIMIT = 1800.0  # seconds for one application; some fifty rules share two cores
PORTIONS = [
    [event(s, k) for s, k in ((0, "a"), (10, "b"), (50, "a"), (70, "a"), (100, "b"), (130, "a"))],
    [event(105), event(110, "b", 2.5, 4), event(200, "a", None, 9), event(250, None, 3.0, None)],
    [event(260), event(300, "b"), event(390)],
]
LATE_AND_DEAD = [event(20), event(None), {**event(0), "at": START.replace(year=2999)}]
FINAL = START + timedelta(seconds=360)
SHAPES: dict[str, tuple[str, ...]] = {
    "stateless": ("k", "at", "v", "n"),
    "windowed": ("start", "k", "c", "total", "top"),
    "keyed": ("k", "at", "what", "n", "v"),
}


def expected(shape: str, events: list[dict[str, Any]], watermark: datetime) -> list[tuple[Any, ...]]:
    """A sink's rows over these events once the watermark has come so far, by the oracle."""
    if shape == "stateless":
        return ordered(tuple(one[name] for name in SHAPES[shape]) for one in events if one["n"] is not None)
    return (totals if shape == "keyed" else tumbling)(events, watermark)


def flow_of(root: Path, name: str, shape: str, qos: int) -> Flow:
    """A rule of the shape; one file of its stream is one epoch."""
    process = "totals:Totals" if shape == "keyed" else None
    flow = Flow(root, name, stream={"start": {"version": 0}}, process=process)
    flow.settings = {"qos": qos, "epoch": {"max_files": 1}}
    if shape == "stateless":
        flow.sql = STATELESS
    return flow


@dataclass(frozen=True)
class Case:
    shape: str
    qos: int
    point: str

    @property
    def rule(self) -> str:
        return f"{self.shape}_q{self.qos}_{self.point}".replace(".", "_")

    def __str__(self) -> str:
        return self.rule


class Script:
    """First input, the fault in the second epoch, new input, recovery. `fault`: one of FAULTS; `seed`: its moments."""

    def __init__(self, root: Path, cases: Iterable[Case], fault: str, seed: int):
        self.root, self.marks, self.fault = root, root / "marks", fault
        self.random = random.Random(seed)
        self.flows = {case: flow_of(root, case.rule, case.shape, case.qos) for case in cases}
        self.fired: set[Case] = set()
        self.codes: dict[str, int | None] = {}
        self.changed: dict[Case, tuple[Any, Any]] = {}

    def play(self) -> None:
        self.marks.mkdir(parents=True)
        for flow in self.flows.values():
            flow.arrive(PORTIONS[0])
            flow.arrive(PORTIONS[1] + LATE_AND_DEAD)
            flow.write_rule()
        with self._driver("held", self._points()) as driver:
            wait_until(lambda: all(self._stands(case) for case in self.flows), driver, LIMIT)
            self.fired = {case for case in self.flows if self._mark(case).exists() and driver.poll() is None}
            FAULTS[self.fault](self, driver)
            assert self._gone(driver), "no process of the driver is left before another one begins"
        self._third()
        self.codes["recovery"] = self.run("recovery")

    def _third(self) -> None:
        for flow in self.flows.values():
            if DeltaTable(flow.source).version() < len(PORTIONS) - 1:
                flow.arrive(PORTIONS[2])

    def _points(self) -> dict[str, str]:
        at = ",".join(f"{case.rule}:{_in_second_epoch(case.point)}" for case in self.flows)
        return {"FLOODMARK_CRASH_AT": at, "FLOODMARK_CRASH_MARKS": str(self.marks)}

    def _mark(self, case: Case) -> Path:
        return self.marks / f"{case.rule}.{case.point}"

    def _stands(self, case: Case) -> bool:
        """It is held, or has gone past its point."""
        return self._mark(case).exists() or f"done {case.rule}\n" in self.said("held")

    def _driver(self, log: str, env: dict[str, str]) -> Any:
        command = [sys.executable, "-m", "support.many", "run", str(self.root), *(case.rule for case in self.flows)]
        paths = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
        return started(command, {"PYTHONPATH": paths, "TZ": "UTC", **env}, self.root / f"{log}.txt")

    def run(self, log: str, **env: str) -> int:
        with self._driver(log, env) as driver:
            return int(driver.wait(LIMIT))

    def said(self, log: str) -> str:
        return (self.root / f"{log}.txt").read_text()

    def _let_go(self) -> None:
        for case in self.flows:
            self._mark(case).unlink(missing_ok=True)

    def _gone(self, driver: Popen[bytes]) -> bool:
        driver.wait(LIMIT)
        pause = threading.Event()
        for _ in range(600):
            if not of_session(driver.pid):
                return True
            pause.wait(0.1)
        return False

    def _all_killed(self, driver: Popen[bytes]) -> None:
        kill_all(driver.pid)

    def _killed_in_the_step(self, driver: Popen[bytes]) -> None:
        self._let_go()
        threading.Event().wait(self.random.uniform(0, 1.5))
        if driver.poll() is not None:
            self.fired = set()
        kill_all(driver.pid)

    def _jvm_killed(self, driver: Popen[bytes]) -> None:
        for pid in _java(driver):
            with suppress(ProcessLookupError):  # a child of the JVM may have ended since
                os.kill(pid, signal.SIGKILL)
        self._let_go()
        self.codes["held"] = driver.wait(LIMIT)

    def _python_killed(self, driver: Popen[bytes]) -> None:
        assert _java(driver)
        os.kill(driver.pid, signal.SIGKILL)

    def _stopped_and_woken(self, driver: Popen[bytes]) -> None:
        """While it lives, even stopped, a retry is refused; woken, it is the rightful driver and ends its work."""
        kill_all(driver.pid, signal.SIGSTOP)
        self.codes["retry"] = self.run("retry")
        kill_all(driver.pid, signal.SIGCONT)
        self._let_go()
        self.codes["held"] = driver.wait(LIMIT)

    def _overtaken_and_woken(self, driver: Popen[bytes]) -> None:
        """As where no lock is to be had: the retry works, beyond the stopped driver's epoch; that one then wakes."""
        kill_all(driver.pid, signal.SIGSTOP)
        self._third()
        self.codes["retry"] = self.run("retry", SUPPORT_WITHOUT_LOCK="1")
        before = {case: self._standing(case) for case in self.flows}
        kill_all(driver.pid, signal.SIGCONT)
        self._let_go()
        self.codes["held"] = driver.wait(LIMIT)
        self.changed = {
            case: (before[case], now) for case in self.flows if (now := self._standing(case)) != before[case]
        }

    def _standing(self, case: Case) -> tuple[Any, ...]:
        """The ledger's newest row and each sink's rows."""
        flow = self.flows[case]
        newest = max(flow.ledger().rows, key=lambda row: row.seq)
        return newest.hash, *(self.sink(case, number) for number in (0, 1))

    def sink(self, case: Case, number: int) -> list[tuple[Any, ...]]:
        rows = rows_of(self.flows[case].sink(number))
        return ordered(tuple(row[name] for name in SHAPES[case.shape]) for row in rows)


FAULTS: dict[str, Callable[[Script, Popen[bytes]], None]] = {
    "all": Script._all_killed,
    "during": Script._killed_in_the_step,
    "jvm": Script._jvm_killed,
    "python": Script._python_killed,
    "stopped": Script._stopped_and_woken,
    "overtaken": Script._overtaken_and_woken,
}


def _in_second_epoch(point: str) -> str:
    """The second epoch has late and dead rows; before the query starts there is no second one."""
    return point if point == "offsets.before" else f"{point}@2"


def _java(driver: Popen[bytes]) -> list[int]:
    return [pid for pid in of_session(driver.pid) if _command(pid) == "java"]


def _command(pid: int) -> str | None:
    """The name of the process's command; None once it has ended, as short-lived children of a JVM do."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
