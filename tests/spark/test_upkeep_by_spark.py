"""Upkeep of tables that Spark has written: the rule goes on over them, and the audit stays true."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.aged import age, entries, files
from support.flow import SCHEMA, Flow, event, rows_of
from support.running import crash, run
from typer.testing import CliRunner

from floodmark.audit.certificate import Certificate, audit
from floodmark.cli.app import app
from floodmark.connectors.backlog.news import look
from floodmark.core.sql.tree.names import CHANGE_FEED
from floodmark.spark.rule.epochs.draining import Drainer

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


VALUES = """
SELECT at, CAST(k AS DOUBLE) AS d, named_struct('d', CAST(k AS DOUBLE)) AS s, CAST(k AS FLOAT) AS f,
       CAST(n AS DECIMAL(38, 0)) * 99999999999999999999 AS large,
       CAST(n AS DECIMAL(20, 2)) + 123456789012345678.91 AS wide,
       CAST(n AS DECIMAL(15, 2)) + 1234567890123.45 AS short
FROM events
"""
ASKED = (
    "d > 5", "d = double('NaN')", "s.d > 5", "f > 5", "large >= 99999999999999999999", "wide >= 123456789012345679.91",
    "wide = 123456789012345678.91", "short = 1234567890123.45", "short > 1234567890123.45", "d < 5",
)  # fmt: skip


def test_readers_that_trust_bounds_find_what_they_found_before(spark: SparkSession, place: Path) -> None:
    """Spark holds NaN to be the largest value, and bounds of decimals to be exact."""
    flow = Flow(place, sql=VALUES, stream={"start": {"version": 0}, "lateness": None}, sinks=1)
    flow.settings = {"epoch": {"max_files": 1}}
    flow.arrive([event(1, "NaN", n=0), event(2, "1", n=1)])
    flow.arrive([event(3, "2", n=0)])
    run(spark, flow)

    def counts() -> dict[str, int]:
        return {asked: spark.read.format("delta").load(flow.sink()).where(asked).count() for asked in ASKED}

    before = counts()
    assert audited(flow).verdict == "proven"
    assert "2 small files joined" in maintain(flow)
    assert (counts(), audited(flow).verdict) == (before, "proven")
    assert min(before.values()) > 0


def test_times_that_deltas_client_cannot_hold_are_left_as_they_are(spark: SparkSession, place: Path) -> None:
    """Another Spark than Floodmark's writes times as INT96; delta-rs counts these in nanoseconds."""
    sql = "SELECT at, IF(n = 0, TIMESTAMP'9999-12-31 00:00:00Z', at) AS until, n FROM events"
    flow = Flow(place, sql=sql, stream={"start": {"version": 0}, "lateness": None}, sinks=1)
    flow.settings = {"epoch": {"max_files": 1}}
    for number in range(2):
        flow.arrive([event(number, n=number)])
    run(spark, flow)
    was = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        spark.sql(f"OPTIMIZE delta.`{flow.sink()}`")
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", was)
    for number in range(2, 4):
        flow.arrive([event(number, n=number)])
    run(spark, flow)
    before = spark.read.format("delta").load(flow.sink()).selectExpr("CAST(until AS STRING)").collect()
    assert any("9999" in row[0] for row in before)
    assert audited(flow).verdict == "proven"
    assert "0 small files joined" in maintain(flow)
    assert spark.read.format("delta").load(flow.sink()).selectExpr("CAST(until AS STRING)").collect() == before
    assert audited(flow).verdict == "proven"


