"""One run of a rule: the gate, then every epoch that is due."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.abandoning import Readers, check_before
from floodmark.connectors.delta.table import DeltaSink, check_partitions, delta_sinks
from floodmark.connectors.lookups import pinned_now
from floodmark.connectors.news import rebuild_due
from floodmark.connectors.pacing import paced
from floodmark.connectors.places import check_goes_on, head_now, is_moved, text_now
from floodmark.connectors.preflight import check_replaced, check_sources, check_there, check_without_jvm
from floodmark.connectors.registry import sources
from floodmark.core.lifecycle.abandoning import abandonable
from floodmark.core.lifecycle.backfills import Asked, stands
from floodmark.core.lifecycle.changes import check_kept
from floodmark.core.lifecycle.life import check_living, refuse_rebuilt
from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.process.loading import load_class
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.places import moves
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns, Intent, Life, Lost, Replay, total
from floodmark.core.protocol.recovery import Gate, at_the_gate, check_unfailed, failure_words
from floodmark.core.protocol.ticks import due, tick
from floodmark.core.rules.checks.columns import check_expressions
from floodmark.core.rules.rule import EpochLimits, Rule
from floodmark.core.rules.sinks.takings import grows
from floodmark.errors import Refused, SqlRefused, VerifyFailed
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.spark.fold.folds import fold_of
from floodmark.spark.read import lookups, replaying
from floodmark.spark.read.batch import shape_of, union
from floodmark.spark.read.expecting import asked_of
from floodmark.spark.rule import abandoning, backfilling, evolution, gate, generation
from floodmark.spark.rule.backfilling import Put, Recomputed
from floodmark.spark.rule.epoch import EpochFolder, EpochReport
from floodmark.spark.rule.generation import Plan
from floodmark.spark.rule.naming import check_named
from floodmark.spark.rule.storing import check_stored
from floodmark.spark.session import checkpoint, lock
from floodmark.spark.session.faults import explained
from floodmark.spark.session.jvm import without_rows
from floodmark.spark.session.session import cut, rule_session
from floodmark.spark.write import layouts
from floodmark.spark.write.taking import check_takings
from floodmark.spark.write.upsertchecks import check_upserts

Report = Callable[[EpochReport], None]


@dataclass
class RunReport:
    """What a run did."""

    rule: str
    epochs: list[EpochReport] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    head: Head | None = None


class _OnlyTheOpenEpoch(Exception):
    """Ends a query whose rule text was to finish one epoch and plan no other."""


def analyse(
    root: SparkSession,
    rule: Rule,
    head: Head | None,
    intent: Intent | None = None,
    gaining: bool = False,
    engine: Mapping[str, str] | None = None,
) -> tuple[SparkSession, Plan]:
    """The rule's session and plan. Raises SqlRefused or WrongColumn where Spark finds fault with SQL or columns.

    `gaining`: for epochs to come, which read columns that the streams have gained, where the rule wants these.
    `engine`: what the backfill ran on that is to be finished, if one is.
    """
    check_expressions(rule)
    ansi = intent.ansi if intent else rule.ansi
    session = rule_session(root, rule, intent.zone if intent else rule.timezone, ansi)
    cut(session, intent.engine if intent else engine or {})
    frozen = _frozen_columns(rule, head, intent)
    if gaining and grows(rule):
        frozen = {name: [*columns, *_gained(rule, name, columns)] for name, columns in frozen.items()}
    lookups.show_columns(session, rule, intent.lookups if intent else pinned_now(rule))
    try:
        fold = fold_of(rule, shape_of(session, rule, frozen, _recorded(head, intent)), session)
        output = fold.output_schema(session)
    except AnalysisException as fault:
        raise SqlRefused(f"rule {rule.rule}: {_first_line(fault)}") from fault
    generation.check_output(rule, output)
    check_upserts(session, rule, output)
    check_takings(session, rule, output)
    asked = asked_of(without_rows(session, output), rule.expect, f"rule {rule.rule}, results")
    plan = Plan(rule, fold, output, asked)
    if intent is None:  # an open epoch is finished with the tables that it has
        check_stored(plan)
        check_named(plan)
    return session, plan


def _frozen_columns(rule: Rule, head: Head | None, intent: Intent | None) -> dict[str, list[str]]:
    """`SELECT *` means the columns that the epochs have read so far, whatever the table has gained since."""
    if head is None or head.seal is not None or not rule.query.star:
        return {}
    return {
        name: [column for column, _ in columns if column != _made_time(rule, name)]
        for name, columns in _known(head, intent).items()
    }


def _recorded(head: Head | None, intent: Intent | None) -> Columns:
    """The columns that an open epoch was begun with. An intent before format 8 does not say which types changed."""
    if head is None or intent is None or intent.format < 8:
        return {}
    return _known(head, intent)


def _known(head: Head, intent: Intent | None) -> Columns:
    """The columns that epochs have read so far, the open one if there is one."""
    return (intent.columns if intent else {}) or head.columns


def _gained(rule: Rule, stream: str, known: list[str]) -> list[str]:
    """The columns of a stream's table beside those that are known."""
    there = {column.lower() for column in (*known, _made_time(rule, stream) or "")}
    return [column for column in sources(rule)[stream].columns() if column.lower() not in there]


