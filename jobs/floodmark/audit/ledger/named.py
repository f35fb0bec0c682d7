"""The commits that the ledger names: their app ids, their tables and the tables' addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.audit.evidence import Finding
from floodmark.audit.ledger.generations import Backfill, Generation

ATTEMPTS = 1 << 20  # app versions of one epoch
BACKFILLS = 1 << 19  # app versions of an epoch from here on belong to the backfills after it
SEAL = (1 << 63) - 1


@dataclass(frozen=True)
class Named:
    """A commit that the ledger names. `written`: the ledger's record of it; `intent`: the hash that it must carry.

    `backfill`: the backfill that made the commit, if one did; `epoch` is then the epoch before it. `undigested`: the
    epoch's first attempts, whose commits name no digests.
    """

    table: str
    generation: int
    epoch: int
    app: str
    intent: str
    written: Mapping[str, Any]
    backfill: Backfill | None = None
    undigested: int = 0

    @property
    def version(self) -> int:
        return int(self.written["version"])

    @property
    def commit(self) -> int:
        return int(self.written["commit"])

    def finding(self, what: str) -> Finding:
        return Finding("broken", what, self.generation, self.epoch, self.table, self.commit)


def named_in(generation: Generation, ledger: str) -> Iterator[Named]:
    """Every commit that the rows of a generation name."""
    committed = (epoch for epoch in generation.epochs if epoch.result == "committed")
    bodies = [(0, "empty", generation.begun, 0)]
    bodies += [(epoch.number, epoch.intent_hash, epoch.end, epoch.undigested) for epoch in committed]
    for epoch, intent, body, undigested in bodies:
        for table, written in body["tables"].items():
            app = app_of(generation, ledger, table)
            yield Named(table, generation.number, epoch, app, intent, written, undigested=undigested)
    for backfill in generation.backfills:
        for table, written in backfill.end.get("tables", {}).items():
            app = app_of(generation, ledger, table)
            yield Named(table, generation.number, backfill.epoch, app, backfill.intent_hash, written, backfill)


def app_of(generation: Generation, ledger: str, table: str) -> str:
    return f"floodmark/{ledger}/g{generation.number}-{generation.token}/{table.partition('/')[0]}"


def forget_app(generation: Generation, ledger: str) -> str:
    """The app id under which a generation forgets rows, of all of its tables."""
    return f"floodmark/{ledger}/g{generation.number}-{generation.token}/forget"


def ids_of(generation: Generation, upto: int | None = None) -> dict[str, str]:
    """Table → its id, of all that the generation has created or adopted; `upto`: as of the end of that epoch."""
    found = dict(generation.begun["table_ids"])
    for backfill in generation.backfills:  # of state that an edit has added
        found |= backfill.end.get("table_ids", {})
    for epoch in generation.epochs[:upto]:
        found |= epoch.end.get("table_ids", {})
    return found


def adopted_from(generations: Sequence[Generation], table: str) -> int | None:
    """The version from which an adopted table belongs to the rule; None for a table that the rule created."""
    bodies = [body for one in generations for body in (one.begun, *(epoch.end for epoch in one.epochs))]
    return next((int(body["adopted"][table]) for body in bodies if table in body.get("adopted", {})), None)


def address_of(table: str, generation: int, root: str, id_: str | None, moved: Mapping[str, str]) -> str:
    """A table's address. State has a folder for each generation; a sink's name contains its first address.

    `id_`: the table's; `moved`: later addresses of tables, by id.
    """
    kind, _, rest = table.partition("/")
    if kind == "sink":
        return moved.get(id_ or "", rest)
    return f"{root}/state/g{generation}/{rest}" if kind == "state" else f"{root}/{kind}"
