"""Edits of a class: values and timers that the class before could not see do not come back, and wrong types can go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import backfill_all, run

from floodmark.audit.certificate import audit
from floodmark.errors import ProcessFault
from floodmark.spark.rule import evolution
from floodmark.spark.rule.forgetting import forget

CLASS = """
from datetime import timedelta

class T:
    output = "k STRING, n BIGINT"
    state = {"s": "n BIGINT"%(more)s}
    ttl = {"s": "%(ttl)s", "counters": "%(ttl)s"}

    def process(self, key, rows, ctx):
        for row in rows:
            %(body)s
            total = ((ctx.get_state("s") or {}).get("n") or 0) + 1
            ctx.put_state("s", (total,))
            yield key[0], total + ctx.incr_counter("rows")
"""
TIMER = """
    def on_timer(self, key, at, name, ctx):
        yield "timer " + key[0], at.hour
"""


def text(ttl: str = "1 minute", body: str = "pass", more: str = "", timer: str = "", name: str = "s") -> str:
    found = CLASS % {"ttl": ttl, "body": body, "more": more} + timer
    return found.replace('"s"', f'"{name}"')


def begun(place: Path, spark: SparkSession, **how: str) -> Flow:
    """A rule that has folded a row of key a at 0, and one of b at 200; the next one of b waits."""
    flow = Flow(place, process="mine:T", stream={"start": {"version": 0}}, sinks=1)
    flow.write_class(text(**how))
    flow.arrive([event(0, "a"), event(200, "b"), event(300, "b")])
    run(spark, flow)
    return flow


def goes_on(spark: SparkSession, flow: Flow, *seconds: float, **how: str) -> None:
    flow.write_class(text(**how))
    flow.arrive([event(second, "a") for second in seconds])
    run(spark, flow)


def results(flow: Flow) -> list[tuple[Any, ...]]:
    assert audit(flow.name, flow.home, deep=True).verdict == "proven"
    return sorted((row["k"], row["n"]) for row in rows_of(flow.sink()))


def test_values_that_have_expired_do_not_come_back_with_a_longer_lifetime(spark: SparkSession, place: Path) -> None:
    flow = begun(place, spark)
    goes_on(spark, flow, 310, 400, ttl="1 hour")
    assert results(flow) == [("a", 2), ("a", 2), ("b", 2), ("b", 2)]


def test_nor_do_they_if_the_state_was_dropped_in_between(spark: SparkSession, place: Path) -> None:
    flow = begun(place, spark)
    goes_on(spark, flow, 310, 400, name="other", ttl="1 hour")
    assert rows_of(flow.place.state(1, "s")) == [], "the lifetimes were over"
    goes_on(spark, flow, 410, 500, ttl="1 hour")
    assert results(flow) == [("a", 2), ("a", 2), ("a", 3), ("a", 5), ("b", 2), ("b", 2)]


def test_a_value_whose_newest_state_is_over_is_replaced_by_no_older_one(spark: SparkSession) -> None:
    rows = [("old", 5, 1), ("old", 1, 2), ("fresh", 1, 1), ("fresh", 5, 2), ("deleted", 1, 1), ("deleted", None, 2),
            ("lost", 1, 1), ("lost", 5, 3), (None, 1, 1)]  # fmt: skip
    frame = spark.createDataFrame(rows, "k STRING, _at INT, _epoch LONG")
    over = evolution._over("coalesce(_at <= 2, false)", ["k"], (3,))
    kept = frame.selectExpr("k", f"{over} AS gone").where("NOT gone").distinct().collect()
    assert {row["k"] for row in kept} == {"fresh", "deleted"}


def test_timers_of_before_a_class_without_them_do_not_fire(spark: SparkSession, place: Path) -> None:
    sets = {"body": "ctx.set_timer(row['at'] + timedelta(hours=1))", "timer": TIMER}
    flow = begun(place, spark, **sets)
    goes_on(spark, flow, 310, 400)
    goes_on(spark, flow, 4000, 9000, body="pass", timer=TIMER)
    assert [key for key, _ in results(flow) if key.startswith("timer")] == []


def test_a_state_that_never_had_a_value_may_be_declared_with_another_type(spark: SparkSession, place: Path) -> None:
    flow = begun(place, spark)
    with pytest.raises(ProcessFault):
        goes_on(spark, flow, 310, 400, more=", 'other': 'n STRING'", body="1 / 0")
    goes_on(spark, flow, 320, more=", 'other': 'n ARRAY<BIGINT>'", body="ctx.put_state('other', ([1],))")
    assert [row["n"] for row in rows_of(flow.place.state(1, "other"))] == [[1], [1]]
    assert len(results(flow)) == 5


def test_state_that_only_a_backfill_has_written_is_audited_and_a_forget_leaves_it(
    spark: SparkSession, place: Path
) -> None:
    flow = begun(place, spark)
    flow.write_class(text(more=", 'other': 'n BIGINT'", body="ctx.put_state('other', (7,))"))
    _ = backfill_all(spark, flow)
    assert len(results(flow)) == 2, "the audit reads the table that no epoch has written yet"
    forgotten = forget(spark, flow.place, "forgetter", "k = 'b'", lambda _: None)
    assert forgotten.asked is not None and forgotten.asked.tables["state/other"] == 1
    assert [(row["k"], row["n"]) for row in rows_of(flow.place.state(1, "other"))] == [("a", 7)]
    assert audit(flow.name, flow.home, deep=True).verdict == "unknown", "of what was forgotten alone"
