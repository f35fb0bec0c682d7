"""Folding one epoch: the steps of the protocol, in their order.

1. PLAN     Spark has planned the range and written its offset log.
2. READ     one pass over the batch: what becomes of each row, counts, the new watermark.
3. FOLD     batch and state of committed epochs -> output rows, and state changes stamped with this epoch.
4. FILES    state, late, dead and sinks, side by side: files that no table names yet.
5. INTENT   ledger row, before any effect. A retry writes it again first, which fences a live twin, and compares.
6. WRITE    every table names its files, side by side.
7. VERIFY   what the tables say was written is what this attempt computed.
8. COMMIT   ledger row: the only commit point.

All that computes stands before the intent of a new epoch. So what fails on the input leaves no epoch open (ADR 0044).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from zoneinfo import ZoneInfo

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors import console
from floodmark.connectors.lookups import pinned_now
from floodmark.connectors.registry import sources
from floodmark.core.protocol import engine
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.expectations import failing
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns, Commit, Failed, Intent, Pinned, Replay, Written, total
from floodmark.core.protocol.ticks import watermark_of
from floodmark.core.protocol.watermark import advance, hear, holding, later, merge
from floodmark.core.rules.rule import Sink
from floodmark.core.rules.sinks.takings import grows
from floodmark.errors import LedgerBroken, ReplayDiffers
from floodmark.ledger.delta import tables
from floodmark.ledger.ledger import Ledger
from floodmark.spark.fold.fold import Folded, Moment, StateReader
from floodmark.spark.fold.state import state_rows
from floodmark.spark.read import lookups
from floodmark.spark.read.batch import DEAD, LATE, Batch, Limits, latest_times, planned_union, stamped, united
from floodmark.spark.read.expecting import met
from floodmark.spark.read.planned import materialised
from floodmark.spark.read.replaying import replayed
from floodmark.spark.rule.compaction import compact
from floodmark.spark.rule.generation import Plan, Sites, columns_of
from floodmark.spark.rule.partitionvalues import with_fit_partitions
from floodmark.spark.session import checkpoint
from floodmark.spark.session.faults import of_new_epoch, of_open_epoch
from floodmark.spark.session.parallel import side_by_side
from floodmark.spark.session.session import engine_of
from floodmark.spark.write import sites
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.sites import Attempt, Prepared, Work
from floodmark.spark.write.taking import taken


@dataclass(frozen=True)
class EpochReport:
    """What a committed epoch did; for progress and for the end of a run. `failed`: rows by expectation, where any did;
    `STREAM.NAME`, or `results.NAME`."""

    rule: str
    epoch: int
    attempt: int
    read: int
    folded: int
    late: int
    dead: int
    dropped: int
    failed: dict[str, int]
    output: int
    watermark: int | None
    seconds: float


@dataclass(frozen=True)
class Ready:
    """All of an epoch that is computed: what each site is to commit, how many results there are, what consoles show.

    `rejected`, `expected`: as in the commit row.
    """

    attempt: Attempt
    prepared: list[Prepared]
    rows: int
    shown: tuple[console.Shown, ...]
    rejected: dict[str, int]
    expected: dict[str, Failed]


class EpochFolder:
    """Folds the batches of one streaming query. `gate` is the epoch of the query's batch `checkpoint.HEAD`."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        sites: Sites,
        ledger: Ledger,
        directory: Path,
        report: Callable[[EpochReport], None],
        ticks: tuple[str, ...] = (),
        replay: Replay | None = None,
    ):
        """`ticks`, `replay`: what the first epoch is to say of itself, if that is a tick or reads dead rows."""
        assert ledger.head is not None
        self._session = session
        self._plan, self._sites, self._ledger = plan, sites, ledger
        self._directory, self._report, self._ticks = directory, report, ticks
        self._replay = replay
        self._gate = ledger.head.epoch
        self._seconds: dict[str, float] = {}

    @property
    def rule(self) -> str:
        return self._plan.rule.rule

    @property
    def head(self) -> Head:
        assert self._ledger.head is not None
        return self._ledger.head

    def fold(self, frame: DataFrame, batch_id: int) -> None:
        """One epoch, from Spark's planned batch to the commit row."""
        begun = time.monotonic()
        self._seconds = {}
        if batch_id > checkpoint.HEAD + 1:
            self._reach("sparkcommit.after", self.head.epoch)
        self._reach("offsets.after")
        entry = self._planned(batch_id)
        with self._rows(frame, entry) as rows:
            commit = self._effects(rows, entry)
        self._reach("commit.before")
        with self._timed("commit"):
            attempt = self.head.attempt
            self._ledger.commit(commit)
        self._reach("commit.after", self.head.epoch)
        self._tell(commit, attempt, time.monotonic() - begun)
        self._compact()
        self._reach("sparkcommit.before", self.head.epoch)

    def _planned(self, batch_id: int) -> Entry:
        """PLAN: the batch must start where the head ended."""
        before = checkpoint.planned(self._directory, batch_id - 1)
        epoch = self._gate + batch_id - checkpoint.HEAD
        if epoch != self.head.epoch + 1 or before.offsets != self.head.entry.offsets:
            raise LedgerBroken(
                f"rule {self.rule}: Spark's batch {batch_id} starts at {before.offsets}, the ledger's epoch "
                f"{self.head.epoch} ended at {self.head.entry.offsets}"
            )
        return checkpoint.planned(self._directory, batch_id)

    @contextmanager
    def _rows(self, frame: DataFrame, entry: Entry) -> Iterator[DataFrame]:
        """The batch's rows: over the relations that Spark planned for it; else `frame`, held for several actions."""
        query = checkpoint.query(self._directory)
        clock = entry.clock_ms * 1000
        replay = self._replay_of(entry)
        if replay is not None:
            rule, shape = self._plan.rule, self._plan.fold.shape
            yield replayed(self._session, rule, shape, self._sites.dead.address, self.head, replay, clock)
            return
        planned = planned_union(self._session, self._plan.rule, self._plan.fold.shape, query, clock)
        if planned is not None:
            yield planned
            return
        held = materialised(frame, self._session).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield held
        finally:
            held.unpersist()

    def _effects(self, frame: DataFrame, entry: Entry) -> Commit:
        reopened = self.head.open
        if reopened is not None:
            self._intend(reopened)
        with self._told(reopened), self._timed("read"):
            batch = self._read(frame, entry)
        intent = self._intent(entry, batch)
        if reopened is not None:
            same_reading(self.rule, self.head.epoch + 1, reopened, intent)
            intent = reopened
        with self._told(reopened), self._timed("fold"):
            folded = self._fold(batch, intent)
        try:
            with self._told(reopened):
                ready = self._ready(batch, folded, entry, intent)
            if reopened is None:
                self._intend(intent)
            with engine.named(intent.engine, self._engine):
                return self._written(ready, intent)
        finally:
            folded.release()

    def _told(self, reopened: Intent | None) -> AbstractContextManager[None]:
        """What an error says of the epoch: whether it is open."""
        epoch = self.head.epoch + 1
        return of_new_epoch(self.rule, epoch) if reopened is None else of_open_epoch(self.rule, epoch)

    def _ready(self, batch: Batch, folded: Folded, entry: Entry, intent: Intent) -> Ready:
        """All results, computed and in files. Without effect."""
        with self._timed("fold"):
            met_by = met(folded.output, self._plan.asked, self.rule, self._session)
            results = with_fit_partitions(met_by.rows, self._plan, self._session)
            output = None if results is None else self._output(results, batch)
        with self._timed("write"):
            seen = Observation()
            attempt = Attempt(self.head.epoch + 1, max(1, self.head.attempt), intent.digest)
            sinks = self._for_sinks(output, seen)
            works = [*self._own_works(batch, folded, entry), *(work for work, _ in sinks)]
            prepared = side_by_side(partial(sites.prepare, work, attempt) for work in works)
            rows = self._output_rows(sinks, {one.site.name: one.rows for one in prepared}, output, seen)
            shown = tuple(self._shown(output, rows))
        rejected = {name: one.count for name, one in folded.rejected.items()}
        return Ready(attempt, prepared, rows, shown, rejected, met_by.counts)

    def _written(self, ready: Ready, intent: Intent) -> Commit:
        """WRITE and VERIFY, every table in a thread of its own; returns, or raises, when all of them have ended."""
        with self._timed("write"):
            results = side_by_side(partial(self._finish, one, ready.attempt) for one in ready.prepared)
            for shown in ready.shown:
                console.show(shown, self.head.epoch + 1)
        named = zip((one.site.name for one in ready.prepared), results, strict=True)
        return self._commit(intent, {name: written for name, written in named if written is not None}, ready)

    def _read(self, frame: DataFrame, entry: Entry) -> Batch:
        rule, shape = self._plan.rule, self._plan.fold.shape
        latest = latest_times(rule, shape, entry.clock_ms, zone_offset_ms(rule.timezone, entry.clock_ms))
        return Batch(frame, rule, shape, Limits(rule.late_below(self.head.watermark), latest))

    def _intent(self, entry: Entry, batch: Batch) -> Intent:
        rule = self._plan.rule
        maxima = merge(self.head.maxima, batch.maxima)
        heard = self._heard(entry, batch)
        lateness = holding(rule, heard, entry.clock_ms * 1000)
        idle = heard.keys() - lateness.keys()
        lines = zip(sources(rule).items(), entry.offsets, strict=True)
        in_snapshot = any(source.in_snapshot(line) for (name, source), line in lines if name not in idle)
        ticks = self._ticks_of(entry)
        reached = advance(self.head.watermark, maxima, lateness, in_snapshot)
        return Intent(
            entry=entry.text(),
            watermark_before=self.head.watermark,
            watermark=later(reached, watermark_of(ticks)),
            ticks=ticks,
            replay=self._replay_of(entry),
            lookups=self._pinned(),
            columns=self._columns(),
            maxima=maxima,
            heard=heard,
            counts=batch.counts,
            digests=batch.digests,
            log_sums=self._log_sums(entry),
            rule=self.head.open.rule if self.head.open else rule.to_json(),  # an older Floodmark's has fewer fields
            rule_hash=self.head.open.rule_hash if self.head.open else rule.hash,
            zone=rule.timezone,
            ansi=rule.ansi,
            engine=self._engine,
        )

    @cached_property
    def _engine(self) -> dict[str, str]:
        """What this attempt runs on."""
        return engine_of(self._session)

    def _columns(self) -> Columns:
        """The columns of all streams, where they are others than in the epoch before.

        Only a rule that takes new columns has others than its generation began with; types can change under each.
        """
        now, before = columns_of(self._plan.fold.shape.streams), self.head.columns
        if not grows(self._plan.rule):
            types = {name: dict(columns) for name, columns in now.items()}
            now = {
                name: [(column, types.get(name, {}).get(column, kind)) for column, kind in columns]
                for name, columns in before.items()
            }
        return now if now != before else {}

    def _pinned(self) -> dict[str, Pinned]:
        """The versions of lookup tables that the epoch reads: those of its first attempt."""
        return dict(self.head.open.lookups) if self.head.open is not None else pinned_now(self._plan.rule)

    def _log_sums(self, entry: Entry) -> dict[str, str]:
        """Of what the epoch has read; a retry takes those of its intent, for entries can be gone by then."""
        if self.head.open is not None:
            return self.head.open.log_sums
        lines = zip(sources(self._plan.rule).items(), entry.offsets, strict=True)
        found = {name: source.log_sum(line) for (name, source), line in lines}
        return {name: one for name, one in found.items() if one is not None}

    def _heard(self, entry: Entry, batch: Batch) -> dict[str, int]:
        """When each stream that can be excused was last heard. One with input that is not read yet is not silent.

        What is not read yet hangs on when one looks: a retry takes what its intent recorded.
        """
        if self.head.open is not None:
            return self.head.open.heard
        lines = zip(sources(self._plan.rule).items(), entry.offsets, strict=True)
        waiting = {name for (name, source), line in lines if name in self.head.heard and source.news(line)}
        folded = {name for name, counts in batch.counts.items() if counts.folded}
        speaking = waiting if self._replay_of(entry) else waiting | folded
        return hear(self.head.heard, speaking, entry.clock_ms * 1000)

    def _ticks_of(self, entry: Entry) -> tuple[str, ...]:
        """What the epoch says of itself as a tick. A tick reads nothing: no other epoch ends where it began."""
        if self.head.open is not None:
            return self.head.open.ticks
        ticking = entry.offsets == self.head.entry.offsets or self._plan.rule.rebuild  # which has one epoch for all
        return self._ticks if ticking else ()

    def _replay_of(self, entry: Entry) -> Replay | None:
        """The dead rows that the epoch reads, if it is a replay. Like a tick it ends where it began."""
        if self.head.open is not None:
            return self.head.open.replay
        return self._replay if entry.offsets == self.head.entry.offsets else None

    def _intend(self, intent: Intent) -> None:
        self._reach("intent.before")
        with self._timed("intent"):
            self._ledger.intend(intent)
        self._reach("intent.after")

    def _fold(self, batch: Batch, intent: Intent) -> Folded:
        clock = Entry.parse(intent.entry).clock_ms * 1000
        moment = Moment(self.head.epoch + 1, intent.watermark_before, intent.watermark, self.head.lost, clock)
        fold = self._plan.fold
        lookups.show(self._session, self._plan.rule, intent.lookups, partial(fold.since, batch, moment))
        schemas = fold.tables
        state: dict[str, StateReader] = {
            name: partial(state_rows, self._session, site.address, schemas[name], fold.time_of(name))
            for name, site in self._sites.state.items()
        } or dict.fromkeys(schemas, _nothing)
        return fold.fold(batch, state, self._session, moment)

    def _output(self, frame: DataFrame, batch: Batch) -> DataFrame:
        """The results; where more than one sink takes them, the work up to the last shuffle is done once."""
        if not self._plan.fold.tables:  # no shuffle will gather the rows into few files
            frame = frame.coalesce(files_for(total(batch.counts).folded))
        return frame if len(self._plan.rule.sinks) == 1 else materialised(frame, self._session)

    def _own_works(self, batch: Batch, folded: Folded, entry: Entry) -> list[Work]:
        """What goes to the rule's own tables."""
        counts = total(batch.counts)
        late = self._set_apart(batch, (LATE,), counts.late if self._plan.rule.late == "keep" else 0, entry)
        dead = self._dead(batch, folded, entry)
        state = [Work(site, self._kept(name, batch, folded)) for name, site in self._sites.state.items()]
        return [Work(self._sites.late, late), Work(self._sites.dead, dead), *state]

    def _dead(self, batch: Batch, folded: Folded, entry: Entry) -> DataFrame | None:
        """Rows that are dead as they were read, and rows that the class has rejected."""
        offsets = self._offsets(entry)
        found = self._set_apart(batch, DEAD, total(batch.counts).dead, entry)
        frames = [] if found is None else [found]
        for name, rejected in folded.rejected.items():
            rows = stamped(rejected.rows, self.head.epoch + 1, name, offsets[name])
            frames.append(rows.coalesce(files_for(rejected.count)))
        return united(frames) if frames else None

    def _offsets(self, entry: Entry) -> dict[str, str]:
        return dict(zip(self._plan.rule.streams, entry.offsets, strict=True))

    def _set_apart(self, batch: Batch, kinds: tuple[int, ...], rows: int, entry: Entry) -> DataFrame | None:
        if not rows:
            return None
        return batch.set_apart(kinds, self.head.epoch + 1, self._offsets(entry)).coalesce(files_for(rows))

    def _kept(self, name: str, batch: Batch, folded: Folded) -> DataFrame | None:
        kept = folded.changes.get(name)
        return None if kept is None else kept.coalesce(files_for(total(batch.counts).folded))

    def _for_sinks(self, output: DataFrame | None, seen: Observation) -> list[tuple[Work, Sink]]:
        """One piece of work for each Delta sink. A sink at qos 0 is left out of every attempt but the first.

        `seen`: counts the results on their way to one sink, where every sink leaves out some.
        """
        by_address, first = self._plan.delta_sinks, self._is_first
        asked = [(site, by_address[address]) for address, site in self._sites.sinks.items()]
        asked = [(site, sink) for site, sink in asked if first or sink.qos > 0]
        if output is None and self._plan.rule.rebuild:  # what stands there goes all the same
            output = self._session.createDataFrame([], self._plan.output)
        frames = [output] * len(asked)
        counting = self._counting([sink for _, sink in asked])
        if output is not None and counting is not None:
            frames[counting] = output.observe(seen, F.count(F.lit(1)).alias("rows"))
        return [
            (Work(site, None if frame is None else self._taken(sink, frame)), sink)
            for (site, sink), frame in zip(asked, frames, strict=True)
        ]

    @property
    def _is_first(self) -> bool:
        """Whether nobody has tried the epoch before."""
        return self.head.attempt <= 1

    def _counting(self, sinks: list[Sink]) -> int | None:
        """The place of a sink on whose way all results are seen; None: none is needed, or none is there. What is
        written in a session of its own tells nobody what went by."""
        if any(sink.gets_all for sink in sinks):
            return None
        return next((i for i, sink in enumerate(sinks) if not self._plan.has_instants_in_paths(sink)), None)

    def _taken(self, sink: Sink, output: DataFrame) -> DataFrame:
        return taken(output, self._plan.taking(sink), self.head.generation, self.head.epoch + 1)

    def _output_rows(
        self, sinks: list[tuple[Work, Sink]], got: dict[str, int], output: DataFrame | None, seen: Observation
    ) -> int:
        """How many results the epoch has: what a sink got that gets all, or what was seen on the way to another."""
        if output is None:
            return 0
        whole = [work.site.name for work, sink in sinks if sink.gets_all]
        if whole:
            return max(got[name] for name in whole)
        return output.count() if self._counting([sink for _, sink in sinks]) is None else _seen(seen, output)

    def _shown(self, output: DataFrame | None, rows: int) -> Iterator[console.Shown]:
        """What each console is to show."""
        for sink in self._plan.rule.sinks:
            if output is not None and sink.kind == "console" and (self._is_first or sink.qos > 0):
                taken_here = self._taken(sink, output)
                yield console.first_of(taken_here, taken_here.count() if sink.where else rows)

    def _finish(self, prepared: Prepared, attempt: Attempt) -> Written | None:
        self._reach(f"{prepared.site.role}.before")
        written = sites.finish(prepared, attempt)
        self._reach(f"{prepared.site.role}.after")
        return written

    def _commit(self, intent: Intent, written: dict[str, Written], ready: Ready) -> Commit:
        known = self.head.table_ids
        added = {site.name: site.address for site in self._sites.all() if site.name not in known}
        opened = {name: tables.open_table(address) for name, address in added.items()}
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
            table_ids={name: tables.table_id(table) for name, table in opened.items() if table is not None},
            adopted=tables.adopted(added),
            lost_epochs=self.head.lost,
            output_rows=ready.rows,
            seconds={step: round(seconds, 3) for step, seconds in self._seconds.items()},
        )

    def _tell(self, commit: Commit, attempt: int, seconds: float) -> None:
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
    """The state of a rule that keeps none."""


