"""The task of a rule: real tables and processes; spark-submit is a script that ends as the test says."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.serialized_objects import DagSerialization
from deltalake import write_deltalake
from test_dags import write

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.registry import sources
from floodmark.core.application.connections import connection_of
from floodmark.core.application.failure import ending
from floodmark.core.application.sparkconf import JARS
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.dags.dag_factory import build
from floodmark_airflow.facts import facts
from floodmark_airflow.tasks import connections
from floodmark_airflow.tasks.operators import RuleRunOperator
from floodmark_airflow.tasks.processtree import kill_tree
from floodmark_airflow.tasks.steps import Steps
from floodmark_airflow.tasks.submit import RuleSubmitHook, environment

CHECKOUT = Path(__file__).parents[2]
MARK = "hunter2-mark"


@pytest.fixture
def rule(rules: Path, place: Path) -> Rule:
    """A rule whose source has one row, none of which is folded yet."""
    path = write(rules, "one")
    arrive(place)
    return load_rule(path, os.environ)


def arrive(place: Path) -> None:
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": [1]}), mode="append")


def fold_all(rule: Rule, home: Path, run: str = "earlier", **facts: Any) -> None:
    """A ledger that says that all of the input is folded. `facts`: what else its first commit says."""
    ends = [
        source._at(table := source.table(), table.version() + 1)
        for source in sources(rule, Home(home, rule.rule)).values()
    ]
    ledger = Ledger.open(Home(home, rule.rule).ledger, run)
    entry, maxima = Entry(0, tuple(ends)).text(), dict.fromkeys(rule.streams)
    ledger.begin(
        1, "token", Commit(**{"entry": entry, "watermark": None, "maxima": maxima, "rule": rule.to_json(), **facts})
    )


def task_of(rule: Rule) -> RuleRunOperator:
    (task,) = build(rule).tasks
    assert isinstance(task, RuleRunOperator)
    return task


def context(try_number: int = 1) -> Any:
    ti = SimpleNamespace(try_number=try_number)
    return {"run_id": "manual__1", "ti": ti, "outlet_events": OutletEventAccessors()}


def execute(rule: Rule, try_number: int = 1) -> None:
    task = task_of(rule)
    given = context(try_number)
    task.render_template_fields(given)
    task.execute(given)


def spark_submit(fake_path: Path, script: str) -> None:
    """Put a spark-submit on PATH that notes its arguments and runs the script."""
    program = fake_path / "spark-submit"
    program.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done >{fake_path}/arguments\n{script}\n')
    program.chmod(0o755)


def ends(code: int) -> str:
    """Shell that ends as the job does."""
    return f"echo {ending(code)} >&2; exit {code}"


def was_started(fake_path: Path) -> bool:
    return (fake_path / "arguments").exists()


def test_a_run_that_ends_well_and_reached_the_end_is_green(rule: Rule, place: Path, fake_path: Path) -> None:
    fold_all(rule, place / "later")
    spark_submit(fake_path, f"env >{fake_path}/env; mv {place}/later/one {place}/home/one")
    execute(rule)
    words = (fake_path / "arguments").read_text().splitlines()
    assert words[:2] == ["--master", "local[*]"]
    assert words[words.index("--driver-memory") + 1] == "3g"
    assert [Path(jar).name for jar in words[words.index("--jars") + 1].split(",")] == [*JARS]
    job = next(at for at, word in enumerate(words) if word.endswith("/applications/run_rule.py"))
    assert words[job + 1 :] == [
        "one",
        *("--rules", f"{place}/rules"),
        *("--home", f"{place}/home"),
        *("--run-id", "manual__1.try1"),
    ]
    assert "FLOODMARK_MASTER=local[*]\n" in (fake_path / "env").read_text()


def test_the_job_can_import_what_airflows_processes_can(
    rule: Rule, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_submit(fake_path, f'echo "$PYTHONPATH $PYSPARK_PYTHON" >{fake_path}/env; exit 1')
    monkeypatch.setenv("PYTHONPATH", "/of/airflow")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    with pytest.raises(AirflowException):
        execute(rule)
    assert (fake_path / "env").read_text() == f"{CHECKOUT / 'jobs'}:/of/airflow {sys.executable}\n"


def test_the_executors_python_is_not_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./packages/bin/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    found = environment()
    assert (found["PYSPARK_PYTHON"], found["PYSPARK_DRIVER_PYTHON"]) == ("./packages/bin/python", sys.executable)


def test_neither_arguments_nor_what_airflow_renders_and_stores_has_a_secret(
    rules: Path, place: Path, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", MARK)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", MARK)
    monkeypatch.setenv("AIRFLOW_VAR_HIDDEN", MARK)
    template = "{{ var.value.hidden }}"
    path = write(rules, "one", spark={"conf": {"spark.app.x": template}}, description=template)
    write(rules, "two", description="${DB_PASSWORD}")
    write(rules, "three", sinks=[{"delta": f"s3://user:{MARK}@bucket/x"}])
    arrive(place)
    task = task_of(load_rule(path, os.environ))
    given = {**context(), "var": {"value": {"hidden": MARK}}}
    task.render_template_fields(given)
    assert [name for name in task.template_fields if MARK in str(getattr(task, name))] == []
    spark_submit(fake_path, "exit 1")
    with pytest.raises(AirflowException):
        task.execute(given)
    assert task.application_args[-1] == "manual__1.try1", "what is to be rendered is"
    assert template in (fake_path / "arguments").read_text(), "and what a rule says is not"
    assert MARK not in (fake_path / "arguments").read_text()
    bag = DagBag(dag_folder=str(CHECKOUT / "dags"))
    assert sorted(bag.dags) == ["rule.one", "rule.three", "rule.two", "upkeep"]
    assert MARK not in str([DagSerialization.to_dict(dag) for dag in bag.dags.values()])
    assert MARK not in str(bag.import_errors)


def test_a_green_exit_short_of_the_end_is_not_believed(rule: Rule, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowException, match="the run ended, but its ledger says that the rule has not run yet"):
        execute(rule)


def test_nothing_new_skips_without_a_jvm(rule: Rule, place: Path, fake_path: Path) -> None:
    fold_all(rule, place / "home")
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowSkipException, match="nothing new since epoch 0"):
        execute(rule)
    assert not was_started(fake_path)


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    dry = {"params": {"operation": "run", "dry_run": True}}
    with pytest.raises(AirflowSkipException, match="a dry run: the rule has not run yet"):
        task_of(rule).execute(context() | dry)
    fold_all(rule, place / "home", run="manual__1.try1")
    with pytest.raises(AirflowSkipException, match="a dry run: nothing new since epoch 0"):
        task_of(rule).execute(context(2) | dry)
    arrive(place)
    with pytest.raises(AirflowSkipException, match="a dry run: new data in events"):
        task_of(rule).execute(context() | dry)
    assert not was_started(fake_path)


def test_new_data_is_work(rule: Rule, place: Path, fake_path: Path) -> None:
    fold_all(rule, place / "home")
    arrive(place)
    spark_submit(fake_path, "exit 1")
    with pytest.raises(AirflowException):
        execute(rule)
    assert was_started(fake_path)


def test_a_retry_with_nothing_left_tells_the_assets_what_its_first_try_committed(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    fold_all(rule, place / "home", run="manual__1.try1")
    spark_submit(fake_path, "exit 0")
    execute(rule, try_number=2)
    assert not was_started(fake_path)


def test_a_retry_with_nothing_left_by_another_run_is_skipped(rule: Rule, place: Path) -> None:
    fold_all(rule, place / "home", run="manual__11.try1")
    with pytest.raises(AirflowSkipException):
        execute(rule, try_number=2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, AirflowException), (2, AirflowFailException), (3, AirflowFailException), (137, AirflowException)],
)
def test_the_exit_code_says_whether_to_retry(rule: Rule, fake_path: Path, code: int, kind: type[Exception]) -> None:
    spark_submit(fake_path, f"echo the reason; {ends(code)}")
    with pytest.raises(AirflowException, match="the reason") as fault:
        execute(rule)
    assert type(fault.value) is kind


@pytest.mark.parametrize("code", [2, 3])
@pytest.mark.parametrize("said", ["no such file", ending(1)])
def test_an_exit_code_that_is_not_the_jobs_own_may_be_retried(
    rule: Rule, fake_path: Path, code: int, said: str
) -> None:
    """A shell's, a Python's that finds no file, or a JVM's that is told to end when it is out of memory."""
    spark_submit(fake_path, f"echo {said}; exit {code}")
    with pytest.raises(AirflowException, match=f"Error code is: {code}") as fault:
        execute(rule)
    assert type(fault.value) is AirflowException


