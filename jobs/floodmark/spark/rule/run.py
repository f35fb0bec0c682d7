"""One run of a rule: first recovery at the gate, then every epoch that is due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from floodmark.connectors.abandoning import Readers, check_before
from floodmark.connectors.backlog.landings import check_sources_go_on
from floodmark.connectors.delta.lookups import pinned_now
from floodmark.connectors.delta.sink import check_partitions
from floodmark.connectors.places import check_same_sinks, head_now
from floodmark.connectors.planning import checkpoint
from floodmark.connectors.planning.rewrites import check_followed, deferred, rewrites
from floodmark.connectors.ports.registry import sinks
from floodmark.connectors.preflight import check_start_versions, check_without_jvm
from floodmark.connectors.relay.backlogs import check_rest
from floodmark.core.lifecycle.abandoning import abandonable
from floodmark.core.lifecycle.backfills import Interval, as_computed, is_requested, is_still_valid
from floodmark.core.lifecycle.corrections import check_uncut, settled_at
from floodmark.core.lifecycle.life import check_living, left_to, refuse_rebuilt
from floodmark.core.process.context import Declaration
from floodmark.core.process.loading import check_as_read, load_class
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import moves
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.protocol.records.following import with_deferred
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Replay
from floodmark.core.protocol.recovery import Gate, at_the_gate
from floodmark.core.rules.checks.recomputing import has_keys
from floodmark.core.rules.rule import Rule
from floodmark.errors import Busy, Refused
from floodmark.ledger.forgetting import check_forget_ended
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.ledger.renaming import check_not_renamed
from floodmark.spark.read import replaying
from floodmark.spark.read.frames import Foreseen
from floodmark.spark.rule import abandoning, generation, landing
from floodmark.spark.rule.analysis import analyse
from floodmark.spark.rule.backfill import backfilling, bykey, correcting, everything, rehearsing, sessions
from floodmark.spark.rule.backfill.backfilling import BackfillResult, Recomputed
from floodmark.spark.rule.backfill.rehearsing import Rehearsed
from floodmark.spark.rule.backfill.rereading import PastRows, late_times, uncut_by
from floodmark.spark.rule.epochs.draining import Drainer
from floodmark.spark.rule.epochs.reports import Report, RunReport
from floodmark.spark.rule.generation import Plan
from floodmark.spark.rule.held import NO_REWRITES, HeldRule, check_columns
from floodmark.spark.session import lock
from floodmark.spark.session.faults import explained

BESIDE = 2  # how often is computed without the rule's lock, if epochs come meanwhile, before it is with the lock
LONGEST_WAIT = 3600.0  # seconds that a computed correction waits for another run to leave the rule


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
        """`close_until`: after all input, treat it as complete up to this time.

        `clock_ms`: for tests of rules, the recorded clock in milliseconds since 1970; otherwise this machine's.
        """
        self._root, self._rule, self._run, self._close_until = root, rule, run, close_until
        self._clock_ms = clock_ms
        self._home = Home(home_root.absolute(), rule.rule)
        self._report, self._tell = RunReport(rule.rule), report

    def run(self, skips: Mapping[str, Sequence[Rewrite]] = NO_REWRITES) -> RunReport:
        """Finish what is open, drain what is new, and correct deferred rewrites, except those that it `skips`."""
        self._check_first()
        self._home.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            checkpoint.sweep(self._home.checkpoints)
            known = LedgerReader.load(self._home.ledger)
            held = self._begin() if known is None or known.head is None else self._held(self._open_ledger(known))
            held.work(skips)
            self._report.head = held.head
        if held.head.deferred:
            self._correct_deferred(held)
        return self._report

    def _correct_deferred(self, held: HeldRule) -> None:
        """Correct deferred rewrites; other runs may hold the rule meanwhile. One run at a time computes this."""
        with ExitStack() as stack:
            try:
                stack.enter_context(lock.held(self._root, self._home.correcting, self._run))
            except Busy as fault:
                self._report.left = left_to(held.head, str(fault))
                return
            while held.head.deferred:
                held = self._correct(held)
            self._report.head = held.head

    def _correct(self, held: HeldRule) -> HeldRule:
        """Compute without the rule's lock, then take it for the commit."""
        for left in reversed(range(BESIDE)):
            basis = held.head
            with explained(self._rule.rule):
                session, plan = held.plan_now()
                done = correcting.compute(session, plan, self._home, basis, self._now_ms())
                reach(self._rule.rule, "backfill.computed", basis.epoch)
                with lock.waited_for(self._root, self._home.lock, self._run, LONGEST_WAIT, lambda _: None):
                    held = self._held_again(held)
                    if held.correct(done, basis, insists=not left):
                        break
        return held

    def _held_again(self, held: HeldRule) -> HeldRule:
        """The rule whose lock this run has taken again; what others have left open is finished."""
        known = self._known("correct")
        if known.begun.seq == held.head.seq:
            return held
        held = self._held(self._open_ledger(known))
        held.recover(go_on=False)
        return held

    def reset(self, keep_output: bool) -> RunReport:
        """Start a new generation from the start of the input."""
        self._check_first()
        with self._locked():
            known = LedgerReader.load(self._home.ledger)
            generation.refuse_nothing_to_reset(known, self._rule.rule)
            ledger = self._open_ledger(known)
            generation.refuse_adopted(self._rule, self._home, keep_output)
            check_sources_go_on(self._rule, self._home)
            check_start_versions(self._rule, self._home)
            session, plan = analyse(self._root, self._rule, self._home, None, begins=True)
            landing.check_columns(session, self._rule, self._home)
            _check_columns(session, plan, self._home, ledger, keep_output)
            generation.start_change(ledger, self._rule.rule, keep_output)
            generation.finish_change(session, plan, self._home, ledger)
            self._report.head = ledger.head
        return self._report

    def abandon(self, readers: Readers) -> RunReport:
        """Take the open epoch back. `readers`: of tables, by `identity`, in words."""
        check_before(self._rule, self._home.root)
        with self._locked():
            known = LedgerReader.load(self._home.ledger)
            abandonable(known.head if known else None, self._rule.rule)
            ledger = self._open_ledger(known)
            abandoning.begin(ledger, self._rule, self._home, readers)
            held = self._held(ledger)
            held.abandon()
            self._report.head = held.head
        return self._report

    def replay(self, wanted: Callable[[Head], Replay]) -> RunReport:
        """Finish what is open, then fold the `wanted` dead rows again, if there are any, in an epoch of their own."""
        self._check_first()
        with self._locked():
            refuse_rebuilt(self._rule, "dead rows")
            checkpoint.sweep(self._home.checkpoints)
            held = self._held(self._open_ledger(self._known("replay")))
            held.recover(go_on=False)
            session, plan = held.fit_to_go_on()
            replay = wanted(held.head)
            with closing(PastRows(session, plan, self._home, held.head, replaying=True)) as past:
                left = past.dead is not None and replaying.count(past.dead, held.head, replay)
            if left:
                held.drainer.drain(session, plan, only_open=True, replay=replay)
            self._report.head = held.head
        return self._report

    def rehearse_backfill(self, wanted: Callable[[Head], Interval]) -> Rehearsed:
        """What a backfill would do now. Writes nothing, and takes no lock."""
        _check_class(self._rule)
        with explained(self._rule.rule):
            return rehearsing.rehearsed(self._recompute(self._begun(), wanted))

    def rehearse_correction(self, foreseen: Mapping[str, Foreseen] | None = None) -> Rehearsed | None:
        """What a correction of the present rewrites would do, as a run would find them. Writes nothing, takes no lock.

        None: nothing was rewritten. foreseen: streams as they would be after a rewrite, in place of the present ones.
        """
        _check_class(self._rule)
        with explained(self._rule.rule):
            head = _with_rewrites(self._rule, self._home, check_same_sinks(self._begun(), self._rule), foreseen)
            if not head.deferred:
                return None
            session, plan = analyse(self._root, self._rule, self._home, head)
            plan = replace(plan, foreseen=rehearsing.shown_in(session, foreseen or {}))
            return rehearsing.rehearsed(correcting.compute(session, plan, self._home, head, self._now_ms()))

    def backfill(self, wanted: Callable[[Head], Interval], wait: float, say: Callable[[str], None]) -> BackfillResult:
        """Compute an interval again beside other runs; then, with the lock, replace it in the sinks.

        `wanted`: returns the interval for a head; called again with the lock held, when it may refuse.
        `wait`: the most seconds to wait for another run's lock; `say`: reports each step.
        """
        self._check_first()
        with explained(self._rule.rule):
            found, left = None, BESIDE
            while found is None:
                left -= 1
                basis, done = self._begun(), None
                if at_the_gate(basis) in (Gate.PLAN, Gate.FINISH_EPOCH):
                    say(f"recomputing results from the input of {basis.epoch} epochs")
                    done = self._recompute(basis, wanted)
                reach(self._rule.rule, "backfill.computed", basis.epoch)
                with lock.waited_for(self._root, self._home.lock, self._run, wait, say):
                    found = self._replace_interval(done, basis, wanted, say, insists=not left)
            return found

    def _replace_interval(
        self,
        done: Recomputed | None,
        basis: Head,
        wanted: Callable[[Head], Interval],
        say: Callable[[str], None],
        insists: bool,
    ) -> BackfillResult | None:
        """None: what was computed does not hold any more, and the caller does not insist on computing with the lock."""
        checkpoint.sweep(self._home.checkpoints)
        self._known("compute again")  # otherwise a ledger would be recreated if the rule was dropped during the wait
        ledger = self._open_ledger()
        held = self._held(ledger)
        held.recover(go_on=False)
        head = held.head
        interval = wanted(head)
        if held.backfill and is_requested(held.backfill.intent, self._rule, interval, pinned_now(self._rule)):
            return held.backfill
        session, plan = held.fit_to_go_on()
        if done is None or not is_still_valid(as_computed(self._rule, wanted(basis), done.intent), basis, head):
            if done is not None:
                done.release()
                if not insists:
                    return None
            say("recomputing results with the rule held, because the rule has continued")
            done = _computed(session, plan, self._home, head, interval)
        say("replacing results in the sinks")
        with held.drainer.remembered(self._rule.rule):
            found = backfilling.replace_interval(done, self._home, ledger)
        done.release()
        return found

    def _recompute(self, head: Head, wanted: Callable[[Head], Interval]) -> Recomputed:
        head = check_same_sinks(head, self._rule)
        interval = wanted(head)
        for sink in sinks(self._rule, self._home).values():
            sink.check_replaceable()
        session, plan = analyse(self._root, self._rule, self._home, head)
        return _computed(session, plan, self._home, head, interval)

    def _check_first(self) -> None:
        """Run the checks that write nothing, including that a class can be imported here, and is as it was read."""
        check_without_jvm(self._rule, self._home.root)
        _check_class(self._rule)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with explained(self._rule.rule), lock.held(self._root, self._home.lock, self._run):
            yield

    def _begin(self) -> HeldRule:
        """Start the rule's first generation."""
        check_not_renamed(self._home)  # a rename may have come between the first checks and the lock
        session, plan = analyse(self._root, self._rule, self._home, None)
        return self._held(generation.begin_first(session, plan, self._home, self._run, self._now_ms()), begun=True)

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self._clock_ms is None else self._clock_ms

    def _held(self, ledger: Ledger, begun: bool = False) -> HeldRule:
        drainer = Drainer(self._home, ledger, self._report, self._tell, self._close_until, self._clock_ms)
        return HeldRule(self._root, self._rule, self._home, ledger, self._report, drainer, begun)

    def _open_ledger(self, known: LedgerReader | None = None) -> Ledger:
        """The ledger of a rule that may continue. Raises Retired, and Refused during a rename.

        `known`: the ledger as loaded with the lock held.
        """
        ledger = Ledger.open(self._home.ledger, self._run, known)
        check_living(ledger.head, self._rule.rule)
        self._find_sinks(ledger)
        return ledger

    def _find_sinks(self, ledger: Ledger) -> None:
        """Record in the ledger which of its sinks have moved, before anything depends on it."""
        head = ledger.head
        if head and (moved := moves(head, head_now(head, self._rule, ledger.id))):
            ledger.live(Life(what="moved", places=moved))

    def _begun(self) -> Head:
        known = self._known("compute again")
        check_living(known.begun, self._rule.rule)
        check_forget_ended(self._home, known.begun)
        return head_now(known.begun, self._rule, known.id)

    def _known(self, what: str) -> LedgerReader:
        """The ledger. Raises Refused if the rule has not run yet, with `what` in the message."""
        known = LedgerReader.load(self._home.ledger)
        if known is None or known.head is None:
            raise Refused(f"rule {self._rule.rule} has not run yet: there is nothing to {what}")
        return known


