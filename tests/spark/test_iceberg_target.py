"""Iceberg tables as targets: each row once, whatever ends a relay, and whoever else writes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from support.deliveries import EPOCHS, Copied, flow_of, in_order, run_all
from support.flow import START, Flow, event, rows_of
from support.icehouse import NAMESPACE, Icehouse
from support.outboxed import redone
from support.relays import Relays
from support.running import backfill, reset, run

from floodmark.audit.certificate import audit
from floodmark.connectors.relay.holding import held_by
from floodmark.connectors.targets.iceberg.table import POSITION
from floodmark.core.relay.positions import Position
from floodmark.ledger.home import Home
from floodmark.proving.play.processes import wait_until

HOWS: dict[str, dict[str, Any]] = {
    "rows": {},
    "latest": {"key": ["k"], "newest": "at"},
    "current": {"key": ["k"], "delete": "n < 0", "where": "n <> 7"},
}
POINTS = ("relay.sent", *(pytest.param(one, marks=pytest.mark.prove) for one in ("relay.before", "relay.after")))


def made(root: Path) -> Flow:
    return flow_of(root, [{"iceberg": {"connection": "lake", "table": f"shop.{one}"}, **HOWS[one]} for one in HOWS])


@pytest.fixture(scope="module")
def written(root: Path, spark: SparkSession) -> Flow:
    return run_all(spark, made(root))


class Shop(Copied):
    """A catalogue of one test's own, and the rule's relays to it."""

    def __init__(self, written: Flow, place: Path):
        self.house = Icehouse(place / "ice").made()
        super().__init__(written, place, {"FLOODMARK_CONN_LAKE": self.house.connection})

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return in_order(self.house.rows(table))

    def move(self, table: str, **change: Any) -> None:
        """Change the table's position, as somebody might by hand."""
        found = self.house.table(table)
        moved = replace(Position.parse(found.properties[POSITION]), **change)
        found.transaction().set_properties({POSITION: moved.text()}).commit_transaction()

    def rewind(self, table: str) -> None:
        """As of nothing."""
        self.house.table(table).delete()
        self.move(table, seq=0, hash="", generation=0, token="", epoch=0)

    def has_all(self) -> bool:
        return {one: self.rows(one) for one in HOWS} == {one: self.expected(i) for i, one in enumerate(HOWS)}


@pytest.fixture
def shop(written: Flow, place: Path) -> Shop:
    return Shop(written, place)


def test_a_table_gets_what_a_delta_table_gets(shop: Shop) -> None:
    done = shop.relays.ship()
    assert done.code == 0, done.said
    assert {one: shop.rows(one) for one in HOWS} == {one: shop.expected(i) for i, one in enumerate(HOWS)}
    assert shop.relays.ship().said.count("nothing new") == 3


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_relay_neither_loses_nor_doubles_a_row(shop: Shop, point: str) -> None:
    for table in HOWS:
        shop.relays.killed_at(point, "--target", f"shop.{table}")
        assert bool(shop.rows(table)) == (point == "relay.after")
    for table in HOWS:
        shop.house.expire(table)
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said


@pytest.mark.prove
@pytest.mark.parametrize("point", ["relay.before", "relay.sent"])
def test_a_stopped_relay_that_goes_on_after_another_has_no_effect(shop: Shop, point: str) -> None:
    with shop.relays.stopped_at(point, "--target", "shop.latest") as zombie:
        done = shop.relays.ship()
        assert (done.code, shop.has_all()) == (0, True), done.said
        shop.relays.go_on(point)
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert zombie.returncode == 1
    assert shop.has_all()


def test_a_relay_stopped_by_the_system_that_goes_on_after_another_has_no_effect(shop: Shop) -> None:
    with shop.relays.stopped_at("relay.sent", "--target", "shop.rows") as zombie:
        zombie.send_signal(signal.SIGSTOP)
        shop.relays.go_on("relay.sent")
        assert shop.relays.ship().code == 0
        zombie.send_signal(signal.SIGCONT)
        said = zombie.communicate(timeout=60.0)[0].decode()
    assert (zombie.returncode, "another relay moved it" in said) == (1, True), said
    assert shop.has_all()


@pytest.mark.prove
def test_rows_of_another_program_in_between_stay_and_ours_come_once(shop: Shop) -> None:
    shop.relays.killed_at("relay.after", "--target", "shop.rows")
    more = shop.house.table("rows").scan().to_arrow().slice(0, 1)
    shop.rewind("rows")
    with shop.relays.stopped_at("relay.sent", "--target", "shop.rows", "--resend") as relay:
        shop.house.append("rows", more)
        shop.relays.go_on("relay.sent")
        said = relay.communicate(timeout=60.0)[0].decode()
    assert (relay.returncode, "another program has changed it meanwhile" in said) == (1, True), said
    assert len(shop.rows("rows")) == 1
    assert shop.relays.ship("--target", "shop.rows", "--resend").code == 0
    assert len(shop.rows("rows")) == len(shop.expected(0)) + 1


