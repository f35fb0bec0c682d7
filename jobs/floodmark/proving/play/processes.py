"""Real processes: start one in a session of its own, wait for a condition, kill the whole session."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_EVERY = 0.02  # seconds between two checks


def of_session(leader: int) -> list[int]:
    """Every process of the leader's session. PySpark's workers leave the process group, but not the session."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and _session(entry.name) == leader:
            found.append(int(entry.name))
    return found


def _session(pid: str) -> int | None:
    """None of a process that has ended. One whose first thread has ended holds its locks until its last one has."""
    try:
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ended = state == "Z" and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if ended else int(session)


def kill_all(leader: int, how: signal.Signals = signal.SIGKILL) -> int:
    """Signal every process of the session, with SIGKILL until none is left. Returns how many there were at first."""
    found = len(of_session(leader))
    while left := of_session(leader):
        for pid in left:
            try:
                os.kill(pid, how)
            except ProcessLookupError:
                continue  # it exited in the meantime
        if how is not signal.SIGKILL:
            break
    return found


@contextmanager
def started(command: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a session of its own; at the end, the whole session is killed."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - Python itself, with a module of ours
            command, env={**os.environ, **env}, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield process
        finally:
            kill_all(process.pid)
            process.wait()


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether the condition held before the process exited or `limit` seconds passed."""
    pause = threading.Event()
    for _ in range(int(limit / LOOK_EVERY)):
        if holds():
            return True
        if process.poll() is not None:
            return holds()
        pause.wait(LOOK_EVERY)
    return False
