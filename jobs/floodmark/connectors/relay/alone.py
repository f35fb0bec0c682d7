"""One relay at a time, where a second one would do harm: rows and position do not move in one step of the target."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from floodmark.ledger import locking
from floodmark.ledger.holder import RELAY


class Alone:
    """The lock of the relays of one target. `outbox`: the folder of its outbox. A kill frees the lock."""

    def __init__(self, outbox: Path):
        self._lock, self._held = outbox.with_name(f"{outbox.name}{RELAY}"), ExitStack()
        self._has = False

    def take(self) -> None:
        """Take it, unless this relay has it. Raises Busy with the name of the relay that does."""
        if not self._has:
            self._held.enter_context(locking.held(self._lock, "relay"))
            self._has = True

    def close(self) -> None:
        self._has = False
        self._held.close()
