"""Forget rows: remove them from all that a rule keeps beside its sinks, with the old files and log entries.

1. LOOK      which of the rule's own tables have such rows, in their newest version or in older files.
2. ANNOUNCE  a row of the ledger, with the number of rows by table and a digest of the condition.
3. REWRITE   one commit in each of these tables puts the rows that stay in the place of all rows.
4. MARK      one commit without rows, of which no statistics tell anything: with it the log will start.
5. PURGE     a checkpoint; then everything older goes, files and log entries.
6. COPIES    past commits of landings are written anew without such rows, and outboxes lose what was shipped.
7. END       a row of the ledger: what each table has left.

After a kill the same command continues: each table records how far it came (`core.lifecycle.cleanup.forget_step`).
Until then nothing else runs, because the tables of one key would not fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from floodmark.connectors.planning import checkpoint
from floodmark.connectors.ports.source import MALFORMED
from floodmark.connectors.relay.backlogs import check_shipped
from floodmark.connectors.relay.memory import forget_faults
from floodmark.core.lifecycle.life import condition_digest
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName, other_sinks, places_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Forgetting, Forgotten, Left, Life
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.kinds import source_kind, stream_can
from floodmark.core.sql import columns_in, literals_in
from floodmark.errors import Refused
from floodmark.ledger.forgetting import (
    OwnTable,
    check_askable,
    check_purgeable,
    copies,
    files_beside,
    files_in,
    lacks,
    mentions,
    naming,
    own_tables,
    remove_folder,
    unseen_bounds,
)
from floodmark.ledger.home import Home
from floodmark.ledger.landings import OUTBOX
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.spark.rule.checks import gate
from floodmark.spark.rule.leaving import Leaving, LeavingCopy, forget_cached, malformed_with, matching, rows_in
from floodmark.spark.session import lock
from floodmark.spark.session.faults import explained
from floodmark.spark.session.session import rule_session
from floodmark.spark.write.sealing import old_sites

Say = Callable[[str], None]


@dataclass(frozen=True)
class Looked:
    """What a table holds of the rows. `rows`: in its newest version; None: not looked at, for `why`.

    older: files that no version needs have such rows, or cannot be read. bounds: its log has smallest and largest
    values of files that are gone, in columns of the condition. malformed: records whose text has a value of the
    condition, and which it does not match.
    """

    rows: int | None
    why: str = ""
    older: bool = False
    bounds: bool = False
    malformed: int = 0

    @property
    def has_any(self) -> bool:
        return bool(self.rows) or self.older


@dataclass(frozen=True)
class Found:
    """What has such rows. `own`: tables in the rule's home, by name; `copies`: its landings and outboxes, by folder.
    `sinks`, by address, and `sources`, by stream, are not touched. `ledger`: its rows that have a value of the
    condition in their text: number -> kind. `corrects`: the streams whose rewrites can be followed. `names`: files of
    what sources remember that have such a value, too."""

    own: dict[str, Looked]
    sinks: dict[str, Looked]
    sources: dict[str, str]
    ledger: dict[int, str]
    copies: dict[str, Looked] = field(default_factory=dict)
    corrects: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        return not any(one.has_any for one in (*self.own.values(), *self.copies.values()))

    @property
    def rewritten_copies(self) -> dict[str, int]:
        """The landings and outboxes to rewrite, with the number of rows to remove from each."""
        return {name: one.rows or 0 for name, one in self.copies.items() if one.has_any or one.bounds}

    @property
    def rewritten(self) -> dict[str, int]:
        """The tables to purge, with the number of rows to remove from each."""
        return {
            name: one.rows or 0
            for name, one in self.own.items()
            if not OwnTable(name, "").is_old and (one.has_any or one.bounds)
        }

    @property
    def removed(self) -> tuple[str, ...]:
        """The tables of earlier generations to remove."""
        return tuple(name for name, one in self.own.items() if OwnTable(name, "").is_old and one.has_any)


@dataclass(frozen=True)
class Forgot:
    """A forget that has ended. `found`: None of one that was continued; `left`: by table."""

    found: Found | None
    asked: Forgetting | None = None
    left: dict[str, Left] = field(default_factory=dict)


def rehearse(root: SparkSession, home: Home, where: str) -> Found:
    """What a forget would remove. Writes nothing, and takes no lock."""
    with explained(home.rule):
        known = _known(home)
        check_askable(known, home, where)
        return _look(_session(root, known.begun), known, home, where)


def forget(root: SparkSession, home: Home, run: str, where: str, say: Say) -> Forgot:
    """Remove the rows that match, or continue to. Where there are none, drops only what targets said of their faults.

    Raises Busy if a run holds the rule, and Refused if something of it is open.
    """
    with explained(home.rule), lock.held(root, home.lock, run):
        ledger = Ledger.open(home.ledger, run, _known(home))
        asked, found = check_askable(ledger, home, where), None
        session = _session(root, ledger.begun)
        _check_undamaged(ledger, home)
        if asked is None:
            found = _look(session, ledger, home, where)
        forget_faults(home.path / OUTBOX)
        if found is not None:
            if found.is_nothing:
                return Forgot(found)
            asked = _announce(ledger, home, condition_digest(ledger.id, where), found)
        assert asked is not None
        return Forgot(found, asked, _finish(session, ledger, home, where, asked, say))


def _check_undamaged(ledger: Ledger, home: Home) -> None:
    """Raise what a run raises for the rule's own tables; a sink may be out of reach."""
    head = ledger.begun
    own = {name: id_ for name, id_ in head.table_ids.items() if not TableName.parse(name).is_sink}
    gate.check(
        replace(head, table_ids=own), ledger.id, [one for one in old_sites(head, home, ledger.id) if one.name in own]
    )


