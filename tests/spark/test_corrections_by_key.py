"""After rows of a source were removed or changed, sinks with a key hold what plain batch gives of what is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.corrected import CORRECT, KEYED, flow_of, newest_backfill, proven, same_as_batch, sink
from support.crash import Crash, crash_at
from support.flow import START, Flow, event
from support.oracle import ordered
from support.rewrites import FIRST, MORE, REWRITES, corrects_once_though_killed, delete, folded, is_followed, update
from support.running import backfill, backfill_killed, rehearse_backfill, run

from floodmark.connectors.planning.versionrows import rows_at
from floodmark.core.protocol.crashpoints import CORRECTION_POINTS, DEFER_POINTS
from floodmark.errors import InputFault
from floodmark.spark.rule.backfill import bykey
from floodmark.spark.rule.run import RuleRun

IN_CI = {("delete", "totals of expressions"), ("restore", "newest row by number"), ("overwrite", "totals that delete")}
EACH = [(how, form) for how in REWRITES for form in KEYED]


@pytest.mark.parametrize(
    ("how", "form"), [one if one in IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in EACH]
)
def test_the_sinks_are_what_batch_gives_of_the_source_as_it_is_now(
    spark: SparkSession, place: Path, how: str, form: str
) -> None:
    flow = flow_of(place, form, sinks=1)
    folded(spark, flow)
    is_followed(spark, flow, how)


KILLS = [(form, point) for form in ("totals", "newest row") for point in CORRECTION_POINTS]
BACKFILLED = [point for point in CORRECTION_POINTS if point not in DEFER_POINTS]  # a backfill defers nothing
KILLED_IN_CI: set[tuple[str, str]] = set()  # the last rule of `test_cascades.py` is killed in each commit


@pytest.mark.parametrize(
    ("form", "point"), [one if one in KILLED_IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in KILLS]
)
def test_killed_anywhere_it_is_done_once(spark: SparkSession, place: Path, form: str, point: str) -> None:
    if form == "newest row" and "state" in point:
        form = "first row"  # single rows have no state
    corrects_once_though_killed(spark, flow_of(place, form), point)


def test_only_the_keys_that_were_touched_are_replaced(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "totals", sinks=1)
    flow.arrive([*FIRST, *MORE, event(50, None, n=9), event(51, None, 2.0, n=9)])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'b'")
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came, [*done.replaced.values()]) == (4, 0, [(0, 1)]), "a key without rows goes"
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 3 WHERE k IS NULL AND v = 2")
    flow.arrive([event(430, None, 5.0)])
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came, [*done.replaced.values()]) == (1, 1, [(1, 1)]), "null is a key"
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_a_rehearsal_shows_what_the_sink_would_lose_and_gain(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "totals", sinks=1)
    flow.settings["sinks"][0]["epoch_columns"] = True
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    before = sink(flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'c'")
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 5 WHERE n = 4")
    found = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).rehearse_correction()
    assert found is not None
    (moves,) = found.moves.values()
    assert (moves.loses, moves.gains) == (2, 1)
    assert [(row["k"], row["s"]) for row in moves.lost] == [("b", 6.5), ("c", 1.5)]
    assert [(row["k"], row["s"], row["low"]) for row in moves.gained] == [("b", 8.5, "2001-01-01T00:00:10.000000Z")]
    assert sink(flow) == before


@pytest.mark.prove
def test_rows_that_the_rule_does_not_tell_apart_change_nothing(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "totals that delete", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 0")
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came, [*done.replaced.values()]) == (0, 0, [(0, 0)])
    proven(flow)


@pytest.mark.parametrize("point", [None, *(pytest.param(one, marks=pytest.mark.prove) for one in BACKFILLED)])
@pytest.mark.parametrize("form", ["totals", pytest.param("newest row", marks=pytest.mark.prove)])
def test_keys_with_rows_in_an_interval_are_backfilled(
    spark: SparkSession, place: Path, form: str, point: str | None
) -> None:
    """Rows that today's file drops have counted so far."""
    if form == "newest row" and "state" in str(point):
        form = "first row"  # single rows have no state
    flow = flow_of(place, form, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    flow.stream["expect"] = {"not_three": {"check": "n <> 3", "on_fail": "drop"}}
    low = round(START.timestamp()) * 1_000_000
    rehearsed = rehearse_backfill(spark, flow, low + 8_000_000, low + 11_000_000)
    assert [*rehearsed.sinks.values()] == [(1, 1)], "the key of the only row in these three seconds"
    assert rehearsed.intent.counts["events"].read == sum(row["k"] == "b" for row in (*FIRST, *MORE)), "its rows alone"
    backfill_killed(spark, flow, low, low + 500_000_000, point)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 3")  # for the oracle
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_an_older_backfill_that_has_read_all_rows_is_finished(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_of(place, "totals", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    low = round(START.timestamp()) * 1_000_000
    monkeypatch.setattr(bykey, "_carried", lambda *_: None)
    with crash_at("backfill.intent.after") as planned, pytest.raises(Crash):
        _ = backfill(spark, flow, low + 8_000_000, low + 11_000_000)
    monkeypatch.undo()
    assert planned.fired
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_two_results_of_one_key_stop_the_correction(spark: SparkSession, place: Path) -> None:
    """By epochs the later one stayed; of the table as it is now, nothing says which is later."""
    flow = flow_of(place, "newest row", sinks=1)
    del flow.settings["sinks"][0]["newest"]
    flow.arrive([event(0, "a"), event(10, "b")])
    run(spark, flow)
    flow.arrive([event(20, "a")])
    run(spark, flow)
    before = sink(flow)
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 7 WHERE at < '2001-01-01T00:00:05Z'")
    with pytest.raises(InputFault, match=r"one result for each key \(k\), found 2 for"):
        run(spark, flow)
    assert sink(flow) == before
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE v = 7")
    run(spark, flow)
    assert {row[0] for row in sink(flow)} == {"a", "b"}
    proven(flow)


@pytest.mark.prove
def test_dead_rows_stay_dead_and_filtered_rows_out(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "totals", sinks=1)
    flow.stream |= {"where": "n <> 6", "expect": {"small": {"check": "v < 4", "on_fail": "dead"}}}
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    dead = flow.counts()["dead"]
    assert dead == 2
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 5")  # one of them
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 3")  # of both keys
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 6 OR v >= 4")  # for the oracle, and nothing changes
    before = sink(flow)
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came, sink(flow)) == (1, 0, before), "the other dead row left; it had counted nowhere"
    same_as_batch(spark, flow)
    proven(flow)


def guarded(place: Path, on_fail: str) -> Flow:
    """Sums of numbers in a text, which an expectation guards."""
    number = {"number": {"check": "try_cast(k AS INT) IS NOT NULL", "on_fail": on_fail}}
    sums = "SELECT n, sum(CAST(k AS INT)) AS s FROM events GROUP BY n"
    flow = Flow(place, sql=sums, stream={**CORRECT, "lateness": None, "expect": number})
    flow.settings = {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["n"]}]}
    return flow


