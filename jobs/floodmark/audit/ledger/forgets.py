"""Read the ledger's rows about rows that were forgotten: each announcement, and the row that ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.audit.evidence import Row
from floodmark.audit.ledger.shapes import whole


@dataclass
class Forget:
    """Rows that left a rule's own tables. `row`: that announced it; `condition`: the digest of the condition.

    `tables`: by name, how many rows match; `left`: by name, what the row that ended it has of the table. `copies`: the
    same as `tables` of landings and outboxes, by folder.
    """

    number: int
    row: Row
    condition: str
    tables: Mapping[str, int]
    left: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    copies: Mapping[str, int] = field(default_factory=dict)
    is_open: bool = True


def follow(forgets: list[Forget], row: Row, body: Mapping[str, Any], busy: bool) -> Iterator[str]:
    """Take one more row; what it contradicts. `busy`: an epoch, a backfill, a drop or a reset is open."""
    opened = forgets[-1] if forgets and forgets[-1].is_open else None
    if body["what"] == "forgetting":
        yield from _announced(forgets, row, body["forgetting"], busy or opened is not None)
    elif opened is None:
        yield "the end of a forget that no row announced"
    else:
        yield from _ended(opened, body["forgotten"])


def _announced(forgets: list[Forget], row: Row, body: Mapping[str, Any], busy: bool) -> Iterator[str]:
    number = len(forgets) + 1
    if busy:
        yield "a forget at a moment when there cannot be one"
    if body["number"] != number:
        yield f"expected forget {number}, found forget {body['number']}"
    tables = {str(table): whole(rows) for table, rows in body["tables"].items()}
    yield from (f"a forget in {table}, which is a sink" for table in tables if table.startswith("sink/"))
    copies = {str(folder): whole(rows) for folder, rows in body.get("copies", {}).items()}
    forgets.append(Forget(number, row, str(body["condition"]), tables, copies=copies))


def _ended(opened: Forget, body: Mapping[str, Any]) -> Iterator[str]:
    opened.is_open, opened.left = False, body["tables"]
    for left in opened.left.values():
        _ = [whole(left[name]) for name in ("version", "commit", "gone", "rows")], left["digest"]["rows"]
    if (body["number"], opened.left.keys()) != (opened.number, opened.tables.keys()):
        yield f"the end of forget {body['number']} does not name the tables of forget {opened.number}"
    for table, left in opened.left.items():
        if left["gone"] < opened.tables.get(table, 0):
            yield f"{opened.tables[table]} rows of {table} were to go, {left['gone']} are gone"
