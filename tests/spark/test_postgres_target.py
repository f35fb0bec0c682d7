"""PostgreSQL as a target, beside a real server: each row once, whatever ends a relay, a run or the server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.forked import IMPATIENT
from support.outboxed import redone
from support.postgres import Server, started
from support.relays import Relays
from support.running import backfill, backfill_all, reset, run

from floodmark.audit.certificate import audit
from floodmark.connectors.relay import room
from floodmark.connectors.relay.holding import held_by
from floodmark.core.rules.model import CleanUp
from floodmark.errors import OutboxFull
from floodmark.ledger.delta.datafiles import added_paths
from floodmark.proving.play.processes import wait_until
from floodmark.views.needs import maintenance_of

HOWS: dict[str, dict[str, Any]] = {
    "rows": {},
    "latest": {"newest": "at"},
    "current": {"delete": "n < 0", "where": "n <> 7"},
}
POINTS = ("relay.sent", *(pytest.param(one, marks=pytest.mark.prove) for one in ("relay.before", "relay.after")))
# An epoch each. Keys come, change, are deleted and come again; rows are older than what is there, or as old; one epoch
# has no row.
EPOCHS = (
    [event(1, "a", n=1), event(2, "b", n=2), event(3, None, n=3)],
    [event(4, "a", n=4), event(1, "b", n=5), event(5, "c", v=None, n=6), event(6, 'd,"\n\\', n=6)],
    [event(7, "b", n=-1), event(8, "a", n=7), event(9, "e", n=8)],
    [event(9, "e", n=None)],
    [event(10, "b", n=9), event(9, "e", v=0.5, n=10), event(2, None, n=11), event(4, "a", v=None, n=3)],
)
COLUMNS = "at, k, v, n"
TYPED = "at timestamptz, k text, v float8, n bigint"


def flow_of(root: Path, tables: Sequence[str] = tuple(HOWS)) -> Flow:
    """One rule that writes the same rows to targets and to Delta tables: appended, and by key in two ways."""
    flow = Flow(root, "delivered", sql=f"SELECT {COLUMNS} FROM events WHERE n IS NOT NULL")
    flow.stream = {"lateness": None}
    hows = [HOWS[name] for name in tables]
    targets = [{"postgres": {"connection": "shop", "table": name}, "qos": 2} for name in tables]
    sinks = [*targets, *({"delta": flow.sink(i)} for i in range(len(tables)))]
    flow.settings = {
        "sinks": [{**one, **how, **({"key": ["k"]} if how else {})} for one, how in zip(sinks, hows * 2, strict=True)]
    }
    return flow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found:
        yield found


@pytest.fixture(scope="module")
def written(root: Path, spark: SparkSession) -> Flow:
    """The rule has run all epochs, a file each; nothing is shipped."""
    flow = flow_of(root)
    flow.stream["start"] = {"version": 0}
    flow.settings["epoch"] = {"max_files": 1}
    for rows in EPOCHS:
        flow.arrive(rows)
    run(spark, flow)
    assert flow.ledger().begun.epoch == len(EPOCHS)
    return flow


class Shop:
    """A database of one test's own, and the rule's relays to it."""

    def __init__(self, server: Server, place: Path, flow: Flow):
        self.server, self.name, self.flow = server, f"d{place.name[:12]}", flow
        server.run(f"CREATE DATABASE {self.name}")
        self.uri = server.uri.replace("/postgres", f"/{self.name}")
        self.relays = Relays(flow.name, flow.root, {"FLOODMARK_CONN_SHOP": self.uri})

    def run(self, *statements: str) -> None:
        with self.server.connect(dbname=self.name) as session:
            for one in statements:
                session.execute(one)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with self.server.connect(dbname=self.name) as session:
            return session.execute(query).fetchall()

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT {COLUMNS} FROM {table}")

    def has_all(self, tables: Sequence[str] = tuple(HOWS)) -> bool:
        found = [sorted(self.rows(table), key=str) for table in tables]
        return found == [sorted(map(_values, rows_of(self.flow.sink(i))), key=str) for i in range(len(tables))]


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name.strip()] for name in COLUMNS.split(","))


@pytest.fixture
def shop(server: Server, written: Flow, place: Path) -> Shop:
    """The written rule's home, copied. The copy's Delta tables are those of the original."""
    flow = flow_of(place)
    shutil.copytree(written.home, flow.home)
    text = written.write_rule().read_text()
    (place / "rules").mkdir()
    (place / "rules" / "delivered.yaml").write_text(text)
    shop = Shop(server, place, flow)
    shop.flow.sink = written.sink  # type: ignore[method-assign]
    return shop


def test_a_target_gets_what_a_delta_table_gets(shop: Shop) -> None:
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert shop.relays.ship().said.count("nothing new") == 3


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_relay_neither_loses_nor_doubles_a_row(shop: Shop, point: str) -> None:
    for table in HOWS:
        shop.relays.killed_at(point, "--target", f"public.{table}")
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said


def test_a_stopped_relay_that_goes_on_after_another_has_no_effect(shop: Shop) -> None:
    impatient = replace(shop.relays, env={**shop.relays.env, **IMPATIENT})
    with shop.relays.stopped_at("relay.sent", "--target", "public.latest") as zombie:
        done = impatient.ship()
        assert (done.code, shop.has_all()) == (0, True), done.said
        shop.relays.go_on("relay.sent")
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert zombie.returncode == 1
    assert shop.has_all()


@pytest.mark.parametrize(("qos", "times"), [(1, 2), pytest.param(0, 0, marks=pytest.mark.prove)])
def test_qos_1_doubles_and_qos_0_loses(shop: Shop, place: Path, qos: int, times: int) -> None:
    redone(place / "own", {"postgres": {"connection": "shop", "table": "own"}, "qos": qos}, shop.relays.env)
    assert shop.ask("SELECT n FROM own ORDER BY n") == sorted([(1,), (2,)] * times)


def test_a_server_that_dies_in_a_transaction_has_none_of_it(server: Server, shop: Shop) -> None:
    with shop.relays.stopped_at("relay.sent", "--target", "public.rows") as relay:
        server.kill()
        shop.relays.go_on("relay.sent")
        assert wait_until(lambda: relay.poll() is not None, relay, 60.0)
    try:
        assert relay.returncode == 1
        down = shop.relays.ship()
        assert down.code == 1
        assert "cannot be reached" in down.said
    finally:
        server.start()
    assert shop.relays.ship().code == 0
    assert shop.has_all()


def test_a_target_that_was_restored_from_a_copy_is_noticed(shop: Shop) -> None:
    shop.relays.killed_at("relay.after", "--target", "public.rows")
    shop.run("CREATE TABLE copy AS SELECT * FROM rows", "CREATE TABLE position AS SELECT * FROM floodmark_position")
    shop.relays.ship()
    before = shop.ask("SELECT seq FROM position WHERE target = 'public.rows'")
    shop.run(
        "UPDATE floodmark_position SET seq = 0, hash = '', generation = 0, token = '', epoch = 0", "DELETE FROM rows"
    )
    done = shop.relays.ship("--target", "public.rows")
    assert done.code == 3, before
    assert "it was restored from a copy" in done.said
    assert shop.relays.ship("--target", "public.rows", "--resend").code == 0
    assert len(shop.rows("rows")) == len(rows_of(shop.flow.sink(0)))


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        ("UPDATE floodmark_position SET epoch = 2", "its position is not one of the ledger's", 3),
        pytest.param(
            *("UPDATE floodmark_position SET ledger = 'x'", "it belongs to another rule's ledger (id x", 2),
            marks=pytest.mark.prove,
        ),
        pytest.param(
            *("UPDATE floodmark_position SET seq = 99", "the home is an older copy", 3), marks=pytest.mark.prove
        ),
        ("DELETE FROM floodmark_position", "it has rows, and no position of a rule", 2),
    ],
)
def test_a_position_that_somebody_changed_is_named(shop: Shop, change: str, said: str, code: int) -> None:
    shop.relays.ship("--target", "public.rows")
    shop.run(change)
    done = shop.relays.ship("--target", "public.rows")
    assert (done.code, said in done.said) == (code, True), done.said


@pytest.mark.parametrize(
    ("table", "said", "code"),
    [
        ("at timestamptz, k text, n bigint", "expected a column v double precision, found none of at, k, n", 2),
        ("at timestamptz, k text, v float8, n int", "expected column n of type bigint, found integer", 2),
        (f"{TYPED}, w int NOT NULL", "expected no other column that must have a value, found w", 2),
        (f"{TYPED}, CHECK (n < 9)", "epoch 5: expected rows that the table takes, found one: ", 3),
        pytest.param(
            *(f"{TYPED.replace('text', 'text NOT NULL')}", 'null value in column "k"', 3), marks=pytest.mark.prove
        ),
        (f"{TYPED}, w int DEFAULT 3, id bigint GENERATED ALWAYS AS IDENTITY", "14 rows", 0),
        pytest.param(f"{TYPED.replace('text', 'varchar')}", "14 rows", 0, marks=pytest.mark.prove),
    ],
)
def test_a_table_of_somebody_is_taken_over_if_it_fits(shop: Shop, table: str, said: str, code: int) -> None:
    shop.run(f"CREATE TABLE rows ({table})")
    done = shop.relays.ship("--target", "public.rows")
    assert (done.code, said in done.said) == (code, True), done.said
    assert bool(shop.rows("rows") if code == 0 else []) == (code == 0)


def test_rows_that_a_table_refuses_are_proven_to_be_aside(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a ledger and outboxes that Spark wrote; the rule file was edited since."""
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", shop.uri)
    path = shop.flow.root / "rules" / "delivered.yaml"
    path.write_text(path.read_text().replace("table: rows", "table: rows\n  on_error: dead"))
    shop.run(f"CREATE TABLE rows ({TYPED}, CONSTRAINT small CHECK (n < 9))")
    folders = ["--rules", str(shop.flow.root / "rules"), "--home", str(shop.flow.home)]
    name = ["delivered", "--target", "public.rows", *folders]
    done = shop.relays.ship()
    refused = sum(row["n"] >= 9 for row in rows_of(shop.flow.sink(0)))
    assert (done.code, f"{refused} refused and set aside" in done.said, refused) == (0, True, 3), done.said
    assert _certified(shop) == ("proven", [])
    assert f"{refused} rows undelivered" in shop.relays.command("audit", "delivered", "--deep", *folders[2:]).said
    assert f"{refused} rows are undelivered" in shop.relays.command("status", "delivered", *folders).said
    shop.run("ALTER TABLE rows DROP CONSTRAINT small")
    assert shop.relays.command("undelivered", "replay", *name).code == 0
    assert shop.has_all()
    assert _certified(shop) == ("proven", [])


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (":wrong@", "password authentication failed"),
        ("/nowhere", 'database "nowhere" does not exist'),
        ("mysql:", "connection shop: expected postgres://"),
        ("", "connection shop: expected it in FLOODMARK_CONN_SHOP"),
    ],
)
def test_a_wrong_connection_is_answered_in_one_line(shop: Shop, uri: str, said: str) -> None:
    changed = {
        ":wrong@": shop.uri.replace(shop.server.password, "wrong"),
        "/nowhere": shop.uri.replace(f"/{shop.name}", "/nowhere"),
        "mysql:": shop.uri.replace("postgresql:", "mysql:"),
        "": "",
    }[uri]
    done = Relays(shop.flow.name, shop.flow.root, {"FLOODMARK_CONN_SHOP": changed}).ship("--target", "public.rows")
    assert (done.code, said in done.said) == (2, True), done.said
    assert len(done.said.splitlines()) == 1
    assert shop.server.password not in done.said


