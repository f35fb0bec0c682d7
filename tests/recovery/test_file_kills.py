"""Rules over files, killed for good by SIGKILL of every process: each file is folded once."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.flow import STATELESS, Flow, event, rows_of
from support.sourcekinds import write_json

from floodmark.audit.certificate import audit
from floodmark.proving.play.processes import kill_all, started, wait_until

pytestmark = [pytest.mark.prove]
CHECKOUT = Path(__file__).parents[2]
COLUMNS = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"
LIMIT = 1800.0  # seconds for one application
POINTS = ("begin.commit.after", "offsets.after@2", "sink0.after@2", "commit.after@2")


def _flow(root: Path, point: str) -> Flow:
    flow = Flow(root, point.replace(".", "_").partition("@")[0], sql=STATELESS)
    files = {"path": flow.source, "format": "json", "schema": COLUMNS, "settle": "0 seconds"}
    flow.stream = {"delta": None, "files": files, "lateness": None}
    flow.settings = {"epoch": {"max_files": 2}, "on_error": "dead"}
    Path(flow.source).mkdir(parents=True)
    flow.write_rule()
    return flow


def _drop(flow: Flow, numbers: range) -> None:
    for n in numbers:
        path = Path(flow.source) / f"{n}.json"
        rows = [event(10 * n, n=n), event(10 * n, n=None), event(-600, n=n), event(None, n=n)]  # one of each is dead
        write_json(path, rows)
        os.utime(path, (-n, -n) if n % 2 else (n, n))


def _application(root: Path, flows: dict[str, Flow], name: str, **env: str) -> Any:
    command = [sys.executable, "-m", "support.many", "run", str(root), *(flow.name for flow in flows.values())]
    paths = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
    return started(command, {"PYTHONPATH": paths, "TZ": "UTC", **env}, root / f"{name}.txt")


def _faults(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "Error" in line or "Exception" in line or "errors." in line)


def test_each_file_is_folded_once_wherever_a_run_is_killed(place: Path) -> None:
    """An odd file is older than all before it."""
    flows, marks = {point: _flow(place, point) for point in POINTS}, place / "marks"
    marks.mkdir()
    for flow in flows.values():
        _drop(flow, range(6))
    at = ",".join(f"{flow.name}:{point}" for point, flow in flows.items())
    with _application(place, flows, "killed", FLOODMARK_CRASH_AT=at, FLOODMARK_CRASH_MARKS=str(marks)) as driver:
        wait_until(lambda: len(list(marks.iterdir())) == len(flows), driver, LIMIT)
        kill_all(driver.pid)
    for flow in flows.values():
        _drop(flow, range(6, 9))
    for point, flow in flows.items():  # one after the other: Spark waits 15 s for the Python process of each query
        with _application(place, {point: flow}, "recovery") as driver:
            assert driver.wait(LIMIT) == 0, _faults((place / "recovery.txt").read_text())
    for flow in flows.values():
        counts = flow.counts()
        assert (counts["read"], counts["dead"]) == (36, 9), flow.name
        for number in (0, 1):
            found = Counter(row["n"] for row in rows_of(flow.sink(number)))
            assert found == dict.fromkeys(range(9), 2), flow.name
        verdict = audit(flow.name, flow.home, deep=True)
        assert verdict is not None and (verdict.verdict, verdict.findings) == ("proven", [])
