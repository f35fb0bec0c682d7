"""Commands as processes: killed at a named point by a real SIGKILL, or left to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.proving.play.processes import kill_all, wait_until
from support.flow import Flow
from support.forked import Forked

LIMIT = 240.0  # seconds; of commands that start a JVM, too


def _env(flow: Flow) -> dict[str, str]:
    return {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}


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
    driver = Forked(words, {**_env(flow), **crash})
    try:
        wait_until(mark.exists, driver, LIMIT)
        assert driver.poll() is None and mark.exists(), driver.communicate(LIMIT)[0].decode()
        yield driver.pid
    finally:
        kill_all(driver.pid)
        driver.communicate(LIMIT)
    mark.unlink()


def said(flow: Flow, *words: str, code: int = 0) -> str:
    """What the command says; it must end with `code`."""
    process = Forked(words, _env(flow))
    told = process.communicate(LIMIT)[0].decode()
    assert process.returncode == code, told
    return told
