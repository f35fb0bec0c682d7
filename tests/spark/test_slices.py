"""When windows fold by slices: where rows are in many, unless the rule or its types say otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import HOPPING, SLICED, Flow, event, rows_of
from support.running import reset, run

from floodmark.core.sql import slices
from floodmark.errors import Refused, RuleChanged
from floodmark.ledger.delta import tables
from floodmark.ledger.ledger import LedgerReader

GROUP = "GROUP BY window(at, '1 minute', '10 seconds')"
DECIMALS = f"SELECT window.start AS start, avg(CAST(n AS DECIMAL(9, 1))) AS mean FROM events {GROUP}"
LENGTHS = f"SELECT window.start AS start, CAST(avg(at - TIMESTAMP'2001-01-01') AS STRING) AS mean FROM events {GROUP}"
WIDE = f"SELECT window.start AS start, sum(CAST(n AS DECIMAL(29, 0))) AS total FROM events {GROUP}"
FIT = WIDE.replace("29", "28")
LAST = f"SELECT window.start AS start, count_if(at >= window.end - INTERVAL '10' SECONDS) AS n FROM events {GROUP}"
WITHOUT_ANSI = {"spark": {"shuffle_partitions": 2, "conf": {"spark.sql.ansi.enabled": False}}}


@pytest.mark.parametrize(
    ("sql", "settings", "kept"),
    [
        (HOPPING, {}, "events"),
        (SLICED, {}, "slices"),
        (SLICED, {"windows": "rows"}, "events"),
        (LAST, {}, "events"),
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


def test_windows_that_an_earlier_version_counted_by_the_bounds_of_slices_need_a_reset(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow(place, sql=LAST)
    flow.arrive([event(s) for s in (60, 70, 80)])
    with monkeypatch.context() as before:
        before.setattr(slices, "_check_windows", lambda *_: None)
        run(spark, flow)
    with pytest.raises(RuleChanged, match=r"expected state events, .*found slices: .*floodmark reset counted"):
        run(spark, flow)
    flow.arrive([event(200)])
    with pytest.raises(RuleChanged, match="floodmark reset counted"):
        run(spark, flow)
    assert flow.ledger().head.open is None
    reset(spark, flow)
    run(spark, flow)
    wanted = [(second, 1 if 10 <= second <= 30 else 0) for second in range(10, 90, 10)]
    found = sorted((row["start"].minute * 60 + row["start"].second, row["n"]) for row in rows_of(flow.sink()))
    assert found == wanted
