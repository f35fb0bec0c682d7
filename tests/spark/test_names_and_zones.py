"""SQL of which names, or the rule's zone, mean something else to Spark than they seem to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.running import backfill, run

from floodmark.spark.rule.run import RuleRun

FAR = datetime(2030, 1, 1, tzinfo=UTC)
# `st.at` is a field of the column `st`, not the time of the relation `st`.
FULL = """SELECT at, k, a.n AS an, {s}.n AS bn FROM (SELECT at, k, n FROM events WHERE n < 3) a
FULL JOIN (SELECT at, k, n, named_struct('x', n, 'at', CAST(NULL AS TIMESTAMP)) AS st FROM events WHERE n > 2) {s}
USING (at, k)"""
RUNNING = "SELECT k, sum(n) AS count_0, count_0 + 1 AS x, count(v) AS c FROM events GROUP BY k"
HOPPING = """SELECT window.start AS s, count(*) AS sum_0, sum_0 * 2 AS x, sum(v) AS t FROM events
GROUP BY window(at, '1 minute', '10 seconds')"""


def close(spark: SparkSession, flow: Flow) -> None:
    """Run, with all windows final."""
    RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None, close_until=FAR).run()


def as_batch(spark: SparkSession, flow: Flow) -> bool:
    spark.read.format("delta").load(flow.source).createOrReplaceTempView("events")
    expected = [row.asDict() for row in spark.sql(flow.sql).collect()]
    assert expected
    return _texts(rows_of(flow.sink())) == _texts(expected)


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        str({name: getattr(value, "timestamp", lambda v=value: v)() for name, value in row.items()}) for row in rows
    )


@pytest.mark.parametrize("alias", ["st", "other"])
def test_the_merged_time_of_a_full_join_makes_rows_final(spark: SparkSession, place: Path, alias: str) -> None:
    flow = Flow(place, sql=FULL.format(s=alias), sinks=1)
    flow.arrive([event(0, n=1), event(0, n=3)])
    run(spark, flow)
    flow.arrive([event(300, n=2), event(200, "c", n=4), event(330, "d", n=5)])
    close(spark, flow)
    assert as_batch(spark, flow)


@pytest.mark.parametrize(("sql", "key"), [(RUNNING, ["k"]), (HOPPING, None)])
def test_an_alias_may_have_any_name_that_partial_aggregates_could_have(
    spark: SparkSession, place: Path, sql: str, key: list[str] | None
) -> None:
    flow = Flow(place, sql=sql, sinks=1)
    if key:
        flow.stream = {"lateness": None}
        flow.settings = {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": key}]}
    flow.arrive([event(0, n=1), event(5, n=4, v=None)])
    run(spark, flow)
    flow.arrive([event(300, v=2.0, n=2)])
    (run if key else close)(spark, flow)
    assert as_batch(spark, flow)


@pytest.mark.parametrize(
    "within", ["1 day", *(pytest.param(one, marks=pytest.mark.prove) for one in ("24 hours", "23 hours"))]
)
@pytest.mark.parametrize(("night", "hours"), [("2001-10-27", (24.5, 23.5)), ("2001-03-24", (24.5, 23.5))])
def test_duplicates_are_told_by_time_that_passes_not_by_the_calendar(
    spark: SparkSession, place: Path, within: str, night: str, hours: tuple[float, ...]
) -> None:
    """In Warsaw, a day of these two nights has 25 and 23 hours."""
    begin = (datetime.fromisoformat(f"{night}T11:00:00+00:00") - START).total_seconds()
    flow = Flow(place, sql="SELECT at, k FROM events", sinks=1, settings={"timezone": "Europe/Warsaw"})
    flow.stream = {"distinct": {"key": ["k"], "within": within}}
    later = dict(zip(("more", "less"), hours, strict=True))
    flow.arrive([event(begin, k) for k in later])
    run(spark, flow)
    flow.arrive([event(begin + 3600 * passed, k) for k, passed in later.items()])
    close(spark, flow)
    held = {k: sum(row["k"] == k for row in rows_of(flow.sink())) for k in later}
    assert held == {"more": 2, "less": 2 if within == "23 hours" else 1}


BERLIN = {"timezone": "Europe/Berlin"}  # where the hour from 2:00 on did not exist on 2001-03-25


def moment(text: str) -> dict[str, Any]:
    return event(0, f"2001-03-25 {text}:00")


def test_times_without_a_zone_in_an_hour_that_clocks_leave_out_are_not_those_of_the_next(
    spark: SparkSession, place: Path
) -> None:
    sql = "SELECT window.start AS start, count(*) AS c FROM events GROUP BY window(moment, '15 minutes')"
    time = {"name": "moment", "expr": "CAST(k AS TIMESTAMP_NTZ)"}
    stream = {"event_time": time, "lateness": "5 minutes", "start": {"version": 0}}
    flow = Flow(place, sql=sql, sinks=1, stream=stream, settings=BERLIN)
    expected = {"01:45": 1, "02:45": 2, "03:00": 1, "03:30": 1}
    for portion in (("01:50", "02:50"), ("02:55", "03:10", "03:30", "04:30")):
        flow.arrive(map(moment, portion))
        run(spark, flow)
    counted = {row["start"].strftime("%H:%M"): row["c"] for row in rows_of(flow.sink())}
    assert counted == expected and len(rows_of(flow.sink())) == 4
    at = int(datetime(2001, 3, 25, 2, tzinfo=UTC).timestamp()) * 1_000_000
    assert backfill(spark, flow, at, at + 3_600_000_000).intent.results.rows == 1


def test_a_key_without_a_zone_in_such_an_hour_is_found_in_the_sink(spark: SparkSession, place: Path) -> None:
    """By the statistics of the sink's files."""
    flow = Flow(place, sql="SELECT t, count(*) AS c FROM (SELECT CAST(k AS TIMESTAMP_NTZ) AS t FROM events) GROUP BY t")
    flow.settings = {**BERLIN, "unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["t"]}]}
    for count in (1, 2):
        flow.arrive([moment("02:50")])
        run(spark, flow)
        assert [row["c"] for row in rows_of(flow.sink())] == [count]
