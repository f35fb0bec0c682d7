"""An open epoch that is taken back: as if it had never begun, in every kind of sink and state, and proven to be."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.compared import same
from support.crash import Crash, crash_at
from support.flow import RUNNING, START, STATELESS, Flow, event, rows_of
from support.running import abandon, crash, run

from floodmark.audit.certificate import audit
from floodmark.core.lifecycle.backfills import requested_interval
from floodmark.core.protocol.crashpoints import ABANDON_POINTS
from floodmark.core.protocol.recovery import Gate, at_the_gate
from floodmark.core.text.addresses import identity
from floodmark.errors import Refused
from floodmark.spark.rule.run import RuleRun

PORTIONS = [
    [event(0, "a", 1.0, 1), event(10, "b", 2.0, 2), event(130, "a", 0.5, 3)],
    [event(110, "b", 2.5, 4), event(20), event(200, "a", None, 9), event(205, "c", 1.5, 1)],
    [event(400, "b", 4.0, 2), event(600, "c", 1.0, 5)],
]
NEWEST = {"key": ["k"], "newest": "at"}
MARKED = {"properties": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}}


def kinds() -> dict[str, dict[str, Any]]:
    """Settings of flows, and how their sinks merge."""
    return {
        "windows": {},
        "keyed": {"sql": STATELESS, "sink": NEWEST},
        "marked": {"sql": STATELESS, "sink": {**NEWEST, **MARKED}},
        "running": {"sql": RUNNING, "unbounded": True, "sink": {"key": ["k"]}},
        "class": {"process": "totals:Totals"},
        "rebuilt": {"rebuild": True, "epoch": "none"},
        "at least once": {"qos": 1},
        "at most once": {"qos": 0},
    }


def made(place: Path, kind: str, name: str = "counted") -> Flow:
    how = dict(kinds()[kind])
    sql, sink, process = how.pop("sql", None), how.pop("sink", {}), how.pop("process", None)
    flow = Flow(place, name=name, process=process, settings={"epoch": {"max_files": 1}, **how})
    flow.sql = sql or flow.sql
    flow.stream["start"] = {"version": 0}
    flow.settings["sinks"] = [{"delta": flow.sink(i), **deepcopy(sink)} for i in range(2)]
    return flow


def held(flow: Flow) -> list[list[tuple[Any, ...]]]:
    return [[tuple(row.values()) for row in rows_of(flow.sink(i))] for i in range(2)]


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    assert (found.verdict, [one.what for one in found.findings]) == ("proven", [])


def undisturbed(spark: SparkSession, place: Path, kind: str) -> list[list[tuple[Any, ...]]]:
    """What a rule has that was never killed, and reads the same files one by one."""
    flow = made(place, kind, "twin")
    for portion in PORTIONS:
        flow.arrive(portion)
        run(spark, flow)
    return held(flow)


def is_as(found: list[list[tuple[Any, ...]]], expected: list[list[tuple[Any, ...]]]) -> None:
    for one, other in zip(found, expected, strict=True):
        same(one, other)


@pytest.mark.prove
@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "windows"])
def test_what_an_epoch_wrote_is_undone_and_its_input_is_read_again(spark: SparkSession, place: Path, kind: str) -> None:
    flow = made(place, kind)
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    before = held(flow)
    flow.arrive(PORTIONS[1])
    assert crash(spark, flow, "commit.before")
    if kind == "at least once":
        assert crash(spark, flow, "commit.before")
    abandon(spark, flow)
    is_as(held(flow), before)
    proven(flow)
    run(spark, flow)
    flow.arrive(PORTIONS[2])
    run(spark, flow)
    is_as(held(flow), undisturbed(spark, place, kind))
    proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize("point", ["intent.after", "sink0.after", "commit.before"])
def test_an_open_rebuild_whose_source_was_made_anew_is_followed_by_another(
    spark: SparkSession, place: Path, point: str
) -> None:
    flow, twin = made(place, "rebuilt"), made(place, "rebuilt", "twin")
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    flow.arrive(PORTIONS[1])
    assert crash(spark, flow, point)
    shutil.rmtree(flow.source)
    for one in (flow, twin):
        one.arrive(PORTIONS[2])
        run(spark, one)
    is_as(held(flow), held(twin))
    proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize("point", ABANDON_POINTS)
def test_killed_anywhere_it_is_finished_or_has_not_begun(spark: SparkSession, place: Path, point: str) -> None:
    flow = made(place, "keyed")
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    flow.arrive(PORTIONS[1])
    assert crash(spark, flow, "sink0.after")
    with pytest.raises(Crash), crash_at(point):
        abandon(spark, flow)
    proven(flow)
    head = flow.ledger().head
    assert head is not None
    begun = point != "abandon.before"
    assert at_the_gate(head) is (
        Gate.PLAN if point == "abandon.commit.after" else Gate.ABANDON if begun else Gate.FINISH_EPOCH
    )
    run(spark, flow)
    head = flow.ledger().head
    assert head is not None
    assert head.abandoned == ((2,) if begun else ())
    assert head.epoch == (3 if begun else 2)
    proven(flow)


def stuck(spark: SparkSession, place: Path, kind: str) -> Flow:
    """The second epoch is open, and has written to everything."""
    flow = made(place, kind)
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    flow.arrive(PORTIONS[1])
    assert crash(spark, flow, "commit.before")
    return flow


@pytest.mark.prove
def test_what_others_have_read_or_moved_is_refused_and_nothing_is_written(spark: SparkSession, place: Path) -> None:
    flow = stuck(spark, place, "keyed")
    before = (flow.ledger().head, [DeltaTable(flow.sink(i)).version() for i in range(2)])
    with pytest.raises(Refused, match="rule other reads this"):
        abandon(spark, flow, {identity(flow.sink(0)): ["rule other reads this"]})
    assert (flow.ledger().head, [DeltaTable(flow.sink(i)).version() for i in range(2)]) == before
    spark.sql(f"DELETE FROM delta.`{flow.sink(1)}` WHERE k = 'c'")
    with pytest.raises(Refused, match=r"version \d+, by another writer, has moved one of them"):
        abandon(spark, flow)
    assert flow.ledger().head == before[0]


@pytest.mark.prove
def test_a_sink_that_the_epoch_was_the_first_to_write_can_go_or_stay(spark: SparkSession, place: Path) -> None:
    flow = made(place, "keyed")
    both = flow.settings["sinks"]
    flow.settings["sinks"] = both[:1]
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    flow.settings["sinks"] = both
    flow.arrive(PORTIONS[1])
    assert crash(spark, flow, "commit.before")
    abandon(spark, flow)
    assert rows_of(flow.sink(1)) == []
    proven(flow)
    flow.settings["sinks"] = both[:1]
    run(spark, flow)
    flow.settings["sinks"] = both
    flow.arrive(PORTIONS[2])
    run(spark, flow)
    assert len(rows_of(flow.sink(1))) == len(PORTIONS[2])
    proven(flow)


@pytest.mark.prove
def test_a_late_row_of_an_abandoned_epoch_is_restated_once(spark: SparkSession, place: Path) -> None:
    flow = stuck(spark, place, "windows")
    abandon(spark, flow)
    run(spark, flow)
    job = RuleRun(spark, flow.rule(), flow.home, "backfill", lambda _: None)
    low = round(START.timestamp() * 1_000_000)
    put = job.backfill(
        lambda head: requested_interval(flow.rule(), head, low, low + 60_000_000, str), 0, lambda _: None
    )
    assert put.intent.restated == {"events": 1}
    counts = [row["c"] for row in rows_of(flow.sink()) if row["start"] == START]
    assert sorted(counts) == [1, 2], "the row at 20 seconds stands there once"
    proven(flow)
