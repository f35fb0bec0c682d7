"""Iceberg tables as sources: each row is folded once, whatever ends a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.icehouse import NAMESPACE, Icehouse, compact
from support.running import crash, run
from support.sourcekinds import Growing, KindUnderTest, rows_promised

from floodmark.core.rules.model import Stream
from floodmark.errors import HistoryGone

SAID = {"connection": "lake", "table": f"{NAMESPACE}.t"}


@pytest.fixture
def house(place: Path, monkeypatch: pytest.MonkeyPatch) -> Icehouse:
    found = Icehouse(place / "ice").made()
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", found.connection)
    return found


def test_a_range_has_its_rows(spark: SparkSession, house: Icehouse, place: Path) -> None:
    stream = Stream(kind="iceberg", address="iceberg://lake/shop.t", options=SAID)
    kind = KindUnderTest(lambda _: stream, lambda _, rows: house.add("t", list(rows)))
    rows_promised(Growing(kind, place / "rows"), spark)


@pytest.mark.prove
def test_a_killed_run_folds_each_row_once(spark: SparkSession, house: Icehouse, place: Path) -> None:
    """Over a compaction and an expiry, and up to rows that leave."""
    flow = Flow(place, stream={"delta": None, "iceberg": SAID}, settings={"epoch": {"max_rows": 2}})
    house.add("t", [event(n, "a", n=n) for n in range(3)])
    crash(spark, flow, "sink0.after")
    house.add("t", [event(61, "b", n=61)])
    run(spark, flow)
    compact(house.table("t"))
    house.add("t", [event(200, "c", n=200)])
    run(spark, flow)
    house.expire("t")
    house.add("t", [event(300, "c", n=300)])
    run(spark, flow)
    found = sorted((row["start"], row["k"], row["c"]) for row in rows_of(flow.sink()))
    assert [(int((at - START).total_seconds()), k, c) for at, k, c in found] == [
        (0, "a", 3),
        (60, "b", 1),
        (180, "c", 1),
    ]
    house.table("t").delete("n = 61")
    with pytest.raises(HistoryGone, match="expected a table to which rows are only appended, found snapshot"):
        run(spark, flow)
