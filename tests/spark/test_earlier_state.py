"""`state --epoch N` is what `state` printed when epoch N was the newest, also before a rewrite, while that is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.flow import RUNNING, SESSIONS, Flow, event
from support.running import crash, run
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.core.lifecycle import cleanup

UPSERTED: dict[str, Any] = {"unbounded": True}
KINDS: dict[str, dict[str, Any]] = {
    "sessions": {"sql": SESSIONS},
    "totals": {"sql": RUNNING, "settings": UPSERTED},
    "class": {"process": "totals:Totals"},
}


def flow_of(root: Path, kind: str) -> Flow:
    flow = Flow(root, **KINDS[kind])
    if kind == "totals":
        flow.settings = {**UPSERTED, "sinks": [{"delta": flow.sink(), "key": ["k"]}]}
    return flow


def state(flow: Flow, *words: str) -> dict[str, Any]:
    """Table by table how many rows there are, and the rows, sorted."""
    found = json.loads(said(flow, 0, *words, "--limit", "1000", "--json"))
    return {name: (one["rows"], sorted(map(json.dumps, one["shown"]))) for name, one in found["streams"].items()}


def said(flow: Flow, code: int, *words: str) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    found = CliRunner().invoke(app, ["state", flow.name, *words], env=places)
    assert found.exit_code == code, found.output
    return found.output


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["sessions", "totals", "class"])
def test_every_epoch_reads_as_it_did_when_it_was_the_newest(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path, kind: str
) -> None:
    """A rewrite follows on epochs 2, 3 and so on: each leaves one file."""
    monkeypatch.setattr(cleanup, "MAX_FILES", 2)
    flow, printed, of_a = flow_of(place, kind), [], []
    for epoch in range(1, 5):
        flow.arrive([event(25 * epoch + more, "ab"[more % 2], n=epoch + more) for more in range(4)])
        if epoch == 3:
            assert crash(spark, flow, "state.after"), "the retry's rows are those of the first attempt"
        run(spark, flow)
        printed.append(state(flow))
        of_a.append(state(flow, "--key", "k=a"))
    assert [state(flow, "--epoch", str(epoch)) for epoch in range(1, 5)] == printed
    assert [state(flow, "--epoch", str(epoch), "--key", "k=a") for epoch in range(1, 5)] == of_a
    assert all(rows == (0, []) for rows in state(flow, "--epoch", "0").values())
    assert "expected an epoch from 0 to 4" in said(flow, 2, "--epoch", "5")
    _forget(flow, printed)


def _forget(flow: Flow, printed: list[dict[str, Any]]) -> None:
    """Once the files of old versions are gone, what is refused names the first epoch that still reads as it did."""
    for table in printed[-1]:
        DeltaTable(flow.place.state(1, table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    refused = said(flow, 2, "--epoch", "1")
    first = int(refused.split("expected an epoch from ")[1].split(" on")[0])
    assert 1 < first <= len(printed)
    assert [state(flow, "--epoch", str(epoch + 1)) for epoch in range(first - 1, len(printed))] == printed[first - 1 :]
    for epoch in range(1, first):
        said(flow, 2, "--epoch", str(epoch))


@pytest.mark.prove
def test_state_of_before_an_edit_of_the_class_has_the_columns_of_then(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "class")
    flow.arrive([event(0, n=1), event(100, n=2)])
    run(spark, flow)
    before = state(flow)
    assert before["last"][0] == 1
    text = (flow.root / "rules" / flow.module).read_text()
    flow.write_class(text.replace("n BIGINT, seen", "n BIGINT, more DATE, seen"))
    flow.arrive([event(200, n=3)])
    run(spark, flow)
    assert state(flow, "--epoch", "1") == before
    assert '"more"' in said(flow, 0, "--json")
