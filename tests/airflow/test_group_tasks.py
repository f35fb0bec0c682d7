"""The tasks of a group of rules: real tables; spark-submit is a script that ends as the test says."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import Asset
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.serialized_objects import DagSerialization
from deltalake import write_deltalake
from test_dags import parse, write
from test_operations import begun_anew
from test_operator import arrive, ends, fold_all, spark_submit, was_started
from test_past_intervals import done_by
from test_telling import fold_epoch

from floodmark.core.protocol.records.rows import Life
from floodmark.core.rules.rule import Rule, load_rules
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.assets import outlets
from floodmark_airflow.dags import dag_factory
from floodmark_airflow.dags.dag_factory import all_dags, build_group
from floodmark_airflow.dags.upkeep import build_upkeep
from floodmark_airflow.tasks import reporting

NAMES = ("a", "b", "c")


@pytest.fixture
def group(rules: Path, place: Path) -> list[Rule]:
    """Three rules of one group that read one table, of which nothing is folded yet."""
    for name in NAMES:
        write(rules, name, group="small", schedule="@hourly")
    arrive(place)
    return list(load_rules(rules, os.environ)[0].values())


class Round:
    """One try of the task `run`, and what it left."""

    def __init__(self, rules: list[Rule], tries: int = 1, run: str = "manual__1"):
        self.task, self.outcome = build_group("small", rules).tasks
        self.given: Any = {
            "run_id": run,
            "ti": SimpleNamespace(try_number=tries, max_tries=1),
            "outlet_events": OutletEventAccessors(),
        }
        self.task.render_template_fields(self.given)

    def work(self) -> dict[str, str]:
        found: dict[str, str] = self.task.execute(self.given)
        return found

    @property
    def updated(self) -> list[str]:
        """The names of the sinks whose assets Airflow will update."""
        return [Path(asset.uri).name for asset in self.task.outlets]


@pytest.mark.parametrize("conf", [{"dry_run": True}, {"operation": "reset", "confirm": "a"}, {"dry-run": True}])
def test_no_task_of_several_rules_runs_with_a_form_that_it_does_not_have(
    group: list[Rule], rules: Path, place: Path, conf: dict[str, Any]
) -> None:
    """A dry run of the group would change its tables."""
    write(rules, "d", group="small", schedule="@hourly", sinks=[{"files": {"path": f"{place}/out"}}])
    for dag in (build_group("small", list(load_rules(rules, os.environ)[0].values())), build_upkeep()):
        assert dag is not None and len(dag.tasks) > 2
        for task in dag.tasks:
            assert task._pre_execute_hook is not None, task.task_id
            task._pre_execute_hook({"dag_run": SimpleNamespace(dag_id=dag.dag_id, conf={"by": "a DAG"})})
            said = (
                f"{next(iter(conf))}: expected no field of the form in a run of {dag.dag_id}, .* the DAG rule.NAME of"
            )
            with pytest.raises(AirflowFailException, match=said):
                task._pre_execute_hook({"dag_run": SimpleNamespace(dag_id=dag.dag_id, conf=conf)})
        DagSerialization.from_dict(DagSerialization.to_dict(dag))


def ticking(rules: Path, place: Path) -> list[Rule]:
    """A rule that has folded all of its input, and is to close its last window for want of more."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    write(
        rules,
        "quiet",
        group="small",
        schedule="@hourly",
        streams={"timed": {"delta": "${LAKE}/timed", "event_time": "at", "lateness": "1 minute"}},
        sql="SELECT window.start AS s, count(*) AS n FROM timed GROUP BY window(at, '1 minute')",
        close_idle_after="10 minutes",
    )
    write_deltalake(str(place / "lake" / "timed"), pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))}))
    found = list(load_rules(rules, os.environ)[0].values())
    newest = int(at.timestamp() * 1e6)
    fold_all(found[0], place / "home", watermark=newest - 60_000_000, maxima={"timed": newest})
    return found


def outside(rules: Path) -> list[Rule]:
    """Another rule of the group, of which nothing is folded."""
    write(rules, "other", group="small", schedule="@hourly", streams={"timed": {"delta": "${LAKE}/timed"}},
          sql="SELECT * FROM timed")  # fmt: skip
    return [load_rules(rules, os.environ)[0]["other"]]


