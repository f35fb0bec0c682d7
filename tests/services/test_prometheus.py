"""A rule under a real Airflow, whose metrics go to a real Prometheus: each panel has data, and alerts fire."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_airflow import LocalAirflow
from support.flow import Flow, event
from support.monitored import ALERTS, MAPPING, queries
from support.prometheus import Prometheus, client, configuration, program, watching
from support.waiting import wait

CASES = Path(__file__).parent / "alerts.test.yml"
pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]
SETTINGS = {
    "freshness": {"max_lag": "30 minutes", "on_exceed": "fail"},  # its rows are of 2001
    "airflow": {"retries": 0},
    "spark": {"shuffle_partitions": 1, "driver_memory": "1g"},
}


class Watched:
    """A rule of an Airflow, and the Prometheus that watches it."""

    def __init__(self, airflow: LocalAirflow, prometheus: Prometheus, flow: Flow):
        self.airflow, self.prometheus, self.flow = airflow, prometheus, flow
        self._runs = 0

    def run(self, *seconds: float) -> None:
        """A run that reads events of these times; it ends when Prometheus has its metrics."""
        self.flow.arrive([event(at) for at in seconds])
        self._runs += 1
        run, dag = f"run{self._runs}", f"rule.{self.flow.name}"
        command = [sys.executable, "-m", "airflow", "dags", "trigger", dag, "--run-id", run]
        subprocess.run(command, env=self.airflow._environment, check=True, capture_output=True)
        wait(lambda: self._state(dag, run) in ("success", "failed"), 0.5, alive=self.airflow.check_alive)
        counted = "floodmark_epochs_total + on (rule) sum by (rule) (floodmark_tasks_total)"
        counted += " + on (rule) sum by (rule) (floodmark_run_duration_seconds_count)"
        wait(lambda: self.prometheus.value(counted) == 5 * self._runs, 0.2)  # its epoch, three tasks and itself

    def _state(self, dag: str, run: str) -> str:
        return str(self.airflow.get("dags", dag, "dagRuns", run)["state"])


@pytest.fixture(scope="module")
def watched(root: Path) -> Iterator[Watched]:
    """After two runs. The first late row came with the second one, and freshness failed in both."""
    sinks = [{"delta": str(root / "lake" / "counted_out")}, {"files": {"path": str(root / "lake" / "files")}}]
    flow = Flow(root, settings=SETTINGS | {"sinks": sinks})
    flow.arrive([event(0)])
    flow.write_rule()
    airflow = LocalAirflow(root / "airflow", root / "rules", root / "home", root / "lake")
    with watching(root) as prometheus, airflow:
        airflow._environment |= prometheus.settings
        airflow._environment["PYTHONPATH"] += f"{os.pathsep}{client(root / 'client')}"
        airflow.prepare()
        airflow.start()
        airflow.wait_healthy()
        wait(lambda: airflow.find("dags", f"rule.{flow.name}") is not None, 0.5, alive=airflow.check_alive)
        found = Watched(airflow, prometheus, flow)
        found.run(10, 600)
        found.run(20, 700, 1300)
        yield found


def test_their_own_programs_read_the_files_and_each_alert_fires_in_its_case(place: Path) -> None:
    file = configuration(place, "127.0.0.1:1")
    for words in (["check", "rules", str(ALERTS)], ["check", "config", str(file)], ["test", "rules", str(CASES)]):
        subprocess.run([program("promtool"), *words], check=True, capture_output=True)
    subprocess.run([program("statsd_exporter"), "--check-config", f"--statsd.mapping-config={MAPPING}"], check=True)


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_each_query_of_a_panel_has_data(watched: Watched, title: str, query: str) -> None:
    assert watched.prometheus.query(query), f"{title} is empty"


def test_what_prometheus_has_is_what_happened(watched: Watched) -> None:
    values = {
        'floodmark_rows_read_total{rule="counted"}': 6,
        'floodmark_rows_late_total{rule="counted"}': 1,
        'floodmark_lag_commits{rule="counted"}': 0,
        'floodmark_epoch_duration_seconds_count{rule="counted"}': 2,
        'floodmark_target_backlog_epochs{rule="counted", target="files"}': 0,
        'floodmark_target_failed{rule="counted", target="files"}': 0,
        'floodmark_tasks_total{rule="counted", task="run", state="success"}': 2,
        'floodmark_tasks_total{rule="counted", task="relay__files", state="success"}': 2,
        'floodmark_tasks_total{rule="counted", task="freshness", state="failed"}': 2,
    }
    assert {query: watched.prometheus.value(query) for query in values} == values
    assert watched.prometheus.query("count by (__name__) ({__name__=~'.*without_rule.*'})") == []


def test_the_first_late_row_is_an_increase(watched: Watched) -> None:
    """Its counter was sent as 0 before."""
    increase = watched.prometheus.value("increase(floodmark_rows_late_total[1h])")
    assert increase is not None and increase > 0


def test_alerts_fire_for_what_is_wrong_and_for_nothing_else(watched: Watched) -> None:
    wait(lambda: ("FloodmarkStale", "counted") in watched.prometheus.firing(), 0.2)
    assert watched.prometheus.firing() == {("FloodmarkStale", "counted"), ("FloodmarkLateRows", "counted")}
