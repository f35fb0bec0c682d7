"""All that the Compose file runs, as processes: Airflow on PostgreSQL, and a Spark cluster that loses a worker."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from local_airflow import LocalAirflow
from support.cluster import standalone
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.postgres import served
from support.waiting import wait

CHECKOUT = Path(__file__).parents[2]
EVENTS = [event(second, k) for second in range(0, 600, 5) for k in "abc"]
POINT = "sink0.before"
pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]  # PostgreSQL, Airflow and six JVMs on two cores


def state(airflow: LocalAirflow, dag: str) -> str | None:
    """Of the DAG's one run."""
    found = airflow.find("dags", dag, "dagRuns")
    return str(found["dag_runs"][0]["state"]) if found and found["dag_runs"] else None


def floodmark(airflow: LocalAirflow, *words: str) -> dict[str, Any]:
    """A command in the environment of Airflow's processes."""
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", *words, "--json"]
    found = subprocess.run(command, env=airflow._environment, cwd=CHECKOUT, capture_output=True, text=True)
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def test_a_rule_from_airflow_on_postgresql_to_a_cluster_that_loses_a_worker(place: Path) -> None:
    conf = {"spark.executor.memory": "512m"}
    flow = Flow(place, settings={"schedule": "@once", "spark": {"shuffle_partitions": 2, "conf": conf}})
    flow.arrive(EVENTS)
    flow.write_rule()
    mark = place / f"{flow.name}.{POINT}"
    env = {
        "PYTHONPATH": str(CHECKOUT / "jobs"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }
    airflow = LocalAirflow(place / "airflow", place / "rules", place / "home", place / "lake")
    with served(place) as database, standalone(place, env) as cluster, airflow:
        airflow._environment |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": cluster.url}),
            "FLOODMARK_CRASH_AT": f"{flow.name}:{POINT}@1",
            "FLOODMARK_CRASH_MARKS": str(place),
        }
        airflow.prepare()
        airflow.start()
        airflow.wait_healthy()
        checks = {check["name"]: check for check in floodmark(airflow, "doctor")["checks"]}
        assert [name for name, check in checks.items() if check["verdict"] == "failed"] == []
        assert checks["metadata database"]["found"] == "postgresql at 127.0.0.1"
        assert checks["spark_default"]["found"] == cluster.url
        wait(mark.exists, 0.2, alive=airflow.check_alive)
        assert cluster.kill_worker(0) >= 2, "the worker and its executor"
        wait(lambda: cluster.alive() == 1, 0.2, alive=airflow.check_alive)
        mark.unlink()
        wait(lambda: state(airflow, f"rule.{flow.name}") in ("success", "failed"), 0.2, alive=airflow.check_alive)
        assert state(airflow, f"rule.{flow.name}") == "success"
        assert floodmark(airflow, "audit", flow.name, "--deep")["verdict"] == "proven"
    rows = ordered(tuple(row.values()) for row in rows_of(flow.sink()))
    assert rows == tumbling(EVENTS, START + timedelta(seconds=565))
