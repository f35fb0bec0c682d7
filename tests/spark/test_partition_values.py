"""Values of `partition_by`: written exactly, or refused before the epoch's intent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import crash, run

from floodmark.audit.certificate import audit
from floodmark.core.rules.sinks.partitionvalues import NULL_NAME, bytes_in_path, unfit, which
from floodmark.core.rules.sinks.sinkcolumns import SinkColumns
from floodmark.errors import InputFault
from floodmark.spark.session.jvm import jvm_class

AUTUMN = 1729989000  # in Berlin 02:30 in summer time; an hour later it is 02:30 in winter time


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, True)
    assert found is not None and found.verdict == "proven", found and found.findings


def instants(flow: Flow, number: int) -> list[tuple[int, int]]:
    """n and the hours since AUTUMN of each row."""
    return sorted((row["n"], (int(row["t"].timestamp()) - AUTUMN) // 3600) for row in rows_of(flow.sink(number)))


def in_berlin(flow: Flow, *sinks: dict[str, Any]) -> Flow:
    flow.sql = f"SELECT n, v, timestamp_seconds({AUTUMN} + n * 3600) AS t FROM events"
    by = [{"delta": flow.sink(i), "partition_by": ["t"], **sink} for i, sink in enumerate(sinks)]
    flow.settings = {"timezone": "Europe/Berlin", "sinks": by}
    return flow


def test_two_instants_of_one_clock_time_stay_two(spark: SparkSession, place: Path) -> None:
    flow = in_berlin(Flow(place), {"where": "n < 5"}, {"key": ["t", "n"], "newest": "v"})
    flow.arrive(event(i, n=i, v=1.0) for i in (0, 1, 9))
    run(spark, flow)
    flow.arrive(event(i, n=i, v=2.0) for i in (0, 1, 2))
    assert crash(spark, flow, "sink1.after")
    run(spark, flow)
    assert instants(flow, 0) == [(i, i) for i in (0, 0, 1, 1, 2)]
    assert instants(flow, 1) == [(i, i) for i in (0, 1, 2, 9)]
    proven(flow)


@pytest.mark.prove
def test_results_are_counted_where_every_sink_leaves_out_some_and_writes_in_utc(
    spark: SparkSession, place: Path
) -> None:
    flow = in_berlin(Flow(place), {"where": "n < 5"})
    flow.arrive(event(i, n=i) for i in (0, 1, 9))
    assert [epoch.output for epoch in run(spark, flow).epochs] == [3]
    assert instants(flow, 0) == [(0, 0), (1, 1)]


def test_text_that_no_directory_can_have_is_refused_before_the_intent(spark: SparkSession, place: Path) -> None:
    """With the value and the way out; a value that just fits is written, and an edit leads on."""
    flow = Flow(place, sql="SELECT n, k FROM events")
    flow.settings["sinks"] = [
        {"delta": flow.sink(0), "key": ["k", "n"], "partition_by": ["k"], "where": "n < 9"},
        {"delta": flow.sink(1), "partition_by": ["k"], "where": "n < 9"},
    ]
    fits = "x" * 253
    flow.arrive([event(0, k=fits, n=0), event(1, k=None, n=1), event(2, k=NULL_NAME, n=9)])
    run(spark, flow)
    flow.arrive([event(3, k=NULL_NAME, n=2), event(4, k="", n=3)])
    with pytest.raises(InputFault, match=rf"out0: partition_by: .* found 2 rows .* k = '{NULL_NAME}': Delta reads"):
        run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.open is None and head.epoch == 1
    flow.sql = f"SELECT n, nullif(nullif(k, '{NULL_NAME}'), '') AS k FROM events"
    run(spark, flow)
    assert sorted((row["n"], row["k"]) for row in rows_of(flow.sink(0))) == [(0, fits), (1, None), (2, None), (3, None)]
    assert sorted(row["n"] for row in rows_of(flow.sink(1))) == [0, 1, 2, 3]
    proven(flow)


@pytest.mark.parametrize("how", [{"delete": "v < 0"}, {"where": "v >= 0"}], ids=["delete", "where"])
def test_a_result_that_deletes_empty_text_leaves_the_key_with_null(
    spark: SparkSession, place: Path, how: dict[str, str]
) -> None:
    flow = Flow(place, sql="SELECT k, n, v FROM events")
    flow.settings["sinks"] = [{"delta": flow.sink(0), "key": ["k", "n"], "partition_by": ["k"], **how}]
    flow.arrive([event(0, k=None, n=1), event(1, k="a", n=1)])
    run(spark, flow)
    flow.arrive([event(2, k="", n=1, v=-1.0), event(3, k="a", n=1, v=-1.0)])
    run(spark, flow)
    assert [(row["k"], row["n"]) for row in rows_of(flow.sink(0))] == [(None, 1)]
    proven(flow)


TEXTS = (  # and the place of what is wrong with each; None: it fits
    (NULL_NAME, 0),
    (NULL_NAME.lower(), None),
    ("a\x00b", 1),
    ("x" * 253, None),
    ("x" * 254, 3),
    ("x" * 250 + ":", None),
    ("x" * 251 + ":", 3),
    ("é" * 126, None),
    ("é" * 127, 3),
    ("\n" * 84, None),
    ("\n" * 85, 3),
    ("", 4),
    (None, None),
)


def test_what_does_not_fit_is_told_by_sql(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(i, text) for i, (text, _) in enumerate(TEXTS)], "i INT, k STRING")
    rows = rows.unionAll(spark.sql(f"SELECT {len(TEXTS)}, CAST(X'61ff62' AS STRING)"))
    place = which(unfit("k", "string", in_key=True), SinkColumns(("k",)))
    found = {row["i"]: row["place"] for row in rows.selectExpr("i", f"{place} AS place").collect()}
    assert found == {**{i: place for i, (_, place) in enumerate(TEXTS)}, len(TEXTS): 2}


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("date", "DATE'0001-01-01'", "DATE'9999-12-31'"),
        ("timestamp", "TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"),
        ("timestamp_ntz", "TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
    ],
)
def test_years_that_readers_have_not_are_told_by_sql(spark: SparkSession, kind: str, low: str, high: str) -> None:
    unit = "DAY" if kind == "date" else "MICROSECOND"
    values = [low, high, f"CAST({low} - INTERVAL 1 {unit} AS {kind})", f"CAST({high} + INTERVAL 1 {unit} AS {kind})"]
    rows = spark.sql(" UNION ALL ".join(f"SELECT {i} AS i, {value} AS k" for i, value in enumerate(values)))
    place = which(unfit("k", kind), SinkColumns(("k",)))
    assert [row[0] for row in rows.orderBy("i").selectExpr(place).collect()] == [None, None, 0, 0]


def test_spark_writes_names_of_so_many_bytes(spark: SparkSession) -> None:
    names = jvm_class(spark, "org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils")
    for letter in [*map(chr, range(1, 300)), "€", "🌊"]:
        assert len(str(names.escapePathName(letter)).encode()) == bytes_in_path(letter), repr(letter)
