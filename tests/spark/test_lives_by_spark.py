"""A rule retired, renamed, dropped, and adopting a table: real runs before and after, real kills in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.flow import STATELESS, Flow, event, rows_of
from support.killing import FINAL, PORTIONS, SHAPES, expected
from support.lifekilling import killed, said, stopped
from support.oracle import ordered
from support.running import crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.core.protocol.crashpoints import LIFE_POINTS
from floodmark.errors import Busy, Final, HistoryGone, NotOwned, Refused, Retired
from floodmark.spark.session import lock


def points(of: str) -> list[str]:
    return [point for point in LIFE_POINTS if point.startswith(of)]


def verdict(flow: Flow) -> str:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    return found.verdict


def sinks(flow: Flow, shape: str) -> list[list[tuple[object, ...]]]:
    return [ordered(tuple(row[name] for name in SHAPES[shape]) for row in rows_of(flow.sink(i))) for i in (0, 1)]


def stateless(place: Path, name: str = "plain") -> Flow:
    found = Flow(place, name, sql=STATELESS, stream={"start": {"version": 0}})
    found.write_rule()
    return found


@pytest.mark.prove
def test_a_renamed_rule_finishes_its_open_epoch_and_goes_on_exactly_once(spark: SparkSession, place: Path) -> None:
    old = Flow(place, "old", stream={"start": {"version": 0}}, settings={"epoch": {"max_files": 1}})
    for portion in PORTIONS[:2]:
        old.arrive(portion)
    assert crash(spark, old, "sink0.after", nth=2), "the second epoch is open, and one sink has it"
    killed(old, "rename.intent.before", "rename", "old", "new", "--yes")
    killed(old, "rename.intent.after", "rename", "old", "new", "--yes")
    with pytest.raises(Refused, match="`floodmark rename old new` continues it"):
        run(spark, old)
    killed(old, "rename.moved", "rename", "old", "new", "--yes")
    assert "old is already named new" in said(old, "rename", "old", "new", "--yes")
    with pytest.raises(NotOwned, match="floodmark rename OLD NEW"):
        run(spark, old)
    text = old.text()
    (place / "rules" / "old.yaml").unlink()
    new = Flow(place, "new", settings={**old.settings, "streams": text["streams"], "sinks": text["sinks"]})
    run(spark, new)
    old.arrive(PORTIONS[2])
    run(spark, new)
    assert sinks(old, "windowed") == [expected("windowed", [*PORTIONS[0], *PORTIONS[1], *PORTIONS[2]], FINAL)] * 2
    assert verdict(new) == "proven"
    assert not old.place.path.exists()


@pytest.mark.prove  # `unit/test_lives.py`, without Spark
def test_a_retired_rule_is_run_by_nobody_until_it_is_back(spark: SparkSession, place: Path) -> None:
    flow = stateless(place)
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    with lock.held(spark, flow.place.lock, "a run"):
        assert "run a run holds the rule" in said(flow, "retire", "plain", "--yes", code=1)
    with stopped(flow, "retire.before", "retire", "plain", "--yes"), pytest.raises(Busy, match=r"run cli-.* holds"):
        run(spark, flow)
    for point in points("retire"):
        killed(flow, point, "retire", "plain", "--yes")
    flow.arrive(PORTIONS[1])
    for work in (run, reset):
        with pytest.raises(Retired, match="`floodmark retire plain --undo`"):
            work(spark, flow)
    assert verdict(flow) == "proven"
    said(flow, "retire", "plain", "--undo", "--yes")
    run(spark, flow)
    assert sinks(flow, "stateless") == [expected("stateless", [*PORTIONS[0], *PORTIONS[1]], FINAL)] * 2
    assert verdict(flow) == "proven"


@pytest.mark.prove
def test_a_drop_that_is_killed_at_every_point_ends_and_the_rule_can_begin_anew(
    spark: SparkSession, place: Path
) -> None:
    flow = stateless(place)
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    said(flow, "retire", "plain", "--yes")
    for point in points("drop.intent") + points("drop.table") + points("drop.commit"):
        killed(flow, point, "drop", "plain", "--state", "--sinks", "--yes")
        if point == "drop.intent.after":
            assert "has not finished" in said(flow, "retire", "plain", "--undo", "--yes", code=2)
    assert not Path(flow.sink(0)).exists() and not Path(flow.sink(1)).exists()
    assert verdict(flow) == "unknown"
    said(flow, "retire", "plain", "--undo", "--yes")
    with pytest.raises(HistoryGone, match="floodmark reset"):
        run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    assert sinks(flow, "stateless") == [expected("stateless", PORTIONS[0], FINAL)] * 2
    found = audit("plain", flow.home, deep=True)
    assert found is not None
    assert {(one.verdict, "was dropped" in one.what) for one in found.findings} == {("unknown", True)}
    said(flow, "retire", "plain", "--yes")
    for point in points("drop.home"):
        killed(flow, point, "drop", "plain", "--all", "--yes")
    said(flow, "drop", "plain", "--all", "--yes")
    assert list(flow.home.iterdir()) == []
    assert [path.name for path in Path(flow.source).parent.iterdir()] == ["plain_events"]
    run(spark, flow)
    assert sinks(flow, "stateless") == [expected("stateless", PORTIONS[0], FINAL)] * 2


@pytest.mark.prove
def test_an_adopted_table_keeps_its_rows_and_gets_the_rules_once(spark: SparkSession, place: Path) -> None:
    flow, before = stateless(place), Flow(place, "before")
    before.arrive(PORTIONS[2])
    Path(before.source).rename(flow.sink(0))
    flow.arrive(PORTIONS[0])
    with pytest.raises(NotOwned, match="`floodmark adopt RULE "):
        run(spark, flow)
    for point in points("adopt"):
        killed(flow, point, "adopt", "plain", flow.sink(0), "--yes")
    assert "nothing to do" in said(flow, "adopt", "plain", flow.sink(0), "--yes")
    assert crash(spark, flow, "sink0.after")
    run(spark, flow)
    mine = expected("stateless", PORTIONS[0], FINAL)
    theirs = [tuple(one[name] for name in SHAPES["stateless"]) for one in PORTIONS[2]]
    assert sinks(flow, "stateless") == [ordered([*mine, *theirs]), mine]
    assert verdict(flow) == "proven"
    with pytest.raises(NotOwned, match="adopted with rows"):
        reset(spark, flow)
    said(flow, "retire", "plain", "--yes")
    assert "was there before the rule" in said(flow, "drop", "plain", "--all", "--yes", code=2)
    assert len(rows_of(flow.sink(0))) == len(mine) + len(theirs)


@pytest.mark.prove
def test_a_table_taken_over_empty_is_not_dropped(spark: SparkSession, place: Path) -> None:
    flow, before = stateless(place), Flow(place, "before")
    before.arrive([])
    Path(before.source).rename(flow.sink(0))
    flow.arrive(PORTIONS[0])
    run(spark, flow)
    said(flow, "retire", "plain", "--yes")
    assert "was there before the rule" in said(flow, "drop", "plain", "--sinks", "--yes", code=2)
    said(flow, "drop", "plain", "--sinks", "--leave-others", "--yes")
    assert (Path(flow.sink(0)).exists(), Path(flow.sink(1)).exists()) == (True, False)


@pytest.mark.prove
def test_a_reset_says_which_rules_will_stop_and_they_do(spark: SparkSession, place: Path) -> None:
    flow = stateless(place)
    flow.arrive([event(0)])
    run(spark, flow)
    reader = Flow(place, "reader", sql=STATELESS, stream={"delta": flow.sink(1)})
    run(spark, reader)
    told = said(flow, "reset", "plain", "--dry-run")
    assert "rule reader reads " in told and "plain_out1 (stream events): rows that it has read are removed" in told
    reset(spark, flow)
    run(spark, flow)
    with pytest.raises(Final):
        run(spark, reader)
    reset(spark, reader)
    run(spark, reader)
    assert len(rows_of(reader.sink(0))) == 1
