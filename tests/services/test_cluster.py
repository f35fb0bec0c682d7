"""Rules on a Spark standalone cluster: a master and two workers as processes, the lake on a folder that all see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from support.cluster import BIN, Cluster, standalone
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered, tumbling

from floodmark.core.application.sparkconf import application_conf
from floodmark.proving.play.processes import kill_all, started, wait_until

CHECKOUT = Path(__file__).parents[2]
RUN = CHECKOUT / "jobs/floodmark/cli/applications/run_rule.py"
ENV = {
    "PYTHONPATH": f"{CHECKOUT / 'jobs'}",
    "PYSPARK_PYTHON": sys.executable,
    "TZ": "UTC",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
FIRST = [event(second, k) for second in range(0, 600, 5) for k in "abc"]
SECOND = [event(second, k) for second in range(600, 900, 5) for k in "cd"]
LIMIT = 240.0
pytestmark = pytest.mark.prove  # six JVMs on two cores: some two minutes


@pytest.fixture
def cluster(place: Path) -> Iterator[Cluster]:
    with standalone(place, ENV) as found:
        yield found


@pytest.fixture
def flow(place: Path) -> Flow:
    conf = {"spark.executor.memory": "512m", "spark.task.maxFailures": "4"}
    found = Flow(place, settings={"epoch": {"max_files": 1}, "spark": {"shuffle_partitions": 2, "conf": conf}})
    found.write_rule()
    return found


def words(flow: Flow, run: str) -> list[str]:
    return [flow.name, "--rules", str(flow.root / "rules"), "--home", str(flow.home), "--run-id", run]


def submit(flow: Flow, master: str, run: str, mode: str = "client") -> list[str]:
    """As Airflow's task submits it."""
    spark = flow.rule().spark
    conf = application_conf("1g", spark.shuffle_partitions, spark.conf, None)
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    start = [str(BIN / "spark-submit"), "--master", master, "--deploy-mode", mode, *settings]
    return [*start, str(RUN), *words(flow, run)]


def audited(flow: Flow) -> str:
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "audit", flow.name, "--deep", "--json"]
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    found = subprocess.run(command, env={**os.environ, **ENV, **places}, capture_output=True, text=True)
    return str(json.loads(found.stdout)["verdict"])


@contextmanager
def held(flow: Flow, cluster: Cluster, place: Path, point: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that waits at a point of its first epoch, with an executor on each of the two workers."""
    mark, log = place / f"{flow.name}.{point}", place / "first.txt"
    hold = {**ENV, "FLOODMARK_CRASH_AT": f"{flow.name}:{point}@1", "FLOODMARK_CRASH_MARKS": str(place)}
    with started(submit(flow, cluster.url, "first"), hold, log) as first:
        assert wait_until(mark.exists, first, LIMIT), log.read_text()
        (application,) = cluster.state()["activeapps"]
        assert application["cores"] == 2, "both workers work for it"
        yield first


def finish(flow: Flow, cluster: Cluster, place: Path) -> None:
    """More input and another run; then all of it once, equal to the oracle and proven."""
    flow.arrive(SECOND)
    with started(submit(flow, cluster.url, "second"), ENV, place / "second.txt") as second:
        assert second.wait(LIMIT) == 0, (place / "second.txt").read_text()
    rows = ordered(tuple(row.values()) for row in rows_of(flow.sink()))
    assert rows == tumbling([*FIRST, *SECOND], START + timedelta(seconds=865))
    assert audited(flow) == "proven"


@pytest.mark.parametrize("point", ["intent.after", "sink0.before"])
def test_a_worker_dies_in_the_middle_of_an_epoch(point: str, flow: Flow, cluster: Cluster, place: Path) -> None:
    flow.arrive(FIRST)
    with held(flow, cluster, place, point) as first:
        assert cluster.kill_worker(0) >= 2, "the worker and its executor"
        assert wait_until(lambda: cluster.alive() == 1, first, LIMIT)
        (place / f"{flow.name}.{point}").unlink()
        assert first.wait(LIMIT) == 0, (place / "first.txt").read_text()
    finish(flow, cluster, place)


def test_a_driver_dies_in_the_middle_of_an_epoch(flow: Flow, cluster: Cluster, place: Path) -> None:
    flow.arrive(FIRST)
    with held(flow, cluster, place, "sink0.after") as first:
        kill_all(first.pid)
        assert wait_until(lambda: not cluster.state()["activeapps"], cluster.workers[0], LIMIT)
    finish(flow, cluster, place)


def test_standalone_takes_no_python_driver_in_cluster_mode(flow: Flow) -> None:
    flow.arrive(FIRST)
    command = submit(flow, "spark://127.0.0.1:1", "never", mode="cluster")
    found = subprocess.run(command, env={**os.environ, **ENV}, capture_output=True, text=True)
    assert found.returncode != 0
    assert "not supported for python applications on standalone clusters" in found.stderr + found.stdout
