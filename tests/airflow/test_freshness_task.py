"""What Airflow makes of rules that are less fresh than they are to be: data green, the rule red."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.serialization.serialized_objects import DagSerialization
from support.byhand import begun, folded
from support.flow import Flow
from test_dags import parse, write
from test_group_tasks import Round, outcome
from test_operator import context, spark_submit, task_of, was_started

from floodmark.core.rules.rule import Rule
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.dags.dag_factory import build
from floodmark_airflow.tasks.operators import FreshnessOperator

STALE = "the newest processed row of stream events is"


def stale(place: Path, on_exceed: str = "fail", **settings: Any) -> Rule:
    """A rule with nothing new, whose newest row is of 1970; every third row of its newest run was late."""
    freshness = {"max_lag": "30 minutes", "max_late": "50 %", "on_exceed": on_exceed}
    flow = Flow(place, settings={"freshness": freshness, **settings})
    folded(flow, begun(flow), 1, 0, 0)
    return flow.rule()


def judge(rule: Rule, **params: Any) -> None:
    _, task = build(rule).tasks
    assert isinstance(task, FreshnessOperator)
    task.execute({**context(), "params": params})


def test_a_rule_that_says_fail_has_a_task_for_it_behind_its_run(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run itself is green, so that its sinks' assets are updated; a run that was skipped is judged as well."""
    monkeypatch.setenv("FLOODMARK_ON_FAILURE", "os.path:basename")
    freshness = {"max_lag": "30 minutes"}
    timed = {"events": {"delta": "${LAKE}/events", "event_time": "at"}}
    write(rules, "plain")
    write(rules, "warns", freshness=freshness, streams=timed)
    write(rules, "fails", freshness={**freshness, "on_exceed": "fail"}, streams=timed)
    bag = parse()
    assert bag.import_errors == {}
    tasks = {name: [task.task_id for task in bag.dags[f"rule.{name}"].tasks] for name in ("plain", "warns", "fails")}
    assert tasks == {"plain": ["run"], "warns": ["run"], "fails": ["run", "freshness"]}
    run, after = bag.dags["rule.fails"].tasks
    assert (after.upstream_task_ids, after.trigger_rule, after.retries) == ({"run"}, "none_failed", 0)
    assert after.on_failure_callback and run.outlets and not after.outlets
    DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["rule.fails"]))


def test_it_fails_for_good_with_what_is_exceeded(rules: Path, place: Path) -> None:
    with pytest.raises(AirflowFailException, match=f"{STALE} .* more than max_lag 30 minutes. Committed results stay"):
        judge(stale(place))


def test_late_rows_are_the_matter_of_the_run_that_found_them(rules: Path, place: Path) -> None:
    flow = Flow(place, settings={"freshness": {"max_late": "1 %", "on_exceed": "fail"}})
    folded(flow, begun(flow), 1, 0, 0)
    judge(flow.rule())  # the epoch is another run's
    folded(flow, Ledger.open(flow.place.ledger, "manual__1.try1"), 1, 0, 0)
    with pytest.raises(AirflowFailException, match=r"1 of 3 rows of the newest run were late \(33.3 %\)"):
        judge(flow.rule())


@pytest.mark.parametrize("asked", [{"operation": "reset", "confirm": "counted"}, {"operation": "run", "dry_run": True}])
def test_other_operations_and_dry_runs_are_not_judged(rules: Path, place: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(AirflowSkipException, match="not a run"):
        judge(stale(place), **asked)


def test_a_run_with_nothing_to_do_is_skipped_and_says_it(
    rules: Path, place: Path, fake_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = stale(place, "warn")
    spark_submit(fake_path, "exit 1")
    with pytest.raises(AirflowSkipException, match="nothing new"):
        task_of(rule).execute(context())
    assert not was_started(fake_path)
    assert f"rule counted: {STALE}" in capsys.readouterr().out


def test_of_a_group_the_outcome_fails_also_after_a_round_with_nothing_to_do(
    rules: Path, place: Path, fake_path: Path
) -> None:
    rule = stale(place, group="small")
    spark_submit(fake_path, "exit 1")
    round_ = Round([rule])
    found = round_.work()
    assert STALE in found["counted"] and round_.updated == []
    with pytest.raises(AirflowFailException, match=STALE):
        outcome([rule], found)
