"""`floodmark abandon` looks before it asks: what the sinks' logs show of the open epoch, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import CommitProperties, DeltaTable, Transaction
from support.byhand import intent
from support.flow import Flow
from support.lives import an_epoch, by_hand, lived, wrote
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.abandoning import inspect_sinks
from floodmark.core.lifecycle.abandoning import SinkState, Undo, abandoned_row
from floodmark.core.protocol.records.rows import Counts, Undone
from floodmark.core.protocol.recovery import app_id, undo_version
from floodmark.errors import HistoryGone, TableBroken
from floodmark.ledger.ledger import Ledger


@pytest.fixture
def flow(place: Path) -> Flow:
    return Flow(place)


def opened(flow: Flow, wrote_to: int = 2) -> Ledger:
    """Three epochs are committed; the fourth is open, and has written to so many sinks."""
    ledger = lived(flow)
    an_epoch(flow, ledger)
    an_epoch(flow, ledger)
    ledger.intend(intent(flow, 4, None, 0, Counts(read=1, folded=1)))
    for number in range(wrote_to):
        wrote(flow.sink(number), ledger, 4)
    return ledger


def seen(flow: Flow, ledger: Ledger) -> list[SinkState]:
    assert ledger.head is not None
    return inspect_sinks(ledger.head, flow.rule(), flow.place, ledger.id, {})


def call(flow: Flow, *words: str, code: int = 0) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), "COLUMNS": "300"}
    found = CliRunner().invoke(app, ["abandon", flow.name, *words], env=places)
    assert found.exit_code == code, found.output
    return found.output


def test_the_commits_of_the_epoch_are_found_and_those_before_are_not(flow: Flow) -> None:
    one, other = seen(flow, opened(flow, wrote_to=1))
    version = DeltaTable(flow.sink(0)).version()
    assert (one.undo, one.commits, other.undo, other.commits) == (Undo.TAKE_BACK, (version,), Undo.FENCE, ())
    added = [one["add"]["path"] for one in map(json.loads, log(flow, version).read_text().splitlines()) if "add" in one]
    assert ([path for path, _ in one.net.added], dict(one.net.removed)) == (added, {})
    assert (one.touched, one.absent) == (None, None)


def log(flow: Flow, version: int) -> Path:
    return Path(flow.sink(0)) / "_delta_log" / f"{version:020}.json"


def test_rows_that_others_append_are_left_and_files_that_they_join_are_told_of(flow: Flow) -> None:
    ledger = opened(flow)
    by_hand(flow.sink(0))
    assert seen(flow, ledger)[0].touched is None
    DeltaTable(flow.sink(0)).optimize.compact()
    assert seen(flow, ledger)[0].touched == DeltaTable(flow.sink(0)).version()


def test_a_sink_that_is_gone_or_another_or_harmed_is_told_of(flow: Flow) -> None:
    ledger = opened(flow)
    kept = log(flow, 2).read_text()
    log(flow, 2).write_text(kept[: len(kept) // 2])
    with pytest.raises(TableBroken, match="truncated or was changed"):
        seen(flow, ledger)
    log(flow, 2).write_text(kept)
    place = Path(flow.sink(0))
    place.rename(place.with_name("away"))
    with pytest.raises(HistoryGone, match="is gone"):
        seen(flow, ledger)
    by_hand(flow.sink(0))
    with pytest.raises(HistoryGone, match="found another"):
        seen(flow, ledger)


def test_it_says_what_would_be_undone_and_asks(flow: Flow) -> None:
    ledger = opened(flow, wrote_to=1)
    version = DeltaTable(flow.sink(0)).version()
    said = call(flow, "--dry-run")
    assert f"sink counted_out0: commit {version} is undone" in said
    assert "sink counted_out1: has nothing of the epoch" in said
    told: dict[str, Any] = json.loads(call(flow, "--dry-run", "--json"))
    assert (told["epoch"], told["done"], told["sinks"][0]["undoes"]) == (4, False, [version])
    assert "--yes" in call(flow, code=2)
    assert ledger.head is not None
    assert flow.ledger().head == ledger.head, "nothing was written"


def test_another_rule_that_reads_what_the_epoch_wrote_forbids_it(flow: Flow) -> None:
    opened(flow, wrote_to=1)
    for number, code in ((1, 0), (0, 2)):
        reader = {**flow.text(), "rule": "other", "sinks": [{"delta": str(flow.root / "lake" / "other")}]}
        reader["streams"] = {"events": {**reader["streams"]["events"], "delta": flow.sink(number)}}
        (flow.root / "rules" / "other.yaml").write_text(yaml.safe_dump(reader, sort_keys=False))
        said = call(flow, "--dry-run", code=code)
        assert ("rule other reads" in said) is (code == 2)


@pytest.mark.parametrize("begun", [False, True])
def test_without_an_open_epoch_it_is_refused(flow: Flow, begun: bool) -> None:
    flow.write_rule()
    if begun:
        lived(flow)
    words = "expected an open epoch, found none: epoch 1" if begun else "has not run yet"
    assert words in call(flow, "--yes", code=2)


def test_versions_of_attempts_are_found_down_to_the_first(flow: Flow) -> None:
    """At qos 1 a sink may have several, with commits of others between."""
    flow.settings["qos"] = 1
    ledger = opened(flow, wrote_to=0)
    at = []
    for attempt in (1, 3):
        wrote(flow.sink(0), ledger, 4, attempt)
        at.append(DeltaTable(flow.sink(0)).version())
        by_hand(flow.sink(0))
    found = seen(flow, ledger)[0]
    assert (found.commits, found.touched, len(found.net.added)) == (tuple(at), None, 2)


def taken_back_by_hand(flow: Flow, ledger: Ledger) -> None:
    """What a real abandon leaves, by delta-rs: the file of the fourth epoch goes from each sink."""
    head = ledger.abandon()
    done = {}
    for number in range(flow.sinks):
        app = app_id(ledger.id, head.generation, head.token, "sink")
        said = json.dumps({"app": app, "version": undo_version(4), "epoch": 4}, separators=(",", ":"))
        how = CommitProperties({"userMetadata": said}, app_transactions=[Transaction(app, undo_version(4))])
        table = DeltaTable(flow.sink(number))
        undoes = table.version()
        table.delete("c = 4", commit_properties=how)
        done[f"sink/{flow.sink(number)}"] = Undone(version=undo_version(4), commit=table.version(), undoes=(undoes,))
    ledger.take_back(abandoned_row(head, done))


def test_everybody_says_that_the_epoch_was_abandoned(flow: Flow) -> None:
    ledger = opened(flow)

    def facts(*words: str) -> Any:
        places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
        found = CliRunner().invoke(app, [*words, "--json"], env=places)
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    before = facts("sql", flow.name, "SELECT * FROM counted_out0 ORDER BY c")["rows"]
    taken_back_by_hand(flow, ledger)
    an_epoch(flow, ledger)
    results = [one["result"] for one in facts("epochs", flow.name)["epochs"]]
    assert results == ["begun", *["committed"] * 3, "abandoned", "committed"]
    status = facts("status", flow.name)["rules"][flow.name]
    assert (status["epoch"], status["abandoned_epochs"], status["lost_epochs"]) == (5, [4], [])
    assert (status["totals"]["lost"], status["totals"]["read"]) == (0, 4)
    for epoch in (3, 4):
        assert facts("sql", flow.name, "--epoch", str(epoch), "SELECT * FROM counted_out0 ORDER BY c")["rows"] == before
    assert len(facts("sql", flow.name, "SELECT * FROM counted_out0")["rows"]) == len(before) + 1
