"""List a ledger's entries, epoch by epoch."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from floodmark.core.protocol.expectations import failing
from floodmark.core.protocol.records.backfills import Backfill, Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Intent, Life, Lost, Record, Row, total
from floodmark.views.extents import extent
from floodmark.views.formats import iso

COLUMNS = ("epoch", "generation", "result", "attempts", "read", "filtered", "dropped", "folded", "late", "dead",
           "rejected", "lost", "output", "watermark", "at", "run", "seconds")  # fmt: skip
BACKFILLS = ("backfill", "backfilled")  # kinds of rows
TAKEN_BACK = ("abandoning", "abandoned")


def is_replay(head: Head, epoch: dict[str, Any]) -> bool | None:
    """Whether an epoch of the newest generation read dead rows; None for other entries."""
    if epoch["generation"] != head.generation or epoch["backfill"] is not None or epoch["read"] is None:
        return None
    opened = head.open is not None and head.open.replay is not None and epoch["epoch"] == head.epoch + 1
    return opened or epoch["epoch"] in head.replays


def epoch_entries(rows: list[Row], zone: bool, last: int) -> list[dict[str, Any]]:
    """The `last` entries, oldest first: one for each epoch, ended or open, each seal and backfill, rewrites that were
    deferred, and each lifecycle change.

    An epoch or backfill that was open when its generation was sealed is discarded.
    A backfill whose intent is not among the rows is left out: only the intent describes it.
    """
    found: dict[tuple[int, int, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault(_subject(row), []).append(row)
    whole = [mine for mine in found.values() if mine[0].kind != "backfilled"]
    sealed = {row.generation for row in rows if row.kind == "seal"}
    return [_ended(_entry(mine[-1], zone) | _backfill(mine, zone), sealed) for mine in whole[-last:]]


def _ended(entry: dict[str, Any], sealed: Collection[int]) -> dict[str, Any]:
    over = entry["result"] in ("open", "abandoning") and entry["generation"] in sealed
    return entry | ({"result": "discarded"} if over else {})


def _subject(row: Row) -> tuple[int, int, str, int]:
    """The key of an entry: an epoch, a seal, a backfill by its number, deferred rewrites, or a lifecycle change."""
    if row.kind in BACKFILLS:
        return row.generation, row.epoch, "backfill", json.loads(row.body)["number"]
    if row.kind in ("life", "deferred"):
        return row.generation, row.epoch, row.kind, row.seq
    return row.generation, row.epoch, "seal" if row.kind == "seal" else "", 0


def _backfill(rows: list[Row], zone: bool) -> dict[str, Any]:
    """The facts of a backfill; its intent is its first row."""
    if rows[0].kind not in BACKFILLS:
        return {"backfill": None}
    intent, done = Backfill.model_validate_json(rows[0].body), rows[-1].kind == "backfilled"
    said: dict[str, Any] = {"number": intent.number, **extent(intent, zone), "upto": intent.upto}
    said |= {"gaps": len(intent.gaps), "keys": intent.most_keys, "lookups": intent.joined}
    said["restated"] = intent.restated
    said["rewrites"] = {name: _rewritten(one) for name, one in intent.rewrites.items()}
    result = ("corrected" if intent.rewrites else "backfilled") if done else "open"
    facts = {"result": result, "output": intent.results.rows if done and not intent.keys else None}
    return total(intent.counts).parts | facts | {"backfill": said}


def _rewritten(one: Rewritten) -> dict[str, Any]:
    """What a correction followed in one stream: the commits, and how many rows left and came."""
    return {"commits": one.commits, "left": one.left.rows, "came": one.came.rows}


def _entry(row: Row, zone: bool) -> dict[str, Any]:
    entry: dict[str, Any] = dict.fromkeys((*COLUMNS, "failed"))
    entry |= {"epoch": row.epoch, "generation": row.generation, "at": row.at, "run": row.run, "attempts": row.attempt}
    if row.kind in ("seal", "deferred"):
        return entry | {"result": "sealed" if row.kind == "seal" else row.kind, "attempts": None}
    if row.kind == "life":
        life = Life.model_validate_json(row.body)
        return entry | {"result": f"{life.what} to {life.name}" if life.name else life.what, "attempts": None}
    if row.kind in BACKFILLS:
        return entry
    if row.kind in TAKEN_BACK:
        return entry | {"result": row.kind, "lost": 0, "output": 0}
    kinds: dict[str, type[Record]] = {"commit": Commit, "intent": Intent, "lost": Lost}
    record = kinds[row.kind].model_validate_json(row.body)
    assert isinstance(record, Commit | Intent | Lost)
    counts = total(record.counts).parts
    if isinstance(record, Lost):  # the attempt's counts do not show which rows reached a table
        counts |= dict.fromkeys(("dropped", "late", "dead", "folded"), 0)
    result = {"commit": "begun" if row.epoch == 0 else "committed", "intent": "open", "lost": "lost"}[row.kind]
    return entry | counts | _outcome(record) | {"result": result, "watermark": iso(record.watermark, zone)}


def _outcome(record: Any) -> dict[str, Any]:
    """The facts that only a row that ends an epoch has."""
    if isinstance(record, Lost):
        return {"lost": record.lost, "output": 0}
    if isinstance(record, Commit):
        rejected, seconds = sum(record.rejected.values()), round(sum(record.seconds.values()), 3)
        found = {"rejected": rejected, "lost": 0, "output": record.output_rows, "seconds": seconds}
        return {**found, "failed": failing(record)}
    return {}
