"""Check commits that the ledger does not name, and the rows that each commit adds and removes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.audit.effects.allowed import (
    epoch_in,
    excused,
    is_forget,
    is_rewrite,
    of_sink,
    qos_of,
    undone_in,
)
from floodmark.audit.effects.findings import Findings
from floodmark.audit.effects.ledgertables import Tables
from floodmark.audit.effects.logs import owned_since
from floodmark.audit.effects.moves import Allowance, LogReplay, rewritten, unbalanced
from floodmark.audit.effects.sinktables import PREFIX
from floodmark.audit.effects.undone import is_undo, reversed_by
from floodmark.audit.evidence import Finding, LogEntry, TableLog
from floodmark.audit.ledger.generations import Generation
from floodmark.audit.ledger.named import (
    ATTEMPTS,
    BACKFILLS,
    SEAL,
    Named,
    adopted_from,
)


@dataclass
class Unnamed:
    """Checks one table's log, by the tables of the ledger."""

    tables: Tables
    log: TableLog
    table: str
    notes: Findings

    def check(self) -> None:
        """Check the log from the version on at which the table possibly belongs to this ledger."""
        log, story = self.log, self.tables.story
        known, replayed = self.tables.known(log.address), self.tables.replayed(log)
        since = owned_since(log, self.tables.ledger, adopted_from(story.generations, self.table))
        forgets, cut = self.tables.forgets(self.table, log), self.tables.cuts(self.table, log)
        mine = (one for one in log.entries if not is_forget(one, forgets) and one.version not in cut)
        for entry in (entry for entry in mine if entry.version >= since.possibly):
            with self.notes.followed(self.table, entry.version, self._epoch_of(entry)):
                self._check_unnamed(entry, known, entry.version >= since.surely)
                self._check_moved(entry, replayed, known, entry.version == log.first)

    def _check_unnamed(self, entry: LogEntry, known: Mapping[tuple[str, int], Named], surely: bool) -> None:
        """`surely`: the table belonged to this ledger by then."""
        ours = self._ours(entry)
        for app, version in ours:
            twin = known[app, version].commit if (app, version) in known else None
            if twin != entry.version:
                self._check_extra(entry, app, version, twin)
        if not ours and entry.changes:
            self._check_foreign(entry, surely)

    def _ours(self, entry: LogEntry) -> list[tuple[str, int]]:
        """App ids and versions that the ledger's own generations recorded with a commit."""
        return [
            (app, version) for app, version in entry.transactions if app.startswith(f"floodmark/{self.tables.ledger}/")
        ]

    def _epoch_of(self, entry: LogEntry) -> int | None:
        ours = self._ours(entry)
        return None if not ours or ours[0][1] == SEAL else ours[0][1] // ATTEMPTS

    def _check_moved(
        self,
        entry: LogEntry,
        replayed: LogReplay,
        known: Mapping[tuple[str, int], Named],
        first: bool,
    ) -> None:
        """`first`: the log's first remaining entry; rows that another writer removes there may be of a pruned one."""
        ours, epoch = self._ours(entry), self._epoch_of(entry)
        may = self._may(*ours[0], known.get(ours[0])) if ours else Allowance()
        told = unbalanced(entry, replayed.moves[entry.version], ours[0][1] if ours else None, may)
        if ours and is_undo(ours[0][1]):
            told = reversed_by(entry, self.log, ours[0][0], ours[0][1] // ATTEMPTS)
        if is_rewrite(entry, self.table):
            told = rewritten(entry, replayed.moves[entry.version])
        odd = [("broken", what) for what in replayed.faults.get(entry.version, ())]
        for verdict, what in odd or told:
            if verdict == "broken":
                self.notes.findings.append(Finding("broken", what, epoch=epoch, table=self.table, commit=entry.version))
            elif ours or not first:
                self.notes.mark_unverifiable(self.table, entry.version)

    def _may(self, app: str, version: int, named: Named | None) -> Allowance:
        """What the ledger allows one of its own commits, whatever the commit says."""
        if self.table.startswith("state/") and version % ATTEMPTS > BACKFILLS and version != SEAL:
            return Allowance(merge=True)  # a correction: another check finds one that the ledger does not name
        if not self.table.startswith(PREFIX):
            return Allowance()
        generation = self._generation(app)
        epoch = None if generation is None else epoch_in(generation, version // ATTEMPTS)
        if generation is None or epoch is None or version % ATTEMPTS > BACKFILLS:
            return Allowance(merge=True)  # anything: another check reports the commit, or an open backfill made it
        sinks = self.tables.sinks[generation.number, epoch.number]
        return of_sink(epoch, None if sinks is None else sinks.get(self.table), named)

    def _generation(self, app: str) -> Generation | None:
        return next((g for g in self.tables.story.generations if app.split("/")[2] == f"g{g.number}-{g.token}"), None)

    def _check_extra(self, entry: LogEntry, app: str, version: int, twin: int | None) -> None:
        """Check a commit of the ledger's own that the ledger does not name: only some are allowed."""
        generation = self._generation(app)
        why = "of a generation that the ledger does not know" if generation is None else ""
        if generation is not None:
            of, intent = epoch_in(generation, version // ATTEMPTS), entry.metadata.get("intent")
            sinks = None if of is None else self.tables.sinks[generation.number, of.number]
            qos, tally = qos_of(of, sinks, self.table), self.notes.tally(self.table)
            may_stand = undone_in(of, self.table, entry.version, version, intent, tally)
            may_stand = may_stand or excused(generation, version, intent, tally, of, qos)
            why = "" if may_stand else f"of {_whose(version)} that the ledger does not name"
        elif self._successor(app):
            return
        if why and twin is not None:
            why = f"of {_whose(version)} once more: the ledger names commit {twin}"
        if why:
            number = generation.number if generation else None
            epoch = None if version == SEAL else version // ATTEMPTS
            verdict = self.tables.verdict if twin is None and _is_beyond(generation, version) else "broken"
            self.notes.findings.append(Finding(verdict, f"a commit {why}", number, epoch, self.table, entry.version))

    def _successor(self, app: str) -> bool:
        """Whether the app is that of a generation that was announced and has not begun."""
        seal = self.tables.story.generations[-1].seal
        return seal is not None and app.split("/")[2] == f"g{seal['successor']}-{seal['token']}"

    def _check_foreign(self, entry: LogEntry, surely: bool) -> None:
        if is_rewrite(entry, self.table):
            self.notes.tally(self.table).rewrites += 1
            return
        what = f"a commit ({entry.operation or 'without a name'}) that changes rows and is not this rule's"
        older = any(generation.begun["format"] < 2 for generation in self.tables.story.generations)
        if self.table.startswith("state/") and older:
            what += ", or a rewrite of state by an older version, which did not say so"
            self.notes.findings.append(Finding("unknown", what, table=self.table, commit=entry.version))
        elif not surely:
            what += "; it is unknown whether the table was already this rule's, because the log begins later"
            self.notes.findings.append(Finding("unknown", what, table=self.table, commit=entry.version))
        else:
            self.notes.findings.append(Finding("broken", what, table=self.table, commit=entry.version))


def _is_beyond(generation: Generation | None, version: int) -> bool:
    """Whether a commit belongs to the last known epoch or a later one, or to an unknown generation."""
    return generation is None or version // ATTEMPTS >= len(generation.epochs)


def _whose(version: int) -> str:
    """Name the epoch, the backfill or the seal that an app version belongs to."""
    number = version % ATTEMPTS - BACKFILLS
    if version == SEAL:
        return "a generation's seal"
    if number == 0:
        return f"the taking back of epoch {version // ATTEMPTS}"
    return f"backfill {number}" if number > 0 else f"epoch {version // ATTEMPTS}"
