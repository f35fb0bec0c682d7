"""Compare the ledger with the tables' logs: each commit that it names exists once, and there is no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from floodmark.audit.effects.accounts import targets_in
from floodmark.audit.effects.carried import carried, complete, complete_backfill, is_undigested
from floodmark.audit.effects.findings import Findings
from floodmark.audit.effects.ledgertables import Tables
from floodmark.audit.effects.logs import absent, ascending, holes
from floodmark.audit.effects.moves import Move, hidden, miscompacted, misshown
from floodmark.audit.effects.sinktables import PREFIX, tables_of
from floodmark.audit.effects.undone import table_of, undone, unnamed
from floodmark.audit.effects.unnamed import Unnamed
from floodmark.audit.evidence import Finding, LogEntry, TableLog
from floodmark.audit.ledger.generations import Generation
from floodmark.audit.ledger.named import (
    Named,
    app_of,
    ids_of,
    named_in,
)
from floodmark.audit.ledger.story import Story


@dataclass
class Effects:
    """Compares the logs with a ledger's story. `root`: the rule's home; `logs`: by address."""

    story: Story
    ledger: str
    root: str
    logs: Mapping[str, TableLog]
    notes: Findings = field(default_factory=Findings)
    _begins: dict[str, Named] = field(default_factory=dict)
    _missing: dict[str, Named] = field(default_factory=dict)
    _gone: dict[str, Named] = field(default_factory=dict)
    _replaced: dict[tuple[str, int], Named] = field(default_factory=dict)

    @cached_property
    def tables(self) -> Tables:
        """The tables of the ledger."""
        return Tables(self.story, self.ledger, self.root, self.logs)

    def check(self) -> None:
        """Compare every log with the story."""
        for generation in self.story.generations:
            for named in named_in(generation, self.ledger):
                with self.notes.followed(named.table, named.commit, named.epoch):
                    self._check_named(named)
            for epoch in generation.epochs:
                self.notes.findings += complete(epoch, self.tables.sinks[generation.number, epoch.number])
            self._check_abandoned(generation)
            for backfill in generation.backfills:
                ids = ids_of(generation, backfill.epoch)
                sinks = tables_of(backfill.rule["sinks"], ids, backfill.moved)
                self.notes.findings += complete_backfill(backfill, sinks, ids.keys())
            self.notes.findings += self._unmatched(generation)
        self._report_once()
        for address, table in self.tables.names().items():
            with self.notes.followed(table):
                self._check_log(address, table)
        self._report_unverifiable()

    def _unmatched(self, generation: Generation) -> Iterator[Finding]:
        """Sinks that cannot be matched with tables, reported once for a generation."""
        for epoch in generation.epochs:
            written = epoch.result == "committed" and epoch.end["output_rows"]
            if written and self.tables.sinks[generation.number, epoch.number] is None:
                what = "the addresses do not show which sink of the rule is which of the ledger's tables"
                yield Finding("unknown", what, generation.number, epoch.number)
                return

    def _check_named(self, named: Named) -> None:
        log, tally = self.tables.log(named.table, named.generation), self.notes.tally(named.table)
        tally.named += 1
        if self.tables.is_dropped(named):
            self._gone[named.table] = named  # of the newest generation: a verdict on it alone depends on its tables
            return
        if self.tables.is_replaced(named):
            self._replaced.setdefault((named.table, named.generation), named)
            return
        entry = log.at(named.commit)
        if log.id is None:
            self._missing.setdefault(log.address, named)
        elif named.commit < log.first:
            tally.pruned += 1
            last = self._begins.get(named.table, named)
            self._begins[named.table] = max(last, named, key=lambda one: (one.generation, one.epoch))
        elif entry is None:
            what = f"the ledger names commit {named.commit}, the log ends at {log.last}"
            if named.commit <= log.last:
                what = f"the log has no entry {named.commit}, though it has older and newer ones"
            self.notes.findings.append(named.finding(what))
        else:
            tally.seen += 1
            self.notes.findings += carried(named, entry, of_table=log.moves is None)
            replayed = self.tables.replayed(log)
            self._check_rows(named, entry, replayed.moves[entry.version])
            self.notes.findings += self._left_over(named, replayed.stay.get(entry.version, 0))

    def _left_over(self, named: Named, stay: int) -> Iterator[Finding]:
        """Files that a backfill of all results leaves. An outbox keeps what it has: the target follows."""
        if stay and named.backfill is not None and named.backfill.is_whole and named.table not in self._targets:
            yield named.finding(
                f"backfill {named.backfill.number} replaces all rows, but the commit leaves {stay} files"
            )

    @cached_property
    def _targets(self) -> Mapping[str, Any]:
        return targets_in(self.story)

    def _check_abandoned(self, generation: Generation) -> None:
        """Check the commits that undid epochs, in every sink that is still the same table."""
        for epoch in (one for one in generation.epochs if one.result == "abandoned"):
            self.notes.findings += unnamed(epoch, self.tables.sinks[generation.number, epoch.number])
            for table, written in epoch.end["tables"].items():
                log, id_ = self.tables.log(table, generation.number), table_of(written, generation, table)
                if id_ is not None and id_ not in self.story.dropped and log.readable and log.id == id_:
                    self.notes.findings += undone(epoch, table, app_of(generation, self.ledger, table), log)

    def _check_rows(self, named: Named, entry: LogEntry, move: Move) -> None:
        self.notes.tally(named.table).undigested += is_undigested(named, entry)
        rows = move.added if named.written.get("results") is None else entry.metadata.get("rows")
        if rows is None:
            self.notes.mark_unverifiable(named.table, entry.version)
        elif rows != named.written["rows"]:
            self.notes.findings.append(named.finding(f"the ledger has {named.written['rows']} rows, the commit {rows}"))

    def _report_once(self) -> None:
        """Report once for a table what applies to many of its commits."""
        for address, named in self._missing.items():
            if not self.tables.log(named.table, named.generation).readable:
                continue  # reported already
            what = self._absence(named.table, address)
            if address not in self.logs:
                what = f"the ledger names commits of the table at {address}, but never said which table that is"
            found = named.finding(what)
            self.notes.findings.append(replace(found, verdict=self.tables.verdict) if address in self.logs else found)
        for table, named in self._gone.items():
            row = self.story.dropped[self.tables.ids[named.generation][table]]
            what = f"the table was dropped {row.at} by {row.run}: its contents can no longer be checked"
            self.notes.findings.append(Finding("unknown", what, named.generation, table=table, row=row.seq))
        for (table, generation), named in self._replaced.items():
            id_ = self.tables.ids[generation].get(table)
            what = f"the table that generation {generation} wrote, with id {id_}, is gone: what that generation has "
            what += "written can no longer be checked"
            self.notes.findings.append(Finding("unknown", what, generation, table=named.table))
        for table, last in self._begins.items():
            pruned, first = self.notes.tally(table).pruned, self.tables.log(table, last.generation).first
            what = f"{pruned} of its commits, up to this epoch, cannot be looked up: the log begins at version {first}"
            forget = self.tables.forgot_at(table, first)
            if forget is not None:
                what += f", because forget {forget.number} removed its older entries and files ({forget.row.at} by "
                what += f"{forget.row.run}); the ledger keeps the digests of these commits, and one of the rows that "
                what += "stayed"
            self.notes.findings.append(Finding("unknown", what, last.generation, last.epoch, table, first))

    def _absence(self, table: str, address: str) -> str:
        """The message for a missing table. A sink may have been moved: only the ledger's rows record its address."""
        what = f"there is no table at {address}"
        if not table.startswith(PREFIX):
            return what
        return (
            f"{what}, the newest address that the ledger has for it; the next run records where one lies that was moved"
        )

    def _report_unverifiable(self) -> None:
        for table, versions in self.notes.unverifiable.items():
            what = f"it is unknown how many rows {len(versions)} commits up to version {max(versions)} add and remove: "
            what += "the log lacks statistics of their files"
            self.notes.findings.append(Finding("unknown", what, table=table, commit=min(versions)))

    def _check_log(self, address: str, table: str) -> None:
        log, expected = self.logs[address], self.tables.expected(address)
        if expected is None or not log.readable:
            return
        generation, id_ = expected
        if log.id != id_ and generation.seal is not None:
            return
        if log.id is None:
            if address not in self._missing:
                self.notes.findings.append(Finding(self.tables.verdict, self._absence(table, address), table=table))
            return
        if log.id != id_:
            what = f"the table has id {log.id}, the ledger has written to {id_}"
            self.notes.findings.append(Finding("broken", what, table=table))
        self.notes.findings += ascending(log, table, f"floodmark/{self.ledger}/")
        self.notes.findings += holes(log, table)
        self.notes.findings += absent(log, table)
        Unnamed(self.tables, log, table, self.notes).check()
        replayed = self.tables.replayed(log)
        self.notes.findings += [Finding("broken", what, table=table) for what in hidden(log, replayed.files)]
        self.notes.findings += [Finding("broken", what, table=table) for what in misshown(log, replayed.then)]
        self.notes.findings += [Finding("broken", what, table=table) for what in miscompacted(log)]
