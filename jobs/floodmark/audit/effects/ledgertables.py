"""The tables of a ledger: the address and log of each, and whether it is still the same table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from floodmark.audit.effects.accounts import cut_apps
from floodmark.audit.effects.allowed import cuts
from floodmark.audit.effects.moves import LogReplay, replay_log
from floodmark.audit.effects.sinktables import PREFIX, Sinks, tables_of
from floodmark.audit.effects.undone import unlisted
from floodmark.audit.evidence import TableLog
from floodmark.audit.ledger.forgets import Forget
from floodmark.audit.ledger.generations import Epoch, Generation
from floodmark.audit.ledger.named import (
    Named,
    address_of,
    adopted_from,
    forget_app,
    ids_of,
    named_in,
)
from floodmark.audit.ledger.story import Story


@dataclass
class Tables:
    """`root`: the rule's home; `logs`: by address."""

    story: Story
    ledger: str
    root: str
    logs: Mapping[str, TableLog]
    _replays: dict[str, LogReplay] = field(default_factory=dict)

    def log(self, table: str, generation: int) -> TableLog:
        """The log of a table; one without an id if there is no table."""
        address = self.address(table, generation)
        return self.logs.get(address) or TableLog(address, None)

    def address(self, table: str, generation: int) -> str:
        """A table's address, by the newest row that records it. A table that was moved since is not searched for."""
        id_ = self.ids.get(generation, {}).get(table) if table.startswith(PREFIX) else None
        return address_of(table, generation, self.root, id_, self.story.moved)

    def replayed(self, log: TableLog) -> LogReplay:
        """A log's entries, replayed in order."""
        if log.address not in self._replays:
            self._replays[log.address] = replay_log(log)
        return self._replays[log.address]

    def is_gone(self, named: Named) -> bool:
        """Whether the table of a commit is gone from its address: dropped, or replaced."""
        return self.is_dropped(named) or self.is_replaced(named)

    def is_replaced(self, named: Named) -> bool:
        """Whether the generation is sealed and its table is gone or replaced, which is allowed then."""
        if named.generation not in self._sealed:
            return False
        log = self.log(named.table, named.generation)
        return log.readable and log.id != self.ids[named.generation].get(named.table)

    @cached_property
    def _sealed(self) -> set[int]:
        return {generation.number for generation in self.story.generations if generation.seal is not None}

    def is_dropped(self, named: Named) -> bool:
        """Whether the ledger records that the table was dropped; another one may be at its address now."""
        return bool(self.story.dropped) and self.ids[named.generation].get(named.table) in self.story.dropped

    @cached_property
    def ids(self) -> dict[int, dict[str, str]]:
        """By generation: the id of each table."""
        return {generation.number: ids_of(generation) for generation in self.story.generations}

    @cached_property
    def sinks(self) -> dict[tuple[int, int], Sinks | None]:
        """By generation and epoch: the sinks of the epoch's rule; None if they cannot be matched with tables."""
        found: dict[tuple[int, int], Sinks | None] = {}
        for generation in self.story.generations:
            ids = dict(generation.begun["table_ids"])
            for epoch in generation.epochs:
                ids |= epoch.end.get("table_ids", {})
                known = {**unlisted(epoch), **ids}
                found[generation.number, epoch.number] = tables_of(epoch.rule["sinks"], known, epoch.moved)
        return found

    def key_of(self, table: str, log: TableLog) -> tuple[str, ...] | None:
        """The key by which all rows of a sink were merged; None if they were not, or if that is unknown."""
        if not table.startswith(PREFIX) or self.story.beyond or adopted_from(self.story.generations, table) is not None:
            return None
        generations = [one for one in self.story.generations if self.ids[one.number].get(table) == log.id]
        emptied = [i for i, one in enumerate(generations) if table in one.begun["tables"]]
        keys = {self._key_in(epoch, table) for one in generations[max(emptied, default=0) :] for epoch in one.epochs}
        return keys.pop() if len(keys) == 1 else None

    def _key_in(self, epoch: Epoch, table: str) -> tuple[str, ...] | None:
        sinks = self.sinks[epoch.generation, epoch.number]
        sink = None if sinks is None else sinks.get(table)
        if sink is None or sink.get("outbox"):  # whose rows are changes of keys
            return None
        return tuple(name.lower() for name in sink.get("key") or ()) or None

    def names(self) -> dict[str, str]:
        """Address → the ledger's name, of every table that it has ever known."""
        return {
            self.address(table, generation.number): table
            for generation in self.story.generations
            for table in ids_of(generation)
        }

    def expected(self, address: str) -> tuple[Generation, str] | None:
        """The newest generation that has written to an address, and the table's id, without dropped tables."""
        found = [(generation, id_) for generation in self.story.generations
                 for table, id_ in self.ids[generation.number].items()
                 if self.address(table, generation.number) == address]  # fmt: skip
        left = [(generation, id_) for generation, id_ in found if id_ not in self.story.dropped]
        return left[-1] if left else None

    def known(self, address: str) -> dict[tuple[str, int], Named]:
        """(app, version) → the commit that the ledger names by it."""
        return {(one.app, one.version): one for one in self._named_by_address.get(address, ()) if not self.is_gone(one)}

    @cached_property
    def _named_by_address(self) -> dict[str, list[Named]]:
        found: dict[str, list[Named]] = {}
        for one in (one for generation in self.story.generations for one in named_in(generation, self.ledger)):
            found.setdefault(self.address(one.table, one.generation), []).append(one)
        return found

    def forgets(self, table: str, log: TableLog) -> frozenset[str]:
        """The app ids under which rows of a table may be forgotten: one for each generation whose table it is."""
        of = (one for one in self.story.generations if self.ids[one.number].get(table) == log.id)
        here = (one for one in of if not table.startswith(PREFIX) and self.address(table, one.number) == log.address)
        return frozenset(forget_app(one, self.ledger) for one in here)

    def cuts(self, table: str, log: TableLog) -> dict[int, int]:
        """The commits of a log that take old portions out of an outbox, with the first version that stays whole."""
        return cuts(log, cut_apps(self.story, self.ledger, table)) if table.startswith(PREFIX) else {}

    def forgot_at(self, table: str, commit: int) -> Forget | None:
        """The forget after which a table's log starts with this commit."""
        forgets = (forget for generation in self.story.generations for forget in generation.forgets)
        return next((one for one in forgets if one.left.get(table, {}).get("commit") == commit), None)

    @property
    def verdict(self) -> Literal["broken", "unknown"]:
        """The verdict on a fault that unread rows of the ledger may explain, if there are such rows."""
        return "unknown" if self.story.beyond else "broken"
