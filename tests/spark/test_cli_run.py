"""The command line with Spark: a process of its own for `run` and `reset`, the test's own session for `preview`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.flow import STATELESS, TUMBLING, Flow, event, rows_of

from floodmark.spark.look.preview import preview

CHECKOUT = Path(__file__).parents[2]
MARK = "hunter2-mark"
SECRETS = dict.fromkeys(
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "AIRFLOW__CORE__FERNET_KEY"), MARK
)


def call(flow: Flow, *words: str) -> tuple[int, Any]:
    """Exit code and the JSON document of a command that has secrets in its environment, and shows none of them."""
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    environment = {
        **os.environ,
        **SECRETS,
        **places,
        "FLOODMARK_MASTER": "local[2]",
        "PYTHONPATH": str(CHECKOUT / "jobs"),
    }
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", *words, "--json"]
    said = flow.root / "said"
    with said.open("w") as output, (flow.root / "log.txt").open("a") as log:
        process = subprocess.Popen(command, env=environment, cwd=flow.root, stdout=output, stderr=log)
        arguments = arguments_of(process)
    assert "org.apache.spark.deploy.SparkSubmit" in arguments, "the JVM was looked at"
    assert MARK not in arguments
    assert [str(file) for file in flow.root.rglob("*") if file.is_file() and MARK.encode() in contents(file)] == []
    return process.returncode, json.loads(said.read_text())


def arguments_of(process: subprocess.Popen[bytes]) -> str:
    """The arguments, as `ps` shows them, of the process and of all that it starts until it ends."""
    found: set[str] = set()
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            found |= {" ".join(one.cmdline()) for one in [root, *root.children(recursive=True)]}
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    return "\n".join(found)


def contents(file: Path) -> bytes:
    """What a file says, unpacked where it is Parquet."""
    if file.suffix != ".parquet":
        return file.read_bytes()
    return str(pq.ParquetFile(file).read().to_pylist()).encode()


@pytest.mark.prove
def test_two_rules_share_an_application_and_a_failing_one_leaves_the_other_alone(place: Path) -> None:
    loaded = place / "loaded.log"
    events = place / "events"
    events.mkdir()
    log = {
        "spark.driver.extraJavaOptions": f"-Xlog:class+load:file={loaded}",
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": False,
    }
    good = Flow(place, settings={"spark": {"shuffle_partitions": 2, "conf": log}})
    bad = Flow(place, "failing", "SELECT at, CAST(k AS INT) AS number FROM events")
    for flow in (good, bad):
        flow.arrive([event(1), event(70), event(200)])
        flow.write_rule()

    code, found = call(good, "run", "--all", "--run-id", "mine")

    assert (code, found["run"], found["exit_code"]) == (3, "mine", 3)
    told = (place / "log.txt").read_text()
    assert not [mark for mark in ("Traceback", "\tat org.apache", "stacktrace") if mark in told], "its line says it"
    assert "spark.sql.delta.DeltaLog source: shared objects file" in loaded.read_text(), "set-up's archive is not used"
    assert found["rules"]["failing"]["error"]["type"] == "InputFault"
    assert any("fs.s3a.secret.key" in file.read_text() for file in events.rglob("events_*")), "Spark took the secret"
    done = found["rules"]["counted"]
    assert (done["result"], done["epoch"], done["open_windows"]["count"]) == ("done", 1, 1)
    assert [row.run for row in good.ledger().rows] == ["mine"] * 3


@pytest.mark.prove
def test_reset_begins_anew(place: Path) -> None:
    good = Flow(place)
    good.arrive([event(1), event(70), event(200)])
    good.write_rule()
    assert call(good, "run", "counted")[0] == 0
    assert rows_of(good.sink())

    code, found = call(good, "reset", "counted", "--yes", "--run-id", "anew")

    assert (code, found["done"], found["generation"]) == (0, True, 2)
    assert rows_of(good.sink()) == []
    newest = good.ledger().rows[-1]
    assert (newest.kind, newest.epoch, newest.run) == ("commit", 0, "anew"), "by which Airflow's form believes a reset"


def test_preview_marks_what_would_be_final_and_writes_nothing(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=TUMBLING)
    flow.arrive([event(1), event(70), event(150), event(None)])
    flow.write_rule()
    before = sorted(place.rglob("*"))

    found = preview(spark, flow.rule(), sample=100, rows=2)

    assert found.counts["events"].dead == 1
    assert [(values[0], final) for values, final in found.rows] == [
        ("2001-01-01T00:00:00.000000Z", True),
        ("2001-01-01T00:02:00.000000Z", False),
    ], "of many final ones some give way to what waits"
    assert found.more
    assert found.columns[0] == ("start", "timestamp")
    assert sorted(place.rglob("*")) == before


def test_preview_of_a_stateless_rule_is_bounded(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS)
    flow.arrive([event(at) for at in range(50)])
    found = preview(spark, flow.rule(), sample=10, rows=100)
    assert (found.counts["events"].read, len(found.rows), found.more) == (10, 10, False)
