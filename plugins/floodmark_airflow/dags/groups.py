"""The two tasks of a group: one Spark application for all rules with news, then the reasons of failed rules."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from floodmark.core.application.failure import Failure, FailureFile
from floodmark.core.rules.chains import in_order, upstream
from floodmark.core.rules.groups import by_the_clock, shared
from floodmark.core.rules.kinds import connections_of
from floodmark.errors import Refused, RunFailed
from floodmark_airflow.assets import inputs, outlets
from floodmark_airflow.naming import RUN
from floodmark_airflow.tasks.operators import stale_ok
from floodmark_airflow.tasks.steps import Steps
from floodmark_airflow.tasks.submit import SubmitOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk import Context

    from floodmark.core.rules.rule import Rule

Failures = dict[str, Failure]
FIRST, LAST = 200, 500  # characters of the lines reported of an application that ended without a message


class GroupRunOperator(SubmitOperator):
    """One run of a group's rules.

    1. LOOK   at every rule, without a JVM. If no rule has news, the task is skipped. A rule that reads a table that
              another rule of the group is about to write runs after it.
    2. RUN    one spark-submit for the rules with news. If a rule fails, the others still run.
    3. CHECK  each rule against its ledger. The application's own report counts only for rules that still have to run.

    While a retry may help a rule, the task fails, and the next try runs the remaining rules. After the last try the
    task succeeds: it updates the assets of the committed rules' sinks alone, and returns the reasons of the others.
    With a clock schedule, a rule that waits for a missing table causes no retry.
    """

    def __init__(self, *, group: str, rules: Sequence[Rule], **kwargs: Any):
        connections = set[str]().union(*map(connections_of, rules))
        read = dict.fromkeys(asset for rule in rules for asset in inputs(rule))
        super().__init__(spark=shared(rules), about=f"group {group}", connections=connections, inputs=[*read], **kwargs)
        self.rules = in_order(rules)
        self._comes_again = by_the_clock(rules)

    def execute(self, context: Context) -> Any:
        """Return the reasons of the failed rules, by name: the last message of each."""
        every = [Steps(rule, context, self.log) for rule in self.rules]
        failed, due = _look(every)
        try:
            said = self._run(due, context) if due else {}
        finally:
            told = [one.rule for one in every if one.report()]
        failed |= _short(due, said)
        self._retry_what_may_heal(failed, context)
        failed |= _failures([one for one in every if one.news and one.rule.rule not in failed], Steps.judge)
        if not told and not failed:
            raise AirflowSkipException("nothing new for any rule of the group")
        self.outlets = [asset for rule in told for asset in outlets(rule)]  # Airflow updates the outlets listed here
        return {name: failure.message for name, failure in failed.items()}

    def _run(self, due: list[Steps], context: Context) -> Failures:
        """Why rules failed, as the application reports it; or by its end, if it reports nothing or was killed.

        Rules with little input go first, so that whatever ends the application, such as lack of memory, comes last.
        """
        due = sorted(due, key=lambda one: one.news.backlog if one.news else 0)
        with TemporaryDirectory(prefix="floodmark-") as folder:
            file = FailureFile(Path(folder, "failures"))
            words = [*(one.rule.rule for one in due), "--failures", str(file.path), *stale_ok([o.rule for o in due])]
            try:
                self.submit(context, words, sum(one.news.backlog for one in due if one.news))
            except AirflowException as fault:
                self.log.error("%s", fault)
                found = file.read()
                return found if found and self.ended else _ended(due, fault) | found
            return {}

    def _retry_what_may_heal(self, failed: Failures, context: Context) -> None:
        """Raise if a retry can help a rule, and a retry is left."""
        for failure in failed.values():
            self.log.error("rule %s: %s", failure.rule, failure.message)
        hopeful = [
            name
            for name, failure in failed.items()
            if not failure.is_final and not (failure.waits and self._comes_again)
        ]
        ti = context["ti"]
        if hopeful and ti.try_number <= ti.max_tries:
            raise AirflowException(f"a retry may help {', '.join(hopeful)}; the lines above show why they failed")


class GroupOutcomeOperator(BaseOperator):
    """Fails with the reasons of all failed rules, after Airflow has updated the assets of the others."""

    def execute(self, context: Context) -> None:
        ti = context["ti"]
        states = ti.get_task_states(ti.dag_id, task_ids=[RUN], run_ids=[ti.run_id])
        failed = ti.xcom_pull(task_ids=RUN)
        if failed is None or states.get(ti.run_id, {}).get(RUN) != "success":  # else they may be from before a clear
            raise AirflowFailException(f"the task {RUN} has failed; its log says why")
        if failed:
            reasons = "\n".join(f"- {name}: {reason}" for name, reason in failed.items())
            raise AirflowFailException(f"{len(failed)} of the group's rules failed:\n{reasons}")


def _look(every: Sequence[Steps]) -> tuple[Failures, list[Steps]]:
    """The rules for which LOOK fails, and the rules to run."""
    reads, due = upstream([one.rule for one in every]), dict[str, Steps]()
    failed: Failures = {}
    for one in every:
        name = one.rule.rule
        before = [due[other].rule for other in sorted(reads[name]) if other in due]
        failed |= _failures([one], partial(Steps.look_after, before=before) if before else Steps.look)
        if one.news and one.news.why is not None:
            due[name] = one
    return failed, list(due.values())


def _short(due: Sequence[Steps], said: Failures) -> Failures:
    """The rules whose pending work nobody has done, each with the application's message, if it has one.

    The message counts if a run is still pending: CHECK compares only the end of the input, which a rule that ticks, is
    rebuilt or reads other rules may have reached before it runs.
    """
    unsaid = [one for one in due if one.rule.rule not in said]
    still = _failures([one for one in due if one.rule.rule in said], Steps.check_done)
    return _failures(unsaid, Steps.check) | {name: said[name] for name in still}


def _failures(every: Sequence[Steps], step: Callable[[Steps], object]) -> Failures:
    """The rules for which the step fails. Any error is of its rule alone."""
    found: Failures = {}
    for one in every:
        try:
            step(one)
        except Exception as fault:
            found[one.rule.rule] = Failure.of(one.rule.rule, fault)
    return found


def _ended(due: Sequence[Steps], fault: Exception) -> Failures:
    """The end of the application, as the failure of rules on which it could not report."""
    kind = Refused if isinstance(fault, AirflowFailException) else RunFailed
    said = _shortened(str(fault))
    return {one.rule.rule: Failure.of(one.rule.rule, kind(said)) for one in due}


def _shortened(text: str) -> str:
    """The first and the last line: Airflow's database stores the text once for each rule of the group."""
    first, *others = [line for line in text.splitlines() if line.strip()] or [""]
    if not others:
        return first[-LAST:]
    return f"{first[-FIRST:]} … {others[-1][-LAST:]} (the log of the task {RUN} has all)"