def _made_time(rule: Rule, stream: str) -> str | None:
    """The event time that a stream's table has not, for an expression makes it."""
    time = rule.streams[stream].event_time
    return time.name if time and time.expr else None


def _import(rule: Rule) -> None:
    """Refuse a class whose module cannot be run here, while nothing is written."""
    if rule.process is not None:
        load_class(rule.process.source, rule.process.file, rule.process.name)


def _first_line(fault: PySparkException) -> str:
    return str(fault).split("\n", 1)[0]


class RuleRun:
    """One rule, one run, one holder of its lock."""

    def __init__(
        self,
        root: SparkSession,
        rule: Rule,
        home_root: Path,
        run: str,
        report: Report,
        close_until: datetime | None = None,
        clock_ms: int | None = None,
    ):
        """`close_until`: after all input, take it as complete up to there.

        `clock_ms`: for tests of rules, the recorded clock in milliseconds since 1970; else it is this machine's.
        """
        self._root, self._rule, self._run, self._close_until = root, rule, run, close_until
        self._clock_ms = clock_ms
        self._home = Home(home_root.absolute(), rule.rule)
        self._report = RunReport(rule.rule)
        self._tell = report

    def run(self) -> RunReport:
        """Finish what is open, then drain what is new."""
        check_without_jvm(self._rule, self._home.root)
        _import(self._rule)
        self._home.path.mkdir(parents=True, exist_ok=True)
        with explained(self._rule.rule), lock.held(self._root, self._home.lock, self._run):
            self._work()
        return self._report

    def reset(self, keep_output: bool) -> RunReport:
        """A new generation from the start of the input."""
        check_without_jvm(self._rule, self._home.root)
        _import(self._rule)
        with explained(self._rule.rule), lock.held(self._root, self._home.lock, self._run):
            known = LedgerReader.load(self._home.ledger)
            generation.refuse_nothing_to_reset(known, self._rule.rule)
            ledger = self._open_ledger(known)
            generation.refuse_adopted(self._rule, keep_output)
            session, plan = analyse(self._root, self._rule, None)
            if keep_output:
                check_partitions(plan.rule)
                self._check_columns(session, plan)
            generation.start_change(ledger, self._rule.rule, keep_output)
            generation.finish_change(session, plan, self._home, ledger)
            self._report.head = ledger.head
        return self._report

    def abandon(self, readers: Readers) -> RunReport:
        """Take the open epoch back. `readers`: of tables, by `identity`, in words."""
        check_before(self._rule, self._home.root)
        with explained(self._rule.rule), lock.held(self._root, self._home.lock, self._run):
            known = LedgerReader.load(self._home.ledger)
            abandonable(known.head if known else None, self._rule.rule)
            ledger = self._open_ledger(known)
            abandoning.begin(ledger, self._rule, readers)
            self._abandon(ledger)
            self._report.head = ledger.head
        return self._report

    def _abandon(self, ledger: Ledger) -> None:
        """Go on with what a row has announced."""
        self._report.abandoned.append(abandoning.finish(self._root, ledger, self._rule))

    def replay(self, wanted: Callable[[Head], Replay]) -> RunReport:
        """Finish what is open, then fold dead rows once more, in an epoch of their own, if any are wanted."""
        check_without_jvm(self._rule, self._home.root)
        _import(self._rule)
        with explained(self._rule.rule), lock.held(self._root, self._home.lock, self._run):
            self._replay(wanted)
        return self._report

    def _open_ledger(self, known: LedgerReader | None = None) -> Ledger:
        """The ledger of a rule that may go on. Raises Retired, and Refused in the middle of a rename.

        `known`: as it was loaded with the lock held.
        """
        ledger = Ledger.open(self._home.ledger, self._run, known)
        check_living(ledger.head, self._rule.rule)
        self._find_sinks(ledger)
        return ledger

    def _find_sinks(self, ledger: Ledger) -> None:
        """Say in the ledger which of its sinks lie elsewhere by now, before anything is made of that."""
        head = ledger.head
        moved = moves(head, head_now(head, self._rule, ledger.id)) if head else {}
        if moved:
            ledger.live(Life(what="moved", places=moved))

    def _replay(self, wanted: Callable[[Head], Replay]) -> None:
        refuse_rebuilt(self._rule, "dead rows")
        checkpoint.sweep(self._home.checkpoints)
        known = LedgerReader.load(self._home.ledger)
        if known is None or known.head is None:
            raise Refused(f"rule {self._rule.rule} has not run yet: there is nothing to replay")
        ledger = self._open_ledger(known)
        while (step := at_the_gate(ledger.head)) is not Gate.PLAN:
            self._take(step, ledger, go_on=False)
        head = ledger.head
        assert head is not None
        session, plan = self._fit_to_go_on(ledger, head)
        replay = wanted(head)
        if replaying.count(session, self._home.dead, head, replay):
            self._drain(session, plan, ledger, only_open=True, replay=replay)
        self._report.head = ledger.head

    def rehearse_backfill(self, wanted: Callable[[Head], Asked]) -> Put:
        """What a backfill would do now. Writes nothing, and takes no lock."""
        with explained(self._rule.rule):
            return backfilling.rehearsed(self._recompute(self._begun(), wanted))

    def backfill(self, wanted: Callable[[Head], Asked], wait: float, say: Callable[[str], None]) -> Put:
        """Compute an interval again beside other runs; then, with the lock, put it into the sinks.

        `wanted`: the interval, given where the rule stands; asked anew once the lock is held, and it may refuse then.
        `wait`: seconds to wait for the run that holds the rule at most; `say`: told of each step.
        """
        check_without_jvm(self._rule, self._home.root)
        with explained(self._rule.rule):
            basis = self._begun()
            done = None
            if at_the_gate(basis) in (Gate.PLAN, Gate.FINISH_EPOCH):
                say(f"computing the interval again, from what {basis.epoch} epochs have read")
                done = self._recompute(basis, wanted)
            reach(self._rule.rule, "backfill.computed", basis.epoch)
            with lock.waited_for(self._root, self._home.lock, self._run, wait, say):
                return self._put(done, basis, wanted, say)

    def _put(
        self, done: Recomputed | None, basis: Head, wanted: Callable[[Head], Asked], say: Callable[[str], None]
    ) -> Put:
        checkpoint.sweep(self._home.checkpoints)
        self._begun()  # else a ledger would be made anew where the rule was dropped while this waited
        ledger = self._open_ledger()
        while (step := at_the_gate(ledger.head)) is not Gate.PLAN:
            self._take(step, ledger, go_on=False)
        head = ledger.head
        assert head is not None
        asked = wanted(head)
        if self._finished is not None and self._is_asked(self._finished, asked):
            return self._finished
        session, plan = self._fit_to_go_on(ledger, head)
        if done is None or not stands(wanted(basis), basis, head):
            say("computing the interval with the rule held, for it has gone on")
            if done is not None:
                done.release()
            done = backfilling.compute(session, plan, self._home, head, asked)
        say("replacing the interval in the sinks")
        with self._remembered(ledger):
            found = backfilling.put(done, self._home, ledger)
        done.release()
        return found

    _finished: Put | None = None  # a backfill that was open
    _checked: Head | None = None  # whose tables were found fit
    _has_begun = False  # a generation, in this very run

    def _is_asked(self, found: Put, asked: Asked) -> bool:
        same = (found.intent.begin, found.intent.end) == (asked.begin, asked.end)
        return same and found.intent.rule == self._rule.to_json()

    def _begun(self) -> Head:
        known = LedgerReader.load(self._home.ledger)
        if known is None or known.head is None:
            raise Refused(f"rule {self._rule.rule} has not run yet: there is nothing to compute again")
        check_living(known.head, self._rule.rule)
        return head_now(known.head, self._rule, known.id)

    def _recompute(self, head: Head, wanted: Callable[[Head], Asked]) -> Recomputed:
        head = check_goes_on(head, self._rule)
        asked = wanted(head)
        for address in delta_sinks(self._rule):
            DeltaSink(address).check_replaceable()
        session, plan = analyse(self._root, self._rule, head)
        return backfilling.compute(session, plan, self._home, head, asked)

    def _work(self) -> None:
        checkpoint.sweep(self._home.checkpoints)
        known = LedgerReader.load(self._home.ledger)
        if known is None or known.head is None:
            session, plan = analyse(self._root, self._rule, None)
            ledger = generation.begin_first(session, plan, self._home, self._run, self._now_us() // 1000)
            self._has_begun = True
        else:
            ledger = self._open_ledger(known)
        while (step := at_the_gate(ledger.head)) is not Gate.PLAN:
            if self._take(step, ledger):
                break
        else:
            self._plan_new(ledger)
        self._report.head = ledger.head

    def _take(self, step: Gate, ledger: Ledger, go_on: bool = True) -> bool:
        """Take one step of recovery; True if the run went on to the end of the input with it, where it may `go_on`."""
        head = ledger.head
        assert head is not None
        if step in (Gate.FINISH_EPOCH, Gate.FINISH_BACKFILL):
            check_unfailed(head)
        if step is Gate.CHANGE_GENERATION:
            session, plan = analyse(self._root, self._rule, None)
            generation.finish_change(session, plan, self._home, ledger)
            self._has_begun = True
        elif step is Gate.ABANDON:
            self._abandon(ledger)
        elif step is Gate.FINISH_BACKFILL:
            with self._remembered(ledger):
                self._finish_backfill(ledger, head)
        elif step is Gate.LOSE_EPOCH:
            self._lose(ledger, head)
        else:
            return self._finish(ledger, head, go_on)
        return False

    def _finish(self, ledger: Ledger, head: Head, go_on: bool) -> bool:
        """Finish the open epoch with the rule text that its intent holds; go on with it if that is today's."""
        assert head.open is not None
        text = text_now(head.open.rule, head, self._rule)
        same = go_on and not text.rebuild and head.open.rule == self._rule.to_json()
        same = same and not is_moved(head, self._rule) and not self._has_gained(head)
        check_there(text, head)
        session, plan = analyse(self._root, text, head, head.open)
        same = same and not plan.fold.shape.older
        self._check_tables(head, ledger)
        evolution.fit_apart(session, plan, self._sites(plan, ledger), head.epoch + 1)
        self._drain(session, plan, ledger, only_open=not same or plan.rule.epoch.max_seconds is not None)
        if same:
            if plan.rule.epoch.max_seconds is not None:
                self._drain_all(session, plan, ledger)
            self._tick(session, plan, ledger)
        return same

    def _has_gained(self, head: Head) -> bool:
        """Whether the epochs after the open one read other columns."""
        frozen = _frozen_columns(self._rule, head, head.open) if grows(self._rule) else {}
        return any(_gained(self._rule, name, columns) for name, columns in frozen.items())

    def _finish_backfill(self, ledger: Ledger, head: Head) -> None:
        """With the rule text that its intent holds."""
        assert head.backfill is not None
        self._check_tables(head, ledger)
        text = text_now(head.backfill.rule, head, self._rule)
        session, plan = analyse(self._root, text, head, engine=head.backfill.engine)
        done = backfilling.again(session, plan, self._home, head)
        self._finished = backfilling.put(done, self._home, ledger)
        done.release()

    def _plan_new(self, ledger: Ledger) -> None:
        head = ledger.head
        assert head is not None
        if self._rule.rebuild:
            if rebuild_due(self._rule, ledger) or self._close_until is not None:
                self._rebuild(ledger)
            return
        session, plan = self._fit_to_go_on(ledger, head, gaining=True)
        if self._clock_ms is None:
            self._drain_all(session, plan, ledger)
        elif self._is_behind(plan, ledger):
            ends = tuple(source.end() for source in sources(plan.rule).values())
            self._drain(session, plan, ledger, only_open=True, to=ends)
        self._tick(session, plan, ledger)

    def _rebuild(self, ledger: Ledger) -> None:
        """A generation of one epoch, from the start of the input to its end, which replaces what the sinks hold."""
        head = ledger.head
        assert head is not None
        check_replaced(self._rule)
        if not self._has_begun:
            session, plan = analyse(self._root, self._rule, None)
            check_partitions(plan.rule)
            self._check_columns(session, plan)
            generation.start_change(ledger, self._rule.rule, keep_output=False, why=generation.REBUILD)
            generation.finish_change(session, plan, self._home, ledger)
        head = ledger.head
        assert head is not None
        session, plan = self._fit_to_go_on(ledger, head)
        ends = tuple(source.end() for source in sources(plan.rule).values())
        until = None if self._close_until is None else micros_of(self._close_until, plan.rule, zoned(plan.rule, head))
        self._drain(session, plan, ledger, only_open=True, to=ends, ticks=() if until is None else tick(until))

    def _drain_all(self, session: SparkSession, plan: Plan, ledger: Ledger) -> None:
        """All that is there now; where epochs are to take so long, in queries of one epoch, each by the rate so far."""
        if plan.rule.epoch.max_seconds is None:
            self._drain(session, plan, ledger, only_open=False)
            return
        ends = [source.newest() for source in sources(plan.rule).values()]
        before = -1
        while self._is_behind(plan, ledger, ends) and ledger.head is not None and ledger.head.epoch > before:
            before = ledger.head.epoch
            self._drain(session, plan, ledger, only_open=True, limits=paced(plan.rule, ledger))

    def _now_us(self) -> int:
        return time.time_ns() // 1000 if self._clock_ms is None else self._clock_ms * 1000

    def _fit_to_go_on(self, ledger: Ledger, head: Head, gaining: bool = False) -> tuple[SparkSession, Plan]:
        """Today's rule, once it, its tables and its sinks are found fit for the epoch after the head."""
        check_goes_on(head, self._rule, ledger.id)
        self._check_tables(head, ledger)
        session, plan = analyse(self._root, self._rule, head, gaining=gaining)
        if plan.rule.process is None:
            kept = {name: table.names for name, table in plan.fold.tables.items()}
            check_kept(plan.rule.rule, head.columns, generation.columns_of(plan.fold.shape.streams), kept)
        self._check_sinks(session, plan, ledger)
        evolution.fit_state(session, plan, self._sites(plan, ledger), ledger)
        evolution.fit_apart(session, plan, self._sites(plan, ledger))
        return session, plan

    def _tick(self, session: SparkSession, plan: Plan, ledger: Ledger) -> None:
        """Close what is to be closed though no more input has come. What came while the run was at work goes first."""
        if self._is_behind(plan, ledger):
            if self._close_until is None:
                return
            self._drain_all(session, plan, ledger)
        head = ledger.head
        assert head is not None
        asked = None if self._close_until is None else micros_of(self._close_until, plan.rule, zoned(plan.rule, head))
        until = due(plan.rule, head, self._now_us(), asked)
        if until is not None:
            self._drain(session, plan, ledger, only_open=False, ticks=tick(until))

    def _is_behind(self, plan: Plan, ledger: Ledger, upto: Sequence[int | None] = ()) -> bool:
        """Whether there is input that is not read; `upto`: by stream, the last version that counts."""
        assert ledger.head is not None
        found = list(sources(plan.rule).values())
        lines = zip(found, ledger.head.entry.offsets, upto or [None] * len(found), strict=True)
        return any(source.news(line, version) for source, line, version in lines)

    def _check_sinks(self, session: SparkSession, plan: Plan, ledger: Ledger) -> None:
        """Sinks have the rule's columns and layout; those that were added since the last epoch are made."""
        assert ledger.head is not None
        check_partitions(plan.rule)
        self._check_columns(session, plan)
        for site in self._sites(plan, ledger).sinks.values():
            if site.name not in ledger.head.table_ids:
                DeltaSink(site.address).check_nothing_left(site.app, plan.rule.rule)
                generation.make_sink(session, plan, site, ledger.id)
            generation.lay_out(session, plan, site)

    def _check_columns(self, session: SparkSession, plan: Plan) -> None:
        for address, sink in plan.delta_sinks.items():
            layouts.check_columns(session, f"sink/{address}", address, plan.table(address), sink.adds_columns)

    def _lose(self, ledger: Ledger, head: Head) -> None:
        """At qos 0 an epoch whose intent is met again is not redone, but counted."""
        intent = head.open
        assert intent is not None
        counts = total(intent.counts)
        reach(self._rule.rule, "lost.before", head.epoch + 1)
        ledger.lose(
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

    def _sites(self, plan: Plan, ledger: Ledger) -> generation.Sites:
        assert ledger.head is not None
        head = ledger.head
        return generation.sites_of(plan, self._home, ledger.id, head.generation, head.token, head)

    def _drain(
        self,
        session: SparkSession,
        plan: Plan,
        ledger: Ledger,
        only_open: bool,
        ticks: tuple[str, ...] = (),
        replay: Replay | None = None,
        to: tuple[str, ...] | None = None,
        limits: EpochLimits | None = None,
    ) -> None:
        """Let Spark plan and fold until the input is drained; `ticks`, `replay`: after an epoch that is one.

        `to`: after an epoch that is planned already, to these offsets. `limits`: of epochs, in place of the rule's.
        """
        head = ledger.head
        assert head is not None
        found = self._sites(plan, ledger)
        self._check_tables(head, ledger)
        check_sources(plan.rule, head)
        open_entry = Entry.parse(head.open.entry) if head.open else None
        if ticks or replay is not None or to is not None:
            open_entry = Entry(self._now_us() // 1000, to or head.entry.offsets)
        directory = checkpoint.make(self._home.checkpoints, head.entry, open_entry, plan.rule.spark.shuffle_partitions)
        reach(self._rule.rule, "offsets.before", head.epoch + 1)
        folder = EpochFolder(session, plan, found, ledger, directory, self._told, ticks, replay)
        rule = plan.rule if limits is None else plan.rule.model_copy(update={"epoch": limits})
        with self._remembered(ledger):
            _Query(folder, only_open).run(union(session, rule, plan.fold.shape), directory)
        if self._report.epochs:
            reach(self._rule.rule, "sparkcommit.after", self._report.epochs[-1].epoch)
        shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def _remembered(self, ledger: Ledger) -> Iterator[None]:
        """Have the ledger say which check failed, so that no later run passes it by."""
        try:
            yield
        except VerifyFailed as fault:
            head = ledger.head
            if head is None or (head.open or head.backfill) is None or at_the_gate(head) is Gate.LOSE_EPOCH:
                raise
            said = failure_words(head, self._rule.rule, str(fault))
            ledger.live(Life(what="failed", said=said))
            raise VerifyFailed(said) from fault

    def _told(self, epoch: EpochReport) -> None:
        self._report.epochs.append(epoch)
        self._tell(epoch)

    def _check_tables(self, head: Head, ledger: Ledger) -> None:
        """Once for each head: with the lock held, nobody but this run writes them."""
        if head is not self._checked:
            gate.check(head, generation.old_sites(head, self._home, ledger.id))
            self._checked = head


class _Query:
    """One streaming query. Spark wraps what a batch raised; this keeps the error itself."""

    def __init__(self, folder: EpochFolder, only_open: bool):
        self._folder, self._only_open = folder, only_open
        self._failure: Exception | None = None
        self._busy = threading.Lock()

    def run(self, frame: DataFrame, directory: Path) -> None:
        query = (
            frame.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(directory))
            .foreachBatch(self._batch)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            if self._failure is not None:
                raise self._failure from None
            if not self._ended_on_purpose:
                raise
        finally:
            query.stop()
            with self._busy:  # the lock is freed only when every write that was begun has ended
                pass

    _ended_on_purpose = False

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._only_open and batch_id > checkpoint.HEAD + 1:
                self._ended_on_purpose = True
                raise _OnlyTheOpenEpoch
            try:
                self._folder.fold(frame, batch_id)
            except Exception as fault:
                self._failure = fault
                raise
