"""Targets of one's own: a class that posts rows with a token, and classes that store them with the position."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.deliveries import COLUMNS, EPOCHS, KEYED, Copied, flow_of, in_order, run_all
from support.flow import Flow
from support.inbox import CLASSES, Inbox, inbox
from support.outboxed import redone
from support.running import reset, run

from floodmark.errors import Refused
from floodmark.proving.play.processes import wait_until

# Beside the classes of the page: one by key.
KEYED_CLASS = """

class Keyed(Store):
    def apply(self, batch, token, since, upto):
        rows = [row for row in batch.to_pylist() if not row["_floodmark_gone"]]
        with closing(self._opened()) as database, database:
            self._claim(database, since)
            database.executemany("DELETE FROM rows WHERE k IS ?", [(one,) for one in batch["k"].to_pylist()])
            values = [(row["at"].isoformat(), row["k"], row["v"], row["n"]) for row in rows]
            database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", values)
            database.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", [upto])
"""
SINKS: list[dict[str, Any]] = [
    {
        "python": {"class": "posts:Post", "settings": {"url": "${SHOP_URL}", "timeout": 0.3, "pause": 0}},
        "name": "posted",
        "qos": 1,
    },
    {"python": {"class": "stores:Store", "settings": {"path": "${SHOP_ROWS}"}}, "name": "stored"},
    {"python": {"class": "stores:Keyed", "settings": {"path": "${SHOP_KEYED}"}}, "name": "keyed", **KEYED},
]
RULE = "delivered.yaml"
PLACES = {"SHOP_URL": "http://nowhere", "SHOP_ROWS": "nowhere", "SHOP_KEYED": "nowhere"}
POINTS = ("relay.sent", *(pytest.param(one, marks=pytest.mark.prove) for one in ("relay.before", "relay.after")))


def made(root: Path, sinks: int = len(SINKS)) -> Flow:
    rules = root / "rules"
    rules.mkdir(exist_ok=True)
    for name, text in (("posts", CLASSES[0]), ("stores", CLASSES[1] + KEYED_CLASS)):
        (rules / f"{name}.py").write_text(text)
    return flow_of(root, SINKS[:sinks])


@pytest.fixture(scope="module")
def written(root: Path, spark: SparkSession) -> Iterator[Flow]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLACES.items():
            patch.setenv(name, str(root / value) if value == "nowhere" else value)
        yield run_all(spark, made(root))


class Shop(Copied):
    """One test's own server and databases, and the rule's relays to them."""

    def __init__(self, written: Flow, place: Path, server: Inbox):
        self.server, self.files = server, {name: place / f"{name}.db" for name in ("stored", "keyed")}
        env = {"SHOP_URL": server.url, "SHOP_ROWS": str(self.files["stored"]), "SHOP_KEYED": str(self.files["keyed"])}
        super().__init__(written, place, env)

    def ask(self, name: str, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.files[name])) as database, database:
            return database.execute(query).fetchall()

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        found = [dict(zip(COLUMNS, row, strict=True)) for row in self.ask(name, "SELECT at, k, v, n FROM rows")]
        return in_order([{**row, "at": datetime.fromisoformat(row["at"])} for row in found])

    def posted(self) -> list[tuple[Any, ...]]:
        return in_order(self.server.typed())

    def has_all(self) -> bool:
        found = [self.posted(), self.rows("stored"), self.rows("keyed")]
        return found == [self.expected(i) for i in range(3)]


@pytest.fixture
def server() -> Iterator[Inbox]:
    with inbox() as found:
        yield found


@pytest.fixture
def shop(server: Inbox, written: Flow, place: Path) -> Shop:
    return Shop(written, place, server)


def test_a_class_gets_what_a_delta_table_gets(shop: Shop) -> None:
    shop.server.faults = ["fails", "cuts", "delays", "fails"]
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert len(shop.server.received) > len(shop.server.rows) == len({row["_floodmark_row"] for row in shop.server.rows})
    assert shop.relays.ship().said.count("nothing new") == 3


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_relay_neither_loses_nor_doubles_a_row(shop: Shop, point: str) -> None:
    for target in ("posted", "stored", "keyed"):
        shop.relays.killed_at(point, "--target", target)
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert (len(shop.server.received) > len(shop.server.rows)) == (point == "relay.sent")


def test_a_killed_relay_sends_the_same_tokens_again(shop: Shop) -> None:
    shop.relays.killed_at("relay.between", "--target", "posted")
    assert shop.relays.ship("--target", "posted").code == 0
    assert sorted(set(shop.server.keys.values())) == [1, 2], "the first portion's came again, and no other's"
    assert len(shop.server.rows) < len(shop.server.received) < 2 * len(shop.server.rows)


@pytest.mark.parametrize("point", ["relay.before", pytest.param("relay.sent", marks=pytest.mark.prove)])
def test_a_stopped_relay_that_goes_on_after_another_has_no_effect(shop: Shop, point: str) -> None:
    with shop.relays.stopped_at(point, "--target", "stored") as zombie:
        done = shop.relays.ship()
        assert (done.code, shop.has_all()) == (0, True), done.said
        shop.relays.go_on(point)
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert zombie.returncode == 1
    assert shop.has_all()
    assert shop.relays.ship().said.count("nothing new") == 3


@pytest.mark.parametrize("point", ["relay.sent", pytest.param("relay.before", marks=pytest.mark.prove)])
def test_beside_a_stopped_relay_no_other_calls_a_class_that_keeps_no_position(shop: Shop, point: str) -> None:
    """It might call with rows that the stopped one then puts older ones over."""
    with shop.relays.stopped_at(point, "--target", "posted"):
        beside = shop.relays.ship("--target", "posted")
        assert (beside.code, "another relay ships to target" in beside.said) == (1, True), beside.said
    assert (shop.relays.ship().code, shop.has_all()) == (0, True), "a kill has freed the target"


@pytest.mark.parametrize(("qos", "times"), [(1, 2), pytest.param(0, 0, marks=pytest.mark.prove)])
def test_qos_1_doubles_and_qos_0_loses(shop: Shop, place: Path, qos: int, times: int) -> None:
    (place / "own" / "rules").mkdir(parents=True)
    (place / "own" / "rules" / "stores.py").write_text(CLASSES[1])
    settings = {"path": str(shop.files["stored"])}
    redone(place / "own", {"python": {"class": "stores:Store", "settings": settings}, "qos": qos})
    assert sorted(n for *_, n in shop.rows("stored")) == sorted([1, 2] * times)


def test_a_row_that_is_refused_stops_its_relay_alone(shop: Shop) -> None:
    shop.server.faults = ["refuses"] * 5
    done = shop.relays.ship()
    assert done.code == 1
    assert "sink posts:Post.apply raised HTTPError: HTTP Error 422" in done.said
    assert (shop.rows("stored"), shop.posted()) == (shop.expected(1), [])
    assert shop.relays.ship().code == 0
    assert shop.has_all()


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        ("UPDATE position SET text = replace(text, '\"epoch\":5', '\"epoch\":2')", "is not one of the ledger's", 3),
        ("UPDATE position SET text = '5'", "expected the text that `apply` stored last from position()", 3),
        pytest.param("DELETE FROM position", "it was restored from a copy", 3, marks=pytest.mark.prove),
    ],
)
def test_a_position_that_somebody_changed_is_named(shop: Shop, change: str, said: str, code: int) -> None:
    shop.relays.ship("--target", "stored")
    shop.ask("stored", change)
    done = shop.relays.ship("--target", "stored")
    assert (done.code, said in done.said) == (code, True), done.said
    assert shop.rows("stored") == shop.expected(1)


def test_a_home_without_its_position_is_named(shop: Shop) -> None:
    shop.relays.ship("--target", "posted")
    (file,) = (shop.root / "home").rglob("*.position")
    file.unlink()
    done = shop.relays.ship("--target", "posted")
    assert (done.code, "it was restored from a copy" in done.said) == (3, True), done.said


@pytest.mark.parametrize(
    ("file", "old", "new", "said", "code"),
    [
        ("stores.py", "return self._at(database)", "return None", "expected position() to return `upto` after", 3),
        (
            "posts.py",
            "class Post:",
            "class Send:",
            "sinks[0].python.class: posts.py: expected a class Post, found S",
            2,
        ),
        (
            "posts.py",
            "batch, token):",
            "batch):",
            "sinks[0].python.class: posts.py:17: expected a plain method apply",
            2,
        ),
        (RULE, "path: ${SHOP_ROWS}", "place: x", "expected `settings` that Store.__init__ takes, found place", 2),
        (RULE, "path: ${SHOP_ROWS}", "path: /nowhere/rows.db", "stores:Store.position raised OperationalError: una", 1),
        (RULE, "stores:Store", "elsewhere:Store", "expected the module elsewhere at", 2),
    ],
)
def test_a_wrong_class_is_answered_in_one_line(shop: Shop, file: str, old: str, new: str, said: str, code: int) -> None:
    shop.rewrite(old, new, file)
    done = shop.relays.ship("--target", "stored")
    assert (done.code, said in done.said) == (code, True), done.said
    assert len(done.said.splitlines()) == 1


@pytest.mark.prove
def test_a_reset_empties_what_can_be_emptied(
    server: Inbox, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = made(place, sinks=2)
    shop = Shop(flow, place, server)
    for name, value in shop.relays.env.items():
        monkeypatch.setenv(name, value)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    reset(spark, flow)
    shop.relays.killed_at("relay.sent", "--target", "stored")
    done = shop.relays.ship()
    assert (done.code, shop.rows("stored"), shop.posted()) == (0, [], []), done.said
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert [shop.posted(), shop.rows("stored")] == [shop.expected(0), shop.expected(1)]


@pytest.mark.prove
def test_a_reset_is_refused_where_rows_cannot_be_taken_away(
    server: Inbox, place: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = made(place)
    shop = Shop(flow, place, server)
    for name, value in shop.relays.env.items():
        monkeypatch.setenv(name, value)
    (place / "rules" / "posts.py").write_text(CLASSES[0].replace("def empty", "def other"))
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    with pytest.raises(Refused, match=r"take away, found python without a method `empty` in its class\. Write"):
        reset(spark, flow)
    assert flow.ledger().begun.seal is None
    flow.settings["sinks"][0] = {**flow.settings["sinks"][0], "on_reset": "keep"}
    reset(spark, flow)
    run(spark, flow)
    done = shop.relays.ship()
    assert (done.code, shop.posted()) == (0, sorted(shop.expected(0) * 2, key=str)), done.said
    assert shop.rows("stored") == shop.expected(1)