def test_rows_that_an_expectation_keeps_from_the_sql_touch_nothing(spark: SparkSession, place: Path) -> None:
    flow = guarded(place, "drop")
    flow.arrive([event(0, "1"), event(10, "bad"), event(20, "2", n=1), event(30, "bad", n=1)])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'bad' AND n = 0")
    spark.sql(f"UPDATE delta.`{flow.source}` SET k = 'worse' WHERE k = 'bad'")
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came, sink(flow)) == (2, 1, [(0, 1), (1, 2)])
    low = round(START.timestamp()) * 1_000_000
    done = backfill(spark, flow, low, low + 60_000_000)
    assert [*done.sinks.values()] == [(2, 2)]


@pytest.mark.parametrize("on_error", ["fail", "dead"])
def test_a_bad_row_of_a_new_key_stops_the_correction(spark: SparkSession, place: Path, on_error: str) -> None:
    """It touches no key, because the SQL fails on it."""
    flow = guarded(place, "dead")
    flow.settings["on_error"] = on_error
    flow.arrive([event(0, "1"), event(10, "bad"), event(20, "2", n=1)])
    run(spark, flow)
    before = sink(flow)
    spark.sql(f"UPDATE delta.`{flow.source}` SET k = 'worse', n = 9 WHERE n = 1")
    with pytest.raises(InputFault, match="number"):
        run(spark, flow)
    assert sink(flow) == before
    spark.sql(f"UPDATE delta.`{flow.source}` SET k = '3' WHERE k = 'worse'")
    run(spark, flow)
    assert sink(flow) == [(0, 1), (9, 3)]


