"""Relays as processes, which tests stop at points of their way and kill for good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from floodmark.proving.play.processes import wait_until

LIMIT = 120.0  # seconds for one relay
CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    """How a relay ended, and what it said."""

    code: int
    said: str


@dataclass(frozen=True)
class Relays:
    """`flow`'s rule by name, with its folder of rules and its home; `env`: the connections."""

    rule: str
    root: Path
    env: Mapping[str, str]

    def _started(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        folders = ["--rules", str(self.root / "rules"), "--home", str(self.root / "home")]
        return self._command("relay", self.rule, *folders, *arguments, **env)

    def command(self, *arguments: str) -> Done:
        """Any command, to its end."""
        process = self._command(*arguments)
        said, _ = process.communicate(timeout=10 * LIMIT)
        return Done(process.returncode, said.decode())

    def _command(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        paths = {"PYTHONPATH": str(CHECKOUT / "jobs"), "TZ": "UTC"}
        return subprocess.Popen(
            [sys.executable, "-c", "from floodmark.cli import main; main()", *arguments],
            env={**os.environ, **paths, **self.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def ship(self, *arguments: str) -> Done:
        process = self._started(*arguments)
        said, _ = process.communicate(timeout=LIMIT)
        return Done(process.returncode, said.decode())

    @contextmanager
    def stopped_at(self, point: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A relay that has reached the point, and waits there; it is killed at the end unless it has ended."""
        folders = ["--rules", str(self.root / "rules"), "--home", str(self.root / "home")]
        with self.command_at(point, "relay", self.rule, *folders, *arguments) as process:
            yield process

    @contextmanager
    def command_at(self, point: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """The same, of any command."""
        marks = self.root / "marks"
        marks.mkdir(exist_ok=True)
        mark = marks / f"{self.rule}.{point}"
        mark.unlink(missing_ok=True)
        at = {"FLOODMARK_CRASH_AT": f"{self.rule}:{point}", "FLOODMARK_CRASH_MARKS": str(marks)}
        with self.at_work(*arguments, **at) as process:
            assert wait_until(mark.exists, process, LIMIT), process.communicate()[0]
            yield process

    @contextmanager
    def at_work(self, *arguments: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that is running; it is killed at the end unless it has ended."""
        process = self._command(*arguments, **env)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()

    def go_on(self, point: str) -> None:
        """Let a stopped relay go on."""
        (self.root / "marks" / f"{self.rule}.{point}").unlink()

    def killed_at(self, point: str, *arguments: str) -> None:
        with self.stopped_at(point, *arguments):
            """It is killed there."""
