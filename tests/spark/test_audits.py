"""`floodmark audit` over real tables of the engine: proven as they are, and not once a fault is planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.flow import Flow, event
from support.running import crash, reset, run
from typer.testing import CliRunner

from floodmark.audit.certificate import Certificate, audit
from floodmark.audit.evidence import Row
from floodmark.audit.ledger.chain import hash_of
from floodmark.audit.logreader import read_ledger
from floodmark.cli.app import app
from floodmark.core.protocol.recovery import SEAL, app_id
from floodmark.core.rules.sinks import upserts
from floodmark.ledger.delta import tablelog
from floodmark.ledger.ledger import schema

CHECKOUT = Path(__file__).parents[2]
SECOND = [event(110, "b", 2.5, 4), event(20), event(None), event(200, "a", None, 9)]


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> Iterator[Flow]:
    """Three epochs, the second in two attempts; late and dead rows; one sink appended to, one merged into."""
    flow = Flow(CHECKOUT / ".cache" / "tests" / uuid4().hex, settings={"epoch": {"max_files": 1}})
    flow.root.mkdir(parents=True)
    flow.stream["start"] = {"version": 0}
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "key": ["k"], "newest": "start"}]
    for portion in ([event(s, k) for s, k in ((0, "a"), (10, "b"), (130, "a"))], SECOND, [event(400, "b"), event(600)]):
        flow.arrive(portion)
    assert crash(spark, flow, "sink0.after", 2)
    run(spark, flow)
    shutil.copytree(flow.root, flow.root.with_suffix(".kept"))
    yield flow
    for root in (flow.root, flow.root.with_suffix(".kept")):
        shutil.rmtree(root)


@pytest.fixture
def flow(made: Flow) -> Iterator[Flow]:
    """The same; whatever a test does to it is undone."""
    yield made
    shutil.rmtree(made.root)
    shutil.copytree(made.root.with_suffix(".kept"), made.root)


def certificate(flow: Flow, deep: bool = True) -> Certificate:
    found = audit(flow.name, flow.home, deep)
    assert found is not None
    return found


def sink(flow: Flow, number: int = 0) -> Path:
    return Path(flow.sink(number)).resolve()


@pytest.mark.prove
def test_a_sink_with_deletion_vectors_is_proven_until_one_of_them_is_altered_or_gone(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserts, "FEW_TIMES", 0)
    flow = Flow(place, sql="SELECT k, n FROM events", settings={"epoch": {"max_files": 1}})
    flow.stream = {"start": {"version": 0}}
    vectors = {"delta.enableDeletionVectors": True}
    flow.settings["sinks"] = [{"delta": flow.sink(0), "key": ["k"], "newest": "n", "properties": vectors}]
    flow.arrive([event(0, k, n=1) for k in "abcdefgh"])
    flow.arrive([event(0, "b", n=2)])
    assert crash(spark, flow, "sink0.after", 2)
    run(spark, flow)
    assert certificate(flow).verdict == "proven", certificate(flow).findings

    (vector,) = sink(flow).glob("deletion_vector_*.bin")
    whole = vector.read_bytes()
    vector.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    assert certificate(flow, deep=False).verdict == "proven"
    (altered,) = (one for one in certificate(flow).findings if one.verdict == "broken")
    assert f"{vector.name} of" in altered.what and altered.what.endswith("does not match its checksum or its size")

    vector.unlink()
    found = certificate(flow, deep=False)
    assert found.verdict == "broken"
    assert [one.what for one in found.findings if vector.name in one.what and one.what.endswith("is gone")]


def log(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def rewrite_ledger(flow: Flow, change: Callable[[list[Row]], list[Row]], chain: bool) -> None:
    """Other rows in the ledger; `chain`: with hashes that fit, as one would who knows how."""
    found = read_ledger(flow.place.ledger)
    assert found is not None
    rows: list[Row] = []
    for row in change(found[1]):
        if chain:
            row = replace(row, seq=len(rows) + 1, prev=rows[-1].hash if rows else "", hash="")
            row = replace(row, hash=hash_of(row))
        rows.append(row)
    table = DeltaTable(flow.place.ledger)
    data = pa.Table.from_pylist([row.__dict__ for row in rows], schema=schema())
    write_deltalake(table, data, mode="overwrite")


def with_body(row: Row, change: Callable[[dict[str, Any]], None]) -> Row:
    body = json.loads(row.body)
    change(body)
    return replace(row, body=json.dumps(body))


def test_what_the_engine_made_is_proven(flow: Flow) -> None:
    found = certificate(flow)
    assert (found.verdict, found.findings) == ("proven", [])
    facts = found.facts()["generations"]
    assert [(one["epochs"], one["attempts"], one["open"]) for one in facts] == [(3, 4, 0)]
    assert facts[0]["rows"] == {"read": 9, "filtered": 0, "dropped": 0, "folded": 7, "late": 1, "dead": 1, "lost": 0}
    for table, tally in found.tables.items():
        assert tally.named == tally.seen == tally.recomputed, table
    assert {table.split("/")[0] for table in found.tables} == {"sink", "late", "dead", "state"}


def test_the_command_says_so_and_ends_with_its_code(flow: Flow) -> None:
    runner = CliRunner()
    call = ["audit", flow.name, "--home", str(flow.home)]
    told = runner.invoke(app, call)
    assert told.exit_code == 0
    assert told.stdout.startswith("counted: PROVEN")
    sink(flow).joinpath(DeltaTable(flow.sink()).get_add_actions()["path"].to_pylist()[0]).unlink()
    told = runner.invoke(app, [*call, "--json"])
    assert told.exit_code == 3
    facts = json.loads(told.stdout)
    assert (facts["format"], facts["verdict"], facts["exit_code"]) == (1, "broken", 3)
    assert [one["table"] for one in facts["findings"]] == [f"sink/{sink(flow)}"]
    assert runner.invoke(app, ["audit", "nobody", "--home", str(flow.home)]).exit_code == 2


def doubled(flow: Flow) -> None:
    newest = DeltaTable(flow.sink()).version()
    shutil.copy(log(sink(flow), 1), log(sink(flow), newest + 1))


def missing(flow: Flow) -> None:
    newest = DeltaTable(flow.sink()).version()
    for ending in (".json", ".crc"):
        log(sink(flow), newest).with_suffix(ending).unlink()


def somebody_elses(flow: Flow) -> None:
    there = DeltaTable(flow.sink()).get_add_actions()["path"].to_pylist()[0]
    write_deltalake(flow.sink(), pq.ParquetFile(sink(flow) / there).read().slice(0, 1), mode="append")


def dropped(flow: Flow) -> None:
    added = [json.loads(line) for line in log(sink(flow), 1).read_text().splitlines()]
    sink(flow).joinpath(next(one["add"]["path"] for one in added if "add" in one)).unlink()


def edited(flow: Flow) -> None:
    """A row of the file of commit 1, and the file's size in the log, so that only the rows tell."""
    entry = log(sink(flow), 1)
    add = next(one["add"] for one in map(json.loads, entry.read_text().splitlines()) if "add" in one)
    file = sink(flow) / add["path"]
    table = pq.ParquetFile(file).read()
    rows = table.to_pylist()
    pq.write_table(table.from_pylist([{**rows[0], "c": rows[0]["c"] + 1}, *rows[1:]], table.schema), file)
    entry.write_text(entry.read_text().replace(f'"size":{add["size"]}', f'"size":{file.stat().st_size}'))


