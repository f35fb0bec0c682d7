"""A run of several rules: find pending work without a JVM, then run these rules in one Spark application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.cli.runs.outcome import Drained, Outcome
from floodmark.cli.runs.stopping import STOPPED, Stopping
from floodmark.cli.shared import output
from floodmark.cli.shared.selection import Selection
from floodmark.connectors.backlog.news import News, look
from floodmark.connectors.preflight import check_without_jvm
from floodmark.connectors.relay.shipping import Shipping, ship_all, shipping
from floodmark.core.application.failure import FailureFile
from floodmark.core.lifecycle.zones import zoned
from floodmark.core.rules.chains import in_order, upstream
from floodmark.core.rules.rule import Rule
from floodmark.errors import Busy, FloodmarkError, Refused, Retired, RunFailed, Stale
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.cli.runs.progress import RunProgress
    from floodmark.core.lifecycle.retention import Limit
    from floodmark.spark.rule.epochs.reports import EpochReport, RunReport
    from floodmark.spark.rule.landing import LandedReport

MOST_AT_A_TIME = 4  # Delta's commits limit a small epoch, not cores; more rules only share the driver's memory


def has_run(root: Path, rule: Rule) -> bool:
    """Whether the head holds exactly this text. Then the rule has passed its checks, which load the SQL parser."""
    try:
        ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    except FloodmarkError:  # the look at this rule's pending work reports it; other rules run
        return False
    return bool(ledger and ledger.head and ledger.head.rule.to_json() == rule.to_json())


def idle(
    selection: Selection, root: Path, close_until: datetime | None = None, stale_ok: bool = False
) -> Drained | None:
    """The outcomes if no rule has pending work; None if one has, or has a fault. `stale_ok`: see `drain`."""
    if selection.faults:
        return None
    found = [Outcome(rule.rule) for rule in selection.rules]
    for rule, outcome in zip(selection.rules, found, strict=True):
        _pending_work(rule, root, outcome, close_until, selection.by_name)
        if not outcome.idle:
            return None
        outcome.delivered = ship_all(rule, Home(root, rule.rule))
        _note_status(rule, root, outcome, stale_ok, closely=output.is_terminal())
    return Drained(found)


def drain(
    selection: Selection,
    root: Path,
    master: str,
    run: str,
    parallel: int | None,
    quiet: bool,
    close_until: datetime | None = None,
    failures: Path | None = None,
    stale_ok: bool = False,
) -> Drained:
    """Run the selected rules. `quiet`: keep standard output for a document. `close_until`: see `RuleRun`.

    `failures`: a file that gets a line as soon as a rule fails, so that a kill loses none of them. `stale_ok`: a rule
    that is staler than allowed only reports it.
    """
    from floodmark.cli.runs.progress import run_progress

    outcomes = {name: Outcome(name, fault=fault) for name, fault in selection.faults.items()}
    outcomes |= {rule.rule: Outcome(rule.rule) for rule in selection.rules}

    def look_at(rule: Rule) -> News | None:
        return _pending_work(rule, root, outcomes[rule.rule], close_until, selection.by_name)

    due = _pending_rules(selection.rules, look_at)
    note = _noting(failures)
    for outcome in outcomes.values():
        note(outcome)
    stopped = None
    if due:
        with run_progress(_zones([one.rule for one in due], root), quiet) as progress:
            progress.starting_spark({one.rule.rule: one.why for one in due})
            application = _Application(root, run, outcomes, progress, note, close_until, look_at)
            stopped = application.work(due, master, parallel)
    for rule in selection.rules:
        if outcomes[rule.rule].idle:  # others ship as they run
            outcomes[rule.rule].delivered = ship_all(rule, Home(root, rule.rule))
        _note_status(rule, root, outcomes[rule.rule], stale_ok)
        if isinstance(outcomes[rule.rule].fault, Stale):
            note(outcomes[rule.rule])
    return Drained(list(outcomes.values()), stopped)


@dataclass(eq=False)
class _PendingRule:
    """A rule to run. `after`: rules of this run that it reads; once they have ended, it is checked for news."""

    rule: Rule
    why: str
    backlog: int = 0
    after: list[_PendingRule] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def ready(self) -> bool:
        return all(one.ended.is_set() for one in self.after)


def _pending_rules(rules: Sequence[Rule], look_at: Callable[[Rule], News | None]) -> list[_PendingRule]:
    """The rules with pending work, and those that may get some from these; each after the rules that it reads."""
    reads, found = upstream(rules), dict[str, _PendingRule]()
    for rule in in_order(rules):
        before = [found[name] for name in sorted(reads[rule.rule]) if name in found]
        if before:
            names = ", ".join(one.rule.rule for one in before)
            found[rule.rule] = _PendingRule(rule, f"reads what {names} may write in this run", after=before)
            continue
        news = look_at(rule)
        if news is not None and news.why is not None:
            found[rule.rule] = _PendingRule(rule, news.why, news.backlog)
    return list(found.values())


def _noting(path: Path | None) -> Callable[[Outcome], None]:
    """A function that writes failed outcomes to the file of failures, if there is one."""
    file = FailureFile(path) if path else None

    def note(outcome: Outcome) -> None:
        if file is None or outcome.failure is None:
            return
        try:
            file.add(outcome.failure)
        except OSError as fault:  # the rule's own error matters more, and is reported at the end
            output.print_error(
                f"--failures: no line could be added to {path} for rule {outcome.rule}: {fault.strerror}"
            )

    return note


def _pending_work(rule: Rule, root: Path, outcome: Outcome, close_until: datetime | None, by_name: bool) -> News | None:
    """The rule's pending work; None if it cannot run (its outcome says why)."""
    try:
        if close_until is not None and rule.process is None and not rule.query.windows:
            raise Refused(f"--close-until: rule {rule.rule} has no window and no JOIN, so there is nothing to close")
        check_without_jvm(rule, root)
        news = look(rule, root, close_until)
        _refuse_held(Home(root, rule.rule), news.why)
        if news.why is not None:
            outcome.limits = _limits(rule, root)
    except Exception as fault:
        if isinstance(fault, Retired) and not by_name:
            outcome.idle, outcome.retired = True, str(fault)
        else:
            outcome.fault = fault
        return None
    outcome.idle, outcome.notices = news.why is None, news.notices
    return news


