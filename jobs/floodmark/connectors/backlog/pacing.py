"""How much the next epoch of a rule reads, if the rule limits an epoch's duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.pacing import MEASURED, PROBE, limit, rate, wanted

if TYPE_CHECKING:
    from floodmark.core.rules.rule import EpochLimits, Rule
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

ROWS = 4 * MEASURED  # of the ledger: an epoch has at least two


def paced(rule: Rule, home: Home, ledger: LedgerReader) -> EpochLimits:
    """The rule's limits, with as many bytes as take `max_seconds` at the rate of earlier epochs.

    An epoch has at most the bytes that it would have of the widest rows alone: what waits beyond them is not counted.
    """
    head, seconds = ledger.begun, rule.epoch.max_seconds
    assert seconds is not None
    found, pace = list(sources(rule, home).values()), rate(ledger.newest(ROWS), head.generation)
    known = [source.bytes_a_row() for source in found]
    enough = max(PROBE, wanted(seconds, pace, max(filter(None, known), default=None)))
    waiting = [source.waiting(line, enough) for source, line in zip(found, head.entry.offsets, strict=True)]
    widths = [(size, width) for size, width in zip(waiting, known, strict=True) if width]
    rows = sum(size / width for size, width in widths)
    width = sum(size for size, _ in widths) / rows if rows else None
    size = limit(waiting, wanted(seconds, pace, width))
    most = min(size, rule.epoch.max_bytes or size)
    return rule.epoch.model_copy(update={"max_bytes": most})
