"""What is left of a process's session is killed to its last thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from floodmark.proving.play.processes import kill_all, of_session, wait_until

HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_is_killed_too() -> None:
    """As a JVM is for a while after SIGKILL; until its last thread ends, it holds its locks."""
    process = subprocess.Popen([sys.executable, "-c", HEADLESS], start_new_session=True)
    state = Path(f"/proc/{process.pid}/stat")
    try:
        assert wait_until(lambda: ") Z " in state.read_text(), process, 30)
        assert (process.poll(), of_session(process.pid)) == (None, [process.pid])
        assert (kill_all(process.pid), of_session(process.pid)) == (1, [])
    finally:
        process.kill()
        process.wait()
