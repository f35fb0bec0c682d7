"""Where neither an interval nor keys bound the results, all of them are recomputed and replaced in one commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.corrected import ENTIRE, at, flow_of, proven, same_as_batch, sink
from support.crash import Crash, crash_at
from support.flow import event
from support.rewrites import FIRST, MORE, REWRITES, corrects_once_though_killed, delete, folded, is_followed, update
from support.running import abandon, backfill_all, computed_beside, rehearse_all, run

from floodmark.core.protocol.crashpoints import CORRECTION_POINTS, DEFER_POINTS
from floodmark.errors import InputFault
from floodmark.spark.rule.run import RuleRun

MIXED = [
    event(16, "a", 1.0, -1),
    event(90, "a", 2.0, 4),
    event(95, "a", 1.0, -2),
    event(99, "b", 1.0, -1),
    event(105, "b", 1.0, 8),
]
IN_CI = {("move", "sessions by row")}
EACH = [(how, form) for how in REWRITES for form in ENTIRE]


@pytest.mark.parametrize(
    ("how", "form"), [one if one in IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in EACH]
)
def test_the_sinks_are_what_batch_gives_of_the_source_as_it_is_now(
    spark: SparkSession, place: Path, how: str, form: str
) -> None:
    flow = flow_of(place, form, sinks=1)
    folded(spark, flow, MIXED)
    same_as_batch(spark, flow)
    is_followed(spark, flow, how)


KILLS = [(form, point) for form in ("class", "windows of rows", "sessions by row") for point in CORRECTION_POINTS]
KILLED_IN_CI: set[tuple[str, str]] = set()  # `test_corrections.py` has a kill in each commit


@pytest.mark.parametrize(
    ("form", "point"), [one if one in KILLED_IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in KILLS]
)
def test_killed_anywhere_it_is_done_once(spark: SparkSession, place: Path, form: str, point: str) -> None:
    corrects_once_though_killed(spark, flow_of(place, form), point)


BACKFILLED = [point for point in CORRECTION_POINTS if point not in DEFER_POINTS]


@pytest.mark.parametrize("point", [None, *(pytest.param(one, marks=pytest.mark.prove) for one in BACKFILLED)])
@pytest.mark.parametrize("form", ["sessions by row", pytest.param("class", marks=pytest.mark.prove)])
def test_a_backfill_of_everything_reads_late_rows_and_todays_file(
    spark: SparkSession, place: Path, form: str, point: str | None
) -> None:
    """One row came late, and rows that today's file drops have counted so far."""
    flow = flow_of(place, form)
    flow.arrive([*FIRST, *MORE, *MIXED])
    run(spark, flow)
    flow.arrive([event(18, "a", 1.0, 2)])
    run(spark, flow)
    assert flow.counts()["late"] == 1
    flow.stream["expect"] = {"not_three": {"check": "n <> 3", "on_fail": "drop"}}
    (before, after), *_ = rehearse_all(spark, flow).sinks.values()
    assert before and after
    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            _ = backfill_all(spark, flow)
        assert planned.fired
        run(spark, flow)
    if point in (None, "backfill.computed", "backfill.intent.before"):
        assert sum(backfill_all(spark, flow).intent.restated.values()) == 1
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 3")  # for the oracle
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize("often", [1, 2])
def test_an_epoch_while_it_computes_has_it_computed_again(spark: SparkSession, place: Path, often: int) -> None:
    """Without the rule's lock at first; then with it, so that a rule that never rests is corrected, too."""
    flow = flow_of(place, "sessions by row", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    delete(spark, flow.source)

    def another_run() -> None:
        head = flow.ledger().head
        assert head is not None
        flow.arrive([event(1000 * head.epoch, "a")])
        run(spark, flow)

    done, computed = computed_beside(spark, flow, another_run, often=often)
    assert (len(done.corrections), computed) == (1, 1 + often)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.parametrize("form", [pytest.param("class", marks=pytest.mark.prove), "slices"])
def test_state_that_is_corrected_after_an_abandoned_epoch_counts(spark: SparkSession, place: Path, form: str) -> None:
    """The newest epoch, which read nothing, has no effect, and no later epoch reads what state has of it."""
    flow = flow_of(place, form, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    closing = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None, close_until=at(420))
    with crash_at("intent.after") as planned, pytest.raises(Crash):
        closing.run()
    assert planned.fired
    abandon(spark, flow)
    update(spark, flow.source)
    run(spark, flow)
    same_as_batch(spark, flow)
    flow.arrive([event(430, "z", 2.0, 2), event(900, "c"), event(990, "c")])
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


def test_rows_that_the_class_rejects_by_now_stop_it(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "class", sinks=1)
    flow.process, flow.settings["on_error"] = "picky:Picky", "dead"
    flow.arrive([event(0, "a", n=1), event(10, "a", n=9), event(20, "a", n=2), event(100, "b", n=1)])
    run(spark, flow)
    before = sink(flow)
    assert [row[2] for row in before] == [1, 3], "the row with a nine is dead, and was not added"
    _ = backfill_all(spark, flow)
    assert sink(flow) == before, "what is dead stays so"
    spark.sql(f"UPDATE delta.`{flow.source}` SET n = 9 WHERE n = 2")
    with pytest.raises(InputFault, match="its class rejects 1 rows that were folded before"):
        run(spark, flow)
    assert sink(flow) == before
    spark.sql(f"UPDATE delta.`{flow.source}` SET n = 4 WHERE at = '2001-01-01T00:00:20Z'")
    run(spark, flow)
    assert [row[2] for row in sink(flow)] == [1, 5]
    proven(flow)