@pytest.mark.prove
@pytest.mark.parametrize(("qos", "times"), [(1, 2), (0, 0)])
def test_qos_1_doubles_and_qos_0_loses(shop: Shop, place: Path, qos: int, times: int) -> None:
    redone(place / "own", {"iceberg": {"connection": "lake", "table": "shop.own"}, "qos": qos}, shop.relays.env)
    assert sorted(row["n"] for row in shop.house.rows("own")) == sorted([1, 2] * times)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        ({"epoch": 2}, "its position is not one of the ledger's", 3),
        ({"ledger": "x"}, "it belongs to another rule's ledger (id x", 2),
        ({"seq": 99}, "the home is an older copy", 3),
        ({"seq": 0, "hash": "", "generation": 0, "token": "", "epoch": 0}, "it was restored from a copy", 3),
    ],
)
def test_a_position_that_somebody_changed_is_named(shop: Shop, change: dict[str, Any], said: str, code: int) -> None:
    shop.relays.ship("--target", "shop.rows")
    shop.move("rows", **change)
    done = shop.relays.ship("--target", "shop.rows")
    assert (done.code, said in done.said) == (code, True), done.said
    assert len(done.said.splitlines()) == 1


def test_validate_connect_names_what_is_not_there(shop: Shop) -> None:
    rule, folders = str(shop.root / "rules" / "delivered.yaml"), ["--home", str(shop.root / "home"), "--connect"]
    done = shop.relays.command("validate", rule, *folders)
    assert done.code == 0, done.said
    shop.house.catalog().drop_namespace(NAMESPACE)
    done = shop.relays.command("validate", rule, *folders)
    assert (done.code, "expected the namespace shop in the catalogue lake, found none" in done.said) == (2, True)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table, rows: table.delete("n = 2"), "1 missing, 0 too many, of which 0"),
        (lambda table, rows: table.append(rows), "0 missing, 1 too many, of which 1"),
        (lambda table, rows: table.overwrite(rows, "n = 2"), ""),
    ],
)
def test_the_certificate_finds_what_somebody_did_to_a_table(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, change: Callable[[Table, pa.Table], object], said: str
) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", shop.house.connection)
    assert shop.relays.ship("--target", "shop.rows").code == 0
    table = shop.house.table("rows")
    change(table, table.scan("n = 2").to_arrow())
    home = shop.root / "home"
    found = audit("delivered", home, deep=True, targets=partial(held_by, Home(home, "delivered")))
    assert found is not None
    findings = [one.what for one in found.findings if one.table == "sink/iceberg://lake/shop.rows"]
    assert (len(findings), said in "".join(findings)) == (bool(said), True), findings


@pytest.mark.prove
def test_a_reset_empties_the_table_and_ships_all_again(place: Path, spark: SparkSession) -> None:
    flow = made(place)
    shop = Shop(flow, place)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    reset(spark, flow)
    shop.relays.killed_at("relay.sent", "--target", "shop.rows")
    assert len(shop.rows("rows")) == len(EPOCHS[0])
    assert shop.relays.ship().code == 0
    assert [shop.rows(one) for one in HOWS] == [[], [], []]
    run(spark, flow)
    flow.arrive(EPOCHS[1])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert shop.has_all()


@pytest.mark.prove
def test_backfills_and_corrections_follow_through(place: Path, spark: SparkSession) -> None:
    """A window is backfilled with rows that were late; a keyed sink follows rows that left the source."""
    house = Icehouse(place / "ice").made()
    windowed = Flow(place, "windowed", stream={"lateness": "0 seconds"})
    keyed = Flow(place, "keyed", sql="SELECT k, count(*) AS c, max(at) AS last FROM events GROUP BY k")
    keyed.stream = {"lateness": None, "on_rewrite": "correct"}
    lake = {"connection": "lake"}
    windowed.settings = {"sinks": [{"iceberg": {**lake, "table": "shop.w"}}, {"delta": windowed.sink()}]}
    keyed.settings = {
        "unbounded": True,
        "sinks": [{"iceberg": {**lake, "table": "shop.k"}, "key": ["k"]}, {"delta": keyed.sink(), "key": ["k"]}],
    }
    flows = {"w": windowed, "k": keyed}
    relays = {name: Relays(flow.name, place, {"FLOODMARK_CONN_LAKE": house.connection}) for name, flow in flows.items()}
    for name, flow in flows.items():
        flow.arrive([event(s, k, n=s) for s in (1, 61, 121, 300) for k in ("a", "b")])
        run(spark, flow)
        flow.arrive([event(62, "a"), event(63, "c"), event(600, "a")])
        run(spark, flow)
        assert relays[name].ship().code == 0
    begin = int(START.timestamp() * 1e6) + 60_000_000
    backfill(spark, windowed, begin, begin + 60_000_000)
    DeltaTable(keyed.source).delete("k = 'c' OR (k = 'b' AND n > 100)")
    run(spark, keyed)
    for name, flow in flows.items():
        relays[name].killed_at("relay.sent")
        assert relays[name].ship().code == 0
        assert sorted(map(str, house.rows(name))) == sorted(map(str, rows_of(flow.sink())))
    assert sorted(one["k"] for one in house.rows("k")) == ["a", "b"]
