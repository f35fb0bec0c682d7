"""Fold one epoch: the steps of the protocol, in their order.

1. PLAN     Spark has planned the range and written its offset log.
2. READ     one pass over the batch: the kind of each row, counts, the new watermark.
3. FOLD     batch and state of committed epochs -> output rows, and state changes stamped with this epoch.
4. FILES    state, late, dead and sinks, in parallel: files that no table names yet.
5. INTENT   ledger row, before any effect. A retry first writes it again, which fences a live twin, and compares.
6. WRITE    every table names its files, in parallel.
7. VERIFY   what the tables record as written is what this attempt computed.
8. COMMIT   ledger row: the only commit point.

All computation comes before the intent of a new epoch. So a failure on the input leaves no epoch open (ADR 0044).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession

from floodmark.connectors.planning import checkpoint
from floodmark.connectors.planning.plannedrows import relations
from floodmark.connectors.planning.rewrites import spans_rewrite
from floodmark.connectors.ports import console
from floodmark.connectors.ports.source import unrecorded
from floodmark.connectors.relay.room import wait_for_room
from floodmark.core.lifecycle.replays import check_not_spent
from floodmark.core.protocol import engine
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.expectations import failing
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Failed, Intent, Replay, Written, total
from floodmark.core.protocol.ticks import onwards
from floodmark.core.rules.kinds import stream_can
from floodmark.errors import LedgerBroken, ReplayDiffers
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.fold.fold import Folded, Moment, StateReader
from floodmark.spark.fold.state import state_rows
from floodmark.spark.read import lookuprows
from floodmark.spark.read.batch import Batch, Limits, latest_times
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.read.frames import read_range
from floodmark.spark.read.replaying import replayed
from floodmark.spark.read.shape import Shape
from floodmark.spark.rule import generation
from floodmark.spark.rule.backfill.rereading import PastRows
from floodmark.spark.rule.checks.partitionvalues import with_fit_partitions
from floodmark.spark.rule.epochs.compaction import compact
from floodmark.spark.rule.epochs.intents import Intents
from floodmark.spark.rule.epochs.outputs import Outputs
from floodmark.spark.rule.epochs.reports import EpochReport
from floodmark.spark.rule.generation import Plan, Sites
from floodmark.spark.session.faults import concerns_data, of_new_epoch, of_open_epoch
from floodmark.spark.session.parallel import side_by_side
from floodmark.spark.write import sites
from floodmark.spark.write.sites import Attempt, Prepared


@dataclass(frozen=True)
class Ready:
    """A computed epoch: what each site is to commit, the number of results, what consoles show.

    `rejected`, `expected`: as in the commit row.
    """

    attempt: Attempt
    prepared: list[Prepared]
    rows: int
    shown: tuple[console.Excerpt, ...]
    rejected: dict[str, int]
    expected: dict[str, Failed]


class RewriteAhead(Exception):
    """Ends a query whose planned epoch spans a rewrite of a source. Nothing of the epoch has been done."""


class EpochFolder:
    """Folds the batches of one streaming query. `gate` is the epoch of the query's batch `checkpoint.HEAD`."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        home: Home,
        sites: Sites,
        ledger: Ledger,
        directory: Path,
        report: Callable[[EpochReport], None],
        ticks: tuple[str, ...] = (),
        replay: Replay | None = None,
    ):
        """`ticks`, `replay`: what the first epoch's intent records, if the epoch is a tick or reads dead rows."""
        self._session = session
        self._plan, self._home, self._sites, self._ledger = plan, home, sites, ledger
        self._directory, self._report = directory, report
        self._intents = Intents(session, plan, home, ledger, ticks, replay)
        self._gate = ledger.begun.epoch
        self._seconds: dict[str, float] = {}

    @property
    def rule(self) -> str:
        return self._plan.rule.rule

    @property
    def head(self) -> Head:
        return self._ledger.begun

    def fold(self, batch_id: int) -> None:
        """One epoch, from Spark's planned batch to the commit row."""
        begun = time.monotonic()
        self._seconds = {}
        if batch_id > checkpoint.HEAD + 1:
            self._reach("sparkcommit.after", self.head.epoch)
        self._reach("offsets.after")
        entry = self._planned(batch_id)
        if self.head.open is None and spans_rewrite(self._plan.rule, self._home, self.head.entry, entry):
            raise RewriteAhead
        if self.head.open is None:
            entry = onwards(self._plan.rule, self.head, entry)
            wait_for_room(self._plan.rule, self._home, self._ledger)
        commit = self._effects(entry)
        self._reach("commit.before")
        opened, attempt = self.head.open, self.head.attempt
        with self._timed("commit"):
            self._ledger.commit(commit)
        self._reach("commit.after", self.head.epoch)
        self._report_epoch(commit, opened.skipped if opened else {}, attempt, time.monotonic() - begun)
        self._compact()
        self._reach("sparkcommit.before", self.head.epoch)

    def _planned(self, batch_id: int) -> Entry:
        """PLAN: the batch must start where the head ended."""
        before = checkpoint.planned_entry(self._directory, batch_id - 1)
        epoch = self._gate + batch_id - checkpoint.HEAD
        if epoch != self.head.epoch + 1 or before.offsets != self.head.entry.offsets:
            raise LedgerBroken(
                f"rule {self.rule}: Spark's batch {batch_id} starts at {before.offsets}, the ledger's epoch "
                f"{self.head.epoch} ended at {self.head.entry.offsets}"
            )
        return checkpoint.planned_entry(self._directory, batch_id)

    def _rows(self, entry: Entry, shape: Shape, held: ExitStack) -> DataFrame:
        """The batch's rows: the relations that Spark planned for it, or the sources' rows of the range."""
        rule, clock = self._plan.rule, entry.clock_ms * 1000
        replay = self._intents.replay_of(entry)
        if replay is not None:
            past = PastRows(self._session, self._plan, self._home, self.head, replaying=True)
            held.callback(past.close)
            assert past.dead is not None
            return replayed(rule, shape, past.dead, self.head, replay, clock)
        told = relations(self._session, checkpoint.query_id(self._directory), len(rule.streams))
        with unrecorded() if self.head.open is None else nullcontext():
            rows = read_range(self._session, rule, self._home, shape, self.head.entry, entry, clock, told)
        if any(not stream_can(stream).planned for stream in rule.streams.values()):
            # READ and FILES each pass over the rows. A broker would be asked, and its records parsed, twice.
            rows.persist(StorageLevel.MEMORY_AND_DISK)
            held.callback(rows.unpersist)
        return rows

    def _effects(self, entry: Entry) -> Commit:
        reopened = self.head.open
        if reopened is not None:
            self._intend(reopened)
        with ExitStack() as held:
            with self._error_context(reopened):
                intent, ready = self._computed(entry, reopened, held)
            if reopened is None:
                self._intend(intent)
            with engine.named(intent.engine, self._intents.engine):
                return self._written(ready, intent)

    def _computed(self, entry: Entry, reopened: Intent | None, held: ExitStack) -> tuple[Intent, Ready]:
        """READ, FOLD and FILES. `held`: until it ends, the folded rows are there.

        Where all expressions run now, they run as they are. Only if one raises, each is tried on each row, to name the
        row. A row that waits in the state is tried before: once it is folded, no edit of the SQL could leave it out.
        """
        fold, shape = self._plan.fold, self._plan.fold.shape
        if fold.is_immediate and self._plan.rule.on_error == "fail" and shape.checks:
            try:
                return self._computed_as(replace(shape, checks={}), entry, reopened, held)
            except (PySparkException, Py4JJavaError) as fault:
                if not concerns_data(fault):
                    raise
        return self._computed_as(shape, entry, reopened, held)

    def _computed_as(
        self, shape: Shape, entry: Entry, reopened: Intent | None, held: ExitStack
    ) -> tuple[Intent, Ready]:
        with self._timed("read"):
            batch = self._batch(entry, shape, held)
        intent = self._intents.of(entry, batch)
        if reopened is not None:
            check_same_reading(self.rule, self.head.epoch + 1, reopened, intent)
            intent = reopened
        elif intent.replay is not None:
            check_not_spent(self._plan.rule, self.head, batch.counts)
        with self._timed("fold"):
            folded = self._fold(batch, intent)
        held.callback(folded.release)
        return intent, self._ready(batch, folded, entry, intent)

    def _error_context(self, reopened: Intent | None) -> AbstractContextManager[None]:
        """Have errors say whether the epoch is open."""
        epoch = self.head.epoch + 1
        return of_new_epoch(self.rule, epoch) if reopened is None else of_open_epoch(self.rule, epoch)

    def _ready(self, batch: Batch, folded: Folded, entry: Entry, intent: Intent) -> Ready:
        """Compute all results and write them to files. Has no effect."""
        with self._timed("fold"):
            met_by = check_results(folded.output, self._plan.expectations, self.rule, self._session)
            results = with_fit_partitions(met_by.rows, self._plan, self._session)
            outputs = Outputs(self._session, self._plan, self._sites, self.head)
            output = None if results is None else outputs.results(results, batch)
        with self._timed("write"):
            seen = Observation()
            attempt = Attempt(self.head.epoch + 1, max(1, self.head.attempt), intent.digest)
            sinks = outputs.for_sinks(output, seen)
            works = [*outputs.own_works(batch, folded, entry), *(work for work, _ in sinks)]
            prepared = side_by_side(partial(sites.prepare, work, attempt) for work in works)
            rows = outputs.rows(sinks, {one.site.name: one.rows for one in prepared}, output, seen)
            shown = tuple(outputs.shown(output, rows))
        rejected = {name: one.count for name, one in folded.rejected.items()}
        return Ready(attempt, prepared, rows, shown, rejected, met_by.counts)

    def _written(self, ready: Ready, intent: Intent) -> Commit:
        """WRITE and VERIFY, each table in its own thread; returns or raises when all threads have finished."""
        with self._timed("write"):
            results = side_by_side(partial(self._finish, one, ready.attempt) for one in ready.prepared)
            for shown in ready.shown:
                console.show(shown, self.head.epoch + 1)
        named = zip((one.site.name for one in ready.prepared), results, strict=True)
        return self._commit(intent, {name: written for name, written in named if written is not None}, ready)

    def _batch(self, entry: Entry, shape: Shape, held: ExitStack) -> Batch:
        rule = self._plan.rule
        latest = latest_times(rule, shape, entry.clock_ms)
        return Batch(self._rows(entry, shape, held), rule, shape, Limits(rule.late_below(self.head.watermark), latest))

    def _intend(self, intent: Intent) -> None:
        self._reach("intent.before")
        with self._timed("intent"):
            self._ledger.intend(intent)
        self._reach("intent.after")

    def _fold(self, batch: Batch, intent: Intent) -> Folded:
        clock = Entry.parse(intent.entry).clock_ms * 1000
        moment = Moment(self.head.epoch + 1, intent.watermark_before, intent.watermark, self.head.lost, clock)
        fold = self._plan.fold
        schemas = fold.tables
        state: dict[str, StateReader] = {
            name: partial(state_rows, self._session, site.address, schemas[name], fold.time_of(name))
            for name, site in self._sites.state.items()
        } or dict.fromkeys(schemas, _nothing)
        since = partial(fold.since, batch, state, moment)
        lookuprows.show(self._session, self._plan.rule, intent.lookups, since)
        return fold.fold(batch, state, self._session, moment)

    def _finish(self, prepared: Prepared, attempt: Attempt) -> Written | None:
        self._reach(f"{prepared.site.role}.before")
        written = sites.finish(prepared, attempt)
        self._reach(f"{prepared.site.role}.after")
        return written

    def _commit(self, intent: Intent, written: dict[str, Written], ready: Ready) -> Commit:
        known = self.head.table_ids
        added = generation.statuses(site for site in self._sites.all() if site.name not in known)
        return Commit(
            intent=intent.digest,
            entry=intent.entry,
            watermark=intent.watermark,
            maxima=intent.maxima,
            heard=intent.heard,
            counts=intent.counts,
            log_sums=intent.log_sums,
            rejected=ready.rejected,
            expected=ready.expected,
            digests=intent.digests,
            tables=written,
            table_ids=generation.ids_of(added),
            adopted=generation.adopted_in(added),
            lost_epochs=self.head.lost,
            output_rows=ready.rows,
            seconds={step: round(seconds, 3) for step, seconds in self._seconds.items()},
        )

    def _report_epoch(self, commit: Commit, skipped: dict[str, tuple[str, ...]], attempt: int, seconds: float) -> None:
        sums = total(commit.counts)
        self._report(
            EpochReport(
                self.rule,
                self.head.epoch,
                attempt,
                sums.read,
                sums.folded,
                sums.late,
                sums.dead + sum(commit.rejected.values()),
                sums.dropped,
                failing(commit),
                commit.output_rows,
                commit.watermark,
                seconds,
                skipped,
            )
        )

    def _compact(self) -> None:
        compact(self._session, self.rule, self._plan.fold, self._sites.state, self.head)

    def _reach(self, point: str, epoch: int | None = None) -> None:
        reach(self.rule, point, self.head.epoch + 1 if epoch is None else epoch)

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self._seconds[step] = self._seconds.get(step, 0.0) + time.monotonic() - begun


def _nothing(_: int | None) -> None:
    """The state of a rule without state."""


def check_same_reading(rule: str, epoch: int, recorded: Intent, found: Intent) -> None:
    """Raise ReplayDiffers if the epoch, read again, differs from its intent."""
    before, now = recorded.model_dump(), found.model_dump()
    unknown = {"format", "engine", *(("digests",) if recorded.format < 2 else ())}  # 1: before there were digests
    differing = [name for name in before if name not in unknown and before[name] != now[name]]
    if differing:
        shown = "; ".join(f"{name}: recorded {before[name]}, found {now[name]}" for name in differing)
        raise ReplayDiffers(
            f"rule {rule}, epoch {epoch}: read again, the input does not match the intent ({shown}). Likely: the "
            "source was rewritten or lost files. Restore the source and run again, or start over with `floodmark "
            f"reset {rule}`"
        )
