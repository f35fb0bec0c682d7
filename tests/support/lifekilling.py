"""Commands as processes: killed at a named point by a real SIGKILL, or left to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.proving.play.processes import kill_all, started, wait_until
from support.flow import Flow

CHECKOUT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from floodmark.cli import main; main()"]
LIMIT = 240.0  # seconds; of commands that start a JVM, too


def _env(flow: Flow) -> dict[str, str]:
    paths = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    return {**paths, "PYTHONPATH": str(CHECKOUT / "jobs"), "TZ": "UTC"}


def killed(flow: Flow, point: str, *words: str) -> None:
    """Start the command, wait until it has reached the point (`POINT` or `POINT@EPOCH`), and kill it."""
    with stopped(flow, point, *words):
        pass


@contextmanager
def stopped(flow: Flow, point: str, *words: str) -> Iterator[int]:
    """The command, by its process's id, stands still at the point; at the end all of its session is killed."""
    marks = flow.root / "marks"
    marks.mkdir(exist_ok=True)
    mark = marks / f"{flow.name}.{point.partition('@')[0]}"
    crash = {"FLOODMARK_CRASH_AT": f"{flow.name}:{point}", "FLOODMARK_CRASH_MARKS": str(marks)}
    with started([*COMMAND, *words], {**_env(flow), **crash}, flow.root / "killed.txt") as driver:
        wait_until(mark.exists, driver, LIMIT)
        assert driver.poll() is None and mark.exists(), (flow.root / "killed.txt").read_text()
        yield driver.pid
        kill_all(driver.pid)
        driver.wait(LIMIT)
    mark.unlink()


def said(flow: Flow, *words: str, code: int = 0) -> str:
    """What the command says; it must end with `code`."""
    found = subprocess.run(
        [*COMMAND, *words], env={**os.environ, **_env(flow)}, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert found.returncode == code, found.stdout + found.stderr
    return found.stdout + found.stderr
