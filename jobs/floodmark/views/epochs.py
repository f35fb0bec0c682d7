"""What a ledger's rows say, epoch by epoch."""

from __future__ import annotations

from typing import Any

from floodmark.core.records import Commit, Head, Intent, Lost, Record, Row, total
from floodmark.views.formats import iso

COLUMNS = ("epoch", "generation", "result", "attempts", "read", "filtered", "folded", "late", "dead", "rejected",
           "lost", "output", "watermark", "at", "run", "seconds")  # fmt: skip


def is_replay(head: Head, epoch: dict[str, Any]) -> bool | None:
    """Whether an epoch of the newest generation read dead rows; of an older one nobody asks any more."""
    if epoch["generation"] != head.generation:
        return None
    opened = head.open is not None and head.open.replay is not None and epoch["epoch"] == head.epoch + 1
    return opened or epoch["epoch"] in head.replays


def told(rows: list[Row], zone: bool, last: int) -> list[dict[str, Any]]:
    """One entry for each of the `last` epochs, the oldest first: committed, lost or open; and one for each seal."""
    newest = {(row.generation, row.epoch, row.kind == "seal"): row for row in rows}
    return [_entry(row, zone) for row in list(newest.values())[-last:]]


def _entry(row: Row, zone: bool) -> dict[str, Any]:
    entry: dict[str, Any] = dict.fromkeys(COLUMNS)
    entry |= {"epoch": row.epoch, "generation": row.generation, "at": row.at, "run": row.run, "attempts": row.attempt}
    if row.kind == "seal":
        return entry | {"result": "sealed", "attempts": None}
    kinds: dict[str, type[Record]] = {"commit": Commit, "intent": Intent, "lost": Lost}
    record = kinds[row.kind].model_validate_json(row.body)
    assert isinstance(record, Commit | Intent | Lost)
    counts = total(record.counts).model_dump()
    if isinstance(record, Lost):  # what the attempt had sorted out says nothing of what reached a table
        counts |= {"late": 0, "dead": 0, "folded": 0}
    result = {"commit": "begun" if row.epoch == 0 else "committed", "intent": "open", "lost": "lost"}[row.kind]
    return entry | counts | _outcome(record) | {"result": result, "watermark": iso(record.watermark, zone)}


def _outcome(record: Any) -> dict[str, Any]:
    """What only a row that ends an epoch knows."""
    if isinstance(record, Lost):
        return {"lost": record.lost, "output": 0}
    if isinstance(record, Commit):
        rejected, seconds = sum(record.rejected.values()), round(sum(record.seconds.values()), 3)
        return {"rejected": rejected, "lost": 0, "output": record.output_rows, "seconds": seconds}
    return {}
