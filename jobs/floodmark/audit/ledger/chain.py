"""Check the ledger's rows: types of their cells, their numbers, and the chain of their hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floodmark.audit.evidence import Finding, Row

NEWEST_FORMAT = 13  # of the rows' bodies that this auditor knows


def misshapen(rows: Sequence[Row]) -> Iterator[Finding]:
    """Cells of another type than the ledger's columns; with one of these, the rows cannot be checked."""
    for name, told in Row.__dataclass_fields__.items():
        places = [at for at, row in enumerate(rows, 1) if type(getattr(row, name)).__name__ != told.type]
        if places:
            found = type(getattr(rows[places[0] - 1], name)).__name__
            what = f"{len(places)} rows of the ledger, of {len(rows)}, have in `{name}` no {told.type}, such as row "
            yield Finding("broken", f"{what}{places[0]}, which has {found}", row=places[0])


def chained(rows: Sequence[Row]) -> Iterator[Finding]:
    """Faults of the chain: rows have numbers without gaps, the hash of the row before, and their own hash."""
    seq, before = 0, ""
    for row in rows:
        if row.seq != seq + 1:
            yield broken(row, f"expected row {seq + 1} of the ledger, found row {row.seq}")
        elif row.prev != before:
            yield broken(row, "the row does not carry the hash of the row before it")
        if row.hash != hash_of(row):
            yield broken(row, "the row's hash is not that of its content: it was changed")
        seq, before = row.seq, row.hash


def counted_rows(rows: Sequence[Row], counted: int) -> Iterator[Finding]:
    """Compare the rows with the count in the ledger's log: without its newest rows, the chain still has no fault."""
    last = rows[-1].seq if rows else 0
    if last != counted:
        what = f"the ledger's log tells of {counted} rows, found {last}: rows or entries of its log were removed"
        yield Finding("broken", what, row=last or None)


def hash_of(row: Row) -> str:
    """SHA-256 of the other fields as JSON with sorted keys."""
    fields = {name: value for name, value in row.__dict__.items() if name != "hash"}
    return sha(json.dumps(fields, sort_keys=True))


def intent_hash(row: Row, body: Mapping[str, Any]) -> str:
    """SHA-256 of the body as first announced: in format 1, an intent gained `digests` when it was announced again."""
    if body["format"] > 1 or lacks_digests(body):
        return sha(row.body)
    first = {name: value for name, value in body.items() if name != "digests"}
    return sha(json.dumps(first, separators=(",", ":"), ensure_ascii=False))


def lacks_digests(body: Mapping[str, Any]) -> bool:
    """Whether an intent was announced by code of format 1, which had no digests: its commits name none."""
    return body["format"] < 2 and "digests" not in body


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def broken(row: Row, what: str) -> Finding:
    return Finding("broken", what, row.generation, row.epoch, row=row.seq)
