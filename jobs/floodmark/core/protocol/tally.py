"""Sums up what rows of a ledger record, for metrics and for programs that wait for a sink. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.protocol.expectations import failing
from floodmark.core.protocol.records.backfills import Backfill
from floodmark.core.protocol.records.rows import PARTS, Commit, Counts, Failed, Lost, Row

COUNTS = ("read", "filtered", "dropped", "folded", "late", "dead", "rejected", "lost", "output")


@dataclass(frozen=True)
class Ended:
    """One epoch that was committed, or lost at qos 0.

    seconds: of its work, None if not measured. rows: by COUNTS. written: table -> rows, by the ledger's names.
    watermark: in microseconds. failed: rows by expectation, if any failed it.
    """

    generation: int
    epoch: int
    attempt: int
    run: str
    rows: dict[str, int]
    written: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None
    seconds: float | None = None
    failed: dict[str, int] = field(default_factory=dict)


def of_both(one: Mapping[str, Counts], other: Mapping[str, Counts]) -> dict[str, Counts]:
    """By stream, the counts of the rows of both."""
    return {name: _of_both(counts, other[name]) for name, counts in one.items()}


def _of_both(one: Counts, other: Counts) -> Counts:
    names = {**one.expected, **other.expected}
    expected = {name: one.expected.get(name, Failed()) + other.expected.get(name, Failed()) for name in names}
    return Counts(**{name: getattr(one, name) + getattr(other, name) for name in PARTS}, expected=expected)


def ended(rows: Iterable[Row]) -> list[Ended]:
    """The epochs that ended in these rows. Epoch 0 only starts a generation."""
    return [_ended(row) for row in rows if row.kind in ("commit", "lost") and row.epoch > 0]


def _ended(row: Row) -> Ended:
    found = (row.generation, row.epoch, row.attempt, row.run, counts_of(row.kind, json.loads(row.body)))
    if row.kind == "lost":
        return Ended(*found, watermark=Lost.model_validate_json(row.body).watermark)
    commit = Commit.model_validate_json(row.body)
    written = {name: table.rows for name, table in commit.tables.items()}
    seconds = round(sum(commit.seconds.values()), 3)
    return Ended(*found, written, commit.watermark, seconds, failing(commit))


@dataclass(frozen=True)
class Corrected:
    """One correction of rewritten sources that was done. `rows`: of the sources, that left and came."""

    run: str
    rows: int


def corrected(rows: Iterable[Row]) -> list[Corrected]:
    """The corrections that were done in these rows, which include that of the attempt that did it."""
    found, intent = [], None
    for row in rows:
        if row.kind == "backfill":
            intent = Backfill.model_validate_json(row.body)
        elif row.kind == "backfilled" and intent is not None and intent.rewrites:
            moved = (one.left.rows + one.came.rows for one in intent.rewrites.values())
            found.append(Corrected(row.run, sum(moved)))
    return found


def changes_sinks(row: Row) -> bool:
    """Whether readers of the rule's sinks have to know of a row: something has ended that may have changed them.

    Epoch 0 of a later generation ends a reset, which has emptied the sinks. Epoch 0 of the first one writes nothing.
    """
    if row.kind == "commit":
        return row.epoch > 0 or row.generation > 1
    return row.kind in ("lost", "backfilled", "abandoned")


def counts_of(kind: str, body: dict[str, Any]) -> dict[str, int]:
    """Row counts of an epoch that ended, from its record without validating it, which is slow for many records."""
    counts = {name: sum(one.get(name, 0) for one in body["counts"].values()) for name in PARTS}
    if kind == "lost":  # how the attempt sorted its rows does not show which of them reached a table
        return {"read": counts["read"], "filtered": counts["filtered"], "lost": body["lost"]}
    return {**counts, "rejected": sum(body.get("rejected", {}).values()), "output": body["output_rows"]}


def summed(epochs: Iterable[Ended]) -> dict[str, int]:
    """Row counts of several epochs, by COUNTS."""
    found = dict.fromkeys(COUNTS, 0)
    for epoch in epochs:
        for name, count in epoch.rows.items():
            found[name] += count
    return found
