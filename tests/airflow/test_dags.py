"""What Airflow makes of a rules folder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import Asset, AssetAny, CronTriggerTimetable
from airflow.sdk.execution_time.context import InletEventsAccessors
from airflow.serialization.serialized_objects import DagSerialization

from floodmark.cli.commands.airflow import ERRORS, TEXTS
from floodmark.core.rules.rule import load_rule
from floodmark.errors import RuleInvalid
from floodmark_airflow import settings
from floodmark_airflow.assets import asset
from floodmark_airflow.dags.dag_factory import all_dags
from floodmark_airflow.dags.upkeep import build_upkeep
from floodmark_airflow.tasks.operators import RuleRunOperator

CHECKOUT = Path(__file__).parents[2]
DAGS = CHECKOUT / "dags"


def write(rules: Path, name: str, **settings: Any) -> Path:
    text = {
        "rule": name,
        "streams": {"events": {"delta": "${LAKE}/events"}},
        "sql": "SELECT n FROM events",
        "sinks": [{"delta": f"${{LAKE}}/{name}_out"}],
        **settings,
    }
    path = rules / f"{name}.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    return path


def parse(folder: Path = DAGS) -> DagBag:
    """With the DAGs of rules alone: that of all rules' upkeep has tests of its own."""
    bag = DagBag(dag_folder=str(folder))
    bag.dags = {one: dag for one, dag in bag.dags.items() if not one.endswith("upkeep")}
    return bag


def test_each_rule_is_a_dag_and_nothing_is_wrong(rules: Path) -> None:
    write(rules, "one")
    write(rules, "two")
    bag = parse()
    assert bag.import_errors == {}
    assert sorted(bag.dags) == ["rule.one", "rule.two"]