def test_a_table_that_is_not_there_yet_may_be_retried(rule: Rule, place: Path, fake_path: Path) -> None:
    shutil.rmtree(place / "lake" / "events")
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowException, match="no Delta table") as fault:
        execute(rule)
    assert type(fault.value) is AirflowException
    assert not was_started(fake_path)


def test_a_source_that_was_made_anew_fails_for_good(rule: Rule, place: Path) -> None:
    fold_all(rule, place / "home")
    shutil.rmtree(place / "lake" / "events")
    arrive(place)
    with pytest.raises(AirflowFailException, match="recreated or cloned"):
        execute(rule)


def test_a_store_that_refuses_may_be_asked_again_and_its_address_is_not_told(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task's log has the exception with its traceback, and would have what caused it."""
    from floodmark.ledger.delta import tables

    def refuses(address: str) -> None:
        raise OSError(f"GET http://user:{MARK}@host/{address} gave 403")

    monkeypatch.setattr(tables, "open_table", refuses)
    with pytest.raises(AirflowException, match=r"OSError: GET http://\*\*\*@host/.* gave 403") as fault:
        execute(rule)
    assert type(fault.value) is AirflowException
    assert MARK not in "".join(traceback.format_exception(fault.value))


def test_a_broken_rule_fails_with_the_reason(rules: Path) -> None:
    from floodmark_airflow.dags.dag_factory import all_dags

    write(rules, "bad", qos=7)
    (dag,) = all_dags()
    with pytest.raises(AirflowFailException, match="qos: expected 0"):
        dag.tasks[0].execute(context())


def test_the_spark_connection_is_local() -> None:
    assert RuleSubmitHook(env_vars={})._connection["master"] == "local[*]"


def test_a_connection_that_runs_the_driver_elsewhere_fails_for_good(
    rule: Rule, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_submit(fake_path, "exit 1")
    cluster = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(cluster))
    with pytest.raises(AirflowFailException, match="spark_default: expected deploy-mode client, or none, found 'clus"):
        execute(rule)
    assert not was_started(fake_path)


K8S = json.dumps({"conn_type": "spark", "host": "k8s://https://there:6443"})


def test_kubernetes_without_the_package_that_its_hook_needs_fails_before_spark_starts(
    rule: Rule, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_submit(fake_path, "exit 1")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", K8S)
    monkeypatch.setitem(sys.modules, "airflow.providers.cncf.kubernetes", None)
    with pytest.raises(AirflowFailException, match="k8s://https://there:6443 needs the Python package apache-airflow-"):
        execute(rule)
    assert not was_started(fake_path)
    assert "needs the Python package" in facts()["spark_default"]["error"]


def test_on_kubernetes_the_driver_gets_its_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a child of the task, as everywhere."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", K8S)
    monkeypatch.setattr(provider, "kube_client", object(), raising=False)
    hook = RuleSubmitHook(env_vars={"FLOODMARK_HOME": "/there"})
    hook._build_spark_submit_command("job.py")
    assert hook._env == {"FLOODMARK_HOME": "/there", "FLOODMARK_MASTER": "k8s://https://there:6443"}


def missing(*_: object) -> None:
    raise AirflowNotFoundException("the conn_id spark_default is not defined")


def test_without_a_connection_spark_runs_on_this_machine_and_not_on_yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    monkeypatch.setattr(BaseHook, "get_connection", missing)
    monkeypatch.setattr(RuleSubmitHook, "get_connection", missing)
    hook = RuleSubmitHook(env_vars={})
    assert (hook._connection["master"], hook._env_vars["FLOODMARK_MASTER"]) == ("local[*]", "local[*]")


def test_a_connection_that_airflow_cannot_read_is_not_taken_for_none(
    rule: Rule, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_submit(fake_path, "exit 1")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://local[*]")
    monkeypatch.setattr(BaseHook, "get_connection", missing)
    with pytest.raises(AirflowException, match="AIRFLOW_CONN_SPARK_DEFAULT cannot be read") as fault:
        execute(rule)
    assert type(fault.value) is AirflowException, "a retry may find it mended"
    assert not was_started(fake_path)


def test_a_task_finds_spark_submit_beside_its_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PATH" not in environment(), "there is one on PATH"
    monkeypatch.setenv("PATH", "/usr/bin")
    assert environment()["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"


def wait_for(file: Path, lines: int) -> list[int]:
    for _ in range(500):
        if file.exists() and len(found := file.read_text().split()) == lines:
            return [int(pid) for pid in found]
        threading.Event().wait(0.02)
    raise AssertionError(f"{file} never had {lines} lines")


def gone(pid: int) -> bool:
    """Whether the process ends within seconds; SIGKILL is not instant."""
    for _ in range(500):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        threading.Event().wait(0.02)
    return False


def test_a_kill_ends_the_whole_tree_even_those_that_left_the_group(rule: Rule, fake_path: Path) -> None:
    pids = fake_path / "pids"
    spark_submit(fake_path, f"echo $$ >>{pids}; setsid sh -c 'echo $$ >>{pids}; sleep 300' & sleep 300")
    task = task_of(rule)
    faults: list[BaseException] = []

    def run() -> None:
        try:
            task.execute(context())
        except AirflowException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    started = wait_for(pids, 2)
    task.on_kill()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert faults
    assert all(gone(pid) for pid in started)


def test_after_a_time_out_the_ledger_is_read_once_the_run_is_dead(
    rule: Rule, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, dead = fake_path / "pid", list[bool]()

    def time_out(_: object, said: Iterator[str]) -> None:
        next(said)
        raise AirflowTaskTimeout("too long")

    spark_submit(fake_path, f"echo $$ >{pid}; echo at work; exec sleep 30")
    monkeypatch.setattr(RuleSubmitHook, "_process_spark_submit_log", time_out)
    monkeypatch.setattr(Steps, "report", lambda self: dead.append(gone(int(pid.read_text()))))
    with pytest.raises(AirflowTaskTimeout):
        execute(rule)
    assert dead == [True]


def test_a_kill_before_the_submit_is_quiet(rule: Rule) -> None:
    task_of(rule).on_kill()


def test_killing_what_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["sleep", "300"])
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert kill_tree(process.pid) == []


def test_a_job_gets_airflows_connections_and_no_command_line_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", K8S)
    monkeypatch.setattr(provider, "kube_client", object(), raising=False)
    kept = Connection(conn_id="lake", conn_type="kafka", host="h", login="me", password="s3cret", extra='{"a": "b"}')
    monkeypatch.setattr(connections, "BaseHook", SimpleNamespace(get_connection=lambda name: kept))
    monkeypatch.setenv("AIRFLOW_CONN_NEAR", "kafka://near")  # a job inherits it
    found = connections.environment(["lake", "near"])
    assert set(found) == {"FLOODMARK_CONN_LAKE"}
    assert connection_of("lake", found["FLOODMARK_CONN_LAKE"], "") == connection("lake")
    assert (connection("lake").password, connection("lake").extra) == ("s3cret", {"a": "b"})
    hook = RuleSubmitHook(env_vars={"FLOODMARK_HOME": "/there"}, secrets=found)
    assert "s3cret" not in " ".join(hook._build_spark_submit_command("job.py"))
    assert hook._env is not None and hook._env["FLOODMARK_CONN_LAKE"] == found["FLOODMARK_CONN_LAKE"]


def test_a_connection_that_cannot_be_read_ends_the_task_for_good(
    rules: Path, place: Path, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "no connection")
    arrive(place)
    found = load_rule(write(rules, "one", sinks=[{"postgres": {"connection": "shop", "table": "t"}}]), os.environ)
    spark_submit(fake_path, "exit 0")
    task, given = build(found).get_task("run"), context()
    task.render_template_fields(given)
    with pytest.raises(AirflowFailException, match="connection shop: expected a URI"):
        task.execute(given)
    assert not was_started(fake_path)
