"""Finds the version of a sink that holds what a rule had committed at a head of its ledger, and nothing later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from floodmark.core.lifecycle.pinning import is_visible, newest_named
from floodmark.core.protocol.recovery import app_id
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import HistoryGone
from floodmark.ledger.delta import datafiles, tablelog, tables

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from floodmark.core.protocol.records.head import Head
    from floodmark.ledger.ledger import LedgerReader

GONE_FOR = (
    "its rows at that version can no longer be read (VACUUM and the table's log retention decide for how long they can)"
)


def pinned(ledger: LedgerReader, head: Head, sink: str, address: str) -> DeltaTable:
    """The sink at the newest version without a commit of an epoch after the head's. `sink`: the ledger's name.

    Raises HistoryGone if the table, the version or one of its files no longer exists.
    """
    table = tables.open_table(address)
    if table is None:
        raise HistoryGone(
            about_sink(
                address,
                "the table that the ledger has written to no longer exists there. If it was moved, run the rule once: "
                "a run records the new place",
            )
        )
    if tables.table_id(table) != head.table_ids[sink]:
        raise HistoryGone(
            about_sink(
                address,
                f"expected the table with id {head.table_ids[sink]}, found {tables.table_id(table)}: it "
                "was recreated or cloned. Restore the table",
            )
        )
    newest = table.version()
    if head is ledger.head and _is_settled(table, ledger, head, sink):
        return table
    since = _since(ledger, head, sink, table)
    if since == 0 and tables.is_empty(table):  # no epoch has written to it, so older versions have no rows, either
        return table
    version = _version(ledger, head, address, since, newest)
    return table if version == newest else _at(address, version, head.epoch)


def _is_settled(table: DeltaTable, ledger: LedgerReader, head: Head, sink: str) -> bool:
    """Whether the ledger names the generation's newest write to the table; then no write is in progress."""
    recorded = tablelog.recorded_in(table, app_id(ledger.id, head.generation, head.token, "sink"))
    return recorded is not None and recorded == head.written.get(sink) and head.seal is None


def _since(ledger: LedgerReader, head: Head, sink: str, table: DeltaTable) -> int:
    """The version of the newest write that the ledger names, or one before all writes.

    Of a sink that was adopted, older log entries may be gone. The head does not know the version if the sink was added
    by a later epoch: the table does.
    """
    named = head.commits.get(sink)
    if named is None and (head.kept_output or head.rule.rebuild):  # neither begins with a commit to it
        before = (
            row for row in ledger.rows if row.seq <= head.seq and row.kind in ("commit", "abandoned", "backfilled")
        )
        named = newest_named((json.loads(row.body)["tables"] for row in before), sink)
    if named is not None:
        return named
    adopted = tables.adopted_at(table)
    return head.begun_with.adopted.get(sink, 0 if adopted is None else adopted + 1)


def _version(ledger: LedgerReader, head: Head, address: str, since: int, newest: int) -> int:
    for version in range(since + 1, newest + 1):
        transactions = list(_transactions(address, version, head))
        if not is_visible(transactions, ledger.id, head):
            return version - 1
    return newest


def _transactions(address: str, version: int, head: Head) -> Iterator[tuple[str, int]]:
    try:
        yield from tablelog.transactions(address, version)
    except FileNotFoundError as fault:
        raise HistoryGone(
            about_sink(
                address,
                f"its log entry {version} is gone, so the table's content after epoch {head.epoch} is "
                f"unknown; {GONE_FOR}",
            )
        ) from fault


def _at(address: str, version: int, epoch: int) -> DeltaTable:
    try:
        return datafiles.at_version(address, version)
    except (OSError, DeltaError) as fault:
        tables.check_gone(address, fault)
        raise HistoryGone(
            about_sink(address, f"version {version}, the table's version after epoch {epoch}, is gone: {GONE_FOR}")
        ) from fault
