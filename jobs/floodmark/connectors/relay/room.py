"""Room in outboxes: a rule with a limit waits before an epoch until its targets have got enough."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from floodmark.connectors.relay.backlogs import Undelivered, undelivered
from floodmark.core.rules.kinds import targets
from floodmark.errors import OutboxFull

if TYPE_CHECKING:
    from floodmark.core.rules.model import Rule
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

PATIENCE = 10.0  # seconds in which a relay that works moves the position
LOOK_EVERY = 0.2


def wait_for_room(rule: Rule, home: Home, ledger: LedgerReader) -> None:
    """Return once every outbox has room, as long as relays move. Raises OutboxFull."""
    limited = any(sink.outbox_bytes is not None for sink in targets(rule))
    moved, before = time.monotonic(), None
    while full := _full(rule, home, ledger) if limited else None:
        if full.memory.position != before:
            moved, before = time.monotonic(), full.memory.position
        elif time.monotonic() - moved > PATIENCE:
            raise OutboxFull(
                f"rule {rule.rule} waits for target {full.target}: {full.bytes:,} bytes are not shipped, and "
                f"`outbox: {{max_bytes: {full.limit}}}` allows no more. {full.text()}. The next run goes on "
                "once the target has got them"
            )
        time.sleep(LOOK_EVERY)


def _full(rule: Rule, home: Home, ledger: LedgerReader) -> Undelivered | None:
    return next((one for one in undelivered(rule, home, ledger) if one.full), None)
