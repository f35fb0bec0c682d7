"""Room in outboxes: a rule with a limit waits before an epoch until its targets have got enough."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from floodmark.connectors.relay.backlogs import Undelivered, undelivered_by
from floodmark.connectors.relay.memory import recall
from floodmark.core.rules.kinds import targets
from floodmark.errors import OutboxFull

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.rules.model import Rule, Sink
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

PATIENCE = 10.0  # seconds in which a relay that works moves the position
LOOK_EVERY = 0.2


def wait_for_room(rule: Rule, home: Home, ledger: LedgerReader) -> None:
    """Return once every outbox has room, as long as relays move. Raises OutboxFull."""
    limited = [sink for sink in targets(rule) if sink.outbox_bytes is not None]
    while found := _first_full(limited, home, ledger):
        _wait_until_moved(rule, *found)


def _first_full(limited: list[Sink], home: Home, ledger: LedgerReader) -> tuple[Path, Undelivered] | None:
    """The first full outbox, and what its target lacks."""
    each = ((cast("Path", home.outbox(sink)), undelivered_by(sink, home, ledger)) for sink in limited)
    return next(((folder, one) for folder, one in each if one.full), None)


def _wait_until_moved(rule: Rule, folder: Path, full: Undelivered) -> None:
    """Wait for the position alone: only it makes room, and to count what is left may take long."""
    since = time.monotonic()
    while recall(folder).position == full.memory.position:
        if time.monotonic() - since > PATIENCE:
            now = replace(full, memory=recall(folder))  # with what has failed meanwhile
            raise OutboxFull(
                f"rule {rule.rule} waits for target {full.target}: {full.bytes:,} bytes are not shipped, and "
                f"`outbox: {{max_bytes: {full.limit}}}` allows no more. {now.text()}. The next run goes on "
                "once the target has got them"
            )
        time.sleep(LOOK_EVERY)
