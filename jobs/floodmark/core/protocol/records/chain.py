"""Checks the ledger's chain: each row carries the hash of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from floodmark.core.protocol.records.rows import FORMAT, Row
from floodmark.errors import LedgerBroken

# A ledger that cannot be read cannot be reset either, because the reset is written into it.
RESTORE = (
    "restore the ledger from a copy of the home. If there is none, start over: remove the rule's folder in the home, "
    "and name new sinks or remove the old ones"
)


def check_chained(rows: Iterable[Row], first: int = 1, before: str = "") -> None:
    """Raise LedgerBroken unless these are unchanged rows of a ledger from number `first` on.

    before: hash of the row before.
    """
    for _ in chained(rows, first, before):
        pass


def chained(rows: Iterable[Row], first: int = 1, before: str = "") -> Iterator[Row]:
    """The same rows, each once it is checked."""
    for seq, row in enumerate(rows, first):
        _check_row(row, seq, before)
        yield row
        before = row.hash


def check_chain(row: Row, expected: int, previous: str) -> None:
    """Raise LedgerBroken unless the row is the next one and this Floodmark knows its format."""
    _check_row(row, expected, previous)
    if json.loads(row.body).get("format", 0) > FORMAT:
        raise LedgerBroken(f"ledger row {row.seq} was written by a newer Floodmark: use that one")


def _check_row(row: Row, expected: int, previous: str) -> None:
    if row.seq != expected or row.prev != previous or row.hash != row.digest():
        raise LedgerBroken(
            f"the ledger's row {expected} is missing or was changed (found sequence number {row.seq}); {RESTORE}"
        )
