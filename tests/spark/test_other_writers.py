"""A source that another program than Spark writes and rewrites is followed as one that Spark rewrites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.corrected import flow_of, proven, same_as_batch
from support.flow import SCHEMA, Flow, event, rows_of
from support.rewrites import FIRST, LATER, MORE
from support.running import run

from floodmark.errors import WrongColumn

MINUTE = "at >= '2001-01-01T00:01:00Z' AND at < '2001-01-01T00:02:00Z'"


def rows(events: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(events, SCHEMA)


def delete(table: DeltaTable) -> None:
    table.delete("n = 3")


def update(table: DeltaTable) -> None:
    table.update({"v": "v + 100", "k": "'z'"}, predicate="k = 'a'")


def merge(table: DeltaTable) -> None:
    changes = rows([event(70, "a", 40.0, 2), event(440, "new", 1.0, 8)])
    merging = table.merge(changes, "t.at = c.at AND t.k = c.k", source_alias="c", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def delete_by_source(table: DeltaTable) -> None:
    merging = table.merge(rows([event(70, "a", 4.0, 1)]), "t.at = c.at", source_alias="c", target_alias="t")
    merging.when_not_matched_by_source_delete("t.k <> 'c'").execute()


def overwrite(table: DeltaTable) -> None:
    write_deltalake(table, rows([event(65, "a", 7.0, 7), event(75, "new", 9.0, 9)]), mode="overwrite", predicate=MINUTE)


def overwrite_all(table: DeltaTable) -> None:
    write_deltalake(table, rows([event(65, "a", 7.0, 7), event(475, "new", 9.0, 9)]), mode="overwrite")


def restore(table: DeltaTable) -> None:
    table.restore(1)


REWRITES: dict[str, Callable[[DeltaTable], None]] = {
    one.__name__: one for one in (delete, update, merge, delete_by_source, overwrite, overwrite_all, restore)
}


FORMS = ("slices", "single rows", "totals", "sessions")
EACH = [(how, by, form) for how in REWRITES for by in ((), ("k",)) for form in FORMS]


@pytest.mark.prove
@pytest.mark.parametrize(("how", "by", "form"), EACH)
def test_rewrites_are_followed(spark: SparkSession, place: Path, how: str, by: tuple[str, ...], form: str) -> None:
    flow = flow_of(place, form, sinks=1)
    write_deltalake(flow.source, rows(FIRST[:3]), partition_by=[*by])
    write_deltalake(flow.source, rows(FIRST[3:]), mode="append")
    write_deltalake(flow.source, rows(MORE), mode="append")
    run(spark, flow)
    REWRITES[how](DeltaTable(flow.source))
    assert len(run(spark, flow).corrections) == 1
    same_as_batch(spark, flow)
    proven(flow)
    DeltaTable(flow.source).optimize.compact()
    DeltaTable(flow.source).optimize.z_order(["n"])
    DeltaTable(flow.source).create_checkpoint()
    write_deltalake(flow.source, rows(LATER), mode="append")
    assert not run(spark, flow).corrections
    same_as_batch(spark, flow)
    proven(flow)


def test_columns_of_type_char_are_read_in_a_source_and_refused_in_a_sink(spark: SparkSession, place: Path) -> None:
    stream = {"on_rewrite": "correct", "event_time": None, "lateness": None}
    flow = Flow(place, sql="SELECT n, k FROM events", stream=stream)
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": ["n"]}]
    for table in (flow.source, flow.sink()):
        spark.sql(f"CREATE TABLE delta.`{table}` (n BIGINT, k CHAR(3)) USING delta")
    spark.sql(f"INSERT INTO delta.`{flow.source}` VALUES (1, 'a'), (2, 'b')")
    with pytest.raises(WrongColumn, match="expected text of type STRING or VARCHAR, found CHAR in k"):
        run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.sink()}` ALTER COLUMN `k` TYPE STRING")
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 1")
    run(spark, flow)
    assert rows_of(flow.sink()) == [{"n": 2, "k": "b  "}]
    proven(flow)
