"""One relay at a time, where a second one would do harm: rows and position do not move in one step of the target."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from floodmark.core.rules.kinds import targets
from floodmark.core.rules.model import Rule
from floodmark.ledger import locking
from floodmark.ledger.holder import holder_pid, holder_text, relay_lock
from floodmark.ledger.home import Home


class Alone:
    """The lock of the relays of one target. `outbox`: the folder of its outbox. A kill frees the lock."""

    def __init__(self, outbox: Path):
        self._lock, self._held = relay_lock(outbox), ExitStack()
        self._has = False

    def take(self) -> None:
        """Take it, unless this relay has it. Raises Busy with the name of the relay that does."""
        if not self._has:
            self._held.enter_context(locking.held(self._lock, "relay"))
            self._has = True

    def close(self) -> None:
        self._has = False
        self._held.close()


def relays_at_work(rule: Rule, home: Home) -> dict[str, str]:
    """By target, the relay of another process that ships to it alone, in a sentence."""
    found = ((sink.label, home.outbox(sink)) for sink in targets(rule))
    locks = {label: relay_lock(outbox) for label, outbox in found if outbox is not None}
    others = {label: lock for label, lock in locks.items() if not locking.is_held_here(lock)}
    return {label: holder_text(lock) for label, lock in others.items() if holder_pid(lock) is not None}
