"""Iceberg tables as sources: each row is folded once, whatever ends a run."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import START, STATELESS, TUMBLING, Flow, event, rows_of
from support.icehouse import NAMESPACE, Icehouse, compact
from support.icerest import serving
from support.oracle import tumbling
from support.running import backfill_killed, crash, reset, run
from support.sourcekinds import Growing, KindUnderTest, rows_promised
from support.sourcelives import sink, some, verdict, windows

from floodmark.connectors.backlog.news import check_reached, look
from floodmark.core.protocol.crashpoints import BACKFILL_POINTS, EPOCH_POINTS, RESET_POINTS
from floodmark.core.rules.model import Stream
from floodmark.errors import HistoryGone, RunFailed

SAID = {"connection": "lake", "table": f"{NAMESPACE}.t"}


@pytest.fixture
def house(place: Path, monkeypatch: pytest.MonkeyPatch) -> Icehouse:
    found = Icehouse(place / "ice").made()
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", found.connection)
    return found


def flow_of(place: Path, most: int = 9, stream: dict[str, Any] | None = None, **more: Any) -> Flow:
    more.setdefault("settings", {"epoch": {"max_rows": most}})
    return Flow(place, stream={"delta": None, "iceberg": SAID, **(stream or {})}, **more)


def test_a_range_has_its_rows(spark: SparkSession, house: Icehouse, place: Path) -> None:
    stream = Stream(kind="iceberg", address="iceberg://lake/shop.t", options=SAID)
    kind = KindUnderTest(lambda _: stream, lambda _, rows: house.add("t", list(rows)))
    rows_promised(Growing(kind, place / "rows"), spark)


@pytest.mark.prove
def test_a_killed_run_folds_each_row_once(spark: SparkSession, house: Icehouse, place: Path) -> None:
    """Over a compaction and an expiry, and up to rows that leave."""
    flow = flow_of(place, 2)
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


@pytest.mark.prove
@pytest.mark.parametrize("point", EPOCH_POINTS)
def test_an_epoch_that_was_killed_goes_on(spark: SparkSession, house: Icehouse, place: Path, point: str) -> None:
    """While the epoch is open, another engine puts the rows of the table into other files."""
    flow, events = flow_of(place), some()
    house.add("t", events[:9])
    house.add("t", [event(-600), event(None), *events[9:14]])  # the second epoch
    assert crash(spark, flow, point, 1 if point == "offsets.before" else 2)
    compact(house.table("t"))
    house.add("t", events[14:])
    run(spark, flow)
    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert verdict(flow) == "proven"
    counts = flow.counts()
    assert (counts["read"], counts["late"], counts["dead"]) == (len(events) + 2, 1, 1)


@pytest.mark.prove
@pytest.mark.parametrize("point", RESET_POINTS)
def test_a_reset_that_was_killed_reads_all_snapshots_again(
    spark: SparkSession, house: Icehouse, place: Path, point: str
) -> None:
    flow, events = flow_of(place, sql=STATELESS), some(9)
    house.add("t", events[:6])
    run(spark, flow)
    with crash_at(point), pytest.raises(Crash):
        reset(spark, flow)
    house.add("t", events[6:])
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [one["n"] for one in events]
    assert verdict(flow) == "proven"


@pytest.mark.prove
@pytest.mark.parametrize("point", [None, *BACKFILL_POINTS])
def test_a_backfill_reads_the_snapshots_again(
    spark: SparkSession, house: Icehouse, place: Path, point: str | None
) -> None:
    flow, events = flow_of(place, 30, sql=TUMBLING), some()
    late = [event(5, "a", 64.0, 1), event(70, "b", 128.0, 2)]
    house.add("t", [*events, event(1000)])
    run(spark, flow)
    house.add("t", late)
    run(spark, flow)
    house.add("t", [event(1010)])  # that no epoch has read is no part of it
    low, high = (round(START.timestamp() + seconds) * 1_000_000 for seconds in (0, 180))
    backfill_killed(spark, flow, low, high, point)
    inside = [row for row in tumbling([*events, *late], START.replace(minute=3)) if row[0] >= START]
    assert [row for row in sink(flow) if START <= row[0] < START.replace(minute=3)] == inside
    assert verdict(flow) == "proven"
    house.expire("t")
    if point is None:
        with pytest.raises(HistoryGone, match="has expired, so its rows cannot be read again"):
            backfill_killed(spark, flow, low, high, None)


@pytest.mark.prove
def test_a_rule_that_each_run_rebuilds_follows_a_table_that_was_replaced_by_an_empty_one(
    spark: SparkSession, house: Icehouse, place: Path
) -> None:
    flow = flow_of(place, sql=STATELESS, sinks=1, settings={"epoch": "none", "rebuild": True})
    house.add("t", [event(1, n=1)])
    run(spark, flow)
    house.empty("t")
    seen = look(flow.rule(), flow.home)
    assert seen.why == "new data in events"
    run(spark, flow)
    assert rows_of(flow.sink()) == [] and check_reached(flow.rule(), flow.home, seen.seen) == 1
    assert look(flow.rule(), flow.home).why is None
    house.add("t", [event(2, n=2)])
    run(spark, flow)
    assert [row["n"] for row in rows_of(flow.sink())] == [2] and verdict(flow) == "proven"


@pytest.mark.prove
@pytest.mark.parametrize("point", ["landing.before", "landing.after", "sink0.after"])
def test_landed_rows_stay_whatever_expires(spark: SparkSession, house: Icehouse, place: Path, point: str) -> None:
    flow, events = flow_of(place, stream={"landing": True}, sql=STATELESS, settings={}), some(12)
    house.add("t", events[:6])
    run(spark, flow)
    house.add("t", events[6:9])
    assert crash(spark, flow, point)
    if point != "landing.before":
        house.expire("t")
    run(spark, flow)
    house.expire("t")
    reset(spark, flow)
    run(spark, flow)
    house.add("t", events[9:])
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [one["n"] for one in events]
    assert verdict(flow) == "proven"


@pytest.mark.prove
def test_a_catalogue_that_stops_at_any_request_loses_and_doubles_nothing(
    spark: SparkSession, house: Icehouse, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is answered no request, each other one more than the run before, up to all that it needs."""
    flow = flow_of(place, sql=STATELESS, sinks=1)
    said: list[str] = []
    with serving(house) as server:
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", server.connection)
        for left in count():
            house.add("t", [event(10 * left, n=left)])
            server.left = left
            try:
                run(spark, flow)
            except RunFailed as fault:
                said.append(str(fault))
            stopped, server.left = server.left < 0, None
            run(spark, flow)
            if not stopped:
                break
    assert len(said) == left > 5 and all("A retry tries again" in one for one in said), said
    assert sorted(row["n"] for row in rows_of(flow.sink())) == list(range(left + 1))
    assert verdict(flow) == "proven"
