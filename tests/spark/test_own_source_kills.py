"""The class that `docs/reference/own-source.md` shows, against a server that fails, delays, cuts and repeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, rows_of
from support.running import crash, run
from support.shopserver import CLASS, COLUMNS, Shop, orders, shop

from floodmark.audit.certificate import audit
from floodmark.core.protocol.crashpoints import EPOCH_POINTS

SQL = "SELECT id, at, country, amount FROM orders"
OFTEN = ("sink0.after",)  # `make prove` tries all points


@pytest.fixture
def server() -> Iterator[Shop]:
    with shop() as found:
        yield found


def flow_of(place: Path, server: Shop) -> Flow:
    said = {
        "class": "shops:Shop",
        "schema": COLUMNS,
        "settings": {"url": server.url, "timeout": 0.3, "pause": 0},
    }
    flow = Flow(place, sinks=1, sql=SQL)
    stream = {"python": said, "event_time": "at", "lateness": "1 minute"}
    flow.settings = {"streams": {"orders": stream}, "epoch": {"max_rows": 40}}
    (place / "rules").mkdir(parents=True, exist_ok=True)
    (place / "rules" / "shops.py").write_text(CLASS)
    return flow


def ids(flow: Flow) -> list[int]:
    return sorted(row["id"] for row in rows_of(flow.sink()))


# The rule has no state, one sink, and no late or dead rows.
POINTS = [one for one in EPOCH_POINTS if not one.startswith(("state", "late", "dead", "sink1"))]


@pytest.mark.parametrize(
    "point", [pytest.param(one, marks=() if one in OFTEN else pytest.mark.prove) for one in POINTS]
)
def test_a_killed_run_is_replayed_exactly_once(spark: SparkSession, place: Path, server: Shop, point: str) -> None:
    flow = flow_of(place, server)
    server.orders += orders(1, 91)
    assert crash(spark, flow, point)
    server.orders += orders(91, 121)
    run(spark, flow)
    assert ids(flow) == [one["id"] for one in server.orders]
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and (found.verdict, found.findings) == ("proven", [])
    assert all(server.faults[kind] for kind in ("fails", "repeats", "cuts"))
    assert [epoch.read for epoch in run(spark, flow).epochs] == []
