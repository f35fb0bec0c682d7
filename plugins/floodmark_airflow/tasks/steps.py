"""The steps for one rule around its Spark application: LOOK before it, CHECK after it, and reports."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.errors import RunFailed, message
from floodmark_airflow import settings
from floodmark_airflow.tries import Tries, not_before, run_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from floodmark.connectors.backlog.news import News
    from floodmark.core.lifecycle.freshness import Fresh
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Row
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.ledger import LedgerReader

NEWEST = 64  # rows of a ledger, which nearly always include the commits of the runs before this one


class Steps:
    """The steps of one rule in one try of an Airflow run. `news`: the result of LOOK; None before it, or if it failed.

    Modules that open tables are imported only when needed: parsing a DAG opens none.
    """

    def __init__(self, rule: Rule, context: Context, log: Any):
        self.rule = rule
        self.news: News | None = None
        self._since: int | None = None  # the ledger's row before this try
        self._context, self._log = context, log
        self._home = settings.home_folder()

    def look(self) -> News:
        """Look for pending work, without a JVM. Raises FloodmarkError."""
        from floodmark.connectors.backlog.news import look

        return self._noted(look(self.rule, self._home))

    def look_after(self, before: Sequence[Rule]) -> News:
        """LOOK at a rule that reads sinks of earlier rules in the same application. Raises FloodmarkError."""
        from floodmark.connectors.backlog.news import look_after

        return self._noted(look_after(self.rule, self._home, before))

    def _noted(self, news: News) -> News:
        self.news, self._since = news, news.seq
        if self.news.why is not None or self.news.retired is not None:
            self._log.info("rule %s: %s", self.rule.rule, self.news.why or self.news.retired)
        return self.news

    def note_position(self) -> None:
        """Note the ledger's newest row before an operation, which needs no LOOK. Raises FloodmarkError."""
        ledger = self._ledger()
        self._since = ledger.head.seq if ledger and ledger.head else None

    def check(self) -> None:
        """Raise FloodmarkError unless the ledger has reached the input that LOOK saw, whoever committed it."""
        from floodmark.connectors.backlog.news import check_reached

        assert self.news is not None
        epoch = check_reached(self.rule, self._home, self.news.seen)
        self._log.info(
            "rule %s: epoch %s is committed; all input seen at the start is processed", self.rule.rule, epoch
        )

    def check_done(self) -> None:
        """After a failed run: raise FloodmarkError unless somebody has done the work that LOOK saw."""
        from floodmark.connectors.backlog.news import still_due

        assert self.news is not None
        why = still_due(self.rule, self._home, self.news.seen)
        if why is not None:
            raise RunFailed(f"rule {self.rule.rule}: {why}")

    def judge(self) -> None:
        """Raise Stale if the rule is staler than its file allows, and the file says `fail`."""
        fresh = self._fresh()
        if fresh is not None:
            fresh.check()

    def _fresh(self) -> Fresh | None:
        from floodmark.views.status.freshness import fresh_now

        return fresh_now(self.rule, self._home, run_name(self._context["run_id"], ""))

    def report(self) -> bool:
        """Report what this try has done in metrics and logs, and what all tries of this run have to readers of sinks.

        True if these readers have news: the tries have ended an epoch, a backfill or a reset, for example. An error
        while reporting doesn't fail the run.
        """
        from floodmark_airflow.tasks import reporting

        noted = False
        try:
            done = reporting.done_since(self.rule, self._home, self._since)
            own, head = done.by(Tries(self._context["run_id"])), done.head  # other runs report theirs
            reporting.log_done(self._log, self.rule.rule, own)
            if head is None:
                return False
            before = self.unreported_since() if self.before is None else self.before
            whole = done if before is None else reporting.done_since(self.rule, self._home, before)
            noted = whole.news
            # Also without an epoch: a reset or backfill triggers readers, too. Airflow ignores a skipped task's events.
            reporting.note_events(self._context["outlet_events"], self.rule, head, whole.epochs)
            if head.retired is not None:  # its lag grows for ever, and is nobody's fault
                return noted
            age = reporting.watermark_age(self.rule, head, datetime.now(UTC))
            reporting.measure(self.rule.rule, age, reporting.commits_behind(self.rule, self._home, head), own)
            self._measure_retention(head)
            self.measure_targets()
            if self.news is not None and self.news.why is None:  # else the application has logged it
                reporting.log_open(self._log, self.rule, head, self._home)
            reporting.log_freshness(self._log, self.rule.rule, self._fresh())
        except Exception as fault:  # also unexpected errors: they would hide how the run ended, and stop a whole group
            self._log.warning("rule %s: what this run did could not be reported: %s", self.rule.rule, message(fault))
        return noted

    def _measure_retention(self, head: Head) -> None:
        """Send how near the sources are to deleting unread input. A source that cannot say it hides no other metric."""
        from floodmark_airflow.tasks import reporting

        try:
            reporting.measure_retention(self.rule.rule, reporting.retention_used(self.rule, self._home, head))
        except Exception as fault:
            self._log.warning("rule %s: the retention of its sources is unknown: %s", self.rule.rule, message(fault))

    def measure_targets(self) -> None:
        """Send the metrics of the rule's targets. An error in it does not fail the task."""
        from floodmark_airflow.tasks import reporting

        try:
            reporting.measure_targets(self.rule, self._home, datetime.now(UTC))
        except Exception as fault:
            self._log.warning("rule %s: its targets could not be measured: %s", self.rule.rule, message(fault))

    @cached_property
    def before(self) -> int | None:
        """The ledger's row before the first commit or backfill of this run's earlier tries; None if there is none.

        Includes tries before a clear: the commits of a failed run have not been reported to anybody.
        """
        if self._context["ti"].try_number == 1:
            return None
        from floodmark_airflow.tasks.reporting import may_have_written

        ledger, tries = self._ledger(), Tries(self._context["run_id"])
        rows = _rows_since(ledger, not_before(self._context)) if ledger else []
        return next((row.seq - 1 for row in rows if may_have_written(row) and row.run in tries), None)

    def unreported_since(self) -> int | None:
        """Without pending work: the ledger's row before what failed runs did and nobody reported; or None.

        A try whose supervisor was lost continues to commit, even after its run.
        """
        if self.news is None or self.news.why is not None:
            return None
        from floodmark_airflow.tasks import reporting

        ledger = self._ledger()
        rows = reporting.unreported_commits(self.rule, ledger.newest(NEWEST)) if ledger else []
        return rows[0].seq - 1 if rows else None

    def _ledger(self) -> LedgerReader | None:
        from floodmark.ledger.home import Home
        from floodmark.ledger.ledger import LedgerReader

        return LedgerReader.load(Home(self._home, self.rule.rule).ledger)


def _rows_since(ledger: LedgerReader, at: datetime | None) -> list[Row]:
    """The newest rows, with all that were written at a time or later (None: all rows), and seldom many more.

    A long ledger as a whole takes seconds, and each retry of a group asks each of its rules.
    """
    count, every = NEWEST, ledger.head.seq if ledger.head else 0
    while at is not None and count < every:
        rows = ledger.newest(count)
        if datetime.fromisoformat(rows[0].at) < at:
            return rows
        count *= 8
    return ledger.rows
