"""Rows and results of which something is expected: left out, set apart or counted, or the run stops unseen."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.expected import EXPECT, Sorted, drawn, sort
from support.flow import START, TUMBLING, Flow, event, rows_of
from support.oracle import ordered, totals, tumbling
from support.running import crash, run

from floodmark.audit.certificate import audit
from floodmark.core.lifecycle.backfills import requested_interval
from floodmark.core.lifecycle.replays import replay_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Replay
from floodmark.errors import InputFault, SqlRefused
from floodmark.spark.look.ahead import look_ahead
from floodmark.spark.look.preview import preview
from floodmark.spark.rule.run import RuleRun
from floodmark.views.status.rulestatus import rule_status

READ = {"start": {"version": 0}}
LATENESS = timedelta(seconds=30)
FEW = {
    "few": {"check": "c < 3", "on_fail": "drop"},
    "worth": {"check": "total > 2", "on_fail": "warn"},
    "shared": {"check": "60 / (c - 1) > 0", "on_fail": "warn"},  # divides by zero for a count of one
}
POINTS = ("intent.after", "state.after", "dead.after", "sink0.after", "commit.before")


def sink(flow: Flow) -> list[tuple[Any, ...]]:
    rows = (tuple(row.values()) for row in rows_of(flow.sink()))
    return ordered(tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in rows)


def dead(flow: Flow) -> list[tuple[Any, ...]]:
    rows = rows_of(flow.place.dead)
    return ordered(
        (row["at"] and row["at"].astimezone(UTC), row["k"], row.get("v"), row.get("n"), row["_reason"]) for row in rows
    )


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and (found.verdict, found.findings) == ("proven", [])


def told(flow: Flow, root: Path) -> dict[str, tuple[int, int]]:
    """What `status` counts: by expectation, how many failed and were taken."""
    facts = rule_status(flow.rule(), root).facts()
    assert facts["error"] is None
    return {f"{one['of']}: {one['name']}": (one["failed"], one["taken"]) for one in facts["expected"]}


def agrees(flow: Flow, found: Sorted) -> None:
    """Everything but the sink is what plain Python says."""
    assert flow.counts() == found.counts
    assert dead(flow) == ordered((row["at"], row["k"], row["v"], row["n"], why) for row, why in found.dead)
    expected = {f"stream events: {name}": (found.failed[name], found.taken[name]) for name in EXPECT}
    assert expected.items() <= told(flow, flow.home).items()
    proven(flow)


def windows(spark: SparkSession, place: Path, seed: int) -> None:
    flow = Flow(place, f"windows{seed}", stream={**READ, "expect": EXPECT}, sinks=1)
    flow.settings = {"epoch": {"max_files": 1}, "expect": FEW}
    files = drawn(seed)
    for rows in files:
        flow.arrive(rows)
    random = Random(seed)
    crash(spark, flow, random.choice(POINTS), random.randint(1, 3))
    run(spark, flow)
    found = sort(files, LATENESS)
    assert found.watermark is not None
    results = tumbling(found.folded, found.watermark)
    kept = [row for row in results if row[2] < 3]
    assert sink(flow) == kept
    agrees(flow, found)
    many, poor = len(results) - len(kept), sum(not row[3] > 2 for row in results)
    alone = sum(row[2] == 1 for row in results)
    counted = {"few": (many, many), "worth": (poor, 0), "shared": (alone, 0)}
    assert {f"results: {name}": one for name, one in counted.items()}.items() <= told(flow, flow.home).items()


@pytest.mark.parametrize("seed", [1])
def test_a_windowed_rule_holds_what_plain_python_gives(spark: SparkSession, place: Path, seed: int) -> None:
    windows(spark, place, seed)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(2, 15))
def test_windowed_rules_hold_what_plain_python_gives(spark: SparkSession, place: Path, seed: int) -> None:
    windows(spark, place, seed)


@pytest.mark.prove
def test_of_rows_that_are_merged_the_last_that_meets_it_stays(spark: SparkSession, place: Path) -> None:
    """`drop` of results is a WHERE above the SQL: what is left out takes no other row's place."""
    files = drawn(7, files=3)
    settings = {"epoch": {"max_files": 1}, "expect": {"rich": {"check": "v > 1", "on_fail": "drop"}}}
    flow = Flow(place, "merged", sql="SELECT k, at, v FROM events WHERE k IS NOT NULL", settings=settings, sinks=1)
    flow.stream = {**READ, "lateness": None, "expect": EXPECT}
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": ["k"], "newest": "at"}]
    for rows in files:
        flow.arrive(rows)
    assert crash(spark, flow, "sink0.after")
    run(spark, flow)
    found = sort(files, None)
    rich = [row for row in found.folded if row["k"] is not None and row["v"] > 1]
    newest = {row["k"]: row for row in sorted(rich, key=lambda row: row["at"])}
    assert sink(flow) == ordered((row["k"], row["at"], row["v"]) for row in newest.values())
    agrees(flow, found)


