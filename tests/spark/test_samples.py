"""The sample of a proof has only rows that each copy treats alike, whenever it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.flow import Flow, event

from floodmark.proving.play.sampling import decided_rows, sample
from floodmark.proving.scratch import UNDECIDED_DAYS, Scratch

CLOCK = datetime(2001, 6, 1, tzinfo=UTC)
AHEAD = timedelta(hours=3)
TIMES = ["timestamp_micros({})", "timestampadd(MICROSECOND, {}, TIMESTAMP_NTZ'1970-01-01 00:00:00')"]


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(("made", "offset"), [(TIMES[0], 0), (TIMES[1], 2)])
@pytest.mark.parametrize("expr", [None, "at + INTERVAL 1 HOUR"])
def test_rows_that_only_the_time_of_a_run_decides_are_no_sample(
    spark: SparkSession, tmp_path: Path, made: str, offset: int, expr: str | None
) -> None:
    """A copy that runs some time after the sample was taken has a later limit."""
    time = {"name": "at"} if expr is None else {"name": "then", "expr": expr}
    rule = rule_of(tmp_path, event_time=time, max_ahead="3 hours")
    limit = micros(CLOCK + AHEAD + timedelta(hours=offset - (1 if expr else 0)))
    last = limit + UNDECIDED_DAYS * 86_400_000_000
    at = [limit - 1, limit, limit + 1, last, last + 1]
    rows = spark.createDataFrame([(one,) for one in [*at, None]], "n LONG").selectExpr(f"{made.format('n')} AS at", "n")
    found = decided_rows(rows, rule, "events", micros(CLOCK) // 1000)
    assert found.columns == ["at", "n"]
    assert {row["n"] for row in found.collect()} == {limit - 1, limit, last + 1, None}


def test_rows_whose_event_time_cannot_be_computed_stay(spark: SparkSession, tmp_path: Path) -> None:
    """Each copy finds them dead, whatever the time."""
    rule = rule_of(tmp_path, event_time={"name": "then", "expr": "CAST(t AS TIMESTAMP)"})
    rows = spark.createDataFrame([("2001-06-01",), ("no time",)], "t STRING")
    assert decided_rows(rows, rule, "events", micros(CLOCK) // 1000).count() == 2


def test_without_max_ahead_the_sample_has_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1,)], "n LONG")
    found = rule_of(tmp_path, event_time=None, lateness=None)
    assert decided_rows(rows, found, "events", 0) is rows


def test_a_sample_is_taken_without_them(spark: SparkSession, tmp_path: Path) -> None:
    flow, now = Flow(tmp_path), datetime.now(UTC)
    days = {"today": 0, "undecided": 2, "dead": 9}  # ahead; `max_ahead` is one day
    flow.arrive([event(0, k) | {"at": now + timedelta(days=ahead)} for k, ahead in days.items()])
    scratch = Scratch(tmp_path / "scratch")
    [found] = sample(spark, flow.rule(), scratch, 10)
    assert found.rows == 2
    assert sorted(DeltaTable(scratch.input("events")).to_pyarrow_table()["k"].to_pylist()) == ["dead", "today"]


def rule_of(place: Path, **stream: Any) -> Any:
    sql = "SELECT n FROM events"
    return Flow(place, sql=sql, stream=stream, settings={"timezone": "Europe/Berlin"}).rule()
