"""Run epochs of a rule whose lock is held, until its input is drained and nothing is left to close."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from pyspark.sql import SparkSession

from floodmark.connectors.backlog.pacing import paced
from floodmark.connectors.planning import checkpoint
from floodmark.connectors.planning.epochends import next_end
from floodmark.connectors.planning.rewrites import deferred, rewrites, watermark_due
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.preflight import check_sources
from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Replay
from floodmark.core.protocol.recovery import Gate, at_the_gate, failure_message
from floodmark.core.protocol.ticks import tick, tick_target
from floodmark.core.rules.rule import EpochLimits
from floodmark.errors import VerifyFailed
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.read.planning import planning
from floodmark.spark.rule import generation
from floodmark.spark.rule.backfill.correcting import check_can_correct
from floodmark.spark.rule.checks import gate
from floodmark.spark.rule.epochs.epoch import EpochFolder, RewriteAhead
from floodmark.spark.rule.epochs.reports import EpochReport, Report, RunReport
from floodmark.spark.rule.epochs.streamingquery import EpochQuery
from floodmark.spark.rule.generation import Plan
from floodmark.spark.write.sealing import old_sites


class Drainer:
    """Lets Spark plan epochs and folds them. `close_until`, `clock_ms`: see `RuleRun`."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        report: RunReport,
        tell: Report,
        close_until: datetime | None,
        clock_ms: int | None,
    ):
        self._home, self._ledger = home, ledger
        self._report, self.tell = report, tell
        self._close_until, self._clock_ms = close_until, clock_ms
        self._checked: Head | None = None  # the head whose tables passed their check
        self.land: Callable[[], None] = _nothing

    @property
    def head(self) -> Head:
        return self._ledger.begun

    def drain_all(self, session: SparkSession, plan: Plan) -> None:
        """Drain all present input. Rewrites that the rule corrects are deferred, each between two epochs."""
        before = self.head.deferred
        while self.head.deferred == before or self.is_behind(plan) or self._passes_over(plan):
            found = rewrites(plan.rule, self._home, self.head)
            ready = {name: one for name, one in found.items() if not self._has_rows_before(plan, name, one)}
            with suppress(RewriteAhead):  # one came meanwhile: the next round sees it
                if ready:
                    self._defer(plan, ready)
                elif found:
                    self._drain_before(session, plan, found)
                else:
                    self._drain_added(session, plan)
                    break
        self.advance(session, plan)

    def advance(self, session: SparkSession, plan: Plan) -> None:
        """Advance the watermark where a correction has brought newer rows."""
        if watermark_due(plan.rule, self.head) is not None:
            self.drain(session, plan, only_open=True, to=self.head.entry.offsets)

    def _defer(self, plan: Plan, found: Mapping[str, Rewrite]) -> None:
        """Put the offsets behind these rewrites, so that epochs go on before they are corrected."""
        check_can_correct(plan, self._home, self.head, found)
        reach(plan.rule.rule, "defer.before", self.head.epoch)
        self._ledger.defer(deferred(plan.rule, self._home, self.head, found))
        reach(plan.rule.rule, "defer.after", self.head.epoch)

    def _drain_before(self, session: SparkSession, plan: Plan, found: Mapping[str, Rewrite]) -> None:
        """Drain what was added before rewrites, by stream: one epoch, within the rule's limits."""
        ends = dict(zip(plan.rule.streams, self._take_ends(plan), strict=True))
        ends |= {name: one.since for name, one in found.items()}
        lines = zip(sources(plan.rule, self._home).values(), self.head.entry.offsets, ends.values(), strict=True)
        limits = self._limits(plan)
        to = tuple(next_end(source, since, upto, limits) for source, since, upto in lines)
        self.drain(session, plan, only_open=True, to=to)

    def _limits(self, plan: Plan) -> EpochLimits:
        """Of the next epoch."""
        epoch = plan.rule.epoch
        return epoch if epoch.max_seconds is None else paced(plan.rule, self._home, self._ledger)

    def _take_ends(self, plan: Plan) -> tuple[str, ...]:
        """The ends of all present input, as an epoch may read it."""
        lines = zip(sources(plan.rule, self._home).values(), self.head.entry.offsets, strict=True)
        return tuple(source.take_end(since) for source, since in lines)

    def _has_rows_before(self, plan: Plan, name: str, rewrite: Rewrite) -> bool:
        """Whether a stream has rows to fold first."""
        line = dict(zip(plan.rule.streams, self.head.entry.offsets, strict=True))[name]
        return sources(plan.rule, self._home)[name].news(line, rewrite.since)

    def _drain_added(self, session: SparkSession, plan: Plan) -> None:
        """Drain all present input; with `max_seconds`, in queries of one epoch, each sized by the rate so far."""
        if plan.rule.epoch.max_seconds is None:
            self.drain(session, plan, only_open=False)
            return
        ends = self._take_ends(plan)
        before = -1
        while (self.is_behind(plan, ends) or self._passes_over(plan)) and self.head.epoch > before:
            before = self.head.epoch
            self.drain(session, plan, only_open=True, limits=self._limits(plan))

    def _passes_over(self, plan: Plan) -> bool:
        """Whether there are commits to pass over, which are no unread input."""
        lines = list(zip(sources(plan.rule, self._home).items(), self.head.entry.offsets, strict=True))
        skipping = ((one, line) for (name, one), line in lines if plan.rule.streams[name].on_rewrite == "skip")
        if any(source.passed_over(line, source.end()) for source, line in skipping):
            return True
        return any(source.is_to_follow(line, time.time_ns() // 1000) for (_, source), line in lines)

    def drain_at_once(self, session: SparkSession, plan: Plan, ticks: tuple[str, ...] = ()) -> None:
        """Drain all present input as one epoch."""
        self.drain(session, plan, only_open=True, to=self._take_ends(plan), ticks=ticks)

    def tick(self, session: SparkSession, plan: Plan) -> None:
        """Close what is due although no more input has arrived. Input that arrived during the run goes first."""
        if self.is_behind(plan):
            if self._close_until is None:
                return
            self.land()
            self.drain_all(session, plan)
        until = tick_target(plan.rule, self.head, self.now_us(), self.close_until(plan))
        if until is not None:
            self.drain(session, plan, only_open=False, ticks=tick(until))

    @property
    def closes(self) -> bool:
        """Whether the caller declares the input complete up to some time."""
        return self._close_until is not None

    @property
    def has_given_clock(self) -> bool:
        """Whether a test of the rule sets the clock: then all present input is one epoch."""
        return self._clock_ms is not None

    def close_until(self, plan: Plan) -> int | None:
        """The time up to which the caller declares the input complete, in microseconds of event time."""
        if self._close_until is None:
            return None
        return micros_of(self._close_until, plan.rule, zoned(plan.rule, self.head))

    def is_behind(self, plan: Plan, upto: Sequence[str | None] = ()) -> bool:
        """Whether there is unread input; `upto`: by stream, the offset beyond which none counts."""
        found = list(sources(plan.rule, self._home).values())
        lines = zip(found, self.head.entry.offsets, upto or [None] * len(found), strict=True)
        return any(source.news(line, end) for source, line, end in lines)

    def drain(
        self,
        session: SparkSession,
        plan: Plan,
        only_open: bool,
        ticks: tuple[str, ...] = (),
        replay: Replay | None = None,
        to: tuple[str, ...] | None = None,
        limits: EpochLimits | None = None,
    ) -> None:
        """Let Spark plan epochs and fold them until the input is drained; first an epoch for `ticks` or `replay`.

        `to`: first an epoch that ends at these offsets. `limits`: of epochs, in place of the rule's.
        """
        head = self.head
        found = self.sites(plan)
        self.check_tables()
        check_sources(plan.rule, self._home, head)
        open_entry = Entry.parse(head.open.entry) if head.open else None
        if ticks or replay is not None or to is not None:
            open_entry = Entry(self.now_us() // 1000, to or head.entry.offsets)
        directory = checkpoint.make_checkpoint(
            self._home.checkpoints, head.entry, open_entry, plan.rule.spark.shuffle_partitions
        )
        reach(plan.rule.rule, "offsets.before", head.epoch + 1)
        folder = EpochFolder(
            session, plan, self._home, found, self._ledger, directory, self._report_epoch, ticks, replay
        )
        rule = plan.rule if limits is None else plan.rule.model_copy(update={"epoch": limits})
        with self.remembered(plan.rule.rule):
            EpochQuery(folder, only_open).run(planning(session, rule, self._home, open_entry or head.entry), directory)
        if self._report.epochs:
            reach(plan.rule.rule, "sparkcommit.after", self._report.epochs[-1].epoch)
        shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def remembered(self, rule: str) -> Iterator[None]:
        """Record a failed check in the ledger, so that no later run ignores it."""
        try:
            yield
        except VerifyFailed as fault:
            head = self.head
            if (head.open or head.backfill) is None or at_the_gate(head) is Gate.LOSE_EPOCH:
                raise
            said = failure_message(head, rule, str(fault))
            self._ledger.live(Life(what="failed", said=said))
            raise VerifyFailed(said) from fault

    def check_tables(self) -> None:
        """Check the tables once for each head: with the lock held, only this run writes them."""
        head = self.head
        if head is not self._checked:
            gate.check(head, self._ledger.id, old_sites(head, self._home, self._ledger.id))
            self._checked = head

    def sites(self, plan: Plan) -> generation.Sites:
        """The write sites of the generation's tables."""
        head = self.head
        return generation.sites_of(plan, self._home, self._ledger.id, head.generation, head.token, head)

    def now_us(self) -> int:
        """The clock, in microseconds since 1970."""
        return time.time_ns() // 1000 if self._clock_ms is None else self._clock_ms * 1000

    def _report_epoch(self, epoch: EpochReport) -> None:
        self._report.epochs.append(epoch)
        self.tell(epoch)


def _nothing() -> None:
    """For a drainer that nobody lands rows for."""