PLAIN = "SELECT at, CAST(k AS INT) AS i FROM events"  # `n` and `v` are read for what is expected of them alone
KNOWN = {"known": {"check": "n IS NOT NULL", "on_fail": "fail"}}


def changed(flow: Flow, **known: Any) -> None:
    flow.stream["expect"] = {"known": {**KNOWN["known"], **known}}


def versions(flow: Flow) -> dict[str, int]:
    return {address: DeltaTable(address).version() for address in (flow.place.ledger, flow.sink())}


def test_results_that_stop_the_run_leave_no_epoch_open(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, "results", stream=READ, sinks=1, settings={"expect": {"few": {"check": "c < 2"}}})
    flow.arrive([event(0), event(1), event(2, "b"), event(200)])
    with pytest.raises(InputFault) as fault:
        run(spark, flow)
    said = str(fault.value)
    assert "rule results, results: expect few fails: c < 2, for 1 of 2 rows. Some of them: (start = " in said
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.open) == (0, None) and sink(flow) == []
    flow.settings["expect"]["few"]["on_fail"] = "warn"
    report = run(spark, flow)
    assert report.epochs[0].failed == {"results.few": 1}
    assert len(sink(flow)) == 2
    proven(flow)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("n + 1", "expect odd: expected a condition (boolean), found 'n + 1' of type bigint"),
        ("size(n) > 0", "expect odd"),
    ],
)
def test_what_only_spark_can_tell_is_told_before_anything_is_made(
    spark: SparkSession, place: Path, check: str, said: str
) -> None:
    flow = Flow(place, "odd", sql=PLAIN, stream={**READ, "expect": {"odd": {"check": check}}})
    flow.arrive([event(0)])
    with pytest.raises(SqlRefused) as fault:
        run(spark, flow)
    assert said in str(fault.value)
    assert not flow.place.path.joinpath("ledger").exists()


@pytest.mark.prove
def test_a_backfill_asks_all_rows_of_its_interval_by_today_s_rule(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, "filled", stream={**READ, "expect": EXPECT}, sinks=1)
    flow.settings = {"epoch": {"max_files": 1}, "expect": {"few": dict(FEW["few"])}}
    first = [event(0, "1", 1.0, 0), event(1, "1", -1.0, 0), event(2, "1", 1.0, 9), event(70, "0", 2.0, 0), event(300)]
    late = [event(3, "1", 2.0, 0), event(4, "0", -2.0, 0), event(5, "0", 2.0, 0), event(301)]
    for rows in (first, late):
        flow.arrive(rows)
    run(spark, flow)
    minute = START + timedelta(minutes=1)
    assert sink(flow) == ordered([(START, "1", 1, 1.0, 0), (minute, "0", 1, 2.0, 0)])
    low, high = (round(START.timestamp() + s) * 1_000_000 for s in (0, 120))

    def fill() -> dict[str, Any]:
        rule = flow.rule()
        job = RuleRun(spark, rule, flow.home, "backfill", lambda _: None)
        job.backfill(lambda head: requested_interval(rule, head, low, high, str), 0, lambda _: None)
        proven(flow)
        [*_, body] = (json.loads(row.body) for row in flow.ledger().rows if row.kind == "backfill")
        return dict(body)

    body = fill()
    assert sink(flow) == ordered([(START, "0", 1, 2.0, 0), (START, "1", 2, 3.0, 0), (minute, "0", 1, 2.0, 0)])
    counts = body["counts"]["events"]
    assert {name: counts[name] for name in ("read", "dropped", "dead", "folded")} == {
        "read": 7, "dropped": 2, "dead": 1, "folded": 4,
    }  # fmt: skip
    assert body["expected"] == {"few": {"failed": 0, "taken": 0}}
    flow.settings["expect"]["few"]["check"] = "c < 2"
    assert fill()["expected"] == {"few": {"failed": 1, "taken": 1}}
    assert sink(flow) == ordered([(START, "0", 1, 2.0, 0), (minute, "0", 1, 2.0, 0)])
    flow.stream["expect"] = {"big": {"check": "v > 1.5", "on_fail": "dead"}}
    with pytest.raises(InputFault, match=r"expect big fails: v > 1\.5, for 3 of 6 rows"):
        fill()  # none can be set apart any more