def outcome(rules: list[Rule], failed: dict[str, str] | None, state: str = "success") -> None:
    """The second task, where Airflow says this of the first one."""
    ti = SimpleNamespace(
        dag_id="group.small",
        run_id="manual__1",
        xcom_pull=lambda task_ids: failed,
        get_task_states=lambda dag_id, task_ids, run_ids: {run: dict.fromkeys(task_ids, state) for run in run_ids},
    )
    Round(rules).outcome.execute({"ti": ti})


def prepare(rules: list[Rule], place: Path, run: str = "manual__1.try1") -> None:
    """Ledgers that say that all of each rule's input is folded; a run that has folded a rule moves its own home."""
    for rule in rules:
        fold_all(rule, place / "later")
        fold_epoch(rule, place / "later", run, None)


def folds(place: Path, *names: str) -> str:
    return "; ".join(f"mv {place}/later/{name} {place}/home/{name}" for name in names)


def fails(name: str, code: int, why: str, waits: bool = False) -> str:
    """Shell that notes a failure as `floodmark run --failures` does."""
    line = json.dumps({"rule": name, "exit_code": code, "message": why, "waits": waits})
    return f'file=$(for word; do echo "$word"; done | grep /failures$); echo \'{line}\' >>"$file"'


def words(fake_path: Path) -> list[str]:
    found = (fake_path / "arguments").read_text().splitlines()
    return found[next(at for at, word in enumerate(found) if word.endswith("/applications/run_rule.py")) + 1 :]


def test_one_application_folds_all_rules_with_news_and_all_their_sinks_are_updated(
    group: list[Rule], place: Path, fake_path: Path
) -> None:
    prepare(group, place)
    spark_submit(fake_path, folds(place, *NAMES))
    round_ = Round(group)
    assert round_.work() == {}
    assert words(fake_path)[:4] == [*NAMES, "--failures"]
    assert words(fake_path)[5:] == [
        *("--rules", f"{place}/rules"),
        *("--home", f"{place}/home"),
        *("--run-id", "manual__1.try1"),
    ]
    assert round_.updated == ["a_out", "b_out", "c_out"]
    events = round_.given["outlet_events"]
    assert {events[asset].extra["rule"] for asset in round_.task.outlets} == set(NAMES)
    outcome(group, {})


def test_only_rules_with_news_are_submitted(group: list[Rule], place: Path, fake_path: Path) -> None:
    fold_all(group[0], place / "home")
    prepare(group[1:], place)
    spark_submit(fake_path, folds(place, "b", "c"))
    round_ = Round(group)
    assert round_.work() == {}
    assert words(fake_path)[:3] == ["b", "c", "--failures"]
    assert round_.updated == ["b_out", "c_out"]


def test_a_retired_rule_is_left_out_and_no_failure(group: list[Rule], place: Path, fake_path: Path) -> None:
    fold_all(group[0], place / "home")
    Ledger.open(Home(place / "home", "a").ledger, "me").live(Life(what="retired"))
    arrive(place)
    prepare(group[1:], place)
    spark_submit(fake_path, folds(place, "b", "c"))
    assert Round(group).work() == {}
    assert words(fake_path)[:3] == ["b", "c", "--failures"]


def test_with_nothing_new_anywhere_there_is_no_jvm(group: list[Rule], place: Path, fake_path: Path) -> None:
    for rule in group:
        fold_all(rule, place / "home")
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowSkipException, match="nothing new for any rule"):
        Round(group).work()
    assert not was_started(fake_path)


