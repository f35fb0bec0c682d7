"""Form × type × sink × fault: what is not refused runs, is killed once, goes on and is proven (`support.matrix`).

FLOODMARK_SEED plays the sample of a failed run again.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from support.compared import CACHE
from support.flow import Flow
from support.matrix import Case, drawn
from support.running import crash, run
from support.types import most, source_sql

from floodmark.audit.certificate import audit
from floodmark.core.protocol.records.head import Head
from floodmark.errors import Refused
from floodmark.ledger.ledger import LedgerReader

CHECKOUT = Path(__file__).parents[2]
MANY, ACROSS = 250, 24
SEED = os.environ.get("FLOODMARK_SEED") or str(random.SystemRandom().getrandbits(32))


@pytest.mark.prove
def test_a_sample_is_killed_and_proven(spark: SparkSession) -> None:
    assert sum(played(spark, drawn(SEED, MANY))) > MANY / 3, "most of what fits is taken"


@pytest.mark.prove
def test_a_sample_is_killed_goes_on_elsewhere_and_is_proven(spark: SparkSession) -> None:
    """The retry runs on one core, in a process of its own, where the killed run had two."""
    assert any(played(spark, drawn(SEED, ACROSS), elsewhere=True))


def played(spark: SparkSession, cases: Sequence[Case], elsewhere: bool = False) -> list[bool]:
    """Of each case, whether it was taken; those that fail end the test together, once all have been played."""
    taken, faults = list[bool](), list[Exception]()
    for case in cases:
        try:
            taken.append(play(spark, case, elsewhere))
        except Exception as fault:
            fault.add_note(f"case: {case}; FLOODMARK_SEED={SEED}")
            faults.append(fault)
    if faults:
        raise ExceptionGroup(f"{len(faults)} of {len(cases)} cases", faults)
    return taken


def play(spark: SparkSession, case: Case, elsewhere: bool = False) -> bool:
    """Whether the case was taken. One that is refused has opened no epoch."""
    root = CACHE / uuid4().hex
    root.mkdir(parents=True)
    try:
        return _play(spark, case, root, elsewhere)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _play(spark: SparkSession, case: Case, root: Path, elsewhere: bool) -> bool:
    role = {"partitioned by it": "partition_by"}.get(case.sink, "")
    rows = spark.sql(source_sql([case.kind], most([case.kind]), mild=bool(role) or case.form == "class"))
    rows = rows.selectExpr("CAST(id AS BIGINT) AS id", "at", "CAST(id % 2 AS BIGINT) AS p", "c0 AS c")
    flow = case.flow(root, rows.schema["c"].dataType.simpleString())
    try:
        flow.rule()
        _save(rows.select("id", "c"), root, "t")
        _arrive(flow, rows)
        run(spark, flow)
    except Refused:
        head = _head(flow)
        assert head is None or (head.epoch == 0 and head.open is None), "refused before an epoch is opened"
        return False
    late = rows.withColumn("at", F.expr("at - INTERVAL '1' DAY"))
    dead = rows.withColumn("at", F.expr("CAST(NULL AS TIMESTAMP)"))
    later = rows.selectExpr("id + 100 AS id", "at + INTERVAL '1' HOUR AS at", "p", "c")
    _arrive(flow, later.unionByName(late).unionByName(dead))
    crash(spark, flow, case.point)
    if elsewhere:
        _run_elsewhere(flow)
    else:
        run(spark, flow)
    head = _head(flow)
    assert head is not None and head.open is None
    found = audit(flow.name, flow.home, True)
    assert found is not None and found.verdict == "proven", found and found.findings
    return True


def _arrive(flow: Flow, rows: DataFrame) -> None:
    _save(rows, flow.root, f"{flow.name}_events")


def _save(rows: DataFrame, root: Path, name: str) -> None:
    rows.coalesce(1).write.format("delta").mode("append").save(str(root / "lake" / name))


def _head(flow: Flow) -> Head | None:
    ledger = LedgerReader.load(flow.place.ledger)
    return ledger.head if ledger else None


def _run_elsewhere(flow: Flow) -> None:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    environment = {**os.environ, **places, "PYTHONPATH": str(CHECKOUT / "jobs")}
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "run", flow.name, "--master", "local[1]"]
    log = flow.root / "log.txt"
    with log.open("w") as said:
        code = subprocess.run(command, env=environment, cwd=flow.root, stdout=said, stderr=said).returncode
    assert code == 0, log.read_text()[-4000:]