def same_reading(rule: str, epoch: int, recorded: Intent, found: Intent) -> None:
    """Raise ReplayDiffers where the epoch, read again, is not what its intent says."""
    before, now = recorded.model_dump(), found.model_dump()
    unknown = {"format", "engine", *(("digests",) if recorded.format < 2 else ())}  # 1: before there were digests
    differing = [name for name in before if name not in unknown and before[name] != now[name]]
    if differing:
        shown = "; ".join(f"{name}: recorded {before[name]}, found {now[name]}" for name in differing)
        raise ReplayDiffers(
            f"rule {rule}, epoch {epoch}: read again, the input is not what the intent says ({shown}). Likely: the "
            "source was rewritten or lost files. Put the source back and run again, or begin anew with "
            f"`floodmark reset {rule}`"
        )


def zone_offset_ms(zone: str, clock_ms: int) -> int:
    """How far the zone's clock is ahead of UTC at that moment, in milliseconds."""
    moment = datetime.fromtimestamp(clock_ms / 1000, UTC).astimezone(ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds() * 1000)


def _seen(seen: Observation, output: DataFrame) -> int:
    """How many results went by. Where Spark finds that none can come to the sink, it prunes who was to count them."""
    try:
        return int(seen.get["rows"])
    except Py4JJavaError:  # no row to convert
        return output.count()
