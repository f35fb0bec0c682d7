"""Epochs of so many seconds, windows of so many rows, and rules that are rebuilt by each run."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.flow import RUNNING, SCHEMA, START, STATELESS, Flow, event, rows_of
from support.running import crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.audit.logreader import read_table
from floodmark.connectors.backlog.news import look
from floodmark.core.lifecycle import pacing
from floodmark.errors import HistoryGone, InputFault, NotOwned, RuleChanged
from floodmark.ledger.delta.tables import ADOPTED
from floodmark.spark.look.ahead import look_ahead
from floodmark.spark.rule.run import RuleRun

REBUILT = {"epoch": "none", "rebuild": True}


def reads(flow: Flow) -> list[int]:
    """Rows that each committed epoch has read."""
    bodies = [json.loads(row.body) for row in flow.ledger().rows if row.kind == "commit" and row.epoch]
    return [sum(one["read"] for one in body["counts"].values()) for body in bodies]


def counted(flow: Flow, number: int = 0) -> list[tuple[int, int]]:
    return sorted((row["start"].minute, row["c"]) for row in rows_of(flow.sink(number)))


@pytest.mark.prove
def test_each_run_replaces_what_the_sinks_hold_by_the_batch_answer_and_keeps_nothing(
    spark: SparkSession, place: Path
) -> None:
    """Also where the source was rewritten meanwhile, and where nothing is left; in one commit."""
    flow = Flow(place, settings=REBUILT, sinks=1)
    flow.arrive([event(0), event(70), event(200)])
    run(spark, flow)
    assert counted(flow) == [(0, 1), (1, 1)]
    assert not flow.place.path.joinpath("state").exists()
    before = DeltaTable(flow.sink()).version()
    flow.arrive([event(1), event(None)])
    run(spark, flow)
    assert counted(flow) == [(0, 2), (1, 1)], "what came late for others is in time for a rebuild"
    log = [entry for entry in read_table(flow.sink()).entries if entry.version > before and entry.changes]
    assert len(log) == 1 and log[0].added and log[0].removed
    assert len(rows_of(flow.place.dead)) == 1
    assert run(spark, flow).epochs == [], "nothing new: the sinks hold that already"
    overwritten(flow, [event(130), event(300)])
    run(spark, flow)
    assert counted(flow) == [(2, 1)] and rows_of(flow.place.dead) == []
    overwritten(flow, [])
    run(spark, flow)
    assert counted(flow) == []
    certificate = audit("counted", flow.home, deep=True)
    assert certificate is not None and (certificate.verdict, certificate.findings) == ("proven", [])
    assert [one.number for one in certificate.generations] == [1, 2, 3, 4]


def overwritten(flow: Flow, events: list[dict[str, object]]) -> None:
    write_deltalake(flow.source, pa.Table.from_pylist(events, schema=SCHEMA), mode="overwrite")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("reset.seal.after", marks=pytest.mark.prove),
        pytest.param("reset.tables.after", marks=pytest.mark.prove),
        pytest.param("reset.commit.after", marks=pytest.mark.prove),
        pytest.param("intent.after", marks=pytest.mark.prove),
        "sink0.after",
        pytest.param("commit.before", marks=pytest.mark.prove),
    ],
)
def test_a_rebuild_that_is_killed_is_taken_again_and_nobody_sees_an_empty_table(
    spark: SparkSession, place: Path, point: str
) -> None:
    flow = Flow(place, settings=REBUILT)
    flow.arrive([event(0), event(200)])
    run(spark, flow)
    flow.arrive([event(1), event(300)])
    assert crash(spark, flow, point)
    assert counted(flow) in ([(0, 1)], [(0, 2), (3, 1)])
    flow.arrive([event(2)])
    run(spark, flow)
    assert counted(flow) == [(0, 3), (3, 1)] == counted(flow, 1)
    certificate = audit("counted", flow.home, deep=True)
    assert certificate is not None and certificate.verdict == "proven", certificate.findings


@pytest.mark.prove
def test_a_rule_becomes_rebuilt_at_once_and_is_reset_to_go_on_by_epochs(spark: SparkSession, place: Path) -> None:
    flow = Flow(place)
    flow.arrive([event(0), event(100)])
    run(spark, flow)
    flow.settings = dict(REBUILT)
    run(spark, flow)
    assert counted(flow) == [(0, 1)]
    flow.sql = flow.sql.replace("count(*)", "count(*) + 10")
    run(spark, flow)
    assert counted(flow) == [(0, 11)], "a changed rule is rebuilt though no input is new"
    flow.settings = {}
    with pytest.raises(RuleChanged, match="changed rebuild"):
        run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    assert counted(flow) == [(0, 11)]


@pytest.mark.prove
def test_a_class_and_running_totals_are_rebuilt_without_state(spark: SparkSession, place: Path) -> None:
    totals = Flow(place, "totals_of", process="totals:Totals", settings=REBUILT)
    running = Flow(place, "running", RUNNING, {**REBUILT, "unbounded": True}, sinks=1)
    for flow in (totals, running):
        for portion in ([event(0, n=1), event(100, n=2)], [event(1, n=4), event(200, "b", n=1)]):
            flow.arrive(portion)
            run(spark, flow)
    by_key = {row["k"]: row["c"] for row in rows_of(running.sink())}
    assert by_key == {"A": 3, "B": 1}
    fresh = Flow(place, "fresh", process="totals:Totals", settings={}, stream={"delta": totals.source})
    run(spark, fresh)
    key = str
    assert sorted(rows_of(totals.sink()), key=key) == sorted(rows_of(fresh.sink()), key=key)


@pytest.mark.prove
def test_close_until_closes_windows_of_a_rebuild_too(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, settings=REBUILT)
    flow.arrive([event(0), event(100)])
    until = START + timedelta(minutes=5)
    RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None, close_until=until).run()
    assert counted(flow) == [(0, 1), (1, 1)]
    certificate = audit("counted", flow.home, deep=False)
    assert certificate is not None and certificate.verdict == "proven", certificate.findings


@pytest.mark.prove
def test_tables_with_rows_that_are_not_the_rules_are_not_replaced(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, settings=REBUILT, sinks=1)
    flow.arrive([event(0), event(100)])
    run(spark, flow)
    DeltaTable(flow.sink()).alter.set_table_properties({ADOPTED: "0"}, raise_if_not_exists=False)
    flow.arrive([event(1)])
    with pytest.raises(NotOwned, match="adopted"):
        run(spark, flow)
    assert counted(flow) == [(0, 1)]


@pytest.mark.prove
def test_a_rebuild_reads_what_another_one_replaces_without_what_expectations_drop(
    spark: SparkSession, place: Path
) -> None:
    """Who goes by epochs stops there, before Spark starts."""
    some = {"expect": {"some": {"check": "c > 1", "on_fail": "drop"}}}
    first = Flow(place, "first", settings={**REBUILT, **some}, sinks=1)
    first.write_rule()
    read = {"delta": None, "rule": "first", "event_time": "start"}
    second = Flow(place, "second", "SELECT start, c FROM events", REBUILT, read, sinks=1)
    third = Flow(place, "third", "SELECT start, c FROM events", {}, {**read, "rule": None, "delta": first.sink()}, 1)
    for portion, wanted in (([event(0), event(1), event(61), event(200)], [2]), ([event(62), event(63)], [2, 3])):
        first.arrive(portion)
        run(spark, first)
        run(spark, second)
        assert sorted(row["c"] for row in rows_of(second.sink())) == wanted
        if len(wanted) == 1:
            run(spark, third)
    assert look_ahead(spark, second.rule(), second.home, 9).counts.read == 2, "all of it, though nothing is new"
    with pytest.raises(HistoryGone, match="replaces all of them in each run"):
        look(third.rule(), third.home)
    for flow in (first, second):
        certificate = audit(flow.name, flow.home, deep=True)
        assert certificate is not None and certificate.verdict == "proven", certificate.findings


@pytest.mark.prove
def test_epochs_grow_to_the_seconds_asked_for_and_a_retry_is_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """At first one file, then as many as take so long at the rate so far; a kill in between changes nothing."""
    monkeypatch.setattr(pacing, "PROBE", 1)
    flow = Flow(place, sql=STATELESS, settings={"epoch": {"max_seconds": 3600}}, sinks=1)
    flow.stream = {"start": {"version": 0}}
    for at in range(4):
        flow.arrive([event(at)])
    assert crash(spark, flow, "sink0.after")
    run(spark, flow)
    assert reads(flow) == [1, 3], "one file to measure by, then an hour's"
    assert len(rows_of(flow.sink())) == 4
    monkeypatch.setattr(pacing, "rate", lambda rows, generation: 0.0001)
    monkeypatch.setattr("floodmark.connectors.backlog.pacing.rate", lambda rows, generation: 0.0001)
    for at in range(2):
        flow.arrive([event(at)])
    run(spark, flow)
    assert reads(flow) == [1, 3, 1, 1], "never less than a file"


@pytest.mark.prove
def test_a_window_with_too_many_rows_stops_the_run_before_anything_is_written(spark: SparkSession, place: Path) -> None:
    """Rows of earlier epochs count; with a higher limit the rule goes on."""
    flow = Flow(place, settings={"max_rows_per_window": 3}, sinks=1)
    flow.arrive([event(0), event(1), event(59), event(61), event(62)])
    run(spark, flow)
    flow.arrive([event(40), event(120)])
    with pytest.raises(
        InputFault, match="found 4 in the window of 1 minute that starts at 2001-01-01 00:00:00"
    ) as stopped:
        run(spark, flow)
    assert "expected at most 3 rows of stream events" in str(stopped.value)
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.open) == (1, None), "no epoch is left open"
    flow.settings["max_rows_per_window"] = 4
    flow.arrive([event(400)])
    run(spark, flow)
    assert sorted((row["start"].minute, row["c"]) for row in rows_of(flow.sink())) == [(0, 4), (1, 2), (2, 1)]