def test_a_round_with_nothing_new_tells_what_a_run_that_failed_has_committed(
    group: list[Rule], place: Path, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(group[:1], place, run="scheduled__0.try1")
    shutil.move(place / "later" / "a", place / "home" / "a")
    for rule in group[1:]:
        fold_all(rule, place / "home")
    monkeypatch.setattr(reporting, "newest_event", lambda address: datetime(2001, 1, 1, tzinfo=UTC))
    round_ = Round(group, run="scheduled__1")
    assert round_.work() == {}
    assert round_.updated == ["a_out"]
    assert not was_started(fake_path)


@pytest.mark.parametrize("tries", [1, 2])
def test_a_round_that_ends_what_ends_no_epoch_tells_of_it(
    group: list[Rule], place: Path, fake_path: Path, tries: int
) -> None:
    """A backfill and a reset that somebody's killed command has left: by this try, or by the one before it."""
    for rule in group:
        fold_all(rule, place / "home")
    done_by(group[0], place / "home", 0, 1, "manual__1.try1", begun_by="cli-1")
    begun_anew(place, "cli-1", ended_by="manual__1.try1", name="b")
    logs = [place / "home" / name / "ledger" / "_delta_log" for name in "ab"]
    newest = [max(log.glob("*.json")) for log in logs] if tries == 1 else []
    for number, entry in enumerate(newest):
        entry.rename(place / str(number))  # the application puts it back: the round's first try ends its work
    spark_submit(fake_path, "; ".join(["true", *(f"mv {place}/{n} {entry}" for n, entry in enumerate(newest))]))
    round_ = Round(group, tries=tries)
    assert round_.work() == {}
    assert round_.updated == ["a_out", "b_out"]


def test_a_rule_that_reads_another_one_of_its_group_runs_after_it_in_the_same_round(
    rules: Path, place: Path, fake_path: Path
) -> None:
    """Also before the table that it reads is there; what the application says of it counts, whatever it has reached."""
    write(rules, "last", group="small", schedule="@hourly")
    write(rules, "early", group="small", streams={"events": {"rule": "last"}}, schedule="upstream")
    arrive(place)
    group = list(load_rules(rules, os.environ)[0].values())
    assert [rule.rule for rule in group] == ["early", "last"]
    prepare([rule for rule in group if rule.rule == "last"], place)
    spark_submit(fake_path, f"{folds(place, 'last')}; {fails('early', 3, 'its SQL is bad')}; {ends(3)}")
    round_ = Round(group)
    assert round_.work() == {"early": "its SQL is bad"}
    assert sorted(words(fake_path)[:2]) == ["early", "last"], "the application puts them in order"
    assert round_.updated == ["last_out"]


def test_what_no_retry_can_heal_stops_nobody_else_and_is_the_outcomes_failure(
    group: list[Rule], place: Path, fake_path: Path
) -> None:
    prepare(group, place)
    spark_submit(fake_path, f"{folds(place, 'a', 'c')}; {fails('b', 3, 'a row of b is bad')}; {ends(3)}")
    round_ = Round(group)
    assert round_.work() == {"b": "a row of b is bad"}
    assert round_.updated == ["a_out", "c_out"]
    with pytest.raises(AirflowFailException, match="1 of the group's rules failed:\n- b: a row of b is bad"):
        outcome(group, {"b": "a row of b is bad"})


def test_what_a_retry_may_heal_is_retried_alone_and_the_first_trys_events_are_told_then(
    group: list[Rule], place: Path, fake_path: Path
) -> None:
    prepare(group, place)
    spark_submit(fake_path, f"{folds(place, 'a', 'c')}; {fails('b', 1, 'held by another')}; {ends(1)}")
    with pytest.raises(AirflowException, match="a retry may help b") as fault:
        Round(group).work()
    assert type(fault.value) is AirflowException
    spark_submit(fake_path, folds(place, "b"))
    again = Round(group, tries=2)
    assert again.work() == {}
    assert words(fake_path)[:2] == ["b", "--failures"]
    assert again.updated == ["a_out", "b_out", "c_out"]


def test_the_last_try_ends_with_what_it_has_and_gives_the_reasons(
    group: list[Rule], place: Path, fake_path: Path
) -> None:
    prepare(group, place)
    spark_submit(fake_path, f"{folds(place, 'a')}; {fails('b', 1, 'held by another')}; {ends(1)}")
    round_ = Round(group, tries=2)
    found = round_.work()
    assert found.pop("b") == "held by another"
    assert "the rule has not run yet" in found.pop("c"), "of which the application said nothing"
    assert found == {}
    assert round_.updated == ["a_out"]


def test_an_application_that_is_killed_leaves_what_is_committed_and_the_rest_to_a_retry(
    group: list[Rule], place: Path, fake_path: Path
) -> None:
    prepare(group, place)
    spark_submit(fake_path, f"{folds(place, 'a')}; echo the last words; kill -9 $$")
    with pytest.raises(AirflowException, match="a retry may help b, c"):
        Round(group).work()
    last = Round(group, tries=2)
    found = last.work()
    assert last.updated == ["a_out"]
    assert sorted(found) == ["b", "c"] and "the last words" in found["b"]


def test_of_an_application_that_says_much_before_it_dies_each_rule_gets_two_lines(
    group: list[Rule], fake_path: Path
) -> None:
    much = 'echo \'Exception in thread "main"\'; for i in $(seq 400); do echo "at line $i of many"; done'
    spark_submit(fake_path, f"{much}; echo the last words; exit 1")
    found = Round(group, tries=2).work()
    assert sorted(found) == list(NAMES)
    for why in found.values():
        assert "Error code is: 1" in why and "the last words" in why and "the log of the task run has all" in why
        assert len(why) < 800


def test_an_application_that_is_refused_as_a_whole_is_not_retried(group: list[Rule], fake_path: Path) -> None:
    spark_submit(fake_path, f"echo no such folder; {ends(2)}")
    round_ = Round(group)
    failed = round_.work()
    assert sorted(failed) == list(NAMES)
    assert all("no such folder (the log" in why for why in failed.values())
    assert round_.updated == []


def test_an_application_that_is_ended_leaves_a_rule_that_had_to_tick_to_a_retry(
    rules: Path, place: Path, fake_path: Path
) -> None:
    """Also where another rule has said why it failed before."""
    group = [*ticking(rules, place), *outside(rules)]
    spark_submit(fake_path, f"{fails('other', 3, 'its SQL is bad')}; echo the last words; exit 137")
    with pytest.raises(AirflowException, match="a retry may help quiet"):
        Round(group).work()


def test_a_failure_of_what_is_no_new_input_counts(rules: Path, place: Path, fake_path: Path) -> None:
    """All input is folded before the run, and after it."""
    group = ticking(rules, place)
    spark_submit(fake_path, f"{fails('quiet', 3, 'its class fails')}; {ends(3)}")
    assert Round(group).work() == {"quiet": "its class fails"}


def test_so_does_that_of_a_rebuild(rules: Path, place: Path, fake_path: Path) -> None:
    write(rules, "whole", group="small", schedule="@hourly", rebuild=True, epoch="none")
    arrive(place)
    group = list(load_rules(rules, os.environ)[0].values())
    fold_all(group[0], place / "home")
    spark_submit(fake_path, f"{fails('whole', 2, 'its SQL is bad')}; {ends(2)}")
    assert Round(group).work() == {"whole": "its SQL is bad"}


def test_a_failure_does_not_count_where_another_has_done_the_work(
    group: list[Rule], place: Path, fake_path: Path
) -> None:
    """What has come since is for the next round."""
    prepare(group, place)
    newer = f"cp -r {place}/newer/. {place}/lake/events/"
    shutil.copytree(place / "lake" / "events", place / "newer")
    write_deltalake(str(place / "newer"), pa.table({"n": [2]}), mode="append")
    spark_submit(fake_path, f"{folds(place, *NAMES)}; {newer}; {fails('b', 1, 'held by another')}; {ends(1)}")
    round_ = Round(group)
    assert round_.work() == {}
    assert round_.updated == ["a_out", "b_out", "c_out"]


@pytest.mark.parametrize(("schedule", "waits_alone"), [("@hourly", True), (None, False)])
def test_a_rule_that_waits_for_a_table_holds_up_nobody_where_the_clock_brings_a_next_round(
    rules: Path, place: Path, fake_path: Path, schedule: str | None, waits_alone: bool
) -> None:
    write(rules, "a", group="small", schedule=schedule)
    write(rules, "b", group="small", schedule=schedule)
    write(rules, "c", group="small", schedule=schedule, streams={"events": {"delta": "${LAKE}/not_there_yet"}})
    arrive(place)
    group = list(load_rules(rules, os.environ)[0].values())
    prepare(group[:1], place)
    spark_submit(fake_path, f"{folds(place, 'a')}; {fails('b', 1, 'no table yet', waits=True)}; {ends(1)}")
    round_ = Round(group)
    if waits_alone:
        assert list(round_.work()) == ["c", "b"]
        assert round_.updated == ["a_out"]
    else:
        with pytest.raises(AirflowException, match="a retry may help c, b"):
            round_.work()


def test_a_rule_that_cannot_be_looked_at_is_not_submitted(group: list[Rule], place: Path, fake_path: Path) -> None:
    prepare(group, place)
    log = place / "home" / "b" / "ledger" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("broken")
    spark_submit(fake_path, folds(place, "a", "c"))
    round_ = Round(group)
    assert list(round_.work()) == ["b"]
    assert words(fake_path)[:2] == ["a", "c"]
    assert round_.updated == ["a_out", "c_out"]


def test_a_rule_that_is_not_at_the_end_is_not_believed(group: list[Rule], place: Path, fake_path: Path) -> None:
    prepare(group, place)
    spark_submit(fake_path, folds(place, "a", "b"))
    with pytest.raises(AirflowException, match="a retry may help c"):
        Round(group).work()


def test_the_outcome_of_a_run_that_failed_as_a_task_is_a_failure(group: list[Rule]) -> None:
    with pytest.raises(AirflowFailException, match="the task run has failed"):
        outcome(group, None)


def test_what_an_earlier_execution_has_left_is_not_believed(group: list[Rule]) -> None:
    """Of a run that was cleared, and then failed before it began."""
    with pytest.raises(AirflowFailException, match="the task run has failed"):
        outcome(group, {}, state="failed")


def test_the_group_is_scheduled_and_its_rules_are_for_what_is_done_by_hand(group: list[Rule]) -> None:
    bag = parse()
    assert bag.import_errors == {}
    assert sorted(bag.dags) == ["group.small", "rule.a", "rule.b", "rule.c"]
    assert [bag.dags[f"rule.{name}"].schedule for name in NAMES] == [None] * 3
    dag = bag.dags["group.small"]
    assert type(dag.timetable).__name__ == "CronTriggerTimetable"
    assert (dag.catchup, dag.max_active_runs, dag.allowed_run_types) == (
        *(False, 1),
        set(DagRunType) - {DagRunType.BACKFILL},
    )
    run, after = dag.tasks
    assert (run.task_id, after.task_id, after.trigger_rule) == ("run", "outcome", "none_skipped")
    assert all(task.max_active_tis_per_dag == 1 and task.execution_timeout for task in dag.tasks)
    assert [asset.uri.rpartition("/")[2] for asset in run.outlets] == ["a_out", "b_out", "c_out"]
    assert [asset.uri.rpartition("/")[2] for asset in run.inputs] == ["events"]
    assert dag.tags == {"floodmark", "group.small"} == bag.dags["rule.a"].tags
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_a_group_has_the_schedule_of_what_it_reads_from_outside(rules: Path) -> None:
    write(rules, "outside")
    write(rules, "a", group="small", streams={"events": {"rule": "outside"}}, schedule="upstream")
    write(rules, "b", group="small", streams={"events": {"rule": "a"}}, schedule="upstream")
    (dag,) = all_dags("group.small")
    assert [asset.uri.rpartition("/")[2] for asset in dag.timetable.asset_condition.objects] == ["outside_out"]


def test_a_group_is_tried_as_its_most_demanding_rule(rules: Path) -> None:
    write(rules, "a", group="small", airflow={"retries": 1, "timeout": "2 hours", "owner": "one", "tags": ["x"]})
    write(rules, "b", group="small", airflow={"retries": 5, "timeout": "1 hour", "owner": "two"})
    (dag,) = all_dags("group.small")
    run = dag.tasks[0]
    assert (run.retries, run.execution_timeout.total_seconds(), run.owner) == (5, 7200, "one, two")
    assert "x" in dag.tags


def test_a_rule_that_airflow_refuses_leaves_its_group_to_the_others(
    rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `validate` does not foresee."""

    def refused(rule: Rule) -> list[Asset]:
        if rule.rule == "b":
            raise ValueError("Airflow takes no such asset")
        return outlets(rule)

    monkeypatch.setattr(dag_factory, "outlets", refused)
    for name in NAMES:
        write(rules, name, group="small", schedule="@hourly")
    dags = {dag.dag_id: dag for dag in all_dags()}
    assert sorted(dags) == ["group.small", "rule.a", "rule.b", "rule.c"]
    assert (dags["rule.a"].tags, dags["rule.b"].tags) == ({"floodmark", "group.small"}, {"floodmark", "broken"})
    with pytest.raises(AirflowFailException, match=r"b.yaml: ValueError: Airflow takes no such asset"):
        dags["rule.b"].tasks[0].execute({})
    for dag in (dags["group.small"], *all_dags("group.small")):
        assert [rule.rule for rule in dag.tasks[0].rules] == ["a", "c"]


def test_a_bad_file_leaves_its_group_to_the_others(rules: Path) -> None:
    write(rules, "a", group="small")
    write(rules, "b", group="small", qos=7)
    dags = {dag.dag_id: dag for dag in all_dags()}
    assert sorted(dags) == ["group.small", "rule.a", "rule.b"]
    assert [rule.rule for rule in dags["group.small"].tasks[0].rules] == ["a"]
