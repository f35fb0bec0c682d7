"""Summarize one rule for a list of many. Reads only the newest rows of its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.connectors.ports.source import Backlog
from floodmark.connectors.relay.backlogs import Undelivered, undelivered
from floodmark.core.lifecycle.freshness import Late
from floodmark.core.lifecycle.zones import zoned
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Row
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.delivery import SinkDelivery, delivery
from floodmark.errors import FloodmarkError, message
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader, ledger_in
from floodmark.views.epochs import epoch_entries
from floodmark.views.status.freshness import newest_late
from floodmark.views.status.refusals import Stop, refused
from floodmark.views.status.rulestatus import StateSize, excused, lag_by_stream, newest_end, repeating, state_sizes

EPOCHS = 12  # that are listed
ROWS = 4 * EPOCHS  # of the ledger that are read first: two for each epoch, and retries


@dataclass(frozen=True)
class Glance:
    """`epochs`: the newest, the oldest first, as `floodmark epochs` lists them. `late`: rows of the newest run, if the
    rule limits them. `refused`: why the next run will stop. `fault`: why the rule cannot be
    summarized.
    """

    head: Head | None = None
    newest: Row | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    lag: dict[str, Backlog | str] = field(default_factory=dict)
    state: dict[str, StateSize] = field(default_factory=dict)
    excused: dict[str, int] = field(default_factory=dict)
    delivery: list[SinkDelivery] = field(default_factory=list)
    targets: list[Undelivered] = field(default_factory=list)
    late: Late | None = None
    zoned: bool = True
    refused: Stop | None = None
    fault: str | None = None

    @property
    def behind(self) -> int | None:
        """Commits with new data in all streams together; None if the number is unknown for a stream."""
        found = [one.amount for one in self.lag.values() if isinstance(one, Backlog)]
        return sum(found) if len(found) == len(self.lag) else None


def glance(rule: Rule, root: Path) -> Glance:
    """The summary of a rule. Does not raise the rule's errors: `fault` holds the message."""
    try:
        return _glance(rule, root)
    except (FloodmarkError, OSError) as fault:
        return Glance(delivery=delivery(rule), fault=message(fault))


def _glance(rule: Rule, root: Path) -> Glance:
    home = Home(root, rule.rule)
    ledger = ledger_in(home)
    head = ledger.head if ledger else None
    if ledger is None or head is None:
        return Glance(delivery=delivery(rule))
    rows, epochs = _newest(ledger, zoned(rule, head))
    return Glance(
        head=head,
        newest=newest_end(rows),
        epochs=epochs,
        lag=lag_by_stream(rule, home, head),
        state=state_sizes(rule, head, root),
        excused=excused(rule, head),
        delivery=delivery(rule, head.kept_output, repeating(rule, root), head.generation),
        targets=undelivered(rule, home, ledger),
        late=newest_late(ledger) if rule.freshness and rule.freshness.max_late_percent is not None else None,
        zoned=zoned(rule, head),
        refused=refused(rule, head),
    )


def _newest(ledger: LedgerReader, zone: bool) -> tuple[list[Row], list[dict[str, Any]]]:
    """Enough of the newest rows for EPOCHS entries, however many attempts these took, and the entries."""
    count = ROWS
    while True:
        rows = ledger.newest(count)
        epochs = epoch_entries(rows, zone, EPOCHS)
        if len(rows) < count or (len(epochs) == EPOCHS and newest_end(rows) is not None):
            return rows, epochs
        count *= 2
