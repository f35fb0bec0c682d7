"""A key of a JOIN is tried on the rows of which Spark computes it, seen by queries of Spark itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.flow import START, Flow

from floodmark.spark.read.rowchecks import checks_of, tried

GOOD = {"at": START, "k": "1", "x": 1, "kind": "num", "v": "1", "items": [{"q": 1}], "s": {"k": "1"}}
WRONG = {**GOOD, "k": "wrong"}
NEAR = "b.at BETWEEN a.at AND a.at + INTERVAL '5' MINUTES"
OF_A, OF_B = f"ON CAST(a.k AS INT) = b.x AND {NEAR}", f"ON a.x = CAST(b.k AS INT) AND {NEAR}"
OF_BOTH = f"ON CAST(a.k AS INT) = CAST(b.k AS INT) AND {NEAR}"
STREAMS = {name: {"delta": f"/lake/{name}", "event_time": "at", "lateness": "1 minute"} for name in ("events", "other")}


def raises(rows: DataFrame) -> bool:
    try:
        rows.collect()
    except PySparkException as fault:
        if fault.getCondition() != "CAST_INVALID_INPUT":
            raise
        return True
    return False


def show(spark: SparkSession, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), str(path))
    spark.read.parquet(str(path)).createOrReplaceTempView(path.name)


def is_told(rule: Any, name: str, rows: DataFrame) -> bool:
    checks = checks_of(rule, name, rows, rows).sql
    failed = (tried(rows, one.tested).isNull() for one in checks)
    return any(any(row) for row in rows.select(*failed).collect())


@pytest.mark.parametrize(
    ("sql", "stream", "row", "computed"),
    [
        (f"JOIN other b {OF_A} WHERE a.kind = 'num'", "events", {"kind": "no"}, False),
        (f"JOIN other b {OF_A} WHERE a.x = 1 OR a.x = 2", "events", {"x": 5}, False),
        (f"LEFT JOIN other b {OF_A} WHERE (a.x = 1 AND b.x = 1) OR (a.x = 2 AND b.x IS NULL)", "events",
         {"x": 5}, True),
        ("LEFT JOIN cities c ON CAST(a.k AS INT) = c.y JOIN lands l ON l.id = a.x "
         "AND (a.kind = 'num' AND c.y = 1 OR a.kind = 'no' AND c.y IS NULL)", "events", {"kind": "x"}, True),
        (f"LEFT JOIN other b {OF_B} WHERE b.x = 1", "other", {"x": 7}, False),
        (f"LEFT JOIN other b {OF_B} WHERE b.x NOT IN (7, 8)", "other", {"x": 7}, False),
        (f"LEFT JOIN other b {OF_B} WHERE b.x BETWEEN 1 AND 2", "other", {"x": 7}, False),
        (f"LEFT JOIN other b {OF_B} WHERE NOT b.x IS NOT NULL", "other", {"x": 7}, True),
        (f"LEFT JOIN other b {OF_B} WHERE (b.x, b.kind) NOT IN ((7L, 'num'))", "other", {"x": 7}, True),
        (f"LEFT JOIN other b {OF_B} WHERE 1 IN (b.x, 1)", "other", {"x": 7}, True),
        (f"JOIN other b {OF_A} WHERE filter(a.items, x -> x.q > a.x) IS NOT NULL", "events", {}, True),
        (f"JOIN other b {OF_A} WHERE a.kind = 'num' AND CAST(a.v AS INT) > 0", "events",
         {"k": "1", "kind": None, "v": "wrong"}, False),
        (f"LEFT SEMI JOIN other b {OF_BOTH} JOIN cities c ON c.id = a.x AND kind = 'num'", "other", {"kind": "no"},
         True),
        (f"LEFT SEMI JOIN other b {OF_BOTH} AND b.kind = 'num' JOIN cities c ON c.id = a.x", "other", {"kind": "no"},
         False),
        (f"JOIN other b ON CAST(a.s.k AS INT) = b.x AND {NEAR}", "events", {"s": {"k": "wrong"}}, True),
        (f"JOIN other b ON ((CAST(a.k AS INT) = b.x) AND {NEAR})", "events", {}, True),
        (f"JOIN other b ON (CASE WHEN a.kind = 'num' THEN CAST(a.k AS INT) END = b.x) AND {NEAR}", "events", {},
         True),
    ],
    ids=["where", "or", "or-of-both", "or-of-both-in-a-later-on", "of-a-partner", "not-in", "between", "of-none",
         "several", "in", "beside-a-lambda", "null-comes-first", "semi", "semis-own", "field", "parentheses", "case"],
)  # fmt: skip
def test_a_key_is_tried_where_spark_computes_it(
    spark: SparkSession, place: Path, sql: str, stream: str, row: Mapping[str, Any], computed: bool
) -> None:
    lookups = {name: {"delta": f"/lake/{name}"} for name in ("cities", "lands") if f" {name} " in sql}
    streams = {name: how for name, how in STREAMS.items() if f" {name} " in f" events {sql}"}
    sql = f"SELECT a.at FROM events a {sql}"
    rule = Flow(place, sql=sql, settings={"streams": streams, "lookups": lookups}, sinks=1).rule()
    for name in ("cities", "lands"):
        show(spark, place / name, [{"id": 1, "y": 1}])
    for name in ("events", "other"):
        show(spark, place / name, [GOOD, *([{**WRONG, **row}] if name == stream else [])])
    assert (raises(spark.sql(sql)), is_told(rule, stream, spark.table(stream))) == (computed, computed)