def _limits(rule: Rule, root: Path) -> dict[str, Limit]:
    """Retention of the unread input. None for a generation that has yet to begin: it reads what is available."""
    from floodmark.connectors.backlog.retention import limits

    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    head = ledger.head if ledger else None
    return {} if head is None or head.seal is not None else limits(rule, home, head)


def _refuse_held(home: Home, why: str | None) -> None:
    """Raise Busy before Spark starts if another run holds the rule. The lock itself is taken later, in the JVM."""
    if why is not None and holder_pid(home.lock) is not None:
        raise Busy(holder_text(home.lock))


def _note_status(rule: Rule, root: Path, outcome: Outcome, stale_ok: bool, closely: bool = True) -> None:
    """Record the rule's status and freshness after the run. A read error is the fault of this rule alone.

    `closely`: also record open windows. That loads the SQL parser and the state, which an idle run should avoid.
    """
    try:
        _read_status(rule, root, outcome, closely)
    except (FloodmarkError, OSError) as fault:
        outcome.fault = outcome.fault or fault
        return
    if outcome.fault is None and outcome.retired is None and rule.freshness is not None:
        _judge(rule, root, outcome, stale_ok)


def _read_status(rule: Rule, root: Path, outcome: Outcome, closely: bool) -> None:
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    outcome.head = ledger.head if ledger else None
    if outcome.head is None:
        return
    outcome.zoned = zoned(rule, outcome.head)
    if closely and outcome.fault is None and outcome.retired is None:
        from floodmark.views.contents.openwindows import open_windows
        from floodmark.views.contents.waiting import waiting

        outcome.windows = open_windows(rule, outcome.head, root)
        outcome.waiting = waiting(rule, outcome.head, root)


def _judge(rule: Rule, root: Path, outcome: Outcome, stale_ok: bool) -> None:
    from floodmark.views.status.freshness import fresh_now

    try:
        outcome.fresh = fresh_now(rule, root, "" if outcome.epochs else None)
        if outcome.fresh and not stale_ok:
            outcome.fresh.check()
    except FloodmarkError as fault:
        outcome.fault = fault


