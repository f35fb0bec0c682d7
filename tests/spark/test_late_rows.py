"""What becomes of late rows: set apart, or with `late: drop` only counted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.running import crash, run

from floodmark.ledger.delta import tables


def test_dropped_late_rows_are_counted_and_not_kept(spark: SparkSession, place: Path) -> None:
    """The key may change between epochs; an epoch that is open is finished as it began."""
    flow = Flow(place)
    flow.arrive([event(100)])
    run(spark, flow)
    flow.arrive([event(10, "kept")])
    assert crash(spark, flow, "late.before")
    flow.settings["late"] = "drop"
    flow.arrive([event(10, "dropped"), event(101), event(11, "dropped")])
    run(spark, flow)
    assert [row["k"] for row in rows_of(flow.place.late)] == ["kept"]
    assert (flow.counts()["late"], flow.counts()["folded"]) == (3, 2)
    version = _version(flow)
    flow.arrive([event(12, "dropped")])
    assert crash(spark, flow, "commit.before")
    run(spark, flow)
    assert (flow.counts()["late"], _version(flow)) == (4, version), "no commit was made for them"


def _version(flow: Flow) -> int:
    table = tables.open_table(flow.place.late)
    assert table is not None
    return table.version()


def test_a_late_row_amends_what_was_final_once(spark: SparkSession, place: Path) -> None:
    """Results of windows that were final, and those only that the row comes to."""
    keyed = [{"delta": str(place / "lake" / "amended"), "key": ["start", "k"]}]
    flow = Flow(place, settings={"late": {"amend": "1 hour"}, "sinks": keyed})
    flow.arrive([event(0), event(1, "b"), event(100)])
    run(spark, flow)
    flow.arrive([event(10), event(150)])
    run(spark, flow)
    flow.arrive([event(20, n=7), event(3600 + 180)])
    assert crash(spark, flow, "sink0.after")
    run(spark, flow)
    flow.arrive([event(30)])
    run(spark, flow)
    found = {(row["start"], row["k"]): (row["c"], row["top"]) for row in rows_of(keyed[0]["delta"])}
    minute = START + timedelta(minutes=1)
    assert found == {
        (START, "a"): (3, 7),
        (START, "b"): (1, 0),
        (minute, "a"): (1, 0),
        (START + timedelta(minutes=2), "a"): (1, 0),
    }
    assert flow.counts()["late"] == 1, "an hour and more after"