def _check_class(rule: Rule) -> None:
    if (process := rule.process) is not None:
        found = load_class(process.source, process.file, process.name)
        read = Declaration(process.state, process.ttl_us, process.timers, process.clock_timers)
        check_as_read(found, process.output, read, process.file)


def _with_rewrites(rule: Rule, home: Home, head: Head, foreseen: Mapping[str, Foreseen] | None) -> Head:
    """The head with the present rewrites deferred; with those of the streams that are foreseen to be rewritten."""
    if foreseen is None:
        check_followed(rule, home, head)
        return with_deferred(head, deferred(rule, home, head, rewrites(rule, home, head)))
    return replace(head, deferred={name: (_nowhere(line),) for name, line in head.lines.items() if name in foreseen})


def _nowhere(line: str) -> Rewrite:
    """A rewrite that has yet to come."""
    return Rewrite(since=line, upto=line, commits=())


def _computed(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    """The interval, all that its rows' keys have, or everything, as the rule is recomputed."""
    if interval.whole:
        return everything.compute(session, plan, home, head, interval)
    if plan.rule.query.lone_sessions is not None:
        interval = sessions.requested(session, plan, home, head, interval)
    _check_duplicates(session, plan, home, head, interval)
    compute = bykey.compute if has_keys(plan.rule) else backfilling.compute
    return compute(session, plan, home, head, interval)


def _check_duplicates(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> None:
    """Refuse an interval in which a late row of a `distinct` stream counts, and beside which rows of its key do."""
    with closing(PastRows(session, plan, home, head)) as past:
        late, parts = late_times(past), [(interval.begin, interval.end)]
        if late != []:
            wider = None if late is None else uncut_by(past, parts, late)
            settled = settled_at(plan.rule, parts, late or [])
            check_uncut(plan.rule, interval, wider, settled, head.watermark)


def _check_columns(session: SparkSession, plan: Plan, home: Home, ledger: Ledger, keep_output: bool) -> None:
    """Check before a reset that sinks, and targets which have still to get rows, fit the columns of the results."""
    if keep_output:
        check_partitions(plan.rule)
        check_columns(session, plan)
    else:
        schemas = {address: plan.layout(address).columns.json() for address in plan.sinks}
        check_rest(plan.rule, home, ledger, schemas)
