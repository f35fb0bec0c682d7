"""Homes that older code has written, with an epoch open between its sinks: today's code goes on with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.model import Told, tell
from support.olderhomes import COMMITS, PORTIONS, SINKS, flow_at, packed, unpack
from support.oracle import ordered
from support.running import run
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.core.protocol.records.rows import FORMAT

NEW = [event(290), event(300, "b", n=7), event(330, "c"), event(60), event(430)]
TELLING = (1, 9)  # without digests, and the newest before today's
NO_DIGEST = "the ledger has no digest of its rows: it was written before digests were introduced"


def test_every_older_format_has_its_home() -> None:
    assert set(range(1, FORMAT)) <= set(COMMITS)
    assert all(packed(form).is_file() for form in COMMITS)


@pytest.mark.parametrize(
    "form", [form if form in TELLING else pytest.param(form, marks=pytest.mark.prove) for form in COMMITS]
)
def test_a_home_that_older_code_wrote_goes_on_after_its_open_epoch(spark: SparkSession, place: Path, form: int) -> None:
    flow, epochs = flow_at(unpack(form, place)), tell([(portion, False) for portion in (*PORTIONS, NEW)])
    _assert_open(flow, form, epochs[:-1])
    flow.arrive(NEW)
    report = run(spark, flow)
    assert [(one.epoch, one.attempt) for one in report.epochs] == [(len(PORTIONS), 2), (len(PORTIONS) + 1, 1)]
    assert {sink: _rows(flow, sink) for sink in SINKS} == {sink: _expected(sink, epochs) for sink in SINKS}
    assert len(rows_of(flow.place.late)) == sum(len(epoch.late) for epoch in epochs) == 2
    assert len(rows_of(flow.place.dead)) == sum(len(epoch.dead) for epoch in epochs) == 1
    _assert_proven(flow, form)


def _assert_open(flow: Flow, form: int, epochs: list[Told]) -> None:
    """Every row is of the format, the last an intent; half of the sinks have what its epoch gives."""
    rows = flow.ledger().rows
    assert {json.loads(row.body)["format"] for row in rows} == {form} and rows[-1].kind == "intent"
    left = {sink: _expected(sink, epochs if sink.endswith("done") else epochs[:-1]) for sink in SINKS}
    assert {sink: _rows(flow, sink) for sink in SINKS} == left
    assert left["appended_done"] != left["appended_due"] and left["newest_done"] != left["newest_due"]


def _assert_proven(flow: Flow, form: int) -> None:
    """By ledger and logs, and by the files; of what format 1 had committed there is no digest to hold files against."""
    told = CliRunner().invoke(app, ["audit", flow.name, "--home", str(flow.home)])
    assert told.exit_code == 0, told.output
    assert ("commits have no digest to compare" in told.output) is (form == 1)
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    told_by_files = {(one.epoch, one.verdict, one.what) for one in found.findings}
    assert told_by_files == ({(epoch, "unknown", NO_DIGEST) for epoch in (1, 2)} if form == 1 else set())


def _expected(sink: str, epochs: list[Told]) -> list[tuple[Any, ...]]:
    """All windows that were due, or each key's newest."""
    due = sorted((row for epoch in epochs for row in epoch.due), key=lambda row: row[0])
    return ordered(due if sink.startswith("appended") else {row[1]: row for row in due}.values())


def _rows(flow: Flow, sink: str) -> list[tuple[Any, ...]]:
    return ordered(tuple(row.values()) for row in rows_of(str(flow.root / "lake" / sink)))