@pytest.mark.prove
def test_columns_that_row_tracking_adds_to_files_are_none_of_the_rows(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place)
    for sink in flow.settings["sinks"]:
        sink["properties"] = {"delta.enableRowTracking": "true"}
    for at in range(3):
        flow.arrive([event(60 * at + 1), event(60 * at + 2, "b", 0.1 * at)])
    flow.arrive([event(500)])
    run(spark, flow)
    for number in (0, 1):
        spark.sql(f"OPTIMIZE delta.`{flow.sink(number)}`")
        (live,) = DeltaTable(flow.sink(number)).file_uris()
        assert any(name.startswith("_row-id-col-") for name in pq.read_schema(live).names)
    assert "broken" not in {finding.verdict for finding in audited(flow).findings}


@pytest.mark.parametrize("value", ["CAST(unhex(k) AS STRING)", "date_add(DATE'1970-01-01', 2147483647)"])
def test_a_table_whose_values_deltas_client_cannot_read_stops_no_upkeep(
    spark: SparkSession, place: Path, value: str
) -> None:
    flow = Flow(place, sql=f"SELECT at, {value} AS odd, n FROM events", sinks=2)
    flow.stream = {"start": {"version": 0}, "lateness": None}
    flow.settings = {
        "epoch": {"max_files": 1}, "sinks": [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "columns": ["at", "n"]}]
    }  # fmt: skip
    for number in range(2):
        flow.arrive([event(number, "FF", n=number)])
    run(spark, flow)
    before = spark.read.format("delta").load(flow.sink()).selectExpr("hex(CAST(odd AS STRING))", "n").collect()
    said = maintain(flow)
    assert "sink counted_out0: not compacted, files stay for Spark's OPTIMIZE" in said
    assert "2 small files joined" in said, "of the other sink"
    assert spark.read.format("delta").load(flow.sink()).selectExpr("hex(CAST(odd AS STRING))", "n").collect() == before
    assert "broken" not in {finding.verdict for finding in audited(flow).findings}


@pytest.mark.parametrize("limits", [{}, {"epoch": {"max_seconds": 60}}], ids=["whole", "paced"])
def test_a_rule_outlives_the_log_of_a_table_that_was_empty_at_first(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path, limits: dict[str, Any]
) -> None:
    """A rule of which a kill has left no epoch, or whose epochs are paced, has its offset in that first snapshot."""
    flow = Flow(place, sinks=1, settings=limits)
    DeltaTable.create(flow.source, SCHEMA)
    with monkeypatch.context() as killed:
        killed.setattr(Drainer, "drain", lambda *given, **more: None)
        assert run(spark, flow).epochs == []
    DeltaTable(flow.source).alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    (first,) = (Path(flow.source) / "_delta_log").glob(f"{0:020}.json")
    os.utime(first, (0, 0))
    (passed,) = run(spark, flow).epochs
    DeltaTable(flow.source).create_checkpoint()
    first.unlink()
    flow.arrive([event(2), event(3), event(200)])
    run(spark, flow)
    assert ((passed.epoch, passed.read), [row["c"] for row in rows_of(flow.sink())]) == ((1, 0), [2])
    assert audited(flow).verdict == "proven"


@pytest.mark.parametrize("stream", [{"landing": True}, {"changes": True, "lateness": None}], ids=["landing", "changes"])
def test_so_does_a_rule_whose_epochs_spark_does_not_plan(
    spark: SparkSession, place: Path, stream: dict[str, Any]
) -> None:
    flow = Flow(place, sql="SELECT at, k FROM events", sinks=1, stream=stream)
    DeltaTable.create(flow.source, SCHEMA, configuration={CHANGE_FEED: "true"})
    assert run(spark, flow).epochs == []
    DeltaTable(flow.source).alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    (first,) = (Path(flow.source) / "_delta_log").glob(f"{0:020}.json")
    os.utime(first, (0, 0))
    run(spark, flow)
    assert look(flow.rule(), flow.home).why is None
    DeltaTable(flow.source).create_checkpoint()
    first.unlink()
    flow.arrive([event(2), event(3)])
    run(spark, flow)
    assert ([row["k"] for row in rows_of(flow.sink())], audited(flow).verdict) == (["a", "a"], "proven")
