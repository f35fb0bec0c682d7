"""A rule's state at an earlier epoch, from the versions of its state tables that still hold it (time travel)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from floodmark.core.protocol.records.following import head_at
from floodmark.errors import HistoryGone, Refused
from floodmark.ledger.delta import datafiles, tables
from floodmark.views.contents.statetables import StateTable, state_in, state_tables

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from floodmark.core.protocol.records.head import Head
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader


def state_at(ledger: LedgerReader, home: Home, epoch: int) -> dict[str, StateTable]:
    """The content of each state table when `epoch` had just ended, by the rule text of that time.

    Raises Refused if the epoch is not one of the newest generation, or can't be read any more.
    """
    newest = ledger.begun.epoch
    if epoch > newest:
        raise Refused(
            f"--epoch: expected an epoch from 0 to {newest}, the newest of generation {ledger.begun.generation}, "
            f"found {epoch}"
        )
    try:
        return _state_at(head_at(ledger.rows, epoch), home)
    except HistoryGone as gone:
        first = bisect_left(range(newest), True, lo=epoch + 1, key=lambda one: _is_ended(ledger, home, one))
        raise Refused(
            f"--epoch: expected an epoch from {first} on, found {epoch}: {gone}. State tables are rewritten to their "
            "live rows; replaced files are kept for an hour, logs for a day"
        ) from gone


def _is_ended(ledger: LedgerReader, home: Home, epoch: int) -> bool:
    try:
        _state_at(head_at(ledger.rows, epoch), home)
    except HistoryGone:
        return False
    return True


def _state_at(then: Head, home: Home) -> dict[str, StateTable]:
    return state_in(then.rule, then, {name: _table_at(then, home, name) for name in state_tables(then.rule)})


def _table_at(then: Head, home: Home, name: str) -> DeltaTable | None:
    """A state table with all that the head saw of it. If no epoch had written to it by then, any version will do."""
    since = then.commits.get(f"state/{name}")
    if since is None:
        return tables.open_table(home.state(then.generation, name))
    return datafiles.as_of(home.state(then.generation, name), since, then.epoch)
