"""Forget rows: remove them from all that a rule keeps beside its sinks, with the old files and log entries.

1. LOOK      which of the rule's own tables have such rows, in their newest version or in older files.
2. ANNOUNCE  a row of the ledger, with the number of rows by table and a digest of the condition.
3. REWRITE   one commit in each of these tables puts the rows that stay in the place of all rows.
4. MARK      one commit without rows, of which no statistics tell anything: with it the log will start.
5. PURGE     a checkpoint; then everything older goes, files and log entries.
6. END       a row of the ledger: what each table has left.

After a kill the same command continues: each table records how far it came (`core.lifecycle.cleanup.forget_step`).
Until then nothing else runs, because the tables of one key would not fit together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.planning import checkpoint
from floodmark.core.lifecycle.cleanup import ForgetStep, forget_step, mark_version, newest_by, rewrite_version
from floodmark.core.lifecycle.life import condition_digest
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName, other_sinks, places_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Forgetting, Forgotten, Left, Life
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.kinds import source_kind
from floodmark.core.sql import columns_in, literals_in
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced, Refused
from floodmark.ledger.comparing import check_before_commit
from floodmark.ledger.delta import tablelog
from floodmark.ledger.delta.syncing import sync_commit
from floodmark.ledger.forgetting import (
    OwnTable,
    check_askable,
    check_purgeable,
    files_beside,
    files_in,
    lacks,
    mentions,
    own_tables,
    purge,
    remove_folder,
    unseen_bounds,
)
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.rule.checks import gate
from floodmark.spark.rule.generation import old_sites
from floodmark.spark.session import lock
from floodmark.spark.session.faults import explained
from floodmark.spark.session.jvm import jvm_class
from floodmark.spark.session.session import rule_session
from floodmark.spark.write.appending import Appending, files_for
from floodmark.spark.write.replacing import ReplacingAll

Say = Callable[[str], None]


@dataclass(frozen=True)
class Looked:
    """What a table holds of the rows. `rows`: in its newest version; None: not looked at, for `why`.

    older: files that no version needs have such rows, or cannot be read. bounds: its log has smallest and largest
    values of files that are gone, in columns of the condition.
    """

    rows: int | None
    why: str = ""
    older: bool = False
    bounds: bool = False

    @property
    def has_any(self) -> bool:
        return bool(self.rows) or self.older


@dataclass(frozen=True)
class Found:
    """What has such rows. `own`: tables in the rule's home, by name; `sinks`, by address, and `sources`, by stream, are
    not touched; nor are `landings`, by stream. `ledger`: its rows that have a value of the condition in their text:
    number -> kind."""

    own: dict[str, Looked]
    sinks: dict[str, Looked]
    sources: dict[str, str]
    ledger: dict[int, str]
    landings: dict[str, Looked] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return not any(one.has_any for one in self.own.values())

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
    """Remove the rows that match, or continue to. Where there are none, writes nothing.

    Raises Busy if a run holds the rule, and Refused if something of it is open.
    """
    with explained(home.rule), lock.held(root, home.lock, run):
        ledger = Ledger.open(home.ledger, run, _known(home))
        asked, found = check_askable(ledger, home, where), None
        session = _session(root, ledger.begun)
        _check_undamaged(ledger, home)
        if asked is None:
            found = _look(session, ledger, home, where)
            if found.is_nothing:
                return Forgot(found)
            asked = _announce(ledger, home, condition_digest(ledger.id, where), found)
        return Forgot(found, asked, _finish(session, ledger, home, where, asked, say))


def _check_undamaged(ledger: Ledger, home: Home) -> None:
    """Raise what a run raises for the rule's own tables; a sink may be out of reach."""
    head = ledger.begun
    own = {name: id_ for name, id_ in head.table_ids.items() if not TableName.parse(name).is_sink}
    gate.check(replace(head, table_ids=own), [one for one in old_sites(head, home, ledger.id) if one.name in own])


def _known(home: Home) -> LedgerReader:
    known = LedgerReader.load(home.ledger)
    if known is None or known.head is None:
        raise Refused(f"rule {home.rule} has not run yet: there is nothing to forget")
    return known


def _session(root: SparkSession, head: Head) -> SparkSession:
    """A session with the settings of the rule, by the text of its last epoch."""
    return rule_session(root, head.rule, head.rule.timezone, head.rule.ansi)


def _look(session: SparkSession, ledger: LedgerReader, home: Home, where: str) -> Found:
    head, wanted = ledger.begun, columns_in(where)
    own = {one.name: _look_at(session, one, where, wanted) for one in own_tables(head, home)}
    places = {at: OwnTable(name, at) for name, at in places_of(head).items()}
    sinks = {at: _look_at_sink(session, one, where, wanted) for at, one in places.items()}
    sinks |= {one.label: Looked(None, f"it is a {one.kind} sink") for one in other_sinks(head).values()}
    sources = {name: str(one.address) for name, one in head.rule.streams.items() if source_kind(one.kind)}
    landed = (OwnTable(name, home.landing(name)) for name, one in head.rule.streams.items() if one.landing)
    landings = {one.name: _look_at(session, one, where, wanted) for one in landed}
    return Found(own, sinks, sources, mentions(ledger.rows, literals_in(where)), landings)


def _look_at(session: SparkSession, one: OwnTable, where: str, wanted: Sequence[str]) -> Looked:
    if one.is_old:
        return Looked(0, older=_may_hold(session, files_in(one.address), where, wanted))
    why = lacks(one, wanted)
    if why:
        return Looked(None, why)
    check_purgeable(one)
    rows = _matching(_frame(session, one.address), where)
    older = _may_hold(session, files_beside(one.address), where, wanted)
    return Looked(rows, older=older, bounds=bool(unseen_bounds(one.address) & {*wanted}))