def gap(flow: Flow) -> None:
    rewrite_ledger(flow, lambda rows: [row for row in rows if row.epoch != 2], chain=True)


def offsets_back(flow: Flow) -> None:
    """Epoch 3 is made to end where epoch 1 did, in intent and commit."""

    def forged(rows: list[Row]) -> list[Row]:
        entry = next(json.loads(row.body)["entry"] for row in rows if (row.kind, row.epoch) == ("commit", 1))
        last = [with_body(row, lambda body: body.update(entry=entry)) for row in rows if row.epoch == 3]
        return [row for row in rows if row.epoch != 3] + last

    rewrite_ledger(flow, forged, chain=True)


def forged(flow: Flow) -> None:
    def more(row: Row) -> Row:
        return with_body(row, lambda body: body.update(output_rows=99))

    rewrite_ledger(flow, lambda rows: [more(row) if row.seq == 3 else row for row in rows], chain=False)


def forged_with_hashes(flow: Flow) -> None:
    def other(body: dict[str, Any]) -> None:
        body["tables"][f"sink/{sink(flow)}"]["digest"]["low"] = "1"

    at = ("commit", 1)
    rewrite_ledger(flow, lambda rows: [with_body(r, other) if (r.kind, r.epoch) == at else r for r in rows], chain=True)