def _known(home: Home) -> LedgerReader:
    known = LedgerReader.load(home.ledger)
    if known is None or known.head is None:
        raise Refused(f"rule {home.rule} has not run yet: there is nothing to forget")
    return known


def _session(root: SparkSession, head: Head) -> SparkSession:
    """A session with the settings of the rule, by the text of its last epoch."""
    return rule_session(root, head.rule, head.rule.timezone, head.rule.ansi)


def _look(session: SparkSession, ledger: LedgerReader, home: Home, where: str) -> Found:
    values = [one.strip("%") for one in literals_in(where)]  # of LIKE
    head, look = ledger.begun, _Look(session, where, columns_in(where), values)
    own = {one.name: look.at(one) for one in own_tables(head, home)}
    places = {at: OwnTable(name, at) for name, at in places_of(head).items()}
    sinks = {at: look.at_sink(one) for at, one in places.items()}
    sinks |= {one.label: Looked(None, f"it is a {one.kind} sink") for one in other_sinks(head).values()}
    read = {name: one for name, one in head.rule.streams.items() if source_kind(one.kind)}
    sources = {name: str(one.address) for name, one in read.items()}
    corrects = [name for name, one in read.items() if stream_can(one).rewrites]
    copied = {one.name: look.at(one) for one in copies(home)}
    check_shipped(head.rule, home, ledger, [name for name, one in copied.items() if one.has_any])
    found = Found(own, sinks, sources, mentions(ledger.rows, look.values), copied)
    return replace(found, corrects=corrects, names=naming(home, look.values))


@dataclass(frozen=True)
class _Look:
    """A look at tables for the rows of a condition. columns: of it, in lower case; values: that it names."""

    session: SparkSession
    where: str
    columns: Sequence[str]
    values: Sequence[str]

    def at(self, one: OwnTable) -> Looked:
        if one.is_old:
            return Looked(0, older=self._may_hold(files_in(one.address)))
        why = lacks(one, self.columns)
        if why:
            return Looked(None, why, malformed=self._malformed(one, "true"))
        check_purgeable(one)
        rows = matching(rows_in(self.session, one.address), self.where).count()
        older = self._may_hold(files_beside(one.address))
        bounds = bool(unseen_bounds(one.address) & {*self.columns})
        return Looked(rows, older=older, bounds=bounds, malformed=self._malformed(one, f"({self.where}\n) IS NOT TRUE"))

    def at_sink(self, one: OwnTable) -> Looked:
        why = lacks(one, self.columns)
        return Looked(None, why) if why else Looked(matching(rows_in(self.session, one.address), self.where).count())

    def _malformed(self, one: OwnTable, others: str) -> int:
        """Of those rows that the condition does not match."""
        if lacks(one, ["_reason"]) and lacks(one, [MALFORMED]):
            return 0
        return malformed_with(rows_in(self.session, one.address).where(others), self.values).count()

    def _may_hold(self, files: Sequence[Path]) -> bool:
        """Whether one of the files that no version needs has such rows, or cannot be read, as one of a killed
        writer."""
        if not files:
            return False
        try:
            frame = self.session.read.option("mergeSchema", "true").parquet(*map(str, files))
            there = {name.lower() for name in frame.columns}
            return {*self.columns} <= there and not matching(frame, self.where).isEmpty()
        except (PySparkException, Py4JJavaError):
            half = len(files) // 2
            return not half or any(self._may_hold(part) for part in (files[:half], files[half:]))


def _announce(ledger: Ledger, home: Home, digest: str, found: Found) -> Forgetting:
    number, copied = ledger.begun.forgets + 1, found.rewritten_copies
    asked = Forgetting(number=number, condition=digest, tables=found.rewritten, removed=found.removed, copies=copied)
    reach(home.rule, "forget.before")
    ledger.live(Life(what="forgetting", forgetting=asked))
    reach(home.rule, "forget.announced")
    return asked


def _finish(
    session: SparkSession, ledger: Ledger, home: Home, where: str, asked: Forgetting, say: Say
) -> dict[str, Left]:
    """Take the steps that are left."""
    head = ledger.begun
    app = app_id(ledger.id, head.generation, head.token, "forget")
    mine = {one.name: one for one in own_tables(head, home)}
    left = {}
    for name, rows in asked.tables.items():
        say(f"{name}: removing {rows} rows, and all older files and log entries")
        left[name] = Leaving(session, home.rule, head, mine[name], app, asked).finish(where)
    for one in (one for one in copies(home) if one.name in asked.copies):
        say(f"{one.name}: removing {asked.copies[one.name]} rows")
        LeavingCopy(session, home.rule, ledger.id, one, asked.copies[one.name]).finish(where)
    for name in asked.removed:
        remove_folder(home, name)
    checkpoint.sweep(home.checkpoints)
    reach(home.rule, "forget.commit.before")
    ledger.live(Life(what="forgot", forgotten=Forgotten(number=asked.number, tables=left)))
    reach(home.rule, "forget.commit.after")
    forget_cached(session)
    return left
