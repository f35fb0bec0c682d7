"""A chain of three rules: windows in a sink with a key, a lookup table, totals. What is repaired first follows."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.corrected import CORRECT, Rows, aware, proven, sink, watermark
from support.crash import Crash, crash_at
from support.flow import START, Flow, event
from support.oracle import ordered
from support.running import backfill, run

A = """
SELECT window.start AS start, window.end AS at, k, count(*) AS n, sum(v) AS v FROM events
GROUP BY window(at, '1 minute'), k
"""
B = """
SELECT window.start AS start, window.end AS at, region, sum(n) AS n, sum(v) AS v
FROM events e JOIN regions r ON e.k = r.k
GROUP BY window(at, '2 minutes'), region
"""
C = "SELECT region, count(*) AS windows, sum(n) AS n, max(v) AS v FROM events GROUP BY region"
REGIONS = {"a": "north", "b": "south", "c": "south"}
ROWS = [event(second, "abc"[second % 3], float(second % 7), second % 11) for second in range(0, 900, 8)]


def chain(place: Path) -> tuple[Flow, Flow, Flow]:
    regions = str(place / "lake" / "regions")
    write_deltalake(regions, pa.table({"k": [*REGIONS], "region": [*REGIONS.values()]}))
    first = Flow(place, "first", A, stream=CORRECT, sinks=1)
    first.settings["sinks"] = [{"delta": first.sink(), "key": ["start", "k"]}]
    second = Flow(place, "second", B, stream={**CORRECT, "delta": first.sink()}, sinks=1)
    second.settings["lookups"] = {"regions": {"delta": regions}}
    third = Flow(place, "third", C, stream={**CORRECT, "delta": second.sink(), "lateness": None}, sinks=1)
    third.settings |= {"unbounded": True, "sinks": [{"delta": third.sink(), "key": ["region"]}]}
    return first, second, third


def in_batch(spark: SparkSession, flow: Flow, source: str, size: int | None) -> Rows:
    """What the rule's SQL gives of its source as it is now; of windows (`size`, minutes) those that are final."""
    spark.read.format("delta").load(source).createOrReplaceTempView("events")
    spark.createDataFrame([*REGIONS.items()], "k string, region string").createOrReplaceTempView("regions")
    rows, until = [row.asDict() for row in spark.sql(flow.sql).collect()], watermark(flow)
    final = (row for row in rows if size is None or aware(row["start"]) + timedelta(minutes=size) <= until)
    return ordered(tuple(row.values()) for row in final)


def check(spark: SparkSession, flows: tuple[Flow, Flow, Flow]) -> None:
    first, second, third = flows
    read = ((first, first.source, 1), (second, first.sink(), 2), (third, second.sink(), None))
    for flow, source, size in read:
        expected = in_batch(spark, flow, source, size)
        assert expected
        assert sink(flow) == expected, flow.name
        proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize("killed", [None, 0, 1, 2])
def test_all_three_end_with_what_batch_gives(spark: SparkSession, place: Path, killed: int | None) -> None:
    """`killed`: which of the three, in each of its corrections."""
    flows = chain(place)
    first, table = flows[0], f"delta.`{flows[0].source}`"
    first.arrive(ROWS)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    for flow in flows:
        run(spark, flow)
    check(spark, flows)
    repairs = (lambda: _overwrite(spark, first), lambda: _backfill(spark, first), lambda: _delete(spark, table))
    kills = 0
    for repair in repairs:
        repair()
        for number, flow in enumerate(flows):
            if number == killed:
                kills += _is_killed(spark, flow)
            run(spark, flow)
        check(spark, flows)
    assert kills == {None: 0, 0: 2}.get(killed, 3), "the first is backfilled, not corrected, once"
    assert all(_generation(flow) == 1 for flow in flows)


def _is_killed(spark: SparkSession, flow: Flow) -> bool:
    """Killed once the sink is written; a run that finds nothing to correct is not."""
    with crash_at("backfill.sink.after") as planned, suppress(Crash):
        run(spark, flow)
    return planned.fired


def _generation(flow: Flow) -> int:
    head = flow.ledger().head
    assert head is not None
    return head.generation


def _overwrite(spark: SparkSession, flow: Flow) -> None:
    """Four minutes of the source."""
    rows = [event(240 + second, "abc"[second % 3], 3.0, 1) for second in range(0, 240, 5)]
    frame = spark.createDataFrame(rows, "at timestamp, k string, v double, n bigint").coalesce(1)
    low, high = ((START + timedelta(minutes=minute)).isoformat() for minute in (4, 8))
    writer = frame.write.format("delta").mode("overwrite")
    writer.option("replaceWhere", f"at >= '{low}' AND at < '{high}'").save(flow.source)


def _backfill(spark: SparkSession, flow: Flow) -> None:
    """After a row that came late: from now on it counts."""
    flow.arrive([event(130, "a", 100.0)])
    run(spark, flow)
    low = round(START.timestamp() + 120) * 1_000_000
    backfill(spark, flow, low, low + 60_000_000)


def _delete(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM {table} WHERE k = 'b'")
