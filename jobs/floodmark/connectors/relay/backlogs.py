"""How far a target is behind its outbox, by the ledger and what the home remembers: nobody asks the target."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from floodmark.connectors.relay.contents import size_of
from floodmark.connectors.relay.memory import Memory, recall
from floodmark.core.protocol.places import PREFIX
from floodmark.core.relay.portions import Portion, portions
from floodmark.core.relay.positions import Position
from floodmark.core.rules.kinds import targets
from floodmark.errors import HistoryGone, Refused
from floodmark.ledger.landings import OUTBOX, LandedTable, app_of
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.rules.model import Rule, Sink
    from floodmark.ledger.home import Home


@dataclass(frozen=True)
class Undelivered:
    """What a target has still to get. `bytes`: of its files; `oldest`: when the first of it was committed.

    memory: the position that was last seen in the target, and the last fault.
    """

    target: str
    portions: int
    rows: int
    bytes: int
    oldest: str | None
    memory: Memory

    def text(self) -> str:
        """For people."""
        has = "nothing shipped yet" if self.memory.position is None else f"has {self.memory.position.words}"
        if self.portions:
            epochs = "1 epoch" if self.portions == 1 else f"{self.portions} epochs"
            has += f"; {epochs} ({self.rows} rows, {self.bytes:,} bytes) not shipped, since {self.oldest}"
        fault = f"; the last attempt failed at {self.memory.fault_at}: {self.memory.fault}" if self.memory.fault else ""
        return f"{self.target}: {has}{fault}"

    def facts(self) -> dict[str, Any]:
        """For --json."""
        position = self.memory.position
        return {
            "target": self.target,
            "generation": position.generation if position else None,
            "epoch": position.epoch if position else None,
            "moved_at": self.memory.at,
            "undelivered_epochs": self.portions,
            "undelivered_rows": self.rows,
            "undelivered_bytes": self.bytes,
            "oldest_undelivered": self.oldest,
            "error": self.memory.fault,
            "error_at": self.memory.fault_at,
        }


def undelivered(rule: Rule, home: Home, ledger: LedgerReader | None) -> list[Undelivered]:
    """Of each target of a rule, in the rule's order."""
    return [_of(rule, sink, home, ledger) for sink in targets(rule)]


def _of(rule: Rule, sink: Sink, home: Home, ledger: LedgerReader | None) -> Undelivered:
    folder = cast("Path", home.outbox(sink))
    memory = recall(folder)
    left = list(pending(rule, sink, memory, ledger))
    rows, size = sum(one.rows for one in left), sum(_size(folder, one) for one in left)
    return Undelivered(sink.label, len(left), rows, size, left[0].at if left else None, memory)


def check_shipped(rule: Rule, home: Home, ledger: LedgerReader, folders: Collection[str]) -> None:
    """Raise Refused if a target has not got all that its outbox holds. folders: outboxes, in the rule's home."""
    behind = (one for sink, one in zip(targets(rule), undelivered(rule, home, ledger), strict=True)
              if sink.outbox in folders and one.portions)  # fmt: skip
    for one in behind:
        raise Refused(
            f"rule {rule.rule}: its outbox has such rows, and target {one.target} has not got all of it. `floodmark "
            f"relay {rule.rule} --target {one.target}` ships it, then forget; or remove the sink from the rule first"
        )


def outboxes(rule: Rule, home: Home) -> list[LandedTable]:
    """The outboxes that are there, each with the first version that its target has not got."""
    ledger = LedgerReader.load(home.ledger)
    found = ((sink, home.outbox(sink)) for sink in targets(rule))
    there = [(sink, folder) for sink, folder in found if folder is not None and folder.exists()]
    return [] if ledger is None else [_upkeep(rule, sink, folder, ledger) for sink, folder in there]


def _upkeep(rule: Rule, sink: Sink, folder: Path, ledger: LedgerReader) -> LandedTable:
    commits = (one.commit for one in pending(rule, sink, recall(folder), ledger))
    newest = ledger.head.commits.get(PREFIX + str(sink.address), 0) if ledger.head else 0
    first = next((commit for commit in commits if commit is not None), newest + 1)
    app = app_of(ledger.id, folder.name, OUTBOX)
    return LandedTable(folder.name, str(folder), app, sink.outbox_keep_us, first, OUTBOX)


def pending(rule: Rule, sink: Sink, memory: Memory, ledger: LedgerReader | None) -> Iterator[Portion]:
    """The portions with an effect beyond what the target was last seen to have."""
    if ledger is None or ledger.head is None:
        return
    since = memory.position if memory.position and memory.position.ledger == ledger.id else Position(ledger.id)
    found = portions(ledger.since(since.seq), PREFIX + str(sink.address), since, rule.rebuild)
    yield from (one for one in found if not one.is_empty or one.empties)


def _size(folder: Path, one: Portion) -> int:
    """Bytes of its files; 0 if they are gone: a relay will say so."""
    try:
        return 0 if one.commit is None else size_of(folder, one.commit)
    except HistoryGone:
        return 0
