"""Corrections where what they touch is easily taken for less than it is; the sink is what batch gives all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.corrected import CORRECT, watermark
from support.crash import put_reach
from support.flow import START, Flow, event, rows_of
from support.running import backfill, run

from floodmark.errors import InputFault

SECOND = 1_000_000
MINUTES = "SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k"
SIZES = """SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '60 seconds'), k
UNION ALL SELECT window.start, concat(k, '45'), count(*) FROM events GROUP BY window(at, '45 seconds'), k"""
DAYS = """SELECT window(window.start, '1 day').start AS d, window.start AS s, k, sum(c) AS c FROM
(SELECT window, k, count(*) AS c FROM events GROUP BY window(at, '1 hour'), k)
GROUP BY window, window(window.start, '1 day'), k"""
BESIDE = """SELECT a.at AS at, a.k AS k, b.at AS later FROM events a
JOIN events b ON a.k = b.k AND a.n = 1 AND b.n = 2 AND b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR
LEFT JOIN events c ON c.k = a.k AND c.n = 3 AND c.at BETWEEN a.at AND a.at + INTERVAL '5' MINUTES
AND c.at BETWEEN b.at AND b.at + INTERVAL '5' MINUTES"""


def as_batch(spark: SparkSession, flow: Flow) -> bool:
    """Whether the sink has what the SQL gives over the source as it is now, for rows of which all windows are final."""
    spark.read.format("delta").load(flow.source).createOrReplaceTempView("events")
    final = f"TIMESTAMP'{START:%Y-%m-%dT%H:%M:%S}Z' + INTERVAL 1 DAY"
    spark.sql(f"SELECT * FROM events WHERE at < {final}").createOrReplaceTempView("events")
    expected = [row.asDict() for row in spark.sql(flow.sql).collect()]
    return _texts(rows_of(flow.sink())) == _texts(expected)


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        str({name: getattr(value, "timestamp", lambda v=value: v)() for name, value in row.items()}) for row in rows
    )


def corrected(spark: SparkSession, flow: Flow, change: str) -> None:
    spark.sql(change.format(f"delta.`{flow.source}`"))
    assert len(run(spark, flow).corrections) == 1


def test_windows_whose_sizes_do_not_divide_each_other_are_read_whole(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=SIZES, stream=CORRECT, sinks=1)
    flow.arrive([event(10, n=3), event(50), event(70), event(80), event(2000), event(3590, n=3), event(9000)])
    flow.arrive([event(100_000)])
    run(spark, flow)
    assert as_batch(spark, flow)
    corrected(spark, flow, "DELETE FROM {} WHERE n = 3")
    assert as_batch(spark, flow)


def test_a_window_of_windows_is_not_taken_for_these(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=DAYS, stream=CORRECT, sinks=1)
    flow.arrive([event(3610, n=3), event(3620), event(9000)])
    flow.arrive([event(200_000)])
    run(spark, flow)
    corrected(spark, flow, "DELETE FROM {} WHERE n = 3")
    assert as_batch(spark, flow)


@pytest.mark.prove
def test_a_left_join_bounds_no_rows_but_its_own(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=BESIDE, stream=CORRECT, sinks=1)
    flow.arrive([event(0, "a", n=1), event(60, "b", n=1), event(100, "b", n=2)])
    run(spark, flow)
    flow.arrive([event(1500, "z", n=9)])
    run(spark, flow)
    flow.arrive([event(1800, "a", n=2)])
    run(spark, flow)
    flow.arrive([event(100_000, "z", n=9)])
    run(spark, flow)
    assert as_batch(spark, flow) and len(rows_of(flow.sink())) == 2
    corrected(spark, flow, "UPDATE {} SET n = 0 WHERE n = 2 AND k = 'a'")
    assert as_batch(spark, flow) and len(rows_of(flow.sink())) == 1


def test_files_that_a_restore_brings_back_are_followed(spark: SparkSession, place: Path) -> None:
    """Its commit removes no file: one was deleted as a whole."""
    flow = Flow(place, sql=MINUTES, stream=CORRECT, sinks=1)
    flow.arrive([event(10), event(11)])
    flow.arrive([event(20, "b"), event(500), event(100_000)])
    run(spark, flow)
    corrected(spark, flow, "DELETE FROM {} WHERE k = 'a' AND at < '2001-01-01T00:01:00Z'")
    assert as_batch(spark, flow)
    corrected(spark, flow, "RESTORE TABLE {} TO VERSION AS OF 1")
    assert as_batch(spark, flow)


@pytest.mark.prove
def test_a_row_that_epochs_would_not_fold_moves_no_watermark(spark: SparkSession, place: Path) -> None:
    sane = {"sane": {"check": "at < TIMESTAMP'2002-01-01'", "on_fail": "drop"}}
    flow = Flow(place, sql=MINUTES, stream={**CORRECT, "expect": sane}, sinks=1)
    flow.arrive([event(10), event(500), event(9 * 365 * 86_400, "far")])
    run(spark, flow)
    before = watermark(flow)
    corrected(spark, flow, "UPDATE {} SET k = 'farther' WHERE k = 'far'")
    assert watermark(flow) == before
    flow.arrive([event(520), event(900), event(100_000)])
    run(spark, flow)
    assert as_batch(spark, flow)


@pytest.mark.parametrize("change", ["at = NULL", "k = 'garbage'"])
def test_a_row_without_a_time_stops_the_correction(spark: SparkSession, place: Path, change: str) -> None:
    time = {"name": "t", "expr": "CASE WHEN at IS NOT NULL THEN to_timestamp(k) END"}
    flow = Flow(place, sql="SELECT t, v FROM events", stream={**CORRECT, "event_time": time, "lateness": None}, sinks=1)
    flow.arrive([event(10, "2001-01-01", 1.0), event(20, "2001-01-02", 2.0)])
    run(spark, flow)
    before = rows_of(flow.sink())
    spark.sql(f"UPDATE delta.`{flow.source}` SET {change} WHERE v = 1")
    with pytest.raises(InputFault, match="has brought 1 rows without an event time"):
        run(spark, flow)
    assert rows_of(flow.sink()) == before


def test_a_backfill_that_a_correction_by_key_overtakes_is_computed_again(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT k, count(*) AS c FROM events GROUP BY k", stream={**CORRECT, "lateness": None})
    flow.settings |= {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["k"]}]}
    flow.arrive([event(10, n=3), event(20), event(30, "b")])
    run(spark, flow)
    overtaken = list[str]()

    def reach(_: str, point: str, *__: int) -> None:
        if point == "backfill.computed" and not overtaken:
            overtaken.append(point)
            corrected(spark, flow, "DELETE FROM {} WHERE n = 3")

    with pytest.MonkeyPatch.context() as patch:
        put_reach(patch, reach)
        begin = int(START.timestamp()) * SECOND
        backfill(spark, flow, begin, begin + 3600 * SECOND)
    assert overtaken and as_batch(spark, flow)
    flow.arrive([event(40)])
    run(spark, flow)
    assert as_batch(spark, flow)