def test_a_reset_empties_the_target_and_ships_all_again(
    server: Server, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_of(place, ("rows", "current"))
    shop = Shop(server, place, flow)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    reset(spark, flow)
    shop.relays.killed_at("relay.sent", "--target", "public.rows")
    assert len(shop.rows("rows")) == len(EPOCHS[0])
    assert shop.relays.ship().code == 0
    assert shop.rows("rows") == shop.rows("current") == []
    run(spark, flow)
    flow.arrive(EPOCHS[1])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert shop.has_all(("rows", "current"))


KEEPING = ("rows", "latest")


@pytest.mark.prove
def test_a_reset_that_keeps_rows_loses_none_that_was_not_shipped(
    server: Server, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep leaves them between the reset and the relay. The certificate knows the rows of both generations."""
    flow = flow_of(place, KEEPING)
    for sink in flow.settings["sinks"][: len(KEEPING)]:
        sink["on_reset"] = "keep"
    flow.settings["epoch"] = {"max_files": 1}
    shop = Shop(server, place, flow)
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", shop.uri)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    flow.arrive(EPOCHS[1])
    run(spark, flow)
    reset(spark, flow)
    upkeep = maintenance_of(flow.name, flow.ledger().begun, [flow.rule()], flow.home)
    at_once = replace(upkeep, how=CleanUp(keep_us=0, keep_log_us=0))
    work = [one for one in at_once.pending(flow.ledger(), flow.place)[0] if one.name.startswith("outbox/")]
    for one in work:  # the outbox keeps the first epoch's for its time, too: it may be shipped again
        goes = {file.name for file in one.files}
        assert not {*added_paths(one.address, 1), *added_paths(one.address, 2)} & goes
    assert len(work) == len(KEEPING)
    assert shop.relays.ship().code == 0
    old = [_values(row) for rows in EPOCHS[:2] for row in rows]
    assert sorted(shop.rows("rows"), key=str) == sorted(old, key=str)
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert sorted(shop.rows("rows"), key=str) == sorted(old * 2, key=str)
    assert _certified(shop) == ("proven", [])
    shop.run("DELETE FROM rows WHERE ctid = (SELECT min(ctid) FROM rows)")
    [(table, said)] = _certified(shop)[1]
    assert (table, "1 missing, 0 too many" in said) == ("sink/postgres://shop/public.rows", True)


@pytest.mark.prove
def test_backfills_and_corrections_follow_through(server: Server, place: Path, spark: SparkSession) -> None:
    """A window is backfilled with rows that were late; a keyed sink follows rows that left the source."""
    windowed = Flow(place, "windowed", stream={"lateness": "0 seconds"})
    keyed = Flow(place, "keyed", sql="SELECT k, count(*) AS c, max(at) AS last FROM events GROUP BY k")
    keyed.stream, key = {"lateness": None, "on_rewrite": "correct"}, {"key": ["k"]}
    targets: list[dict[str, Any]] = [{"postgres": {"connection": "shop", "table": table}} for table in ("w", "merged")]
    windowed.settings = {"sinks": [targets[0], targets[1] | {"key": ["start", "k"]}, {"delta": windowed.sink()}]}
    keyed.settings = {
        "unbounded": True,
        "sinks": [{"postgres": {"connection": "shop", "table": "k"}, **key}, {"delta": keyed.sink(), "key": ["k"]}],
    }
    shops = {flow.name: Shop(server, place, flow) if flow is windowed else None for flow in (windowed, keyed)}
    shop = shops["windowed"]
    assert shop is not None
    relays = {flow.name: Relays(flow.name, place, shop.relays.env) for flow in (windowed, keyed)}
    for flow in (windowed, keyed):
        flow.arrive([event(s, k, n=s) for s in (1, 61, 121, 300) for k in ("a", "b")])
        run(spark, flow)
        flow.arrive([event(62, "a"), event(63, "c"), event(600, "a")])
        run(spark, flow)
        assert relays[flow.name].ship().code == 0
    begin = int(START.timestamp() * 1e6) + 60_000_000
    backfill(spark, windowed, begin, begin + 60_000_000)
    DeltaTable(keyed.source).delete("k = 'c' OR (k = 'b' AND n > 100)")
    run(spark, keyed)
    for flow in (windowed, keyed):
        relays[flow.name].killed_at("relay.sent")
        assert relays[flow.name].ship().code == 0
        certificate = audit(flow.name, flow.home, deep=True)
        assert certificate is not None
        assert (certificate.verdict, certificate.findings) == ("proven", [])
    names = {**dict.fromkeys(("w", "merged"), "start, k, c, total, top"), "k": "k, c, last"}
    for table, flow in (("w", windowed), ("merged", windowed), ("k", keyed)):
        found = shop.ask(f"SELECT {names[table]} FROM {table}")
        twin = [tuple(row[name] for name in names[table].split(", ")) for row in rows_of(flow.sink())]
        assert sorted(found, key=str) == sorted(twin, key=str)
    assert sorted(shop.ask("SELECT k FROM k")) == [("a",), ("b",)]


@pytest.mark.prove
@pytest.mark.parametrize("key", [{}, {"key": ["start", "k"]}])
def test_a_backfill_of_everything_replaces_all_at_once(
    server: Server, place: Path, spark: SparkSession, key: dict[str, list[str]]
) -> None:
    """Sessions that late rows join: what the target has of two sessions becomes one."""
    by = "session_window(at, '20 seconds'), k"
    sql = f"SELECT session_window.start AS start, k, count(*) AS c FROM events GROUP BY {by}"
    flow = Flow(place, sql=sql, stream={"lateness": "0 seconds"})
    flow.settings = {
        "sinks": [{"postgres": {"connection": "shop", "table": "s"}, **key}, {"delta": flow.sink(), **deepcopy(key)}]
    }
    shop = Shop(server, place, flow)
    flow.arrive([event(s, k) for s in (0, 30, 200) for k in ("a", "b")])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert len(shop.ask("SELECT * FROM s")) == 4
    flow.arrive([event(15, "a"), event(400, "a")])
    run(spark, flow)
    _ = backfill_all(spark, flow)
    shop.relays.killed_at("relay.sent")
    assert len(shop.ask("SELECT * FROM s")) == 4, "nothing of a transaction that did not end"
    assert shop.relays.ship().code == 0
    expected = [tuple(row.values()) for row in rows_of(flow.sink())]
    assert sorted(shop.ask("SELECT start, k, c FROM s"), key=str) == sorted(expected, key=str)
    assert sorted(row[1:] for row in expected) == [("a", 1), ("a", 3), ("b", 1), ("b", 1), ("b", 1)]
    certificate = audit(flow.name, flow.home, deep=True)
    assert certificate is not None
    assert not certificate.findings, str(certificate.findings)
    assert (certificate.verdict, certificate.findings) == ("proven", [])


@pytest.mark.prove
def test_a_rule_that_each_run_rebuilds_replaces_all_at_once(server: Server, place: Path, spark: SparkSession) -> None:
    flow = Flow(place, "rebuilt", sql="SELECT k, count(*) AS c FROM events GROUP BY k", stream={"lateness": None})
    flow.settings = {
        "rebuild": True,
        "epoch": "none",
        "unbounded": True,
        "sinks": [{"postgres": {"connection": "shop", "table": "t"}}],
    }
    shop = Shop(server, place, flow)
    for n in (1, 2):
        flow.arrive([event(n, "a"), event(n, str(n))])
        run(spark, flow)
        with shop.relays.stopped_at("relay.sent"):
            assert len(shop.ask("SELECT * FROM t") if n > 1 else [None] * n) == n
        assert shop.relays.ship().code == 0
        assert sorted(shop.ask("SELECT * FROM t")) == sorted([("a", n), *((str(i + 1), 1) for i in range(n))])


def test_a_full_outbox_makes_the_rule_wait_and_says_for_whom(
    server: Server, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PATIENCE", 0.5)
    flow = Flow(place, "bounded", sql=f"SELECT {COLUMNS} FROM events", stream={"lateness": None})
    target = {"postgres": {"connection": "shop", "table": "rows"}, "name": "orders", "outbox": {"max_bytes": 1}}
    flow.settings = {"sinks": [target]}
    shop = Shop(server, place, flow)
    flow.arrive([event(1)])
    run(spark, flow)
    flow.arrive([event(2)])
    with pytest.raises(OutboxFull, match=r"rule bounded waits for target orders: [\d,]+ bytes are not shipped"):
        run(spark, flow)
    assert flow.ledger().begun.open is None
    assert shop.relays.ship().code == 0
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert len(shop.rows("rows")) == 2


@pytest.mark.prove
def test_a_target_that_is_down_for_twenty_epochs_stops_nobody(server: Server, place: Path) -> None:
    """By the command line: the run is green without it, and the next one ships all, without a JVM."""
    flow = flow_of(place)
    flow.settings["epoch"] = {"max_files": 1}
    shop = Shop(server, place, flow)
    for n in range(20):
        flow.arrive([event(n, "a", n=n + 10), event(n, str(n % 3), n=-n)])
    flow.write_rule()
    command = ["run", flow.name, "--rules", str(place / "rules"), "--home", str(place / "home")]
    server.kill()
    try:
        down = shop.relays.command(*command)
    finally:
        server.start()
    assert (down.code, down.said.count("is behind")) == (0, 3), down.said
    assert flow.ledger().begun.epoch == 20
    done = shop.relays.command(*command)
    assert (done.code, "nothing new since epoch 20" in done.said, shop.has_all()) == (0, True, True), done.said


DONE_TO_TARGETS = {  # the table, what somebody did, and what is said of it
    "lost": ("rows", "DELETE FROM rows WHERE n = 2", "1 missing, 0 too many, of which 0"),
    "doubled": ("rows", "INSERT INTO rows SELECT * FROM rows WHERE n = 2", "0 missing, 1 too many, of which 1"),
    "edited": ("rows", "UPDATE rows SET v = v + 0.0000001 WHERE n = 2", "1 missing, 1 too many, of which 0"),
    "another key": ("latest", "UPDATE latest SET k = 'x' WHERE k = 'a'", "1 missing, 1 too many"),
    "newer": ("current", "UPDATE current SET n = 100 WHERE k = 'b'", "1 missing, 1 too many"),
    "moved": (
        "rows",
        "UPDATE floodmark_position SET epoch = 1 WHERE target = 'public.rows'",
        "is not one of the ledger's",
    ),
}


def test_two_sinks_by_two_names_of_one_database_do_not_share_a_table(
    spark: SparkSession, server: Server, place: Path
) -> None:
    flow = Flow(place, "twice", sql=f"SELECT {COLUMNS} FROM events", stream={"lateness": None})
    flow.settings = {
        "sinks": [
            {"postgres": {"connection": name, "table": "shared"}, "name": name, "where": f"n {how} 1"}
            for name, how in (("shop", "="), ("other", "<>"))
        ]
    }
    flow.arrive([event(1, n=1), event(2, n=2)])
    run(spark, flow)
    flow.write_rule()
    shop = Shop(server, place, flow)
    shop.relays = Relays(flow.name, flow.root, {f"FLOODMARK_CONN_{name}": shop.uri for name in ("SHOP", "OTHER")})
    assert shop.relays.ship("--target", "shop").code == 0
    done = shop.relays.ship("--target", "other")
    assert (done.code, "found the one of sink postgres://shop/public.shared" in done.said) == (2, True), done.said
    assert [n for *_, n in shop.rows("shared")] == [1]


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        pytest.param(*one, id=name, marks=() if name in ("edited", "newer") else pytest.mark.prove)
        for name, one in DONE_TO_TARGETS.items()
    ],
)
def test_the_certificate_finds_what_somebody_did_to_a_target(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, table: str, change: str, said: str
) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", shop.uri)
    assert shop.relays.ship().code == 0
    assert _certified(shop) == ("proven", [])
    shop.run(change)
    verdict, found = _certified(shop)
    assert (verdict, [name for name, _ in found]) == ("broken", [f"sink/postgres://shop/public.{table}"])
    assert said in found[0][1]


@pytest.mark.prove
def test_upkeep_removes_what_was_shipped_long_ago_and_nothing_else(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate then compares sums where rows were appended. Where a key replaced them, it does not know."""
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", shop.uri)
    assert shop.relays.ship("--target", "public.rows").code == 0
    assert _maintained(shop) == 1
    assert _maintained(shop) == 0
    assert shop.relays.ship().code == 0
    assert shop.has_all()
    assert _certified(shop) == ("proven", [])
    shop.run("UPDATE rows SET k = 'changed' WHERE n = 2")
    [(table, said)] = _certified(shop)[1]
    assert (table, "another hash" in said) == ("sink/postgres://shop/public.rows", True)
    assert _maintained(shop) == 2
    assert sum("cannot be compared: the outbox no longer has" in said for _, said in _certified(shop)[1]) == 2


def _maintained(shop: Shop) -> int:
    """How many outboxes were cut, two weeks after their newest commits, and without their files since."""
    for entry in shop.flow.place.path.glob("outbox/*/_delta_log/*.json"):
        os.utime(entry, (entry.stat().st_atime, entry.stat().st_mtime - 14 * 86_400))
    folders = ["--rules", str(shop.flow.root / "rules"), "--home", str(shop.flow.home)]
    done = shop.relays.command("maintain", shop.flow.name, "--yes", *folders)
    assert done.code == 0, done.said
    for folder in shop.flow.place.path.glob("outbox/*/"):
        live = {Path(path).name for path in DeltaTable(str(folder)).file_uris()}
        for file in (file for file in folder.glob("*.parquet") if file.name not in live):
            file.unlink()
    return done.said.count("old chunks")


def _certified(shop: Shop) -> tuple[str, list[tuple[str | None, str]]]:
    home = shop.flow.place
    found = audit(shop.flow.name, shop.flow.home, deep=True, targets=partial(held_by, home))
    assert found is not None
    return found.verdict, [(one.table, one.what) for one in found.findings]
