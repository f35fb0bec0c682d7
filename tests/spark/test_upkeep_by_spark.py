"""Upkeep of tables that Spark has written: the rule goes on over them, and the audit stays true."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.aged import age, entries, files
from support.flow import Flow, event, rows_of
from support.running import crash, run
from typer.testing import CliRunner

from floodmark.audit.certificate import Certificate, audit
from floodmark.cli.app import app

UPSERTED = {"key": ["k", "start"]}


def flow_of(place: Path) -> Flow:
    """One sink that is added to, and one that is merged into; every file of the input is an epoch."""
    flow = Flow(place, stream={"start": {"version": 0}})
    sinks = [{"delta": flow.sink(0)}, {"delta": flow.sink(1), **UPSERTED}]
    flow.settings = {"epoch": {"max_files": 1}, "sinks": sinks}
    return flow


def maintain(flow: Flow) -> str:
    places = {**os.environ, "FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    found = CliRunner().invoke(app, ["maintain", flow.name, "--yes"], env=places)
    assert found.exit_code == 0, found.output
    return found.output


def aged(flow: Flow) -> None:
    for address in (flow.sink(0), flow.sink(1), flow.place.late, flow.place.dead):
        age(address, 60)


def audited(flow: Flow) -> Certificate:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    return found


def held(flow: Flow) -> list[list[tuple[object, ...]]]:
    names = ("start", "k", "c", "total", "top")
    return [sorted(tuple(row[name] for name in names) for row in rows_of(flow.sink(i))) for i in (0, 1)]


def test_a_maintained_rule_goes_on_and_is_proven_as_far_as_it_can_be(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr("floodmark.ledger.maintenance.CHECKPOINT_AFTER", 100)
    flow = flow_of(place)
    for at in range(4):
        flow.arrive([event(60 * at + 1), event(60 * at + 2, "b", 0.1 * at), event(None if at == 2 else 60 * at + 3)])
    run(spark, flow)
    before = held(flow)
    assert audited(flow).verdict == "proven"
    assert "small files" in maintain(flow) and held(flow) == before and audited(flow).verdict == "proven"
    aged(flow)
    maintain(flow)
    assert len(files(flow.sink(0))) == 1 and held(flow) == before
    told = audited(flow)
    added, merged = (f"sink/{Path(flow.sink(i)).resolve()}" for i in (0, 1))
    assert {finding.table for finding in told.findings} == {merged}, "only upserts cannot be added up"
    assert "broken" not in {finding.verdict for finding in told.findings}
    assert told.tables[added].recomputed == told.tables[added].seen
    flow.arrive([event(300), event(1, "late")])
    flow.arrive([event(500)])
    assert crash(spark, flow, "sink1.after")
    assert "is open and has written to it" in maintain(flow)
    run(spark, flow)
    assert len(rows_of(flow.sink(0))) > len(before[0])
    assert "broken" not in {finding.verdict for finding in audited(flow).findings}
    monkeypatch.setattr("floodmark.ledger.maintenance.CHECKPOINT_AFTER", 1)
    maintain(flow)
    aged(flow)
    maintain(flow)
    assert len(entries(flow.sink(0))) == 1
    flow.arrive([event(700)])
    run(spark, flow)
    assert held(flow)[0] == held(flow)[1], "both hold every window once"
    assert "broken" not in {finding.verdict for finding in audited(flow).findings}
