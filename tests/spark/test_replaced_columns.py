"""A source with column mapping, in which a name becomes that of another column between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import reset, run

from floodmark.errors import HistoryGone

MAPPED = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
DROPPED = ("DROP COLUMN n", "ADD COLUMN n BIGINT")
RENAMED = ("RENAME COLUMN n TO m", "ADD COLUMN n BIGINT")
OTHERS = ("DROP COLUMN v", "ADD COLUMN v DOUBLE")


def changed(spark: SparkSession, flow: Flow, *changes: str) -> None:
    for change in changes:
        spark.sql(f"ALTER TABLE delta.`{flow.source}` {change}")


@pytest.mark.parametrize("changes", [DROPPED, RENAMED], ids=["dropped", "renamed"])
@pytest.mark.parametrize("more", [{}, {"landing": True}], ids=["read", "landed"])
def test_a_name_of_another_column_stops_the_run(
    spark: SparkSession, place: Path, changes: tuple[str, ...], more: dict[str, bool]
) -> None:
    stream = {"event_time": None, "lateness": None, "on_rewrite": "stop" if more else "correct", **more}
    flow = Flow(place, sql="SELECT k, n FROM events", stream=stream, sinks=1)
    flow.arrive([event(0, n=1)])
    changed(spark, flow, MAPPED)
    run(spark, flow)
    changed(spark, flow, *changes)
    spark.sql(f"INSERT INTO delta.`{flow.source}` (k, n) VALUES ('b', 2)")
    for _ in range(2):
        with pytest.raises(HistoryGone, match="column n, as it was read up to version 1, was dropped or renamed since"):
            run(spark, flow)
    assert [row["n"] for row in rows_of(flow.sink())] == [1]
    if not more:
        reset(spark, flow)
        run(spark, flow)
        assert sorted(str(row["n"]) for row in rows_of(flow.sink())) == ["2", "None"]


def test_columns_that_the_rule_does_not_read_may_change(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT k, n FROM events", stream={"event_time": None, "lateness": None}, sinks=1)
    flow.arrive([event(0, n=1)])
    changed(spark, flow, MAPPED)
    run(spark, flow)
    changed(spark, flow, *OTHERS)
    spark.sql(f"INSERT INTO delta.`{flow.source}` (k, n) VALUES ('b', 2)")
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [1, 2]
