"""Equal rows of a lookup table: each epoch chooses the same one, as the proof and a backfill do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import backfill, run

from floodmark.proving.play.inbatch import write_expected
from floodmark.proving.scratch import Scratch
from floodmark.spark.look.preview import preview

NEWEST = """SELECT e.at, e.k, c.city FROM events e JOIN
  (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY since DESC) AS r FROM cities) WHERE r = 1) c
  ON e.k = c.k;"""
# Whether Spark takes the first row that it reads or the last one, it takes a wrong one of one key.
CITIES = {"k": ["a", "b", "a", "b"], "city": ["Ulm", "Bonn", "Bonn", "Ulm"], "since": [1, 1, 1, 1]}


def test_an_epoch_takes_the_smallest_of_rows_that_are_equal_in_the_order(spark: SparkSession, place: Path) -> None:
    cities = str(place / "lake" / "cities")
    flow = Flow(place, sql=NEWEST, settings={"lookups": {"cities": {"delta": cities}}}, sinks=1)
    write_deltalake(cities, pa.table(CITIES))
    flow.arrive([event(1, "a"), event(2, "b")])
    run(spark, flow)
    assert sorted((row["k"], row["city"]) for row in rows_of(flow.sink())) == [("a", "Bonn"), ("b", "Bonn")]
    names = pa.array([[("de", "x")]] * 4, pa.map_(pa.string(), pa.string()))
    write_deltalake(cities, pa.table({**CITIES, "names": names}), mode="overwrite", schema_mode="overwrite")
    flow.arrive([event(3, "a")])
    run(spark, flow)
    assert len(rows_of(flow.sink())) == 3, "a rule over a table with a map, which has no order, goes on"
    write_expected(spark, flow.rule(), Scratch(place))
    assert len(rows_of(Scratch(place).expected(flow.name, 0))) == 3, "the proof computes the same"
    assert len(preview(spark, flow.rule(), 100, 100).rows) == 3
    backfill(spark, flow, -(1 << 50), 1 << 51, then=True)
    assert len(rows_of(flow.sink())) == 3
