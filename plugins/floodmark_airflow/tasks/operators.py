"""The operators behind a rule's task: look, run, check; and that of a rule file that cannot be used."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from floodmark.errors import FloodmarkError, exit_code, message
from floodmark_airflow import settings
from floodmark_airflow.tasks.steps import Steps
from floodmark_airflow.tasks.submit import HOPELESS, SubmitOperator
from floodmark_airflow.tries import Tries
from floodmark_airflow.triggers.forms import is_dry, operation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import Context

    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.triggers.operations import Operation


class RuleRunOperator(SubmitOperator):
    """One run of a rule.

    1. LOOK   without a JVM: is there anything to do? If not, the task is skipped.
    2. RUN    spark-submit; its exit code says whether a retry can help.
    3. CHECK  the ledger has reached what step 1 saw, whoever committed it. No green run without it.

    A run of Airflow's own backfill, or one whose form says so, does another operation in the same three steps.
    """

    def __init__(self, *, rule: Rule, **kwargs: Any):
        super().__init__(spark=rule.spark, about=rule.rule, **kwargs)
        self.rule = rule

    def execute(self, context: Context) -> None:
        operation = operation_of(self.rule, context)
        if operation is not None:
            self._operate(operation, context)
            return
        steps = Steps(self.rule, context, self.log)
        with translated():
            news = steps.look()
        if news.retired is not None:
            raise AirflowSkipException(news.retired)
        if is_dry(context):  # skipped, so that nobody who waits for a sink is woken
            raise AirflowSkipException(f"a dry run: {news.why or f'nothing new since epoch {news.epoch}'}")
        if news.why is None:
            self._nothing_to_do(steps, news.epoch)
            return
        try:
            self.submit(context, [self.rule.rule, *stale_ok([self.rule])], news.backlog)
        finally:
            steps.tell()
        with translated():
            steps.check()

    def _operate(self, operation: Operation, context: Context) -> None:
        """One that an earlier try of this very run has done is not done again, unless the task was cleared since."""
        if not operation.writes:
            self.outlets = []  # Airflow updates those that stand here, and wakes who waits for them
        tries = Tries.since_clear(context, self.retries or 0)
        with translated():
            done = operation.done(self.rule, tries) if context["ti"].try_number > tries.first else None
            said = done or operation.look(self.rule)
        self.log.info("rule %s: %s", self.rule.rule, said)
        steps = Steps(self.rule, context, self.log)
        if done:
            steps.tell()  # the try that has done it may not have come to it
            return
        with translated():
            steps.stand()
        self.application = str(settings.OPERATE)
        try:
            self.submit(context, [*operation.command, self.rule.rule, *operation.arguments()])
        finally:
            steps.tell()
        if operation.dry_run:
            raise AirflowSkipException("a dry run: the lines above say what would change")
        with translated():
            done = operation.done(self.rule, tries)
        if done is None:
            operation.judge_nothing(self.rule)
        self.log.info("rule %s: %s", self.rule.rule, done)

    def _nothing_to_do(self, steps: Steps, epoch: int) -> None:
        """Skip; but succeed where a try of this run, or of one that failed, committed what nobody was told of yet."""
        with translated():
            if not steps.tell() and steps.before() is None:
                raise AirflowSkipException(f"nothing new since epoch {epoch}")
        self.log.info("rule %s: earlier tries committed up to epoch %s, which is told now", self.rule.rule, epoch)


class FreshnessOperator(BaseOperator):
    """Fails for good where the rule is less fresh than its file allows, also after a run with nothing to do.

    A task of its own: so what the run has committed is green, and wakes who waits for the rule's sinks.
    """

    def __init__(self, *, rule: Rule, **kwargs: Any):
        super().__init__(**kwargs)
        self.rule = rule

    def execute(self, context: Context) -> None:
        if operation_of(self.rule, context) is not None or is_dry(context):
            raise AirflowSkipException("not a run that folds what is new")
        with translated():
            Steps(self.rule, context, self.log).judge()


def stale_ok(rules: Sequence[Rule]) -> list[str]:
    """Of the command line: that how fresh the rules are is judged elsewhere."""
    return ["--stale-ok"] if any(rule.freshness for rule in rules) else []


class BrokenRuleOperator(BaseOperator):
    """Stands for a rule whose file cannot be used: it fails with the reason."""

    def __init__(self, *, file: str, reason: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.file, self.reason = file, reason

    def execute(self, context: Context) -> None:
        raise AirflowFailException(f"{self.file}: {self.reason}")


@contextmanager
def translated() -> Iterator[None]:
    """Floodmark's own errors, and a disk's or a store's, as Airflow's: those that a retry can heal, and the others."""
    try:
        yield
    except (FloodmarkError, OSError) as fault:
        kind = AirflowFailException if exit_code(fault) in HOPELESS else AirflowException
        raise kind(message(fault)).with_traceback(fault.__traceback__) from None  # the cause may tell secrets
