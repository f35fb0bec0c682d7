"""A rule whose lock this run holds: finish what is open first, then run what is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from floodmark.connectors.backlog.news import rebuild_due
from floodmark.connectors.delta.sink import check_partitions, refitted
from floodmark.connectors.places import check_same_sinks, is_moved, text_now
from floodmark.connectors.planning.rewrites import check_followed
from floodmark.connectors.preflight import check_replaced, check_sinks_exist, has_lost_input
from floodmark.core.lifecycle.backfills import check_text
from floodmark.core.lifecycle.changes import check_state_columns, check_state_tables
from floodmark.core.lifecycle.corrections import counts_of, given_up
from floodmark.core.lifecycle.life import check_not_forgetting
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName
from floodmark.core.protocol.records.backfills import Backfill, Rewrite
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Lost, total
from floodmark.core.protocol.recovery import Gate, at_the_gate, check_unfailed, earlier_apps
from floodmark.core.protocol.ticks import tick
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import grows
from floodmark.errors import ReplayDiffers
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.rule import abandoning, evolution, generation, landing
from floodmark.spark.rule.analysis import analyse, frozen_columns, gained
from floodmark.spark.rule.backfill import backfilling, correcting
from floodmark.spark.rule.backfill.backfilling import BackfillResult, Recomputed
from floodmark.spark.rule.backfill.validity import is_valid
from floodmark.spark.rule.epochs.draining import Drainer
from floodmark.spark.rule.epochs.reports import CorrectionReport, RunReport
from floodmark.spark.rule.generation import Plan
from floodmark.spark.write.sites import Site

NO_REWRITES: Mapping[str, Sequence[Rewrite]] = {}


class HeldRule:
    """`begun`: whether this run started the generation."""

    def __init__(
        self,
        root: SparkSession,
        rule: Rule,
        home: Home,
        ledger: Ledger,
        report: RunReport,
        drainer: Drainer,
        begun: bool = False,
    ):
        self._root, self._rule, self._home, self._ledger = root, rule, home, ledger
        self._report, self._has_begun = report, begun
        self.drainer = drainer
        drainer.land = self._land
        self._fit: tuple[SparkSession, Plan] | None = None
        self._keeps = False  # state of the class before an edit, which may come back
        self.backfill: BackfillResult | None = None  # the open backfill that this run finished

    @property
    def head(self) -> Head:
        return self.drainer.head

    def work(self, skips: Mapping[str, Sequence[Rewrite]] = NO_REWRITES) -> None:
        """Finish what is open, then drain what is new. `skips`: deferred rewrites, by stream, that are given up."""
        if self.recover(go_on=not skips):
            return
        self.give_up(skips)
        self._plan_new()

    def give_up(self, skips: Mapping[str, Sequence[Rewrite]]) -> None:
        if left := given_up(self.head, skips):
            self._report.skipped = left
            over = tuple(name for name in left if self._rule.streams[name].on_rewrite == "skip")
            self._ledger.live(Life(what="skipped", streams=tuple(left), over=over))

    def recover(self, go_on: bool = True) -> bool:
        """Finish what is open. True if that continued to the end of the input, which `go_on` allows.

        Raises Refused while rows are being forgotten.
        """
        if self.head.seal is None:
            check_not_forgetting(self.head, self._rule.rule)
        while (step := at_the_gate(self.head)) is not Gate.PLAN:
            if self._take(step, go_on):
                return True
        return False

    def _take(self, step: Gate, go_on: bool) -> bool:
        """One step of `recover`, with the same result."""
        head = self.head
        if step in (Gate.FINISH_EPOCH, Gate.FINISH_BACKFILL):
            check_unfailed(head)
        if step is Gate.CHANGE_GENERATION:
            session, plan = analyse(self._root, self._rule, self._home, None, begins=True)
            generation.finish_change(session, plan, self._home, self._ledger)
            self._has_begun = True
        elif step is Gate.ABANDON:
            self.abandon()
        elif step is Gate.FINISH_BACKFILL:
            with self.drainer.remembered(self._rule.rule):
                self._finish_backfill(head)
        elif step is Gate.LOSE_EPOCH:
            self._lose(head)
        elif _is_overtaken(head, self._rule, self._home):
            _begin_rebuild(self._root, self._rule, self._home, self._ledger)
            self._has_begun = True
        else:
            return self._finish(head, go_on)
        return False

    def abandon(self) -> None:
        """Take the open epoch back, as a row of the ledger has announced."""
        self._report.abandoned.append(abandoning.finish(self._root, self._ledger, self._rule, self._home))

    def _finish(self, head: Head, go_on: bool) -> bool:
        """Finish the open epoch with the rule text in its intent; continue with that text if it is the current one."""
        assert head.open is not None
        text = text_now(head.open.rule, head, self._rule)
        same = go_on and not text.rebuild and head.open.rule == self._rule.to_json()
        same = same and not any(stream.on_rewrite == "correct" for stream in text.streams.values())
        same = same and not any(stream.landing for stream in text.streams.values())  # new rows are landed first
        same = same and not is_moved(head, self._rule) and not self._has_gained(head)
        check_sinks_exist(text, self._home, head)
        session, plan = self._analyse(text, head, intent=head.open)
        same = same and not plan.fold.shape.older
        self.drainer.check_tables()
        evolution.fit_quarantine(session, plan, self.drainer.sites(plan), head.epoch + 1)
        self.drainer.drain(session, plan, only_open=not same or plan.rule.epoch.max_seconds is not None)
        if same:
            if plan.rule.epoch.max_seconds is not None:
                self.drainer.drain_all(session, plan)
            self.drainer.tick(session, plan)
        return same

    def _has_gained(self, head: Head) -> bool:
        """Whether epochs after the open one read other columns."""
        frozen = frozen_columns(self._rule, head, head.open) if grows(self._rule) else {}
        return any(gained(self._rule, self._home, name, columns) for name, columns in frozen.items())

    def _finish_backfill(self, head: Head) -> None:
        """Finish the open backfill with the rule text in its intent."""
        assert head.backfill is not None
        self.drainer.check_tables()
        done = self._recomputed(head, text_now(head.backfill.rule, head, self._rule), head.backfill)
        self.backfill = backfilling.replace_interval(done, self._home, self._ledger)
        done.release()

    def plan_now(self) -> tuple[SparkSession, Plan]:
        """The current rule's session and plan, as this run has used them for epochs if it had any."""
        return self._fit or self._analyse(self._rule, self.head)

    def correct(self, done: Recomputed, basis: Head, insists: bool) -> bool:
        """Replace what a correction has computed as of `basis`.

        If the rule's epochs have touched that since, it is computed again if the caller `insists`; else False.
        """
        if not _is_deferred(done.intent, self.head):
            return True  # another run has corrected or skipped them
        session, plan = done.session, done.plan
        if self.head.seq != basis.seq:
            check_text(plan.rule, basis, self.head)
            session, plan = self.fit_to_go_on()
            if not is_valid(done, self._home, basis, self.head):
                done.release()
                if not insists:
                    return False
                done = correcting.compute(session, plan, self._home, self.head, self.drainer.now_us() // 1000)
        with self.drainer.remembered(plan.rule.rule):
            found = backfilling.replace_interval(done, self._home, self._ledger)
        done.release()
        left, came = counts_of(found.intent.rewrites)
        commits = tuple(commit for one in found.intent.rewrites.values() for commit in one.commits)
        self._report.corrections.append(CorrectionReport(found.intent.number, commits, left, came, found.sinks))
        self.drainer.advance(session, plan)
        return True

    def _recomputed(self, head: Head, text: Rule, recorded: Backfill) -> Recomputed:
        """The open backfill, with the column types that epochs have read; if it differs, with those of today.

        It started with one or the other: a source's owner can widen a type before a backfill or while one is open.
        """
        engine, lookups = recorded.engine, recorded.lookups
        session, plan = self._analyse(text, head, engine=engine, types=head.columns, lookups=lookups)
        try:
            return correcting.recompute(session, plan, self._home, head)
        except ReplayDiffers:
            if not plan.fold.shape.older:
                raise
        session, plan = self._analyse(text, head, engine=engine, lookups=lookups)
        return correcting.recompute(session, plan, self._home, head)

    def _lose(self, head: Head) -> None:
        """At qos 0, count an epoch with an open intent as lost instead of retrying it."""
        intent = head.open
        assert intent is not None
        counts = total(intent.counts)
        reach(self._rule.rule, "lost.before", head.epoch + 1)
        self._ledger.lose(
            Lost(
                intent=intent.digest,
                entry=intent.entry,
                watermark=intent.watermark,
                maxima=intent.maxima,
                heard=intent.heard,
                counts=intent.counts,
                log_sums=intent.log_sums,
                lost=counts.read - counts.filtered,
                lost_epochs=(*head.lost, head.epoch + 1),
                due=(intent.watermark_before, intent.watermark),
            )
        )
        self._report.lost.append(head.epoch + 1)
        reach(self._rule.rule, "lost.after", head.epoch + 1)

    def _land(self) -> None:
        """Copy new rows of the streams that have a landing."""
        self._report.landed += landing.land(self._root, self._rule, self._home, self.head, self.drainer.tell)

    def _plan_new(self) -> None:
        if not self._rule.rebuild:  # an edit that is refused leaves no columns in a landing
            check_same_sinks(self.head, self._rule, self._ledger.id)
        self._land()
        if self._rule.rebuild:
            if rebuild_due(self._rule, self._home, self._ledger) or self.drainer.closes:
                self._rebuild()
            return
        session, plan = self.fit_to_go_on(gaining=True)
        if not self.drainer.has_given_clock:
            self.drainer.drain_all(session, plan)
        elif self.drainer.is_behind(plan):
            self.drainer.drain_at_once(session, plan)
        self.drainer.tick(session, plan)
        if self._keeps:  # until an epoch of the edited class is committed
            evolution.fit_state(session, plan, self.drainer.sites(plan), self._ledger)

    def _rebuild(self) -> None:
        """Run a generation of one epoch over the whole input, which replaces all rows of the sinks."""
        check_replaced(self._rule, self._home)
        if not self._has_begun:
            _begin_rebuild(self._root, self._rule, self._home, self._ledger)
        session, plan = self.fit_to_go_on()
        until = self.drainer.close_until(plan)
        self.drainer.drain_at_once(session, plan, ticks=() if until is None else tick(until))

    def fit_to_go_on(self, gaining: bool = False) -> tuple[SparkSession, Plan]:
        """The current rule's session and plan, after checks that it, its tables and sinks fit the next epoch.

        `gaining`: before epochs of new rows, which are refused after an edit that has made a correction impossible.
        """
        head = self.head
        check_same_sinks(head, self._rule, self._ledger.id)
        if gaining and head.deferred:
            check_followed(self._rule, self._home, head)
        self.drainer.check_tables()
        session, plan = self._analyse(self._rule, head, gaining=gaining)
        kept = {name: table.names for name, table in plan.fold.tables.items()}
        check_state_columns(plan.rule.rule, head.columns, generation.columns_of(plan.fold.shape.streams), kept)
        evolution.check_parts(plan, self.drainer.sites(plan), head.columns)
        self._check_sinks(session, plan)
        self._keeps = evolution.fit_state(session, plan, self.drainer.sites(plan), self._ledger)
        evolution.fit_quarantine(session, plan, self.drainer.sites(plan))
        self._fit = session, plan
        return session, plan

    def _analyse(self, text: Rule, head: Head, **how: Any) -> tuple[SparkSession, Plan]:
        """A text's session and plan. Raises RuleChanged if the generation has other state than that of its SQL."""
        session, plan = analyse(self._root, text, self._home, head, **how)
        if plan.rule.process is None:
            stored = [name.rest for name in map(TableName.parse, head.table_ids) if name.is_state]
            check_state_tables(plan.rule.rule, stored, () if plan.rule.rebuild else plan.fold.tables)
        return session, plan

    def _check_sinks(self, session: SparkSession, plan: Plan) -> None:
        """Check the sinks' columns and give them their layout; create those that were added since the last epoch."""
        sites = self.drainer.sites(plan).sinks.values()
        _refit(session, plan, sites, self.head, self._ledger.id)
        check_partitions(plan.rule)
        check_columns(session, plan)
        for site in sites:
            if site.name not in self.head.table_ids:
                earlier = earlier_apps(self._ledger.id, self._ledger.since(0), self.head)
                plan.writable(site.address).check_no_old_rows(site.app, plan.rule.rule, earlier)
                generation.make_sink(session, plan, site, self._ledger.id)
            generation.lay_out(session, plan, site)


def _is_deferred(found: Backfill, head: Head) -> bool:
    """Whether the rewrites that a correction follows have yet to be corrected."""
    return all(
        head.deferred.get(name, ())[:1] and head.deferred[name][0].since == one.since
        for name, one in found.rewrites.items()
    )


def _is_overtaken(head: Head, rule: Rule, home: Home) -> bool:
    """Whether the open epoch is a rebuild that cannot be finished, because an input was overwritten or recreated."""
    assert head.open is not None
    text = text_now(head.open.rule, head, rule)
    return text.rebuild and rule.rebuild and has_lost_input(text, home, head)


def _begin_rebuild(root: SparkSession, rule: Rule, home: Home, ledger: Ledger) -> None:
    """Begin the generation of a rebuild. An open epoch is discarded: the new one replaces all that it has written."""
    check_replaced(rule, home)
    session, plan = analyse(root, rule, home, None)
    check_partitions(plan.rule)
    check_columns(session, plan)
    generation.start_change(ledger, rule.rule, keep_output=False, why=generation.REBUILD)
    generation.finish_change(session, plan, home, ledger)


def _refit(session: SparkSession, plan: Plan, sites: Iterable[Site], head: Head, ledger: str) -> None:
    """Give sinks that an older text of the rule has made, and that no epoch has written, the layout of today."""
    fresh = refitted(plan.rule, head, ledger)
    for site in sites:
        if site.address in fresh or (plan.sinks[site.address].outbox and site.name not in head.table_ids):
            generation.make_sink(session, plan, site, ledger)


def check_columns(session: SparkSession, plan: Plan) -> None:
    """Raise WrongColumn where a sink has other columns than the rule gives."""
    for address in plan.sinks:
        plan.writable(address).check_columns(session, plan.layout(address))
