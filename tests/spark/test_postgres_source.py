"""PostgreSQL as a source, beside a real server: its promises, all of a rule's life, and all that happens to tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow
from support.postgres import Server, started
from support.running import crash, run
from support.sourcekinds import Growing, KindUnderTest, promised, rows_promised
from support.sourcelives import sink, some, verdict, windows

from floodmark.connectors.ports import connections
from floodmark.core.rules.rule import Stream

COLUMNS = "at timestamptz, k text, v float8, n bigint"


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with started(root / "postgres", max_slot_wal_keep_size="64MB") as found:
        yield found


@pytest.fixture(autouse=True)
def _connected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)


@pytest.fixture
def table(server: Server, place: Path) -> Iterator[str]:
    name = f"t{place.name[:8]}"
    server.run(f"CREATE TABLE {name} ({COLUMNS})", f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    yield name
    for (slot,) in server.ask("SELECT slot_name FROM pg_replication_slots WHERE NOT active"):
        server.run(f"SELECT pg_drop_replication_slot('{slot}')")
    for (one,) in server.ask("SELECT pubname FROM pg_publication"):
        server.run(f"DROP PUBLICATION {one}")
    server.run(f"DROP TABLE IF EXISTS {name} CASCADE")


def insert(server: Server, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """As one transaction."""
    with server.connect() as connection, connection.transaction():
        connection.cursor().executemany(
            f"INSERT INTO {table} (at, k, v, n) VALUES (%(at)s, %(k)s, %(v)s, %(n)s)", [dict(row) for row in rows]
        )


def flow_of(place: Path, table: str, postgres: Mapping[str, Any] = {}, **more: Any) -> Flow:
    flow = Flow(place, "counted", **more)
    flow.stream = {"delta": None, "postgres": {"connection": "shop", "table": table, **postgres}, **flow.stream}
    return flow


@pytest.mark.parametrize("by", ["slot", "snapshots"])
def test_it_keeps_what_every_kind_promises(
    server: Server, spark: SparkSession, place: Path, table: str, by: str
) -> None:
    options: dict[str, Any] = {"connection": "shop", "table": table, "by": by}
    options |= {"metadata": {}} if by == "slot" else {}

    def stream(place: Path) -> Stream:
        return Stream(kind="postgres", address=f"postgres://shop/{table}", options=options)

    growing = Growing(KindUnderTest(stream, lambda _, rows: insert(server, table, rows)), place / "rows")
    promised(growing)
    rows_promised(growing, spark)


@pytest.mark.parametrize("point", ["landing.before", "landing.after", "sink0.after"])
def test_rows_and_changes_join_on_whatever_is_killed(
    server: Server, spark: SparkSession, place: Path, table: str, point: str
) -> None:
    flow, events = flow_of(place, table), some()
    insert(server, table, events[:8])
    assert crash(spark, flow, point)
    insert(server, table, events[8:14])
    assert crash(spark, flow, point, 1 if point == "landing.before" else 2)
    insert(server, table, events[14:])
    run(spark, flow)
    assert not run(spark, flow).epochs
    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert verdict(flow) == "proven"