def _look_at_sink(session: SparkSession, one: OwnTable, where: str, wanted: Sequence[str]) -> Looked:
    why = lacks(one, wanted)
    return Looked(None, why) if why else Looked(_matching(_frame(session, one.address), where))


def _frame(session: SparkSession, address: str) -> DataFrame:
    return session.read.format("delta").load(address)


def _matching(frame: DataFrame, where: str) -> int:
    return frame.where(F.expr(f"({where}\n)")).count()


def _may_hold(session: SparkSession, files: Sequence[Path], where: str, wanted: Sequence[str]) -> bool:
    """Whether one of the files that no version needs has such rows, or cannot be read, as one of a killed writer."""
    if not files:
        return False
    try:
        frame = session.read.option("mergeSchema", "true").parquet(*map(str, files))
        return {*wanted} <= {name.lower() for name in frame.columns} and _matching(frame, where) > 0
    except (PySparkException, Py4JJavaError):
        half = len(files) // 2
        return not half or any(_may_hold(session, part, where, wanted) for part in (files[:half], files[half:]))


def _announce(ledger: Ledger, home: Home, digest: str, found: Found) -> Forgetting:
    asked = Forgetting(number=ledger.begun.forgets + 1, condition=digest, tables=found.rewritten, removed=found.removed)
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
        left[name] = _Leaving(session, home.rule, head, mine[name], app, asked).finish(where)
    for name in asked.removed:
        remove_folder(home, name)
    checkpoint.sweep(home.checkpoints)
    reach(home.rule, "forget.commit.before")
    ledger.live(Life(what="forgot", forgotten=Forgotten(number=asked.number, tables=left)))
    reach(home.rule, "forget.commit.after")
    jvm_class(session, "org.apache.spark.sql.delta.DeltaLog").clearCache()  # it knows entries that are gone
    return left


@dataclass(frozen=True)
class _Leaving:
    """Rows that leave one table."""

    session: SparkSession
    rule: str
    head: Head
    table: OwnTable
    app: str
    asked: Forgetting

    def finish(self, where: str) -> Left:
        """Take the steps that are left for this table."""
        while (step := self._step()) is not ForgetStep.PURGE:
            if step is ForgetStep.REWRITE:
                self._rewrite(where)
                reach(self.rule, "forget.rewritten")
            else:
                self._mark()
                reach(self.rule, "forget.marked")
        commit = purge(self.rule, self.table.address)
        said = json.loads(tablelog.commit_info(self.table.address, commit)["userMetadata"])
        return Left.model_validate({**said["left"], "version": said["version"], "commit": commit})

    def _step(self) -> ForgetStep:
        recorded = tablelog.recorded_version(self.table.address, self.app)
        return forget_step(recorded, self.asked.number, self.asked.tables[self.table.name])

    def _rewrite(self, where: str) -> None:
        """The transaction starts before the rows are read, so it conflicts with whatever changes them meanwhile."""
        begun = ReplacingAll(self.session, self.table.address, self.app)
        stay = self._current(_frame(self.session, self.table.address))
        stay = stay.where(f"NOT coalesce(({where}\n), false)")
        begun.write(stay.coalesce(files_for(stay.count())))
        check_before_commit(self.table.name, begun.moves(), begun.expected_effect())
        self._commit(begun, rewrite_version(self.asked.number), {"gone": self._gone(begun)})

    def _gone(self, begun: ReplacingAll) -> int:
        assert begun.effect is not None
        return begun.effect.deleted - begun.effect.inserted

    def _current(self, rows: DataFrame) -> DataFrame:
        """The rows without those that newer ones replaced, where the table is one of newest rows."""
        kind = TableName.parse(self.table.name)
        keys = newest_by(self.head.rule, kind.rest) if kind.is_state else None
        if keys is None:
            return rows
        lost = f" AND _epoch NOT IN ({', '.join(map(str, self.head.lost))})" if self.head.lost else ""
        by = f"PARTITION BY {', '.join(map(quoted, keys))}" if keys else ""
        counted = rows.where(f"_epoch <= {self.head.epoch}{lost}")
        newest = counted.withColumn(_NEWEST, F.expr(f"max(_epoch) OVER ({by})"))
        return newest.where(f"_epoch = {_NEWEST}").drop(_NEWEST)

    def _mark(self) -> None:
        """The rows that stay are counted as they are now: after the rewrite, if there was one."""
        begun = Appending(self.session, self.table.address, self.app)
        rows = _frame(self.session, self.table.address)
        digest = Digesting(rows.schema).of(rows)
        left = {"gone": self._rewritten(), "rows": digest.rows, "digest": digest.model_dump()}
        self._commit(begun, mark_version(self.asked.number), {"left": left})

    def _rewritten(self) -> int:
        """How many rows the rewrite took away; 0 without one."""
        if self.asked.tables[self.table.name] == 0:
            return 0
        found = tablelog.our_commit(self.table.address, self.app, rewrite_version(self.asked.number))
        return int(found.metadata["gone"])

    def _commit(self, begun: Appending, version: int, facts: dict[str, Any]) -> None:
        said = {
            "app": self.app,
            "version": version,
            "epoch": self.head.epoch,
            "forget": self.asked.number,
            "intent": self.asked.condition,
            **facts,
        }
        if TableName.parse(self.table.name).is_state:
            said |= {"holds_from": self.head.epoch, "after": self.head.epoch}
        commit = begun.commit(version, json.dumps(said, separators=(",", ":")))
        if commit is None:
            raise Fenced(about_named(self.table.name, "another writer committed in between; forget again"))
        sync_commit(self.table.address, commit)


_NEWEST = "_floodmark_newest"