def _zones(rules: list[Rule], root: Path) -> Callable[[str], bool]:
    """Whether a rule's event times have a zone; read once, when the ledger holds the first epoch."""
    by_name, known = {rule.rule: rule for rule in rules}, dict[str, bool]()

    def ask(name: str) -> bool:
        if name not in known:
            ledger = LedgerReader.load(Home(root, name).ledger)
            known[name] = zoned(by_name[name], ledger.head if ledger else None)
        return known[name]

    return ask


class _Application:
    """The one Spark application of a run, and the threads that share it."""

    def __init__(
        self,
        root: Path,
        run: str,
        outcomes: dict[str, Outcome],
        progress: RunProgress,
        note: Callable[[Outcome], None],
        close_until: datetime | None,
        look_at: Callable[[Rule], News | None],
    ):
        self._root, self._run, self._outcomes, self._progress = root, run, outcomes, progress
        self._note, self._close_until, self._look_at = note, close_until, look_at

    def work(self, due: list[_PendingRule], master: str, parallel: int | None) -> int | None:
        """Run the rules; return the signal that ended the run early, if any."""
        from floodmark.spark.session.session import root_session

        rules = [one.rule for one in due]
        with Stopping() as stopping:
            session = root_session(master, rules, sum(one.backlog for one in due))
            stopping.application(session)
            try:
                self._in_threads(session, due, min(parallel or MOST_AT_A_TIME, len(due)), stopping.check)
            finally:
                session.stop()
        if stopping.signal is not None:
            self._report_stopped(rules)
        return stopping.signal

    def _report_stopped(self, rules: list[Rule]) -> None:
        """Replace the errors of cancelled jobs, which explain nothing."""
        for outcome in (self._outcomes[rule.rule] for rule in rules):
            if outcome.fault is not None:
                outcome.fault = RunFailed(f"rule {outcome.rule}: {STOPPED}")

    def _in_threads(
        self, session: SparkSession, due: list[_PendingRule], threads: int, check: Callable[[], None]
    ) -> None:
        """A free thread takes the first rule that waits for no other. No thread is held while a rule waits."""
        left, futures, running = list(due), list[Future[None]](), set[Future[None]]()
        with ThreadPoolExecutor(max_workers=threads) as pool:
            while left or running:
                for one in [one for one in left if one.ready][: threads - len(running)]:
                    left.remove(one)
                    futures.append(pool.submit(self._in_turn, session, one, check))
                    running.add(futures[-1])
                _, running = wait(running, return_when=FIRST_COMPLETED)
        for future in futures:
            future.result()

    def _in_turn(self, session: SparkSession, one: _PendingRule, check: Callable[[], None]) -> None:
        try:
            if not one.after or self._has_news(one.rule):
                self._one(session, one.rule, check)
        finally:
            one.ended.set()

    def _has_news(self, rule: Rule) -> bool:
        news = self._look_at(rule)
        self._note(self._outcomes[rule.rule])
        return news is not None and news.why is not None

    def _one(self, session: SparkSession, rule: Rule, check: Callable[[], None]) -> None:
        from floodmark.spark.rule.landing import LandedReport
        from floodmark.spark.rule.run import RuleRun

        outcome, begun = self._outcomes[rule.rule], time.monotonic()
        ships = Shipping()

        def report(done: EpochReport | LandedReport) -> None:
            if isinstance(done, LandedReport):
                outcome.landed[done.stream] += done.rows
                self._progress.landed(done)
            else:
                outcome.epochs.append(done)
                self._progress.committed(done)
                ships.wake()
            check()

        try:
            check()
            self._progress.started(rule.rule)
            with shipping(rule, Home(self._root, rule.rule), ships):
                done: RunReport = RuleRun(session, rule, self._root, self._run, report, self._close_until).run()
            outcome.lost, outcome.abandoned, outcome.corrections = done.lost, done.abandoned, done.corrections
            outcome.notices = tuple(dict.fromkeys([*outcome.notices, *filter(None, [done.left])]))
        except Exception as fault:
            outcome.fault = fault
            self._note(outcome)
        finally:
            outcome.delivered = ships.delivered
            outcome.seconds = time.monotonic() - begun
            self._progress.ended(rule.rule)
