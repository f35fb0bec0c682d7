"""The operators of a rule's DAG: run (look, run, check), freshness; and of the DAG of an invalid rule file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from floodmark.core.rules.kinds import connections_of
from floodmark_airflow import settings
from floodmark_airflow.assets import inputs
from floodmark_airflow.tasks.steps import Steps
from floodmark_airflow.tasks.submit import SubmitOperator, translated
from floodmark_airflow.tries import Tries
from floodmark_airflow.triggers.forms import chosen, is_dry, operation_of
from floodmark_airflow.triggers.lives import Rename

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.triggers.operations import Operation


class RuleRunOperator(SubmitOperator):
    """One run of a rule.

    1. LOOK   for pending work, without a JVM. If there is none, the task is skipped.
    2. RUN    spark-submit; its exit code says whether a retry can help.
    3. CHECK  that the ledger has reached the input seen in step 1, whoever committed it. Else the task fails.

    A run of Airflow's own backfill, or one whose form selects an operation, does that in the same three steps.
    """

    def __init__(self, *, rule: Rule, **kwargs: Any):
        super().__init__(
            spark=rule.spark, about=rule.rule, connections=connections_of(rule), inputs=inputs(rule), **kwargs
        )
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
        if is_dry(context):  # skipped, so that no reader of a sink is triggered
            raise AirflowSkipException(f"a dry run: {news.why or f'nothing new since epoch {news.epoch}'}")
        if news.why is None:
            self._nothing_to_do(steps, news.epoch)
            return
        try:
            self.submit(context, [self.rule.rule, *stale_ok([self.rule])], news.backlog)
        finally:
            steps.report()
        with translated():
            steps.check()

    def _operate(self, operation: Operation, context: Context) -> None:
        """Do an operation, unless an earlier try of this run did it and the task was not cleared since."""
        if not operation.writes:
            self.outlets = []  # Airflow would update these, and trigger their readers
        tries = Tries.since_clear(context, self.retries or 0)
        with translated():
            done = operation.done(self.rule, tries) if context["ti"].try_number > tries.first else None
            said = done or operation.preview(self.rule)
        self.log.info("rule %s: %s", self.rule.rule, said)
        steps = Steps(self.rule, context, self.log)
        if done:
            steps.report()  # the try that did it may not have reported it
            return
        with translated():
            steps.note_position()
        self.application = str(settings.OPERATE)
        try:
            self.submit(context, [*operation.command, self.rule.rule, *operation.arguments()])
        finally:
            if not operation.dry_run:
                steps.report()
        if operation.dry_run:
            raise AirflowSkipException("a dry run: the lines above say what would change")
        with translated():
            done = operation.done(self.rule, tries)
        if done is None:
            operation.judge_nothing(self.rule)
        self.log.info("rule %s: %s", self.rule.rule, done)

    def _nothing_to_do(self, steps: Steps, epoch: int) -> None:
        """Skip; but succeed if a try of this run, or of a failed one, committed epochs that were not reported yet."""
        with translated():
            if not steps.report() and steps.before is None:
                raise AirflowSkipException(f"nothing new since epoch {epoch}")
        self.log.info("rule %s: earlier tries committed up to epoch %s, which is reported now", self.rule.rule, epoch)


class FreshnessOperator(BaseOperator):
    """Fails permanently if the rule is staler than its file allows, also after a run without pending work.

    It is a task of its own, so that the run task succeeds with what it committed, and triggers readers of the sinks.
    """

    def __init__(self, *, rule: Rule, **kwargs: Any):
        super().__init__(**kwargs)
        self.rule = rule

    def execute(self, context: Context) -> None:
        if operation_of(self.rule, context) is not None or is_dry(context):
            raise AirflowSkipException("not a run that processes new input")
        with translated():
            Steps(self.rule, context, self.log).judge()


class RelayOperator(BaseOperator):
    """Ships what the rule has committed to one target, whatever became of the run. Needs no JVM.

    It is skipped if the target has got nothing since its last asset event; the run itself ships, too. It is also
    skipped in the run that renames the rule. A later one by the old name is refused.
    """

    def __init__(self, *, rule: Rule, target: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.rule, self.target = rule, target

    def execute(self, context: Context) -> None:
        from floodmark.connectors.relay.relaying import target_named
        from floodmark.connectors.relay.shipping import ship_one
        from floodmark.ledger.home import Home
        from floodmark_airflow.tasks.reporting import note_shipped

        if is_dry(context):
            raise AirflowSkipException("a dry run ships nothing")
        if chosen(context) is Rename:  # the rule's home has its new name by now, if the run has succeeded
            raise AirflowSkipException("a rename ships nothing; the next run under the new name does")
        sink = target_named(self.rule, self.target)
        home = Home(settings.home_folder(), self.rule.rule)
        shipped = ship_one(self.rule, sink, home)
        Steps(self.rule, context, self.log).measure_targets()
        with translated():
            if shipped.fault is not None:
                raise shipped.fault
            news = note_shipped(context["outlet_events"], self.rule, sink, home)
        self.log.info("rule %s: %s", self.rule.rule, shipped.text() or f"target {self.target}: nothing new to ship")
        if not news:
            raise AirflowSkipException("the target has got nothing since its last asset event")


def stale_ok(rules: Sequence[Rule]) -> list[str]:
    """The command line option that leaves the freshness check to others."""
    return ["--stale-ok"] if any(rule.freshness for rule in rules) else []


class BrokenRuleOperator(BaseOperator):
    """Fails with the reason why a rule file is invalid."""

    def __init__(self, *, file: str, reason: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.file, self.reason = file, reason

    def execute(self, context: Context) -> None:
        raise AirflowFailException(f"{self.file}: {self.reason}")