def test_an_environment_has_dags_of_its_own(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids, addresses and home. The driver is the task's child: it reads the rule in the same environment."""
    write(rules, "one")
    write(rules, "bad", qos=7)
    lake = rules.parent / "elsewhere"
    (rules.parent / "env").mkdir()
    (rules.parent / "env" / "dev.env").write_text(f"LAKE={lake}\n")
    monkeypatch.setenv("FLOODMARK_ENV", "dev")
    bag = parse()
    assert sorted(bag.dags) == ["dev.rule.bad", "dev.rule.one"]
    task = bag.dags["dev.rule.one"].get_task("run")
    assert [asset.uri for asset in task.outlets] == [f"file://{lake.resolve()}/one_out"]
    assert settings.home_folder() == rules.parent / "home" / "env-dev"


def test_the_example_rules_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOODMARK_RULES", raising=False)
    bag = parse()
    assert bag.import_errors == {}
    assert "rule.departure_delays" in bag.dags


def test_a_bad_rule_keeps_its_dag_unscheduled_and_the_others_theirs(rules: Path) -> None:
    write(rules, "good", schedule="@hourly")
    write(rules, "bad", schedule="@hourly", qos=7)
    bag = parse()
    assert sorted(bag.dags) == ["rule.bad", "rule.good"]
    assert bag.dags["rule.bad"].schedule is None
    assert bag.dags["rule.good"].schedule is not None
    (only,) = bag.import_errors
    assert only.endswith("rules_errors.py")
    assert "bad.yaml" in bag.import_errors[only]
    assert "qos: expected 0" in bag.import_errors[only]


def test_the_files_of_a_package_do_the_same_as_those_of_a_checkout(rules: Path, place: Path) -> None:
    write(rules, "good", schedule="@hourly")
    write(rules, "bad", schedule="@hourly", qos=7)
    (place / "dags").mkdir()
    for name, text in TEXTS.items():
        (place / "dags" / name).write_text(text)
    bag = parse(place / "dags")
    assert sorted(bag.dags) == ["rule.bad", "rule.good"]
    (only,) = bag.import_errors
    assert only.endswith(ERRORS)
    assert "qos: expected 0" in bag.import_errors[only]
    (rules / "bad.yaml").unlink()
    assert parse(place / "dags").import_errors == {}


def test_what_airflow_itself_refuses_takes_no_other_dag_along(rules: Path) -> None:
    write(rules, "good")
    write(rules, "never", schedule="99 99 * * *")
    bag = parse()
    assert sorted(bag.dags) == ["rule.good", "rule.never"]
    assert bag.dags["rule.never"].schedule is None
    assert len(bag.import_errors) == 1


def test_a_bad_file_whose_name_is_no_dag_id_gets_one_that_is_free(rules: Path) -> None:
    write(rules, "a_b")
    (rules / "a b.yaml").write_text("rule: a b\n")
    (rules / "a_b.yml").write_text("rule: a_b\n")
    ids = sorted(parse().dags)
    assert len(ids) == 3
    assert "rule.a_b" in ids
    assert all(one.startswith("rule.a_b") for one in ids)


def test_a_bad_file_whose_name_is_no_utf_8_keeps_its_dag_and_the_others_theirs(rules: Path) -> None:
    write(rules, "good")
    (rules / os.fsdecode(b"caf\xe9.yaml")).write_text("rule: x\n")
    bag = parse()
    good, bad = sorted(bag.dags, key=lambda dag_id: dag_id != "rule.good")
    assert (good, bad[: len("rule.caf_xe9-")]) == ("rule.good", "rule.caf_xe9-")
    assert bag.dags[bad].description == r"caf\xe9.yaml cannot be used"
    (reasons,) = bag.import_errors.values()
    assert r"rules/caf\xe9.yaml:1: rule: expected the file's name, 'caf\udce9'" in reasons
    for said in (reasons, str(bag.dags[bad].doc_md), str(DagSerialization.to_dict(bag.dags[bad]))):
        said.encode()


def test_a_bad_file_of_which_no_dag_can_be_made_takes_no_other_along(
    rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from floodmark_airflow.dags import dag_factory

    write(rules, "good")
    write(rules, "bad", qos=7)
    monkeypatch.setattr(dag_factory, "block", lambda *_: 1 / 0)
    assert [dag.dag_id for dag in all_dags()] == ["rule.good"]


def test_a_task_process_builds_only_its_own_dag(rules: Path) -> None:
    write(rules, "one")
    write(rules, "two")
    (rules / "three.yaml").write_text("rule: 3\n")
    assert [dag.dag_id for dag in all_dags("rule.two")] == ["rule.two"]
    assert [dag.dag_id for dag in all_dags("rule.three")] == ["rule.three"]


def test_a_task_process_finds_the_dag_of_a_bad_file_beside_a_good_one_of_its_name(rules: Path) -> None:
    write(rules, "one")
    (rules / "one.yml").write_text("rule: [")
    parsed = [dag.dag_id for dag in all_dags()]
    assert parsed[0] == "rule.one" and len(parsed) == 2
    assert [[dag.dag_id for dag in all_dags(wanted)] for wanted in parsed] == [[one] for one in parsed]


def test_a_copy_that_is_not_sound_yet_takes_no_task_of_its_original_along(rules: Path) -> None:
    write(rules, "one", group="g")
    write(rules, "two", group="g")
    copied = write(rules, "copied", sql="SELECT rand() AS r FROM events")
    copied.write_text(copied.read_text().replace("${LAKE}/copied_out", "${LAKE}/one_out"))
    assert "${LAKE}/one_out" in copied.read_text()
    for wanted in (None, "rule.one"):
        dags = {dag.dag_id: dag for dag in all_dags(wanted)}
        assert isinstance(dags["rule.one"].get_task("run"), RuleRunOperator)
    (group,) = all_dags("group.g")
    assert [rule.rule for rule in group.get_task("run").rules] == ["one", "two"]
    upkeep = build_upkeep()
    assert upkeep is not None and sorted(upkeep.task_ids) == ["one", "two"]


def test_a_missing_rules_folder_is_an_import_error(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_RULES", str(rules / "elsewhere"))
    assert all("expected a folder of rule files" in text for text in parse().import_errors.values())


def test_contract_of_every_dag(rules: Path) -> None:
    write(
        rules,
        "good",
        airflow={"retries": 5, "retry_delay": "7 seconds", "timeout": "2 hours", "tags": ["t"], "owner": "me"},
    )
    write(rules, "bad", qos=7)
    bag = parse()
    for dag in bag.dags.values():
        (task,) = dag.tasks
        assert task.task_id == "run"
        assert not dag.catchup
        assert dag.max_active_runs == 1
        assert task.max_active_tis_per_dag == 1
        assert task.execution_timeout
        DagSerialization.from_dict(DagSerialization.to_dict(dag))
    good = bag.dags["rule.good"]
    (task,) = good.tasks
    assert (task.retries, task.retry_delay.total_seconds(), task.owner) == (5, 7, "me")
    assert (task.retry_exponential_backoff, task.max_retry_delay) == (2.0, timedelta(minutes=10))
    assert task.execution_timeout == timedelta(hours=2)
    assert good.tags == {"floodmark", "t"}
    assert Path(task.application).is_file()
    assert all(Path(jar).is_file() for jar in task.jars.split(","))
    assert task.durable is False


def test_a_backfills_runs_come_after_all_others(rules: Path) -> None:
    write(rules, "one")
    read_back = DagSerialization.from_dict(DagSerialization.to_dict(parse().dags["rule.one"]))
    weight = read_back.get_task("run").weight_rule.get_weight
    kinds = (
        "scheduled__x",
        "scheduled__2001-01-01",
        "manual__2001-01-01T00:00:00+00:00",
        "by-hand",
        "asset_triggered__x",
    )
    assert [weight(SimpleNamespace(run_id=run)) for run in (*kinds, "backfill__x")] == [2, 2, 2, 2, 2, 1]
    now = datetime.now(UTC)
    scheduled = (f"scheduled__{(now - timedelta(hours=hours)).isoformat()}" for hours in (0, 23, 25))
    assert [weight(SimpleNamespace(run_id=run)) for run in scheduled] == [2, 2, 1], "an old one, which is repeated"


def test_two_parses_give_one_dag_version(rules: Path) -> None:
    write(rules, "one", schedule="@hourly")
    first, second = (DagSerialization.to_dict(parse().dags["rule.one"]) for _ in range(2))
    assert first == second


def test_a_rule_runs_when_any_rule_that_it_reads_has_written(rules: Path) -> None:
    write(rules, "first")
    write(rules, "second", sinks=[{"delta": "${LAKE}/a"}, {"delta": "${LAKE}/b", "name": "bees"}])
    write(
        rules,
        "third",
        streams={"events": {"rule": "first"}, "more": {"rule": "second", "sink": "bees"}},
        sql="SELECT n FROM events UNION ALL SELECT n FROM more",
        schedule="upstream",
    )
    bag = parse()
    assert bag.import_errors == {}
    dag = bag.dags["rule.third"]
    assert type(dag.timetable).__name__ == "AssetTriggeredTimetable"
    assert type(dag.timetable.asset_condition) is AssetAny
    assert [asset.uri.rpartition("/")[2] for asset in dag.timetable.asset_condition.objects] == ["b", "first_out"]
    assert "when `rule.first` or `rule.second` has written rows" in str(dag.doc_md)
    first = bag.dags["rule.first"]
    assert first.get_task("run").outlets == [dag.timetable.asset_condition.objects[1]]
    assert "### Read by\n\n- 1 other rule; the task's log of a reset" in str(first.doc_md)
    form = first.params.get_param("operation").description
    assert "read this rule's results as a stream: 1. After a reset" in form and form.endswith(
        "The task's log names them"
    )
    assert "third" not in f"{first.doc_md}{form}", "who may see this DAG may not see that one"
    DagSerialization.from_dict(DagSerialization.to_dict(dag))


def test_schedules(rules: Path) -> None:
    from floodmark_airflow.dags.dag_factory import load_catalog

    write(rules, "cron", schedule="*/5 * * * *", timezone="Europe/Berlin")
    write(rules, "preset", schedule="@daily")
    write(rules, "once", schedule="@once")
    write(rules, "never")
    dags = {dag_id: dag.timetable for dag_id, dag in load_catalog().dags.items()}
    assert isinstance(dags["rule.cron"], CronTriggerTimetable)
    assert str(dags["rule.cron"].timezone) == "Europe/Berlin"
    assert isinstance(dags["rule.preset"], CronTriggerTimetable)
    assert type(dags["rule.once"]).__name__ == "OnceTimetable"
    assert type(dags["rule.never"]).__name__ == "NullTimetable"


@pytest.mark.parametrize("spelling", ["{lake}/first_out", "file://{lake}/first_out", "{lake}/first_out/"])
def test_a_sink_wakes_the_rule_that_is_scheduled_by_it(rules: Path, place: Path, spelling: str) -> None:
    write(rules, "first")
    written = spelling.format(lake=place / "lake")
    write(rules, "second", schedule={"assets": [written]}, streams={"events": {"delta": written}})
    dags = parse().dags
    (outlet,) = dags["rule.first"].tasks[0].outlets
    assert outlet == Asset(f"file://{place}/lake/first_out")
    assert dags["rule.second"].timetable.asset_condition.objects == (outlet,)


def test_assets_beyond_ascii_are_spelled_as_airflow_keeps_them(rules: Path, place: Path) -> None:
    """One that Airflow cannot keep would take every DAG of the file along, when they are written to its database."""
    from airflow.models.asset import AssetModel

    write(rules, "first", sinks=[{"delta": "${LAKE}/größe"}, {"delta": "s3://lake/ü a%b"}])
    read = {"streams": {"events": {"delta": "${LAKE}/größe"}}, "lookups": {"names": {"delta": "${LAKE}/名"}}}
    write(
        rules,
        "second",
        **read,
        sql="SELECT n FROM events JOIN names USING (n)",
        schedule={"assets": ["${LAKE}/größe", "s3://lake/ü a%b"]},
    )
    dags = {dag.dag_id: dag for dag in all_dags()}
    written, second = dags["rule.first"].tasks[0].outlets, dags["rule.second"]
    assert [one.uri for one in written] == [f"file://{place.resolve()}/lake/gr%C3%B6%C3%9Fe", "s3://lake/%C3%BC a%b"]
    assert second.timetable.asset_condition.objects == tuple(written)
    read = second.tasks[0].inputs
    assert [one.uri for one in read] == [written[0].uri, f"file://{place.resolve()}/lake/%E5%90%8D"]
    for one in [*written, *read, *second.tasks[0].outlets]:
        AssetModel(name=one.uri, uri=one.uri, group="asset")


OF_ASSETS = {
    "airflow://x": False, "AirFlow://x": False, "postgres://h/x": False, "postgresql://h/d/s": False,
    "postgres:///d/s/t": False, "Postgres://h/d/s/t/u": False, f"/{'x' * 1493}": False, f"/{'ü' * 250}": False,
    "airflow:x": True, "airflow/x": True, "postgres://h/d/s/t": True, "postgres://h:5432/d//s/t/": True,
    "mysql://h/x": True, f"/{'x' * 1492}": True, f"s3://b/{'x' * 1493}": True,
}  # fmt: skip


@pytest.mark.parametrize(("address", "fits"), OF_ASSETS.items())
def test_a_rule_file_takes_the_assets_that_airflow_takes(rules: Path, address: str, fits: bool) -> None:
    path = write(rules, "one", schedule={"assets": [address]})
    for fault, take in ((ValueError, lambda: asset(address)), (RuleInvalid, lambda: load_rule(path, os.environ))):
        with nullcontext() if fits else pytest.raises(fault):
            take()


def test_each_table_below_a_folder_with_marks_of_uris_has_an_asset_of_its_own(place: Path) -> None:
    """Airflow cuts off what follows # or ?, and lets tasks fail whose asset shares its URI with one of another name."""
    place = place.resolve()
    one, other = asset(f"{place}/c#/a?/one"), asset(f"{place}/c#/a?/other")
    assert (one.name, one.uri) == (f"file://{place}/c%23/a%3F/one",) * 2
    assert other.uri != one.uri
    assert asset(f"file://{place}/c%23/a%3F/one") == one


def test_a_table_that_no_rule_writes_is_no_asset_of_airflows(rules: Path) -> None:
    """Airflow lets a task fail if an asset of its inlets has another name in another DAG, or, if the inlet is a
    reference, if no DAG has it: it looks for it before the task begins."""
    write(rules, "first")
    write(rules, "second", streams={"events": {"delta": "${LAKE}/first_out"}})
    first, second = (parse().dags[f"rule.{name}"].tasks[0] for name in ("first", "second"))
    assert (first.inlets, [one.uri.rpartition("/")[2] for one in first.inputs]) == ([], ["events"])
    assert second.inlets == second.inputs == first.outlets
    for task in (first, second):
        assert len(InletEventsAccessors(task.inlets)) == len(task.inlets)  # as a task begins


def test_both_schemes_of_s3_clients_are_one_asset() -> None:
    assert asset("s3a://bucket/x") == asset("s3a://bucket/x/") == asset("s3://bucket/x") == Asset("s3://bucket/x")


def test_what_a_rule_reads_and_writes_is_lineage(rules: Path, place: Path) -> None:
    write(rules, "one", lookups={"names": {"delta": "${LAKE}/names"}}, sql="SELECT n FROM events JOIN names USING (n)")
    (task,) = parse().dags["rule.one"].tasks
    assert [one.uri for one in task.inputs] == [f"file://{place}/lake/events", f"file://{place}/lake/names"]
    assert [one.uri for one in task.outlets] == [f"file://{place}/lake/one_out"]


def test_a_failure_is_told_to_the_function_that_the_environment_names(
    rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(rules, "one")
    write(rules, "bad", qos=7)
    assert {tuple(dag.tasks[0].on_failure_callback) for dag in parse().dags.values()} == {()}
    monkeypatch.setenv("FLOODMARK_ON_FAILURE", "support.told:note")
    for dag in parse().dags.values():
        (callback,) = dag.tasks[0].on_failure_callback
        callback({"dag": dag})
    from support import told

    assert sorted(context["dag"].dag_id for context in told.CONTEXTS) == ["rule.bad", "rule.one"]


def test_parsing_loads_neither_spark_nor_tables(rules: Path) -> None:
    write(rules, "one")
    program = (
        "import sys; from airflow.dag_processing.dagbag import DagBag; "
        f"bag = DagBag(dag_folder={str(DAGS)!r}); assert 'rule.one' in bag.dags, bag.import_errors; "
        "print([name for name in ('pyspark', 'deltalake', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout.splitlines()[-1] == "[]", found.stdout + found.stderr


def test_airflow_runs_only_the_plugin_file_as_a_plugin() -> None:
    lines = (CHECKOUT / "plugins" / ".airflowignore").read_text().splitlines()
    assert "floodmark_airflow/" in lines
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert not errors
    assert "floodmark" in [plugin.name for plugin in plugins]
    assert "dag_factory" not in sys.modules
