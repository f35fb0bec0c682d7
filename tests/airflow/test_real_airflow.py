"""One run of each kind in a real Airflow, from its scheduler to its last task, as users have it on their first day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from local_airflow import LocalAirflow
from support.flow import Flow, event, rows_of
from support.waiting import wait
from test_faults import DONE, post

from floodmark.audit.certificate import audit

pytestmark = pytest.mark.timeout(900)
SQL = "SELECT events.k, names.name, events.n FROM events JOIN names ON events.k = names.k"


@pytest.fixture(scope="module")
def flows(root: Path) -> list[Flow]:
    """A rule with a target whose source and lookup table no rule writes, and one of a group that it wakes."""
    first, once = Flow(root, "first", SQL), {"airflow": {"retries": 0}}
    first.settings = {
        **once,
        "lookups": {"names": {"delta": str(root / "lake" / "names")}},
        "sinks": [{"delta": first.sink()}, {"files": {"path": str(root / "files"), "format": "json"}}],
    }
    stream = {"delta": None, "rule": "first", "event_time": None, "lateness": None}
    second = Flow(
        root, "second", "SELECT k, name FROM events", {"schedule": "upstream", "group": "small", **once}, stream
    )
    first.arrive([event(0, "a", n=1), event(1, "b", n=2)])
    write_deltalake(str(root / "lake" / "names"), pa.table({"k": ["a", "b"], "name": ["Anna", "Ben"]}))
    return [first, second]


@pytest.fixture(scope="module")
def airflow(root: Path, flows: list[Flow]) -> Iterator[LocalAirflow]:
    for flow in flows:
        flow.write_rule()
    with LocalAirflow(root / "airflow", root / "rules", root / "home", root / "lake") as found:
        found.prepare()
        found.start()
        found.wait_healthy()
        yield found


def states(airflow: LocalAirflow, dag: str) -> dict[str, str]:
    """The states of the tasks of its newest run, once that has ended."""

    def ended() -> str | None:
        found = airflow.find("dags", dag, "dagRuns") or {"dag_runs": []}
        return next((run["dag_run_id"] for run in found["dag_runs"][-1:] if run["state"] in DONE), None)

    tasks = airflow.get("dags", dag, "dagRuns", wait(ended), "taskInstances")["task_instances"]
    return {task["task_id"]: task["state"] for task in tasks}


def test_a_rule_its_target_and_the_group_that_it_wakes_end_well(airflow: LocalAirflow, flows: list[Flow]) -> None:
    wait(lambda: airflow.find("dags", "rule.first") and airflow.find("dags", "group.small"))
    post(airflow, "/api/v2/dags/rule.first/dagRuns", {"logical_date": None})
    assert states(airflow, "rule.first") == dict.fromkeys(("run", "relay.files", "outcome"), "success")
    assert states(airflow, "group.small") == dict.fromkeys(("run", "outcome"), "success")
    assert sorted(row["name"] for row in rows_of(flows[1].sink())) == ["Anna", "Ben"]
    for flow in flows:
        found = audit(flow.name, flow.home, deep=True)
        assert found is not None and (found.verdict, found.findings) == ("proven", [])
