"""What is done for one rule around its Spark application: LOOK before it, CHECK after it, and what others are told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from floodmark.errors import RunFailed, message
from floodmark_airflow import settings
from floodmark_airflow.tries import Tries, run_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from floodmark.connectors.news import News
    from floodmark.core.lifecycle.freshness import Fresh
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.ledger import LedgerReader

NEWEST = 64  # rows of a ledger, among which the commits of the runs before this one nearly always are


class Steps:
    """Of one rule in one try of an Airflow run. `news`: what LOOK has found; None before it, and where it has failed.

    Tables are opened by what is imported here when it is needed: parsing a DAG needs none.
    """

    def __init__(self, rule: Rule, context: Context, log: Any):
        self.rule = rule
        self.news: News | None = None
        self._since: int | None = None  # the ledger's row before this try
        self._context, self._log = context, log
        self._home = settings.home_folder()

    def look(self) -> News:
        """Is there anything to do? Asked without a JVM. Raises FloodmarkError."""
        from floodmark.connectors.news import look

        return self._noted(look(self.rule, self._home))

    def look_after(self, before: Sequence[Rule]) -> News:
        """LOOK at a rule that reads what rules before it in the same application may write. Raises FloodmarkError."""
        from floodmark.connectors.news import look_after

        return self._noted(look_after(self.rule, self._home, before))

    def _noted(self, news: News) -> News:
        self.news, self._since = news, news.seq
        if self.news.why is not None or self.news.retired is not None:
            self._log.info("rule %s: %s", self.rule.rule, self.news.why or self.news.retired)
        return self.news

    def stand(self) -> None:
        """Note where the ledger is before an operation, which needs no LOOK. Raises FloodmarkError."""
        ledger = self._ledger()
        self._since = ledger.head.seq if ledger and ledger.head else None

    def check(self) -> None:
        """The ledger has reached what LOOK saw, whoever committed it. Raises FloodmarkError where it has not."""
        from floodmark.connectors.news import check_reached

        assert self.news is not None
        epoch = check_reached(self.rule, self._home, self.news.seen)
        self._log.info("rule %s: epoch %s is committed; all input seen at the start is folded", self.rule.rule, epoch)

    def check_done(self) -> None:
        """After a run that failed: somebody has done what LOOK saw to do. Raises FloodmarkError where nobody has."""
        from floodmark.connectors.news import still_due

        assert self.news is not None
        why = still_due(self.rule, self._home, self.news.seen)
        if why is not None:
            raise RunFailed(f"rule {self.rule.rule}: {why}")

    def judge(self) -> None:
        """Is the rule as fresh as it is to be? Raises Stale where it is not and its file says `fail`."""
        fresh = self._fresh()
        if fresh is not None:
            fresh.check()

    def _fresh(self) -> Fresh | None:
        from floodmark.views.status.freshness import fresh_now

        return fresh_now(self.rule, self._home, run_name(self._context["run_id"], ""))

    def tell(self) -> bool:
        """Tell others what ended in this try; who waits for a sink, what all tries of this run did.

        True if they have ended any epoch. That it cannot be told, whatever the reason, is no fault of the run.
        """
        from floodmark_airflow.tasks import telling

        noted = False
        try:
            head, epochs = telling.done_since(self.rule, self._home, self._since)
            own = [one for one in epochs if one.run in Tries(self._context["run_id"])]  # others are told of by theirs
            telling.log_epochs(self._log, self.rule.rule, own)
            if head is None:
                return False
            before = self.before()
            before = self.untold() if before is None else before
            _, whole = (head, epochs) if before is None else telling.done_since(self.rule, self._home, before)
            noted = bool(whole)
            # Also without an epoch: a reset and a backfill wake readers, too. Airflow takes no event of a skipped task.
            telling.note_events(self._context["outlet_events"], self.rule, head, whole)
            age = telling.watermark_age(self.rule, head, datetime.now(UTC))
            telling.measure(self.rule.rule, age, telling.commits_behind(self.rule, head), own)
            if self.news is not None and self.news.why is None:  # else the application has said it
                telling.log_open(self._log, self.rule, head, self._home)
            telling.log_freshness(self._log, self.rule.rule, self._fresh())
        except Exception as fault:  # also what nobody foresaw: it would hide how the run ended, and in a group stop all
            self._log.warning("rule %s: what this run did could not be told: %s", self.rule.rule, message(fault))
        return noted

    def before(self) -> int | None:
        """The ledger's row before the first commit of this run's earlier tries; None where none has committed.

        Of all tries, also before a clear: what those of a run that failed have committed has been told to nobody.
        """
        if self._context["ti"].try_number == 1:
            return None
        ledger = self._ledger()
        tries, rows = Tries(self._context["run_id"]), ledger.rows if ledger else []
        return next((row.seq - 1 for row in rows if row.kind == "commit" and row.run in tries), None)

    def untold(self) -> int | None:
        """With nothing to do: the ledger's row before what runs that failed have committed, and could tell nobody of.

        None where there is no such thing. A try whose supervisor was lost goes on committing, also after its run.
        """
        if self.news is None or self.news.why is not None:
            return None
        from floodmark_airflow.tasks import telling

        ledger = self._ledger()
        rows = telling.untold(self.rule, ledger.newest(NEWEST)) if ledger else []
        return rows[0].seq - 1 if rows else None

    def _ledger(self) -> LedgerReader | None:
        from floodmark.ledger.home import Home
        from floodmark.ledger.ledger import LedgerReader

        return LedgerReader.load(Home(self._home, self.rule.rule).ledger)