def cut_short(flow: Flow) -> None:
    """An older copy of the ledger is put back."""
    rewrite_ledger(flow, lambda rows: [row for row in rows if row.epoch < 3], chain=True)


def pruned(flow: Flow) -> None:
    """A checkpoint is made, and the log before it cleaned up."""
    table = DeltaTable(flow.sink())
    table.create_checkpoint()
    for version in range(table.version()):
        log(sink(flow), version).unlink()


PLANTED: list[tuple[Callable[[Flow], None], str, int | None, str]] = [
    (doubled, "broken", 1, "once more: the ledger names commit 1"),
    (missing, "broken", 3, "the ledger names commit"),
    (somebody_elses, "broken", None, "that changes rows and is not this rule's"),
    (dropped, "broken", 1, "is gone"),
    (edited, "broken", 1, "its files hold other rows than the ledger says (another hash)"),
    (gap, "broken", 3, "expected epoch 2, attempt 1, found epoch 3"),
    (offsets_back, "broken", 3, "its offset goes back"),
    (forged, "broken", 1, "the row's hash is not that of its content"),
    (forged_with_hashes, "broken", 1, "`digest` in the commit's metadata is not the ledger's"),
    (cut_short, "broken", 3, "of epoch 3 that the ledger does not name"),
    (pruned, "unknown", 2, "of its commits, up to this epoch, cannot be looked up: the log begins at version"),
]


@pytest.mark.parametrize(("plant", "verdict", "epoch", "what"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED])
def test_a_planted_fault_turns_the_verdict_and_is_told_with_its_place(
    flow: Flow, plant: Callable[[Flow], None], verdict: str, epoch: int | None, what: str
) -> None:
    plant(flow)
    found = certificate(flow)
    assert found.verdict == verdict
    assert epoch in [one.epoch for one in found.findings if what in one.what], found.findings


def test_without_deep_an_edited_row_is_not_seen_and_nothing_is_said_of_rows(flow: Flow) -> None:
    edited(flow)
    found = certificate(flow, deep=False)
    assert found.verdict == "proven"
    assert {tally.recomputed for tally in found.tables.values()} == {0}


@pytest.mark.prove
def test_generations_seals_and_emptied_sinks_are_proven(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive([event(0), event(400)])
    run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    found = certificate(flow)
    assert (found.verdict, found.findings) == ("proven", [])
    assert [(one["generation"], one["sealed"]) for one in found.facts()["generations"]] == [(1, True), (2, False)]


@pytest.mark.prove
def test_a_reset_seals_a_sink_that_only_the_open_epoch_tells_of(spark: SparkSession, place: Path) -> None:
    """Whoever still works at that epoch could else write to it after the reset."""
    flow = Flow(place, sinks=1)
    flow.arrive([event(0), event(400)])
    run(spark, flow)
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"delta": flow.sink(1)}]
    flow.arrive([event(900)])
    assert crash(spark, flow, "intent.after")
    ledger = flow.ledger()
    assert ledger.head is not None and f"sink/{flow.sink(1)}" not in ledger.head.table_ids
    reset(spark, flow)
    assert tablelog.recorded_version(flow.sink(1), app_id(ledger.id, 1, ledger.head.token, "sink")) == SEAL
    run(spark, flow)
    assert certificate(flow).verdict == "proven"


@pytest.mark.prove  # by hand-made ledgers in `unit/test_audit.py`
@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_lower_qos_allows_is_counted_and_no_fault(spark: SparkSession, place: Path, qos: int) -> None:
    flow = Flow(place, settings={"qos": qos}, sinks=1)
    flow.arrive([event(0), event(400)])
    assert crash(spark, flow, "sink0.after")
    run(spark, flow)
    found = certificate(flow)
    assert (found.verdict, found.findings) == ("proven", [])
    assert found.tables[f"sink/{sink(flow)}"].repeated == qos
    assert found.facts()["generations"][0]["lost_epochs"] == ([] if qos else [1])


@pytest.mark.prove
def test_state_that_was_compacted_is_proven(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.core.lifecycle.cleanup.MAX_FILES", 2)
    flow = Flow(place, settings={"epoch": {"max_files": 1}}, sinks=1)
    flow.stream["start"] = {"version": 0}
    for place_in_time in range(3):
        flow.arrive([event(60 * place_in_time), event(60 * place_in_time + 30)])
    run(spark, flow)
    found = certificate(flow)
    assert (found.verdict, found.findings) == ("proven", [])
    assert found.tables["state/events"].rewrites > 0
