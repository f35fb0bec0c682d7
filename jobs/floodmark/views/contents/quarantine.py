"""Read a rule's quarantined rows: late rows and dead rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.lifecycle.backfills import restated_in
from floodmark.core.lifecycle.replays import MALFORMED_RECORD, replayed_in
from floodmark.core.lifecycle.zones import micros_of_text
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.datafiles import query
from floodmark.ledger.home import Home
from floodmark.views.contents.tablerows import committed, plain

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from floodmark.core.protocol.records.head import Head


def quarantined(kind: str, rule: str, head: Head, root: Path, limit: int) -> tuple[int, list[dict[str, Any]]]:
    """The number of rows in the `late` or `dead` table, and the first `limit` of them, newest epoch first."""
    home = Home(root, rule)
    table = tables.open_table({"late": home.late, "dead": home.dead}[kind])
    if table is None:
        return 0, []
    count, rows = _first(table, committed(head), limit)
    if kind == "dead" and head.replays:
        rows = [{**row, "_replayed": replayed_in(row, head.replays)} for row in rows]
    if kind == "late" and head.backfills:
        rows = [{**row, "_restated": _restated(row, head)} for row in rows]
    return count, rows


def left_to_replay(head: Head, home: Home) -> bool:
    """Whether there may be dead rows that no replay has read. Conditions of replays need Spark: they are ignored."""
    table = tables.open_table(home.dead)
    if head.open is not None or table is None:
        return table is not None
    whole = {epoch: one for epoch, one in head.replays.items() if one.where is None}
    rows = f"coalesce(NOT starts_with(_reason, '{MALFORMED_RECORD}'), true)"
    found = query(table, f"SELECT DISTINCT _epoch, _stream FROM t WHERE {committed(head)} AND {rows}")  # noqa: S608
    return any(replayed_in(row, whole) is None for row in found)


def _restated(row: Mapping[str, Any], head: Head) -> str | None:
    """The backfill that has read a late row; None if there is none."""
    time = head.rule.streams[row["_stream"]].event_time
    shown = next((row[name] for name in row if time and name.lower() == time.name.lower()), None)
    if shown is None:
        return None
    return restated_in(micros_of_text(shown, head.rule), row["_epoch"], head.backfills)


def _first(table: DeltaTable, condition: str, limit: int) -> tuple[int, list[dict[str, Any]]]:
    count = query(table, f"SELECT count(*) AS rows FROM t WHERE {condition}")[0]["rows"]  # noqa: S608 - it is ours
    rows = query(table, f"SELECT * FROM t WHERE {condition} ORDER BY _epoch DESC LIMIT {limit:d}")  # noqa: S608
    return count, [{key: plain(value) for key, value in row.items()} for row in rows]
