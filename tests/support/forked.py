"""Commands as processes of their own, each forked from a process that has imported the engine's modules.

Imports take a relay most of its time. `floodmark` itself is started in the tests of the command line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCES = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
# In the environment of a relay: it ends the session of a stopped relay after a second and a half, not fifteen, and
# gives up a lock, or a server that hangs, after seconds, not minutes.
IMPATIENT = {"SUPPORT_IMPATIENT": "1"}
IMPORTED = (
    "support.forked",
    "floodmark.cli.app",
    "floodmark.cli.shared.selection",
    "floodmark.connectors.relay.shipping",
    "floodmark.connectors.targets.files.target",
    "floodmark.connectors.targets.iceberg.target",
    "floodmark.connectors.targets.kafka.target",
    "floodmark.connectors.targets.postgres.target",
    "floodmark.connectors.targets.python.target",
)


@cache
def _forking() -> ForkServerContext:
    """The process that the others are forked from ends with this one."""
    context = get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SOURCES)
        patch.setenv("TZ", "UTC")
        forkserver.ensure_running()
    return context


class Forked:
    """`floodmark` with these arguments, and `env` added to the environment. It is used like a `subprocess.Popen` whose
    two streams of output are one."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]):
        file, self._said = tempfile.mkstemp()
        os.close(file)
        own = {**os.environ, "PYTHONPATH": SOURCES, "TZ": "UTC", **env}
        self._process = _forking().Process(target=_command, args=(list(arguments), own, str(Path.cwd()), self._said))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, None]:
        """Its output, once it has ended."""
        self._process.join(timeout)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired(["floodmark"], timeout or 0.0)
        path = Path(self._said)
        said = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        return said, None


def _command(arguments: list[str], env: dict[str, str], folder: str, said: str) -> None:
    """The process itself, the first of a session of its own."""
    os.setsid()
    output = os.open(said, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    missing = [name for name in IMPORTED if name not in sys.modules]
    assert not missing, f"expected that these modules are imported already: {', '.join(missing)}"
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(folder)
    from floodmark.cli import main

    if IMPATIENT.items() <= env.items():
        _be_impatient()
    main(arguments)


def _be_impatient() -> None:
    from floodmark.connectors.sources.postgres.server import waiting
    from floodmark.connectors.targets.postgres import sessions, target

    target.LOCK_WAIT, sessions.STOPPED_AFTER = "500ms", 1.0
    target.LOCK_TIME = sessions.LOCK_TIME = "3s"
    waiting.LOOK_EVERY, waiting.HANGS_AFTER = 0.5, 1.0
