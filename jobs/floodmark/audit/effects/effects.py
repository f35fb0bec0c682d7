"""The ledger against the tables' logs: every commit that it names is there, once, and there is no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from floodmark.audit.effects.allowed import epoch_in, excused, of_sink, qos_of, undone_in
from floodmark.audit.effects.carried import carried, complete, complete_backfill
from floodmark.audit.effects.logs import absent, ascending, holes, owned_since
from floodmark.audit.effects.moves import May, Move, Replay, hidden, misshown, replay, unbalanced
from floodmark.audit.effects.sinks import PREFIX, Sinks, tables_of
from floodmark.audit.effects.undone import is_undo, reversed_by, undone, unnamed
from floodmark.audit.facts import Finding, LogEntry, TableLog, Tally
from floodmark.audit.ledger.named import (
    ATTEMPTS,
    BACKFILLS,
    SEAL,
    Named,
    address_of,
    adopted_from,
    app_of,
    ids_of,
    named_in,
)
from floodmark.audit.ledger.story import Epoch, Generation, Story
from floodmark.redaction import redacted


@dataclass
class Effects:
    """What the logs say to a ledger's story. `root`: the rule's home; `logs`: by address."""

    story: Story
    ledger: str
    root: str
    logs: Mapping[str, TableLog]
    findings: list[Finding] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    _begins: dict[str, int] = field(default_factory=dict)
    _missing: dict[str, Named] = field(default_factory=dict)
    _gone: dict[str, Named] = field(default_factory=dict)
    _replaced: dict[tuple[str, int], Named] = field(default_factory=dict)
    _untold: dict[str, set[int]] = field(default_factory=dict)
    _replays: dict[str, Replay] = field(default_factory=dict)

    def check(self) -> None:
        for generation in self.story.generations:
            for named in named_in(generation, self.ledger):
                with self.followed(named.table, named.commit, named.epoch):
                    self._check_named(named)
            for epoch in generation.epochs:
                self.findings += complete(epoch, self._sinks[generation.number, epoch.number])
            self._check_abandoned(generation)
            for backfill in generation.backfills:
                ids = ids_of(generation, backfill.epoch)
                self.findings += complete_backfill(
                    backfill, tables_of(backfill.rule["sinks"], ids, self.story.found_at)
                )
            self.findings += self._unmatched(generation)
        self._tell_once()
        for address, table in self._names().items():
            with self.followed(table):
                self._check_log(address, table)
        self._tell_untold()

    @contextmanager
    def followed(self, table: str, commit: int | None = None, epoch: int | None = None) -> Iterator[None]:
        """Whatever forged metadata lead to is a finding of its place: all else is looked at all the same."""
        try:
            yield
        except Exception as fault:
            whose = "its log" if commit is None else "the commit's metadata"
            what = redacted(f"{whose} cannot be followed ({type(fault).__name__}: {fault})")
            self.findings.append(Finding("broken", what, epoch=epoch, table=table, commit=commit))

    def tally(self, table: str) -> Tally:
        return self.tallies.setdefault(table, Tally())

    def log(self, table: str, generation: int) -> TableLog:
        address = self._address(table, generation)
        return self.logs.get(address) or TableLog(address, None)

    def _address(self, table: str, generation: int) -> str:
        """Where a table lies, by the newest row that says so. A table that was moved since is not looked for."""
        id_ = self._ids.get(generation, {}).get(table) if table.startswith(PREFIX) else None
        return address_of(table, generation, self.root, id_, self.story.moved)

    def replayed(self, log: TableLog) -> Replay:
        if log.address not in self._replays:
            self._replays[log.address] = replay(log)
        return self._replays[log.address]

    def is_gone(self, named: Named) -> bool:
        """Whether what is at a commit's address by now is another table, or none."""
        return self.is_dropped(named) or self._is_replaced(named)

    def _is_replaced(self, named: Named) -> bool:
        """Whether the generation is sealed, and its table is no more: it may go then, or make way for another."""
        if named.generation not in self._sealed:
            return False
        return self.log(named.table, named.generation).id != self._ids[named.generation].get(named.table)

    @cached_property
    def _sealed(self) -> set[int]:
        return {generation.number for generation in self.story.generations if generation.seal is not None}

    def is_dropped(self, named: Named) -> bool:
        """Whether the table went by the ledger's own word; another one may lie at its address by now."""
        return bool(self.story.dropped) and self._ids[named.generation].get(named.table) in self.story.dropped

    @cached_property
    def _ids(self) -> dict[int, dict[str, str]]:
        return {generation.number: ids_of(generation) for generation in self.story.generations}

    @cached_property
    def _sinks(self) -> dict[tuple[int, int], Sinks | None]:
        """By generation and epoch: the sinks of the epoch's rule; None where it cannot be told which is which."""
        found: dict[tuple[int, int], Sinks | None] = {}
        for generation in self.story.generations:
            ids = dict(generation.begun["table_ids"])
            for epoch in generation.epochs:
                ids |= epoch.end.get("table_ids", {})
                found[generation.number, epoch.number] = tables_of(epoch.rule["sinks"], ids, self.story.found_at)
        return found

    def key_of(self, table: str, log: TableLog) -> tuple[str, ...] | None:
        """The key that all rows of a sink were merged by; None where they were not, or where that cannot be told."""
        if not table.startswith(PREFIX) or self.story.beyond or adopted_from(self.story.generations, table) is not None:
            return None
        generations = [one for one in self.story.generations if self._ids[one.number].get(table) == log.id]
        emptied = [i for i, one in enumerate(generations) if table in one.begun["tables"]]
        keys = {self._key_in(epoch, table) for one in generations[max(emptied, default=0) :] for epoch in one.epochs}
        return keys.pop() if len(keys) == 1 else None

    def _key_in(self, epoch: Epoch, table: str) -> tuple[str, ...] | None:
        sinks = self._sinks[epoch.generation, epoch.number]
        sink = None if sinks is None else sinks.get(table)
        return None if sink is None else tuple(name.lower() for name in sink.get("key") or ()) or None

    def _unmatched(self, generation: Generation) -> Iterator[Finding]:
        """Said once of a generation."""
        for epoch in generation.epochs:
            written = epoch.result == "committed" and epoch.end["output_rows"]
            if written and self._sinks[generation.number, epoch.number] is None:
                what = "which sink of the rule is which of the ledger's tables cannot be told from their addresses"
                yield Finding("unknown", what, generation.number, epoch.number)
                return

    def _names(self) -> dict[str, str]:
        """Address → the ledger's name, of every table that it has ever known."""
        return {
            self._address(table, generation.number): table
            for generation in self.story.generations
            for table in ids_of(generation)
        }

    def _check_named(self, named: Named) -> None:
        log, tally = self.log(named.table, named.generation), self.tally(named.table)
        tally.named += 1
        if self.is_dropped(named):
            self._gone.setdefault(named.table, named)
            return
        if self._is_replaced(named):
            self._replaced.setdefault((named.table, named.generation), named)
            return
        entry = log.at(named.commit)
        if log.id is None:
            self._missing.setdefault(log.address, named)
        elif named.commit < log.first:
            tally.pruned += 1
            self._begins[named.table] = log.first
        elif entry is None:
            what = f"the ledger names commit {named.commit}, the log ends at {log.last}"
            if named.commit <= log.last:
                what = f"the log has no entry {named.commit}, though it has older and newer ones"
            self.findings.append(named.finding(what))
        else:
            tally.seen += 1
            self._check_carried(named, entry, self.replayed(log).moves[entry.version])

    def _check_abandoned(self, generation: Generation) -> None:
        """What took epochs back, in every sink that is still the table that it was."""
        for epoch in (one for one in generation.epochs if one.result == "abandoned"):
            self.findings += unnamed(epoch, self._sinks[generation.number, epoch.number])
            for table in epoch.end["tables"]:
                log, id_ = self.log(table, generation.number), self._ids[generation.number].get(table)
                if id_ is not None and id_ not in self.story.dropped and log.readable and log.id == id_:
                    self.findings += undone(epoch, table, app_of(generation, self.ledger, table), log)

    def _check_carried(self, named: Named, entry: LogEntry, move: Move) -> None:
        self.findings += carried(named, entry)
        rows = move.came if named.written.get("results") is None else entry.said.get("rows")
        if rows is None:
            self._untold.setdefault(named.table, set()).add(entry.version)
        elif rows != named.written["rows"]:
            self.findings.append(named.finding(f"the ledger has {named.written['rows']} rows, the commit {rows}"))

    def _tell_once(self) -> None:
        """What would be said of many commits is said once for their table."""
        for address, named in self._missing.items():
            if not self.log(named.table, named.generation).readable:
                continue  # which has been told
            what = self._absence(named.table, address)
            if address not in self.logs:
                what = f"the ledger names commits of the table at {address}, and never said which table that is"
            found = named.finding(what)
            self.findings.append(replace(found, verdict=self._verdict) if address in self.logs else found)
        for table, named in self._gone.items():
            row = self.story.dropped[self._ids[named.generation][table]]
            what = f"the table was dropped {row.at} by {row.run}: what it held cannot be looked at any more"
            self.findings.append(Finding("unknown", what, named.generation, table=table, row=row.seq))
        for (table, generation), named in self._replaced.items():
            what = (
                f"the table that generation {generation} wrote, with id {self._ids[generation].get(table)}, is gone: "
            )
            what += "what that generation has written cannot be looked at any more"
            self.findings.append(Finding("unknown", what, generation, table=named.table))
        for table, first in self._begins.items():
            what = f"{self.tally(table).pruned} of its commits cannot be looked up: the log begins at version {first}"
            self.findings.append(Finding("unknown", what, table=table, commit=first))

    def _absence(self, table: str, address: str) -> str:
        """A sink may have been moved. Its id is known, and of where it lies only what the ledger's rows say."""
        what = f"there is no table at {address}"
        if not table.startswith(PREFIX):
            return what
        return (
            f"{what}, the newest address that the ledger has for it; the next run records where one lies that was moved"
        )

    def _tell_untold(self) -> None:
        for table, versions in self._untold.items():
            what = (
                f"how many rows come or go with {len(versions)} commits up to version {max(versions)} cannot be told: "
            )
            what += "the log lacks statistics of their files"
            self.findings.append(Finding("unknown", what, table=table, commit=min(versions)))

    def _check_log(self, address: str, table: str) -> None:
        log, expected = self.logs[address], self._expected(address)
        if expected is None or not log.readable:
            return
        generation, id_ = expected
        if log.id != id_ and generation.seal is not None:
            return
        if log.id is None:
            if address not in self._missing:
                self.findings.append(Finding(self._verdict, self._absence(table, address), table=table))
            return
        if log.id != id_:
            what = f"the table has id {log.id}, the ledger has written to {id_}"
            self.findings.append(Finding("broken", what, table=table))
        self.findings += ascending(log, table, f"floodmark/{self.ledger}/")
        self.findings += holes(log, table)
        self.findings += absent(log, table)
        known, replayed = self._known(address), self.replayed(log)
        since = owned_since(log, self.ledger, adopted_from(self.story.generations, table))
        for entry in (entry for entry in log.entries if entry.version >= since.possibly):
            with self.followed(table, entry.version, self._epoch_of(entry)):
                self._check_unnamed(table, entry, known, entry.version >= since.surely)
                self._check_moved(log, table, entry, replayed, known, entry.version == log.first)
        self.findings += [Finding("broken", what, table=table) for what in hidden(log, replayed.files)]
        self.findings += [Finding("broken", what, table=table) for what in misshown(log, replayed.then)]

    def _expected(self, address: str) -> tuple[Generation, str] | None:
        """The newest generation that has written to an address, and the table's id, but for those that were dropped."""
        found = [(generation, id_) for generation in self.story.generations
                 for table, id_ in self._ids[generation.number].items()
                 if self._address(table, generation.number) == address]  # fmt: skip
        left = [(generation, id_) for generation, id_ in found if id_ not in self.story.dropped]
        return left[-1] if left else None

    def _known(self, address: str) -> dict[tuple[str, int], Named]:
        """(app, version) → the commit that the ledger names by it."""
        return {(one.app, one.version): one for one in self._named_by_address.get(address, ()) if not self.is_gone(one)}

    @cached_property
    def _named_by_address(self) -> dict[str, list[Named]]:
        found: dict[str, list[Named]] = {}
        for one in (one for generation in self.story.generations for one in named_in(generation, self.ledger)):
            found.setdefault(self._address(one.table, one.generation), []).append(one)
        return found

    def _check_unnamed(self, table: str, entry: LogEntry, known: Mapping[tuple[str, int], Named], surely: bool) -> None:
        """`surely`: the table was this ledger's by then."""
        ours = self._ours(entry)
        for app, version in ours:
            twin = known[app, version].commit if (app, version) in known else None
            if twin != entry.version:
                self._check_extra(table, entry, app, version, twin)
        if not ours and entry.changes:
            self._check_foreign(table, entry, surely)

    def _ours(self, entry: LogEntry) -> list[tuple[str, int]]:
        """App and version of what the ledger's own generations recorded with a commit."""
        return [(app, version) for app, version in entry.transactions if app.startswith(f"floodmark/{self.ledger}/")]

    def _epoch_of(self, entry: LogEntry) -> int | None:
        ours = self._ours(entry)
        return None if not ours or ours[0][1] == SEAL else ours[0][1] // ATTEMPTS

    def _check_moved(
        self,
        log: TableLog,
        table: str,
        entry: LogEntry,
        replayed: Replay,
        known: Mapping[tuple[str, int], Named],
        first: bool,
    ) -> None:
        """`first`: of what is left of the log; what a commit of others' takes there came with one that is pruned."""
        ours, epoch = self._ours(entry), self._epoch_of(entry)
        may = self._may(table, *ours[0], known.get(ours[0])) if ours else May()
        told = unbalanced(entry, replayed.moves[entry.version], ours[0][1] if ours else None, may)
        if ours and is_undo(ours[0][1]):
            told = reversed_by(entry, log, ours[0][0], ours[0][1] // ATTEMPTS)
        odd = [("broken", what) for what in replayed.faults.get(entry.version, ())]
        for verdict, what in odd or told:
            if verdict == "broken":
                self.findings.append(Finding("broken", what, epoch=epoch, table=table, commit=entry.version))
            elif ours or not first:
                self._untold.setdefault(table, set()).add(entry.version)

    def _may(self, table: str, app: str, version: int, named: Named | None) -> May:
        """What the ledger lets a commit of ours do, whatever that says of itself."""
        if not table.startswith(PREFIX):
            return May()
        generation = self._generation(app)
        epoch = None if generation is None else epoch_in(generation, version // ATTEMPTS)
        if generation is None or epoch is None or version % ATTEMPTS > BACKFILLS:
            return May(merge=True)  # whatever it is: that it stands there is told, or was begun by an open backfill
        sinks = self._sinks[generation.number, epoch.number]
        return of_sink(epoch, None if sinks is None else sinks.get(table), named)

    def _generation(self, app: str) -> Generation | None:
        return next((g for g in self.story.generations if app.split("/")[2] == f"g{g.number}-{g.token}"), None)

    def _check_extra(self, table: str, entry: LogEntry, app: str, version: int, twin: int | None) -> None:
        """A commit of ours that the ledger does not name: only some are no fault."""
        generation = self._generation(app)
        why = "of a generation that the ledger does not know" if generation is None else ""
        if generation is not None:
            of, intent = epoch_in(generation, version // ATTEMPTS), entry.said.get("intent")
            sinks = None if of is None else self._sinks[generation.number, of.number]
            qos, tally = qos_of(of, sinks, table), self.tally(table)
            may_stand = undone_in(of, table, entry.version, version, intent, tally)
            may_stand = may_stand or excused(generation, version, intent, tally, of, qos)
            why = "" if may_stand else f"of {_whose(version)} that the ledger does not name"
        elif self._successor(app):
            return
        if why and twin is not None:
            why = f"of {_whose(version)} once more: the ledger names commit {twin}"
        if why:
            number = generation.number if generation else None
            epoch = None if version == SEAL else version // ATTEMPTS
            verdict = self._verdict if twin is None and _is_beyond(generation, version) else "broken"
            self.findings.append(Finding(verdict, f"a commit {why}", number, epoch, table, entry.version))

    @property
    def _verdict(self) -> Literal["broken", "unknown"]:
        """On what the rest of the ledger may tell of, where it is not known here."""
        return "unknown" if self.story.beyond else "broken"

    def _successor(self, app: str) -> bool:
        """Whether the app is that of a generation that has been announced and has not begun."""
        seal = self.story.generations[-1].seal
        return seal is not None and app.split("/")[2] == f"g{seal['successor']}-{seal['token']}"

    def _check_foreign(self, table: str, entry: LogEntry, surely: bool) -> None:
        if table.startswith("state/") and "holds_from" in entry.said:
            self.tally(table).rewrites += 1
            return
        what = f"a commit ({entry.operation or 'without a name'}) that changes rows and is not this rule's"
        older = any(generation.begun["format"] < 2 for generation in self.story.generations)
        if table.startswith("state/") and older:
            what += ", or a rewrite of state by an older version, which did not say so"
            self.findings.append(Finding("unknown", what, table=table, commit=entry.version))
        elif not surely:
            what += "; whether the table was this rule's by then cannot be told, for the log begins later"
            self.findings.append(Finding("unknown", what, table=table, commit=entry.version))
        else:
            self.findings.append(Finding("broken", what, table=table, commit=entry.version))


def _is_beyond(generation: Generation | None, version: int) -> bool:
    """Whether a commit comes after all that is known of its generation, or is of one that is not known."""
    return generation is None or version // ATTEMPTS >= len(generation.epochs)


def _whose(version: int) -> str:
    """Of an app's version: the epoch or the backfill, or the seal."""
    number = version % ATTEMPTS - BACKFILLS
    if version == SEAL:
        return "a generation's seal"
    if number == 0:
        return f"the taking back of epoch {version // ATTEMPTS}"
    return f"backfill {number}" if number > 0 else f"epoch {version // ATTEMPTS}"
