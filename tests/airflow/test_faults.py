"""Airflow's own faults, by a real Airflow and real kills: the next run goes on, once, and nothing is green for nothing.

Each rule's input is many small epochs, so that a kill finds its run at work. Airflow's patience is shortened by its own
settings; what it does is not changed.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from uuid import uuid4

import demo_kills
import psutil
import pytest
from local_airflow import LocalAirflow
from support.flow import Flow, event, rows_of
from support.model import LATENESS
from support.oracle import ordered, tumbling
from support.waiting import wait

from floodmark.audit.certificate import audit
from floodmark.ledger.ledger import LedgerReader

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1200)]
CHECKOUT = Path(__file__).parents[2]
FILES = 14  # one epoch each, of a second or two: longer than Airflow takes to miss a scheduler
IMPATIENT = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "6",
    "AIRFLOW__SCHEDULER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
}
RULES = ("scheduler", "supervisor", "database", "cleared")
DONE = ("success", "failed", "skipped")


@pytest.fixture(scope="module")
def airflow(root: Path) -> Iterator[LocalAirflow]:
    for name in RULES:
        flow_of(root, name).write_rule()
    with LocalAirflow(root / "airflow", root / "rules", root / "home", root / "lake") as found:
        found._environment.update(IMPATIENT)
        found.prepare()
        found.start()
        found.wait_healthy()
        yield found


def flow_of(root: Path, name: str) -> Flow:
    """One file an epoch; eight quick retries."""
    settings = {
        "epoch": {"max_files": 1},
        "airflow": {"retries": 8, "retry_delay": "2 seconds", "max_retry_delay": "2 seconds"},
    }
    return Flow(root, name, stream={"start": {"version": 0}}, settings=settings)


class Told:
    """A rule under Airflow: its input, its Airflow runs, and what its tables say."""

    def __init__(self, airflow: LocalAirflow, name: str):
        self.airflow, self.flow, self.dag = airflow, flow_of(airflow.rules.parent, name), f"rule.{name}"
        self.arrived: list[Any] = []

    def arrive(self, files: int = FILES) -> None:
        for _ in range(files):
            at = 20 * len(self.arrived)
            events = [event(at, "a", 1.0, 1), event(at + 5, "b", 2.0, 2)]
            self.flow.arrive(events)
            self.arrived += events

    def trigger(self) -> str:
        """The id of a new run; waits until Airflow knows the DAG. Asked twice, it is one run."""
        run = f"ours-{uuid4().hex[:6]}"

        def asked() -> bool:
            try:
                post(self.airflow, f"/api/v2/dags/{self.dag}/dagRuns", {"dag_run_id": run, "logical_date": None})
            except HTTPError as fault:
                if fault.code not in (404, 409):
                    raise
                return fault.code == 409
            return True

        wait(asked)
        return run

    def state(self, run: str) -> str | None:
        found = self.airflow.find("dags", self.dag, "dagRuns", run)
        return found and str(found["state"])

    def task(self, run: str) -> str | None:
        found = self.airflow.find("dags", self.dag, "dagRuns", run, "taskInstances", "run")
        return found and found["state"]

    def tries(self, run: str) -> list[str]:
        found = self.airflow.get("dags", self.dag, "dagRuns", run, "taskInstances", "run", "tries")
        return [str(one["state"]) for one in sorted(found["task_instances"], key=lambda one: int(one["try_number"]))]

    def ledger(self) -> list[Any]:
        found = LedgerReader.load(self.flow.place.ledger)
        return found.rows if found else []

    def commits(self) -> int:
        return sum(row.kind == "commit" and row.epoch > 0 for row in self.ledger())

    def at_work(self, more: int = 2) -> None:
        """Until the run has committed some epochs and is in the middle of another."""
        enough = self.commits() + more
        wait(lambda: self.commits() >= enough and self.ledger()[-1].kind == "intent", every=0.02)

    def processes(self) -> list[psutil.Process]:
        """The JVM and the driver of its run."""
        return [
            one
            for one in self.airflow.processes()
            if self.flow.name in words(one) and demo_kills.names_run(one, self.run())
        ]

    def run(self) -> str:
        return str(self.ledger()[-1].run)

    def check(self, run: str, others: tuple[str, ...] = ()) -> None:
        """Everything once, proven by the certificate, equal to the oracle; green only who committed."""
        found = audit(self.flow.name, self.flow.home, deep=True)
        assert found is not None
        assert found.verdict == "proven", found.findings
        assert self.flow.counts()["folded"] == len(self.arrived)
        head = self.flow.ledger().head
        assert head is not None and head.watermark is not None and head.open is None
        epochs = Counter(row.epoch for row in self.ledger() if row.kind == "commit")
        assert set(epochs.values()) == {1}
        expected = tumbling(self.arrived, max(one["at"] for one in self.arrived) - LATENESS)
        for number in (0, 1):
            assert ordered(tuple(row.values()) for row in rows_of(self.flow.sink(number))) == expected
        for one in (run, *others):
            mine = [row for row in self.ledger() if row.kind == "commit" and row.run.startswith(f"{one}.try")]
            assert (self.task(one) == "success") <= bool(mine), f"{one} is green and committed nothing"


def words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def post(airflow: LocalAirflow, path: str, body: Any) -> dict[str, Any]:
    airflow.get("version")  # signs in
    return airflow._call(path, body)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_the_scheduler_is_killed_while_a_run_works(airflow: LocalAirflow) -> None:
    told = Told(airflow, "scheduler")
    told.arrive()
    run = told.trigger()
    told.at_work()
    scheduler = airflow._processes["scheduler"]
    working = told.processes()
    assert working
    kill(scheduler.pid)
    assert scheduler.wait() == -signal.SIGKILL
    alive = [one.pid for one in working if one.is_running()]
    before = told.commits()
    assert before < FILES, "the kill came while it worked"
    airflow._processes["the one that was killed"] = scheduler  # what it had started is ended with the rest
    airflow._popen("scheduler", "scheduler")
    wait(lambda: told.state(run) in DONE)
    print(json.dumps({"alive after the kill": len(alive), "epochs then": before, "tries": told.tries(run),
                      "writers": sorted({row.run.rpartition(".")[2] for row in told.ledger()})}))  # fmt: skip
    assert told.state(run) == "success"
    told.check(run)


def test_a_task_s_supervisor_is_killed_and_its_jvm_left_an_orphan(airflow: LocalAirflow) -> None:
    told = Told(airflow, "supervisor")
    told.arrive()
    run = told.trigger()
    told.at_work()
    working = told.processes()
    (jvm,) = [one for one in working if one.parent() not in working]
    task = jvm.parent()
    supervisor = task.parent()
    assert supervisor.pid != airflow._processes["scheduler"].pid
    supervisor.kill()
    before = told.commits()
    assert before < FILES, "the kill came while it worked"
    alive = jvm.is_running() and jvm.status() != psutil.STATUS_ZOMBIE
    wait(lambda: told.state(run) in DONE)
    print(json.dumps({"the JVM outlived it": alive, "epochs then": before, "tries": told.tries(run),
                      "writers": sorted({row.run.rpartition(".")[2] for row in told.ledger()})}))  # fmt: skip
    assert alive, "the JVM was left an orphan"
    assert told.state(run) == "success"
    assert len(told.tries(run)) > 1, "it was retried"
    told.check(run)


def test_the_metadata_database_is_deleted_while_a_run_works(airflow: LocalAirflow) -> None:
    told = Told(airflow, "database")
    told.arrive()
    first = told.trigger()
    told.at_work()
    airflow.stop()
    before = told.ledger()
    assert told.commits() < FILES, "Airflow ended while it worked"
    for file in airflow.folder.glob("airflow.db*"):
        file.unlink()
    airflow._processes.clear()
    airflow._token = None
    airflow.prepare()
    airflow.start()
    airflow.wait_healthy()
    told.arrive(2)
    run = told.trigger()
    assert told.state(first) is None, "Airflow remembers nothing"
    wait(lambda: told.state(run) in DONE)
    print(
        json.dumps({"open then": before[-1].kind == "intent", "epochs then": len(before) // 2, "now": told.commits()})
    )
    assert told.state(run) == "success"
    told.check(run)


def test_a_run_that_succeeded_is_cleared(airflow: LocalAirflow) -> None:
    told = Told(airflow, "cleared")
    told.arrive(2)
    run = told.trigger()
    wait(lambda: told.state(run) in DONE)
    told.check(run)
    rows = len(told.ledger())

    def clear() -> None:
        body = {"dry_run": False, "dag_run_id": run, "task_ids": ["run"], "only_failed": False}
        tries = len(told.tries(run))
        post(airflow, f"/api/v2/dags/{told.dag}/clearTaskInstances", body)
        wait(lambda: len(told.tries(run)) > tries and told.state(run) in DONE)

    clear()
    print(json.dumps({"cleared with nothing new": told.tries(run)}))
    assert len(told.ledger()) == rows, "there was nothing to do, and nothing was done"
    told.check(run)

    told.arrive(2)
    clear()
    print(json.dumps({"cleared with new input": told.tries(run)}))
    assert told.task(run) == "success"
    assert told.ledger()[-1].run.startswith(f"{run}.try")
    assert len(told.ledger()) == rows + 4, "two epochs more, each intended and committed"
    told.check(run)
