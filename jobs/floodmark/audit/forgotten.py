"""Check the tables from which rows were forgotten: their logs against the ledger's rows about it.

The older entries are gone, and so is what they proved. What is left to check is the number of rows that went, and that
the table held then what the ledger says it has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from floodmark.audit.effects.ledgertables import Tables
from floodmark.audit.evidence import Finding, LogEntry, TableLog, live_rows_of
from floodmark.audit.ledger.forgets import Forget
from floodmark.audit.ledger.generations import Generation
from floodmark.audit.ledger.named import Named, forget_app


def forgotten(tables: Tables, deep: bool) -> Iterator[Finding]:
    """Findings about all forgets. `deep`: with digests of the rows that stayed, as long as their files exist."""
    for generation in tables.story.generations:
        for table, id_ in tables.ids[generation.number].items():
            log = tables.log(table, generation.number)
            if not table.startswith("sink/") and log.readable and log.id == id_:
                yield from _Table(tables, generation, table, log, deep).check()


@dataclass
class _Table:
    """One table, as one generation has left it."""

    tables: Tables
    generation: Generation
    name: str
    log: TableLog
    deep: bool
    known: dict[int, Forget] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.app = forget_app(self.generation, self.tables.ledger)
        self.known = {one.number: one for one in self.generation.forgets if self.name in one.tables}

    def check(self) -> Iterator[Finding]:
        for entry in self.log.entries:
            for version in (version for app, version in entry.transactions if app == self.app):
                yield from (self._found(what, entry.version) for what in self._of_entry(entry, version))
        for forget in self.known.values():
            if self.name in forget.left:
                yield from self._ended(forget)

    def _found(self, what: str, commit: int) -> Finding:
        return Finding("broken", what, self.generation.number, table=self.name, commit=commit)

    def _of_entry(self, entry: LogEntry, version: int) -> Iterator[str]:
        """Faults of one commit. Its version is odd where rows leave, and even where the log is to start."""
        forget = self.known.get((version + 1) // 2)
        if forget is None:
            yield f"a commit of forget {(version + 1) // 2}, which the ledger does not know of this table"
        elif entry.metadata.get("intent") != forget.condition:
            yield f"a commit of forget {forget.number} with another condition than the ledger's"
        elif self.name in forget.left and entry.version > int(forget.left[self.name]["commit"]):
            yield f"a commit of forget {forget.number} after the one that ended it"
        elif version % 2:
            yield from self._rewritten(entry, forget)
        elif entry.added or entry.removed:
            yield f"a commit of forget {forget.number} that was to name no files names some"

    def _rewritten(self, entry: LogEntry, forget: Forget) -> Iterator[str]:
        move, gone = self.tables.replayed(self.log).moves[entry.version], entry.metadata.get("gone", -1)
        if gone < forget.tables[self.name]:
            yield f"forget {forget.number} was to remove {forget.tables[self.name]} rows, the commit removes {gone}"
        if move.added is not None and move.removed is not None and move.removed - move.added != gone:
            yield f"a commit that says {gone} rows go adds files with {move.added} rows and removes {move.removed}"

    def _ended(self, forget: Forget) -> Iterator[Finding]:
        left = forget.left[self.name]
        commit, entry = int(left["commit"]), self.log.at(int(left["commit"]))
        if entry is None and commit >= self.log.first:
            yield self._found(f"the ledger names commit {commit} of forget {forget.number}, the log has none", commit)
        elif entry is not None and (self.app, 2 * forget.number) not in entry.transactions:
            yield self._found(f"the commit is not the one of forget {forget.number} that the ledger names", commit)
        elif entry is not None:
            said = entry.metadata.get("left", {})
            if any(said.get(name) != left[name] for name in ("gone", "rows", "digest")):
                yield self._found("the commit says that other rows stayed than the ledger says", commit)
        yield from self._stayed(forget)

    def _stayed(self, forget: Forget) -> Iterator[Finding]:
        """Compare the files with which the log starts, if it still starts there."""
        left, base = forget.left[self.name], self.log.base
        if base is None or base.version != left["commit"]:
            return
        rows = live_rows_of(base.files.values())
        if rows is not None and rows != left["rows"]:
            what = f"forget {forget.number} left {left['rows']} rows, the checkpoint has files with {rows}"
            yield self._found(what, base.version)
        elif self.deep and base.files and all(file.path in self.log.present for file in base.files.values()):
            from floodmark.audit.content.content import check_joined, until_unreadable

            named = Named(self.name, self.generation.number, forget.row.epoch, self.app, forget.condition, left)
            yield from until_unreadable(named, check_joined(base.files.values(), [named], self.log, {}))