def test_preview_and_a_look_ahead_say_how_each_expectation_fares(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, "seen", sql=TUMBLING, stream={**READ, "expect": EXPECT}, sinks=1, settings={"expect": FEW})
    flow.arrive([event(0, "1"), event(1, "x"), event(2, "1", -1.0), event(3, "1", n=9), event(4, "1"), event(5, "1"),
                 event(100, "1"), event(130, "0")])  # fmt: skip
    lines = [
        "stream events: small (n < 4), dead: 1 row failed, 1 of them dead by it",
        "stream events: positive (v > 0), drop: 1 row failed, 1 of them dropped by it",
        "stream events: number (CAST(k AS INT) >= 0), warn: 1 row failed",
        "results: few (c < 3), drop: 1 row failed, 1 of them dropped by it",
        "results: shared (60 / (c - 1) > 0), warn: 1 row failed",
        "results: worth (total > 2), warn: 1 row failed",
    ]
    seen = preview(spark, flow.rule(), 100, 100)
    assert [one.text() for one in seen.expected] == lines
    assert [(values[1:3], final) for values, final in seen.rows][:1] == [(("x", 1), True)]
    assert [final for _, final in seen.rows] == [True, False, False]
    ahead = look_ahead(spark, flow.rule(), flow.home, 100)
    assert ([one.text() for one in ahead.expected], [row[1:3] for row in ahead.rows]) == (lines, [("x", 1)])


@pytest.mark.prove
def test_a_class_gets_what_meets_and_gives_what_is_let_through(spark: SparkSession, place: Path) -> None:
    files = drawn(11, files=3)
    settings = {"epoch": {"max_files": 1}, "expect": {"rows": {"check": "what LIKE 'row%'", "on_fail": "drop"}}}
    flow = Flow(place, "totals", process="totals:Totals", settings=settings, sinks=1)
    flow.stream = {**READ, "expect": EXPECT}
    for rows in files:
        flow.arrive(rows)
    assert crash(spark, flow, "commit.before")
    run(spark, flow)
    found = sort(files, LATENESS)
    assert found.watermark is not None
    assert sink(flow) == [row for row in totals(found.folded, found.watermark) if row[2].startswith("row")]
    agrees(flow, found)


def test_a_run_stops_before_anything_is_seen_and_goes_on_with_an_edit(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, "edited", sql=PLAIN, stream={**READ, "lateness": None}, sinks=1)
    flow.arrive([event(0, "1"), event(1, "2", n=None)])
    run(spark, flow)
    flow.stream["expect"] = KNOWN
    flow.arrive([event(2, "3"), event(3, "x", n=None), event(4, "5", n=None), event(None, "6", n=None)])
    before = versions(flow), dead(flow)
    with pytest.raises(InputFault) as fault:
        run(spark, flow)
    assert (versions(flow), dead(flow)) == before
    said = str(fault.value)
    assert "rule edited, stream events: expect known fails: n IS NOT NULL, for 2 of 3 rows. Some of them: (" in said
    assert "k = 'x'" in said and "k = '5'" in said and "n = None" in said and fault.value.exit_code == 3
    changed(flow, on_fail="dead")
    run(spark, flow)
    assert sorted(i for _, i in sink(flow)) == [1, 2, 3]
    reasons = {row["k"]: row["_reason"] for row in rows_of(flow.place.dead)}
    assert reasons == dict.fromkeys(("x", "5"), "expect known fails: n IS NOT NULL") | {"6": "no event time"}
    replayed(spark, flow)
    changed(flow, on_fail="drop", check="v > n AND v > 0")
    flow.arrive([event(7, "7"), event(8, "x", v=-1.0)])
    run(spark, flow)
    assert sorted(i for _, i in sink(flow)) == [1, 2, 3, 5, 7]
    assert told(flow, flow.home) == {"stream events: known": (4, 4)}, "the dead of then among them"
    proven(flow)


def replayed(spark: SparkSession, flow: Flow) -> None:
    """Dead rows are asked again: what does not meet it is dead once more."""

    def wanted(head: Head) -> Replay:
        return replay_of(head, None, "k <> '6'", ["n=if(k = '5', 0, n)"], ("at", "k", "n", "v"))

    RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).replay(wanted)
    assert sorted(i for _, i in sink(flow)) == [1, 2, 3, 5]
    assert sorted(row["_epoch"] for row in rows_of(flow.place.dead) if row["k"] == "x") == [2, 3]
    proven(flow)
