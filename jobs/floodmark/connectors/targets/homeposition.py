"""A position that is kept in the rule's home, for a target that cannot keep it itself."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.core.relay.positions import Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, LedgerBroken


class HomePosition:
    """The position of the target at `address`, in a file beside its outbox."""

    def __init__(self, address: str, outbox: Path):
        self._address, self._file = address, outbox.with_name(f"{outbox.name}.position")

    def read(self) -> Position | None:
        """Raises LedgerBroken for a file that holds none."""
        try:
            return Position.parse(self._file.read_text())
        except FileNotFoundError:
            return None
        except ValueError as fault:
            problem = f"expected its position in {self._file}: {fault}. Restore the home"
            raise LedgerBroken(about_sink(self._address, problem)) from None

    def move(self, since: Position | None, upto: Position) -> None:
        """Durable when it returns. Raises Fenced if the position is not `since`."""
        with self._locked():
            found = self.read()
            if found != since:
                said = "nothing" if found is None else found.words
                problem = f"expected its position at {since and since.words}, found {said}: another relay has moved it"
                raise Fenced(about_sink(self._address, problem))
            fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}")
            with fresh.open("w") as file:
                file.write(upto.text())
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
            sync(self._file.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._file.with_name(f"{self._file.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    known = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(known)
    finally:
        os.close(known)
