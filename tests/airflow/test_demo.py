"""The demo's kill: all of a run, nothing else, whatever state its processes are in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import airflow_env
import demo
import psutil
import pytest
from test_operator import gone, wait_for

from floodmark_airflow.tasks.processtree import kill_tree

# As spark-submit's tree: a child that has ended and was never waited for, and one in a session of its own.
TREE = """
import os, subprocess, sys, time
ended = subprocess.Popen(["true"])
os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
print(os.getpid(), child.pid, file=open(sys.argv[-1], "w"))
time.sleep(300)
"""


@pytest.fixture
def started(place: Path) -> subprocess.Popen[bytes]:
    (place / "run_rule.py").write_text(TREE)
    return subprocess.Popen([sys.executable, place / "run_rule.py", "--run-id", "run.try1", place / "pids"])


def test_the_kill_takes_all_of_the_run(started: subprocess.Popen[bytes], place: Path) -> None:
    parent, child = wait_for(place / "pids", 2)
    assert started.pid == parent
    told = demo.kill_run([psutil.Process(), psutil.Process(parent), psutil.Process(child)], "run.try1")
    assert started.wait(timeout=10) == -signal.SIGKILL
    assert {int(text.split()[-1]) for text in told} == {parent, child}
    assert gone(child)


def test_the_kill_leaves_other_runs_alone(started: subprocess.Popen[bytes], place: Path) -> None:
    wait_for(place / "pids", 2)
    assert demo.kill_run([psutil.Process(started.pid)], "run.try2") == []
    assert started.poll() is None
    assert kill_tree(started.pid)
    started.wait(timeout=10)


def test_the_demos_rule_is_the_example_run_every_minute(place: Path) -> None:
    from floodmark.core.rules.rule import load_rules

    with demo.source("lake", place) as lake:
        demo.write_rule(place / "rules", lake, None)
    rules, errors = load_rules(place / "rules", {"LAKE": str(place)})
    assert not errors
    (rule,) = rules.values()
    assert rule.schedule == "* * * * *"
    assert rule.airflow.retry_delay_us == 3_000_000
    example, _ = load_rules(demo.CHECKOUT / "rules", {"LAKE": str(place)})
    assert rule.sql == example[demo.RULE].sql
    assert rule.streams == example[demo.RULE].streams


def test_the_embedded_airflow_finds_the_users_modules_and_no_other_spark(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "spark" / "pyspark").mkdir(parents=True)
    ours = [str(airflow_env.CHECKOUT / name) for name in ("jobs", "plugins")]
    named = [ours[0], str(place / "spark"), "/x/py4j-0.10.9-src.zip", "", "/mine"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(named))
    found = airflow_env.environment(place, place, place, place, airflow_env.Ports(), "secret")
    assert found["PYTHONPATH"].split(os.pathsep) == [*ours, "/mine"]
