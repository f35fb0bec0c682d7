"""`floodmark doctor --spark`: a real Spark writes and reads a Delta table where rules keep theirs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.cluster import standalone

from floodmark.cli.shared import doctorchecks
from floodmark.spark.session import selftest

SAID = f"Spark 4.2.0 on local[1]: 1000 rows written and read, Python {platform.python_version()} in its workers"


def doctor(place: Path, *words: str, master: str = "local[1]", **env: str) -> dict[str, Any]:
    """The check of Spark; `place`: a home."""
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "doctor", "--json", "--spark"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "FLOODMARK"))}
    found = subprocess.run(
        [*command, *words, "--master", master, "--home", str(place)],
        env={**kept, **env},
        capture_output=True,
        text=True,
    )
    checks = {check["name"]: check for check in json.loads(found.stdout)["checks"]}
    assert (found.returncode == 0) == all(check["verdict"] != "failed" for check in checks.values())
    spark: dict[str, Any] = checks["Spark"]
    return spark


def test_it_writes_and_reads_and_leaves_nothing(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the session of the other tests, which the command takes for one of its own."""
    monkeypatch.setattr(selftest, "root_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    [found] = doctorchecks.spark(place, "local[1]", 120)
    assert (found.verdict, found.found) == ("ok", SAID)
    assert list(place.iterdir()) == []


@pytest.mark.prove
def test_so_does_the_command_in_a_process_of_its_own(place: Path) -> None:
    found = doctor(place)
    assert (found["verdict"], found["found"]) == ("ok", SAID)
    assert list(place.iterdir()) == []


def test_jars_that_are_not_there_are_named(place: Path) -> None:
    found = doctor(place, FLOODMARK_JARS=str(place / "none"))
    assert (found["verdict"], found["expected"]) == ("failed", "a Delta table written and read on local[1]")
    assert "delta-spark_4.2_2.13-4.4.0.jar" in found["found"]


@pytest.mark.prove
def test_a_master_without_workers_is_not_waited_for(place: Path) -> None:
    with standalone(place, dict(os.environ), workers=0) as cluster:
        found = doctor(place / "home", "--timeout", "3", master=cluster.url)
    assert found["verdict"] == "failed"
    assert "not done after 3 s, so it was stopped: are workers registered" in found["found"]
