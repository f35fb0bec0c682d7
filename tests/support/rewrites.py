"""Ways in which people repair a table in place, and a rule that is killed while it follows one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.corrected import proven, same_as_batch
from support.crash import Crash, crash_at
from support.flow import Flow, event
from support.running import run

FIRST = [
    event(s, k, v, n)
    for s, k, v, n in (
        (0, "a", 1.0, 1),
        (12, "a", 0.5, 6),
        (10, "b", 2.0, 3),
        (70, "a", 4.0, 1),
        (80, "b", 3.0, 4),
        (84, "b", 0.5, 6),
    )
]
MORE = [event(130, "a", 8.0, 5), event(140, "c", 1.5, 7), event(400, "b", 1.0, 1), event(415, "a", 2.5, 3)]


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(rows, "at timestamp, k string, v double, n bigint").coalesce(1)


def delete(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM delta.`{table}` WHERE n = 3")


def update(spark: SparkSession, table: str) -> None:
    spark.sql(f"UPDATE delta.`{table}` SET v = v + 100, k = 'z' WHERE k = 'a'")


def move(spark: SparkSession, table: str) -> None:
    """Rows come into other windows, some of them later than any before."""
    spark.sql(f"UPDATE delta.`{table}` SET at = at + INTERVAL 65 SECONDS WHERE k = 'b'")


def merge(spark: SparkSession, table: str) -> None:
    frame(spark, [event(70, "a", 40.0, 2), event(440, "new", 1.0, 8)]).createOrReplaceTempView("changes")
    spark.sql(f"MERGE INTO delta.`{table}` t USING changes c ON t.at = c.at AND t.k = c.k "
              "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")  # fmt: skip


def overwrite(spark: SparkSession, table: str) -> None:
    writer = frame(spark, [event(65, "a", 7.0, 7), event(75, "new", 9.0, 9)]).write.format("delta").mode("overwrite")
    writer.option("replaceWhere", "at >= '2001-01-01T00:01:00Z' AND at < '2001-01-01T00:02:00Z'").save(table)


def restore(spark: SparkSession, table: str) -> None:
    spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 0")


Rewriting = Callable[[SparkSession, str], None]
REWRITES: dict[str, Rewriting] = {one.__name__: one for one in (delete, update, move, merge, overwrite, restore)}


LATER = [event(500, "a", 3.0, 1), event(700, "b"), event(800, "c")]  # c: a key that few rewrites touch


def folded(spark: SparkSession, flow: Flow, more: Sequence[dict[str, Any]] = ()) -> None:
    """The rule has read FIRST, some `more` rows, and MORE."""
    flow.arrive([*FIRST, *more])
    flow.arrive(MORE)
    run(spark, flow)


def is_followed(spark: SparkSession, flow: Flow, how: str, later: Sequence[dict[str, Any]] = LATER) -> None:
    """The source is rewritten. The next run's one correction gives what batch gives, and so does a later epoch."""
    REWRITES[how](spark, flow.source)
    done = run(spark, flow)
    assert len(done.corrections) == 1
    same_as_batch(spark, flow)
    proven(flow)
    flow.arrive(later)
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


def corrects_once_though_killed(spark: SparkSession, flow: Flow, point: str) -> None:
    """Rows move; the run that corrects is killed at the point, and the next one ends with what batch gives."""
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    move(spark, flow.source)
    flow.arrive([event(480, "late to the party"), event(500)])
    with crash_at(point) as planned, pytest.raises(Crash):
        run(spark, flow)
    assert planned.fired
    run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.corrections == 1 and head.backfill is None
    same_as_batch(spark, flow)
    proven(flow)