BOTH = "SELECT k, v, at FROM events UNION ALL SELECT k, v, at FROM more"


@pytest.mark.prove
def test_keys_of_two_streams(spark: SparkSession, place: Path) -> None:
    """A key has rows in both; a rewrite of one of them reads the other, too."""
    flow, more = Flow(place, sql=BOTH, stream={**CORRECT, "lateness": None}, sinks=1), Flow(place, name="more")
    streams = {"events": flow.text()["streams"]["events"], "more": {"delta": more.source, "event_time": "at"}}
    flow.settings = {"streams": streams, "sinks": [{"delta": flow.sink(), "key": ["k"], "newest": "at"}]}
    flow.arrive([event(10, "a", 1.0), event(20, "b", 2.0), event(30, "c", 3.0)])
    more.arrive([event(5, "a", 4.0), event(25, "b", 5.0), event(40, "d", 6.0)])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k <> 'b'")
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came, [*done.replaced.values()]) == (2, 0, [(1, 2)])
    assert sorted(row[:2] for row in sink(flow)) == [("a", 4.0), ("b", 5.0), ("d", 6.0)]
    proven(flow)


@pytest.mark.prove  # decided in `unit/test_backfills.py`
def test_an_edit_that_may_have_given_other_keys_has_all_recomputed(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "newest row", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    flow.sql = "SELECT upper(k) AS k, at, v, n FROM events WHERE n <> 7"
    flow.arrive([event(700)])
    run(spark, flow)
    delete(spark, flow.source)
    run(spark, flow)
    assert newest_backfill(flow).whole
    spark.read.format("delta").load(flow.source).createOrReplaceTempView("events")
    place_of = "row_number() OVER (PARTITION BY k ORDER BY at DESC, n DESC, v DESC)"
    newest = f"SELECT k, at, v, n FROM (SELECT *, {place_of} AS p FROM ({flow.sql})) WHERE p = 1"
    assert sink(flow) == ordered(map(tuple, spark.sql(newest).collect()))
    proven(flow)


@pytest.mark.prove
def test_a_chain_with_keyed_sinks_follows(spark: SparkSession, place: Path) -> None:
    """Newest readings by key, then totals over them: an upsert of the first is a rewrite for the second."""
    first = flow_of(place, "newest row", sinks=1)
    second = flow_of(place, "totals", sinks=1, name="second")
    second.stream = {**second.stream, "delta": first.sink()}
    first.arrive([*FIRST, *MORE])
    for step in (lambda: None, lambda: first.arrive([event(500, "a", 9.0)]), lambda: update(spark, first.source)):
        step()
        for one in (first, second):
            run(spark, one)
        same_as_batch(spark, first)
        spark.read.format("delta").load(first.sink()).createOrReplaceTempView("events")
        assert sink(second) == ordered(map(tuple, spark.sql(second.sql).collect()))
        proven(first)
        proven(second)


def test_rows_that_left_are_read_by_the_partition_columns_that_they_had(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "totals", sinks=1)
    folded(spark, flow)
    flow.arrive([event(440, "a", 1.0)])
    kept = spark.read.format("delta").load(flow.source).where("k = 'a' OR k IS NULL").selectExpr("*", "1 AS extra")
    writer = kept.localCheckpoint().write.format("delta").mode("overwrite").option("overwriteSchema", True)
    writer.partitionBy("k").save(flow.source)
    was = rows_at(spark, flow.source, 0)
    assert was.columns == kept.columns and was.where("k = 'b'").count() == 3
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came) == (5, 1), "what was not read yet came with it"
    same_as_batch(spark, flow)
    proven(flow)
