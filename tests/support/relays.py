"""Relays as processes, which tests stop at points of their way and kill for good."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from floodmark.proving.play.processes import wait_until
from support.forked import Forked

LIMIT = 120.0  # seconds for one relay


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

    def command(self, *arguments: str) -> Done:
        """Any command, to its end."""
        return self._done(10 * LIMIT, arguments)

    def ship(self, *arguments: str) -> Done:
        return self._done(LIMIT, ("relay", self.rule, *self._folders, *arguments))

    def _done(self, limit: float, arguments: Sequence[str]) -> Done:
        process = Forked(arguments, self.env)
        said, _ = process.communicate(timeout=limit)
        assert process.returncode is not None
        return Done(process.returncode, said.decode())

    @property
    def _folders(self) -> tuple[str, ...]:
        return "--rules", str(self.root / "rules"), "--home", str(self.root / "home")

    @contextmanager
    def stopped_at(self, point: str, *arguments: str) -> Iterator[Forked]:
        """A relay that has reached the point, and waits there; it is killed at the end unless it has ended."""
        with self.command_at(point, "relay", self.rule, *self._folders, *arguments) as process:
            yield process

    @contextmanager
    def command_at(self, point: str, *arguments: str) -> Iterator[Forked]:
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
    def at_work(self, *arguments: str, **env: str) -> Iterator[Forked]:
        """A command that is running; it is killed at the end unless it has ended."""
        process = Forked(arguments, {**self.env, **env})
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
