"""How fresh a rule is, read from its ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from floodmark.core.lifecycle.freshness import Fresh, Late, fresh, late_of
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.rules.rule import Rule

ROWS = 64  # of the ledger that are read first; a run with more epochs has them read until all are there


def fresh_now(rule: Rule, root: Path, run: str | None) -> Fresh | None:
    """As of now; None of a rule without `freshness`, and of one that has not run. Raises what reading a ledger raises.

    `run`: how the names of the run begin that is judged for its late rows; None: one that had nothing to do.
    """
    if rule.freshness is None:
        return None
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    asked = run is not None and rule.freshness.max_late_percent is not None
    late = newest_late(ledger, run or "") if ledger and asked else None
    return fresh(rule, ledger.head if ledger else None, late, datetime.now(UTC))


def newest_late(ledger: LedgerReader, run: str = "") -> Late | None:
    """Late rows of the newest run that has ended an epoch; None where its name does not begin with `run`."""
    count, every = ROWS, ledger.head.seq if ledger.head else 0
    rows = ledger.newest(count)
    while count < every and len({row.run for row in rows if row.kind != "life"}) <= 1:
        count *= 8
        rows = ledger.newest(count)
    newest = next((row.run for row in reversed(rows) if row.kind == "commit" and row.epoch > 0), "")
    return late_of(rows) if newest.startswith(run) else None
