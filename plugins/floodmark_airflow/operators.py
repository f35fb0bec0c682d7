"""The operator behind every rule's task: look, run, check."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from floodmark.errors import FloodmarkError
from floodmark_airflow import settings
from floodmark_airflow.forms import operation_of
from floodmark_airflow.submit import HOPELESS, RuleSubmitHook, environment, spark_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import Context

    from floodmark.connectors.news import News
    from floodmark.core.rules import Rule
    from floodmark_airflow.operations import Operation

CONNECTION = "spark_default"


class RuleRunOperator(SparkSubmitOperator):
    """One run of a rule.

    1. LOOK   without a JVM: is there anything to do? If not, the task is skipped.
    2. RUN    spark-submit; its exit code says whether a retry can help.
    3. CHECK  the ledger has reached what step 1 saw, whoever committed it. No green run without it.

    A run of Airflow's own backfill, or one whose form says so, does another operation in the same three steps.

    Nothing that a rule file says is a template: Jinja there would read Airflow's connections and variables.
    """

    template_fields = ("application_args",)

    def __init__(self, *, rule: Rule, **kwargs: Any):
        super().__init__(
            conn_id=CONNECTION,
            application=str(settings.APPLICATION),
            application_args=_arguments(rule.rule),
            name=f"floodmark {rule.rule}",
            **spark_options(rule.spark),
            durable=False,  # the ledger remembers; Airflow's own memory would call a cleared task done
            **kwargs,
        )
        self.rule = rule

    def execute(self, context: Context) -> None:
        operation = operation_of(self.rule, context)
        if operation is not None:
            self._operate(operation, context)
            return
        with _translated():
            news = self._look()
        if news.why is None:
            self._nothing_to_do(news, context)
            return
        self.log.info("rule %s: %s", self.rule.rule, news.why)
        self.conf = spark_options(self.rule.spark, news.backlog)["conf"]
        try:
            super().execute(context)
        finally:
            self._tell(context, news.seq)
        with _translated():
            self._check(news)

    def _operate(self, operation: Operation, context: Context) -> None:
        """One that an earlier try of this very run has done is not done again."""
        tries = run_name(context["run_id"], "")
        with _translated():
            done = operation.done(self.rule, tries) if context["ti"].try_number > 1 else None
            said = done or operation.look(self.rule)
        self.log.info("rule %s: %s", self.rule.rule, said)
        if done:
            return
        self.application = str(settings.OPERATE)
        rule, *others = self.application_args or []
        self.application_args = [*operation.command, rule, *operation.arguments(), *others]
        super().execute(context)
        if operation.dry_run:
            raise AirflowSkipException("a dry run: the lines above say what would change")
        with _translated():
            done = operation.done(self.rule, tries)
        if done is None:
            operation.judge_nothing(self.rule)
        self.log.info("rule %s: %s", self.rule.rule, done)

    def _look(self) -> News:
        # Not at the top: parsing a DAG needs no table.
        from floodmark.connectors.news import look

        return look(self.rule, settings.home_folder())

    def _check(self, news: News) -> None:
        from floodmark.connectors.news import check_reached

        epoch = check_reached(self.rule, settings.home_folder(), news.seen)
        self.log.info("rule %s: epoch %s is committed; all input seen at the start is folded", self.rule.rule, epoch)

    def _nothing_to_do(self, news: News, context: Context) -> None:
        """Skip; but succeed where an earlier try of this very run committed, for nobody has told the assets yet."""
        self._tell(context, news.seq)
        if self._before(context) is not None:
            self.log.info("rule %s: an earlier try of this run committed up to epoch %s", self.rule.rule, news.epoch)
            return
        raise AirflowSkipException(f"nothing new since epoch {news.epoch}")

    def _tell(self, context: Context, seq: int) -> None:
        """Tell others what ended after row `seq` of the ledger; who waits for a sink, what all tries of this run did.

        That it cannot be told is no fault of the run.
        """
        from floodmark_airflow import telling

        try:
            head, epochs = telling.done_since(self.rule, settings.home_folder(), seq)
            telling.log_epochs(self.log, self.rule.rule, epochs)
            if head is not None:
                telling.measure(self.rule.rule, head.watermark, telling.commits_behind(self.rule, head), epochs)
                before = self._before(context)
                if before is not None:
                    _, epochs = telling.done_since(self.rule, settings.home_folder(), before)
                telling.note_events(context["outlet_events"], self.rule, head, epochs)
        except (FloodmarkError, OSError) as fault:
            self.log.warning("rule %s: what this run did could not be told: %s", self.rule.rule, fault)

    def _before(self, context: Context) -> int | None:
        """The ledger's row before the first commit of this run's earlier tries; None where none has committed."""
        if context["ti"].try_number == 1:
            return None
        from floodmark.ledger.home import Home
        from floodmark.ledger.ledger import LedgerReader

        ledger = LedgerReader.load(Home(settings.home_folder(), self.rule.rule).ledger)
        tries, rows = run_name(context["run_id"], ""), ledger.rows if ledger else []
        return next((row.seq - 1 for row in rows if row.kind == "commit" and row.run.startswith(tries)), None)

    def on_kill(self) -> None:
        if self._hook is not None:  # asking for one here would look up the connection while being killed
            super().on_kill()

    def _get_hook(self) -> RuleSubmitHook:
        return RuleSubmitHook(
            env_vars=environment(),
            conf=self.conf,
            conn_id=self._conn_id,
            jars=self.jars,
            driver_memory=self._driver_memory,
            name=self.name,
            application_args=self.application_args,
        )


class BrokenRuleOperator(BaseOperator):
    """Stands for a rule whose file cannot be used: it fails with the reason."""

    def __init__(self, *, file: str, reason: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.file, self.reason = file, reason

    def execute(self, context: Context) -> None:
        raise AirflowFailException(f"{self.file}: {self.reason}")


def run_name(run: str, attempt: str) -> str:
    """How the ledger names one try of an Airflow run."""
    return f"{run}.try{attempt}"


def _arguments(rule: str) -> list[str]:
    return [
        rule,
        *("--rules", str(settings.rules_folder())),
        *("--home", str(settings.home_folder())),
        *("--run-id", run_name("{{ run_id }}", "{{ ti.try_number }}")),
    ]


@contextmanager
def _translated() -> Iterator[None]:
    """Floodmark's own errors, as Airflow's: those that a retry can heal, and those that it cannot."""
    try:
        yield
    except FloodmarkError as fault:
        kind = AirflowFailException if fault.exit_code in HOPELESS else AirflowException
        raise kind(str(fault)) from fault
