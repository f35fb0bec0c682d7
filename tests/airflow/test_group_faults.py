"""A group in a real Airflow: whom its rules' commits wake, what is red, and a driver that is killed in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import demo_kills
import pytest
from local_airflow import LocalAirflow
from support.flow import Flow, event
from support.waiting import wait
from test_faults import DONE, FILES, kill, post

from floodmark.audit.certificate import audit
from floodmark.ledger.ledger import LedgerReader

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1200)]
FAILING = "SELECT at, k, 1 DIV CAST(v AS INT) AS n FROM events"
ROWS = "SELECT at, k, v FROM events"


class Group:
    """Rules of one group, each with a source of its own, and for each a rule that its first sink wakes."""

    def __init__(self, root: Path, name: str, rules: dict[str, str]):
        quick = {"retries": 4, "retry_delay": "2 seconds", "max_retry_delay": "2 seconds"}
        more: dict[str, Any] = {"group": name, "epoch": {"max_files": 1}, "airflow": quick}
        self.flows = [Flow(root, f"{name}_{rule}", sql, more) for rule, sql in rules.items()]
        self.woken = [self._woken(root, flow) for flow in self.flows]
        self.dag = f"group.{name}"

    def _woken(self, root: Path, flow: Flow) -> Flow:
        schedule = {"schedule": {"assets": [flow.sink()]}}
        stream = {"delta": flow.sink(), "event_time": None, "lateness": None}
        return Flow(root, f"after_{flow.name}", "SELECT k FROM events", schedule, stream)

    def write(self) -> None:
        for flow in (*self.flows, *self.woken):
            flow.write_rule()

    def arrive(self, files: int) -> None:
        for number in range(files):
            for flow in self.flows:
                flow.arrive([event(20 * number, "a", 1.0, number), event(20 * number, "b", 0.0, number)])


@pytest.fixture(scope="module")
def groups(root: Path) -> dict[str, Group]:
    return {
        "parted": Group(root, "parted", {"good": ROWS, "bad": FAILING, "windows": Flow.sql}),
        "killed": Group(root, "killed", {"one": ROWS, "two": Flow.sql}),
    }


@pytest.fixture(scope="module")
def airflow(root: Path, groups: dict[str, Group]) -> Iterator[LocalAirflow]:
    for group in groups.values():
        group.write()
    groups["parted"].arrive(2)
    groups["killed"].arrive(FILES)
    with LocalAirflow(root / "airflow", root / "rules", root / "home", root / "lake") as found:
        found.prepare()
        found.start()
        found.wait_healthy()
        wait(lambda: all(found.find("dags", one) for group in groups.values() for one in (group.dag, *_dags(group))))
        yield found


def _dags(group: Group) -> list[str]:
    return [f"rule.{flow.name}" for flow in group.woken]


def begin(airflow: LocalAirflow, dag: str) -> str:
    run = f"ours-{uuid4().hex[:6]}"
    post(airflow, f"/api/v2/dags/{dag}/dagRuns", {"dag_run_id": run, "logical_date": None})
    return run


def ended(airflow: LocalAirflow, dag: str, run: str) -> dict[str, str]:
    """The states of the run and of its tasks, once it has ended."""

    def state() -> str:
        return str(airflow.get("dags", dag, "dagRuns", run)["state"])

    wait(lambda: state() in DONE)
    tasks = airflow.get("dags", dag, "dagRuns", run, "taskInstances")["task_instances"]
    return {"": state(), **{one["task_id"]: one["state"] for one in tasks}}


def runs(airflow: LocalAirflow, flow: Flow) -> int:
    """How often the rule has been woken."""
    return int(airflow.get("dags", f"rule.{flow.name}", "dagRuns")["total_entries"])


def epoch(flow: Flow) -> int:
    found = LedgerReader.load(flow.place.ledger)
    return found.head.epoch if found and found.head else 0


def test_only_who_waits_for_a_rule_that_committed_is_woken_and_the_failed_one_is_red(
    airflow: LocalAirflow, groups: dict[str, Group]
) -> None:
    group = groups["parted"]
    run = begin(airflow, group.dag)
    assert ended(airflow, group.dag, run) == {"": "failed", "run": "success", "outcome": "failed"}
    good, bad, windows = group.woken
    wait(lambda: runs(airflow, good) == 1 and runs(airflow, windows) == 1)
    assert runs(airflow, bad) == 0
    given = airflow.get("dags", group.dag, "dagRuns", run, "taskInstances", "run", "xcomEntries", "return_value")
    assert "parted_bad" in str(given["value"]) and "parted_good" not in str(given["value"])

    mended = group.flows[1]
    mended.settings = {**mended.settings, "on_error": "dead"}
    mended.write_rule()
    again = begin(airflow, group.dag)
    assert ended(airflow, group.dag, again) == {"": "success", "run": "success", "outcome": "success"}
    wait(lambda: runs(airflow, bad) == 1)
    assert runs(airflow, good) == 1, "it had nothing new"
    idle = begin(airflow, group.dag)
    assert ended(airflow, group.dag, idle) == {"": "success", "run": "skipped", "outcome": "skipped"}


def test_a_driver_that_is_killed_costs_no_rule_anything(airflow: LocalAirflow, groups: dict[str, Group]) -> None:
    group = groups["killed"]
    run = begin(airflow, group.dag)
    first = group.flows[0]
    wait(lambda: epoch(first) >= 2, every=0.02)
    (jvm,) = [one for one in airflow.processes() if demo_kills.names_run(one, f"{run}.try1") and "java" in one.name()]
    kill(jvm.pid)
    assert ended(airflow, group.dag, run) == {"": "success", "run": "success", "outcome": "success"}
    for flow in group.flows:
        found = audit(flow.name, flow.home, deep=True)
        assert found is not None and found.verdict == "proven", found
        assert flow.counts()["folded"] == 2 * FILES
        assert {row.run.rpartition(".")[2] for row in flow.ledger().rows} >= {"try1", "try2"}
    wait(lambda: all(runs(airflow, flow) == 1 for flow in group.woken))
