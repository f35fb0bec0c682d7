"""Read a rule's freshness from its ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.core.lifecycle.freshness import Fresh, Late, fresh, late_of
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.rules.rule import Rule

ROWS = 64  # of the ledger that are read first; for a run with more epochs, more are read until it is complete


def fresh_now(rule: Rule, root: Path, run: str | None) -> Fresh | None:
    """The freshness now; None for a rule without `freshness` or without a run. Raises what reading a ledger raises.

    `run`: prefix of the names of the run whose late rows are checked; None: a run that had nothing to do.
    """
    if rule.freshness is None:
        return None
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    asked = run is not None and rule.freshness.max_late_percent is not None
    late = newest_late(ledger, run or "") if ledger and asked else None
    return fresh(rule, ledger.head if ledger else None, late, datetime.now(UTC))


def newest_late(ledger: LedgerReader, run: str = "") -> Late | None:
    """Late rows of the newest run that has ended an epoch; None if its name does not begin with `run`."""
    count, every = ROWS, ledger.head.seq if ledger.head else 0
    rows = ledger.newest(count)
    while count < every and len({row.run for row in rows if row.kind != "life"}) <= 1:
        count *= 8
        rows = ledger.newest(count)
    newest = next((row.run for row in reversed(rows) if row.kind == "commit" and row.epoch > 0), "")
    return late_of(rows) if newest.startswith(run) else None
