"""When windows fold by slices: where rows are in many, unless the rule or its types say otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import HOPPING, SLICED, Flow, event, rows_of
from support.running import run

from floodmark.errors import Refused, RuleChanged
from floodmark.ledger.delta import tables
from floodmark.ledger.ledger import LedgerReader

GROUP = "GROUP BY window(at, '1 minute', '10 seconds')"
DECIMALS = f"SELECT window.start AS start, avg(CAST(n AS DECIMAL(9, 1))) AS mean FROM events {GROUP}"
LENGTHS = f"SELECT window.start AS start, CAST(avg(at - TIMESTAMP'2001-01-01') AS STRING) AS mean FROM events {GROUP}"
WIDE = f"SELECT window.start AS start, sum(CAST(n AS DECIMAL(29, 0))) AS total FROM events {GROUP}"
FIT = WIDE.replace("29", "28")
WITHOUT_ANSI = {"spark": {"shuffle_partitions": 2, "conf": {"spark.sql.ansi.enabled": False}}}


@pytest.mark.parametrize(
    ("sql", "settings", "kept"),
    [
        (HOPPING, {}, "events"),
        (SLICED, {}, "slices"),
        (SLICED, {"windows": "rows"}, "events"),
        (DECIMALS, {}, "events"),
        (LENGTHS, {}, "events"),
        (WIDE, WITHOUT_ANSI, "events"),
        (FIT, {**WITHOUT_ANSI, "windows": "slices"}, "slices"),
        (WIDE, {"windows": "slices"}, "slices"),
    ],
)
def test_what_is_kept(spark: SparkSession, place: Path, sql: str, settings: dict[str, Any], kept: str) -> None:
    flow = Flow(place, sql=sql, settings=settings, stream={"start": {"version": 0}})
    flow.arrive([event(s, "a", 1.0, s % 3 + 2) for s in range(0, 200, 5)])
    run(spark, flow)
    assert rows_of(flow.sink())
    state = [folder.name for folder in Path(flow.place.state(1, "x")).parent.iterdir()]
    assert state == [kept]
    table = tables.open_table(flow.place.state(1, kept))
    assert table is not None
    assert ("_0" in str(tables.columns_of(table))) == (kept == "slices")


@pytest.mark.parametrize(("sql", "words"), [(LENGTHS, "avg over INTERVAL DAY TO SECOND"), (WIDE, "sum over DECIMAL")])
def test_aggregates_whose_parts_do_not_tell_the_result_are_refused(
    spark: SparkSession, place: Path, sql: str, words: str
) -> None:
    """A sum that overflows is NULL for good without ANSI: merged by its parts, it would be what came after."""
    flow = Flow(place, sql=sql, settings={"windows": "slices", **WITHOUT_ANSI})
    flow.arrive([event(0)])
    with pytest.raises(Refused, match=words):
        run(spark, flow)
    flow.sql = sql.replace("window.start AS start", "k").replace(GROUP, "GROUP BY k")
    flow.settings = {**WITHOUT_ANSI, "unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["k"]}]}
    with pytest.raises(Refused, match=words):
        run(spark, flow)
    assert LedgerReader.load(flow.place.ledger) is None, "refused before anything is begun"


def test_slices_of_decimals_are_refused_where_they_were_asked_for(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=DECIMALS, settings={"windows": "slices"})
    flow.arrive([event(0)])
    with pytest.raises(Refused, match="avg over decimals"):
        run(spark, flow)


def test_another_way_to_keep_windows_needs_a_new_generation(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=SLICED)
    flow.arrive([event(0)])
    run(spark, flow)
    flow.settings["windows"] = "slices"
    run(spark, flow)
    flow.settings["windows"] = "rows"
    with pytest.raises(RuleChanged, match="windows"):
        run(spark, flow)
