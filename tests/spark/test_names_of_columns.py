"""Columns with names that Spark and Delta have for their own: they work, or are refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.flow import SCHEMA, Flow, event, rows_of
from support.running import crash, run

from floodmark.audit.certificate import audit
from floodmark.errors import WrongColumn

ODD = ("_metadata", "_change_type", "_commit_version", "a.b", "a`b")


def arrive(flow: Flow, *rows: tuple[float, int, float], names: tuple[str, ...] = ODD) -> None:
    """(seconds, n, v) each, with a text in every other column."""
    schema = pa.schema([*SCHEMA, *((name, pa.string()) for name in names)])
    found = [{**event(at, n=n, v=v), **dict.fromkeys(names, f"{n}/{v}")} for at, n, v in rows]
    Path(flow.source).parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(flow.source, pa.Table.from_pylist(found, schema=schema), mode="append")


def test_odd_names_go_through_streams_late_rows_and_sinks(spark: SparkSession, place: Path) -> None:
    """Appended, merged by key with and without deletion vectors, and set apart."""
    flow = Flow(place, sql="SELECT * FROM events")
    flow.settings["sinks"] = [
        {"delta": flow.sink(0)},
        {"delta": flow.sink(1), "key": ["n"], "newest": "v", "partition_by": ["_metadata"]},
        {"delta": flow.sink(2), "key": ["n", "_change_type"], "delete": "v = 9",
         "properties": {"delta.enableDeletionVectors": "true"}},
    ]  # fmt: skip
    arrive(flow, *((100, n, 1.0) for n in range(20)))
    run(spark, flow)
    arrive(flow, (100, 1, 2.0), (100, 2, 1.0), (1, 3, 1.0), (100, 30, 9.0))
    assert crash(spark, flow, "sink1.after")
    run(spark, flow)
    assert len(rows_of(flow.sink(0))) == 23 and len(rows_of(flow.place.late)) == 1
    newest = {row["n"]: row["_metadata"] for row in rows_of(flow.sink(1))}
    assert len(rows_of(flow.sink(1))) == len(newest) == 21
    assert (newest[1], newest[2]) == ("1/2.0", "2/1.0")
    keys = [(row["n"], row["_change_type"]) for row in rows_of(flow.sink(2))]
    assert len(keys) == len(set(keys)) == 21 and (30, "30/9.0") not in keys
    found = audit(flow.name, flow.home, True)
    assert found is not None and found.verdict == "proven", found and found.findings


@pytest.mark.parametrize(
    ("sql", "names", "said"),
    [
        ("SELECT * FROM events", ("_FLOODMARK_row",), "stream events: expected no column _FLOODMARK_row: names"),
        ("SELECT * FROM events", ("__is_cdc",), "stream events: expected no column __is_cdc: Delta and Spark add"),
        ("SELECT *, 1 AS x FROM events", ("_change_type",), "out1: expected no column _change_type with"),
        ("SELECT named_struct('a', n, 'A', v) AS s FROM events", (), "results: s: expected struct fields whose names"),
        ("SELECT array(named_struct('', n)) AS s FROM events", (), "results: s: expected struct fields whose names"),
    ],
)  # fmt: skip
def test_what_the_text_does_not_tell_is_refused_before_anything_is_made(
    spark: SparkSession, place: Path, sql: str, names: tuple[str, ...], said: str
) -> None:
    flow = Flow(place, sql=sql)
    feed = {"delta": flow.sink(1), "properties": {"delta.enableChangeDataFeed": "true"}}
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, feed]
    arrive(flow, (0, 1, 1.0), names=names)
    with pytest.raises(WrongColumn, match=said):
        run(spark, flow)
    assert not Path(flow.place.ledger).exists() and not Path(flow.sink(0)).exists()


def test_a_lookup_table_with_the_columns_of_a_history_is_refused(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT e.at, e.n, p.v FROM events e LEFT JOIN prices p ON e.k = p.k")
    prices = str(place / "lake" / "prices")
    flow.settings["lookups"] = {"prices": {"delta": prices, "history": True}}
    flow.arrive([event(0)])
    write_deltalake(prices, pa.table({"k": ["a"], "v": [1.0], "_Valid_From": [0]}))
    with pytest.raises(
        WrongColumn, match="lookup prices: expected a table without _Valid_From, because `history` adds"
    ):
        run(spark, flow)


def test_a_column_that_the_state_of_windows_of_rows_has_is_refused(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT k, max(`_held`) AS h FROM events GROUP BY count_window(2), k")
    flow.settings = {"unbounded": True}
    arrive(flow, (0, 1, 1.0), names=("_Held",))
    with pytest.raises(
        WrongColumn, match="stream events: expected to read no column _Held, because the state of a window"
    ):
        run(spark, flow)
