"""Rows that PostgreSQL refuses, beside a real server: each is set aside once, and all others arrive once, whatever ends
a relay. The rule's home is made by hand; relays are real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.flow import event
from support.outboxed import Outboxed
from support.postgres import Server, started

from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN

REFUSING = ("relay.before", "relay.refused", "relay.sent", "relay.after")
CHECK = "ALTER TABLE rows ADD CONSTRAINT good CHECK (n % 10 <> 3)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found:
        yield found


class Shop:
    """A rule with one target in a database of its own. `sink`: more of it in the rule file."""

    def __init__(self, server: Server, place: Path, monkeypatch: pytest.MonkeyPatch, sink: dict[str, Any]):
        self.server, self.database = server, f"d{place.name[:12]}"
        server.run(f"CREATE DATABASE {self.database}")
        uri = server.uri.replace("/postgres", f"/{self.database}")
        monkeypatch.setenv("FLOODMARK_CONN_SHOP", uri)
        target = {"postgres": {"connection": "shop", "table": "rows"}, "on_error": "dead", **sink}
        self.rule = Outboxed(place, target, {"FLOODMARK_CONN_SHOP": uri})

    def run(self, statement: str) -> None:
        with self.server.connect(dbname=self.database) as session:
            session.execute(statement)

    def numbers(self) -> list[int]:
        with self.server.connect(dbname=self.database) as session:
            return sorted(n for (n,) in session.execute("SELECT n FROM rows"))

    def ship(self) -> str:
        done = self.rule.relays.ship()
        assert done.code == 0, done.said
        return done.said


def rows(*numbers: int, k: str | None = None) -> list[dict[str, Any]]:
    return [event(n, k or str(n), n=n) for n in numbers]


@pytest.mark.parametrize("sink", [{}, pytest.param({"key": ["k"]}, marks=pytest.mark.prove)], ids=["append", "key"])
def test_a_killed_relay_sets_each_refused_row_aside_once(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch, sink: dict[str, Any]
) -> None:
    """In each step of two portions, which both have such rows; and in each step of their replay."""
    shop = Shop(server, place, monkeypatch, sink)
    shop.rule.epoch(rows(1, 2))
    shop.ship()
    shop.run(CHECK)
    shop.rule.epoch(rows(3, 4, 5, 13))
    shop.rule.epoch(rows(6, 23, 7))
    for point in REFUSING:
        shop.rule.relays.killed_at(point)
        assert shop.numbers() in ([1, 2], [1, 2, 4, 5, 6, 7])
    assert "nothing new" in shop.ship()
    assert [(number, n) for _, number, n in shop.rule.undelivered()] == [(0, 3), (3, 13), (1, 23)]
    assert shop.rule.certified() == ([], {shop.rule.name: 3})
    shop.run("ALTER TABLE rows DROP CONSTRAINT good")
    shop.run("ALTER TABLE rows ADD CONSTRAINT better CHECK (n <> 13)")
    code, said = shop.rule.command("undelivered", "replay", shop.rule.flow.name)
    assert (code, "2 rows of 1 portion shipped, 1 refused" in said) == (0, True), said
    assert shop.numbers() == [1, 2, 3, 4, 5, 6, 7, 23]
    assert shop.rule.certified() == ([], {shop.rule.name: 1})


def test_a_killed_replay_sends_each_row_once(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the ledger has it, any relay finishes it."""
    shop = Shop(server, place, monkeypatch, {})
    shop.rule.epoch(rows(1))
    shop.ship()
    shop.run(CHECK)
    shop.rule.epoch(rows(3, 2, 13))
    shop.ship()
    shop.run("ALTER TABLE rows DROP CONSTRAINT good")
    name = shop.rule.flow.name
    folders = ["--rules", str(place / "rules"), "--home", str(place / "home")]
    with shop.rule.relays.command_at("relay.sent", "undelivered", "replay", name, *folders):
        assert shop.numbers() == [1, 2]
    for point in ("relay.before", "relay.sent", "relay.after"):
        shop.rule.relays.killed_at(point)
    assert "nothing new" in shop.ship()
    assert shop.numbers() == [1, 2, 3, 13]
    assert shop.rule.command("undelivered", "replay", name) == (0, f"{name}: nothing to replay at target public.rows\n")
    assert shop.rule.certified() == ([], {})
    shop.run("DELETE FROM rows WHERE n = 13")
    [said] = shop.rule.certified()[0]
    assert "1 missing, 0 too many" in said


def test_what_a_later_row_has_decided_is_not_replayed(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is refused in place of an older one, another has a newer one by then, a third was deleted."""
    shop = Shop(server, place, monkeypatch, {"key": ["k"], "delete": "v < 0"})
    shop.rule.epoch([event(1, "a", n=1), event(1, "b", n=2)])
    shop.ship()
    shop.run(CHECK)
    shop.rule.epoch([event(2, "a", n=3), event(2, "b", n=13), event(2, "c", n=23), event(2, "d", n=4)])
    shop.ship()
    assert shop.numbers() == [1, 2, 4]
    shop.rule.epoch([event(3, "b", n=5), {**event(3, "c", n=0), DELETE_COLUMN: True}])
    shop.ship()
    shop.run("ALTER TABLE rows DROP CONSTRAINT good")
    code, said = shop.rule.command("undelivered", "replay", shop.rule.flow.name)
    assert (code, "1 rows of 1 portion shipped" in said) == (0, True), said
    assert shop.numbers() == [3, 4, 5]
    assert shop.rule.certified()[0] == []


def test_a_relay_that_was_overtaken_while_it_set_rows_aside_moves_nothing_back(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(server, place, monkeypatch, {})
    shop.rule.epoch(rows(1))
    shop.ship()
    shop.run(CHECK)
    shop.rule.epoch(rows(3, 4))
    with shop.rule.relays.stopped_at("relay.refused") as overtaken:
        shop.rule.epoch(rows(5))
        shop.ship()
        shop.rule.epoch(rows(6))
        shop.ship()
        shop.rule.relays.go_on("relay.refused")
        said = overtaken.communicate(timeout=60)[0].decode()
        assert (overtaken.returncode, "another relay has moved it" in said) == (1, True), said
    shop.ship()
    assert shop.numbers() == [1, 4, 5, 6]
    assert shop.rule.certified()[0] == []


def test_a_replay_never_puts_an_older_row_over_a_newer_one_that_the_outbox_has_lost(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut takes the newer row out of the outbox. Its file tells of it as long as it is there."""
    shop = Shop(server, place, monkeypatch, {"key": ["k"], "outbox": {"keep": "1 day"}})
    shop.rule.epoch([event(1, "b", n=1)])
    shop.ship()
    shop.run(CHECK)
    for row in (event(2, "b", n=13), event(3, "b", n=5)):
        shop.rule.epoch([row])
        shop.ship()
    shop.run("ALTER TABLE rows DROP CONSTRAINT good")
    outbox = Path(shop.rule.outbox)
    for entry in outbox.glob("_delta_log/*.json"):
        os.utime(entry, (entry.stat().st_atime, entry.stat().st_mtime - 2 * 86_400))
    code, said = shop.rule.command("maintain", shop.rule.flow.name, "--yes")
    assert (code, "old chunks" in said) == (0, True), said
    name = shop.rule.flow.name
    replay = ("undelivered", "replay", name)
    left = f"{name}: 1 rows are left out, because something later has decided about them\n"
    assert shop.rule.command(*replay) == (0, f"{left}{name}: nothing to replay at target public.rows\n")
    assert DeltaTable(str(outbox)).file_uris() == []
    (outbox.parents[1] / "undelivered" / f"{outbox.name}.superseded").unlink()  # what the replay has noted
    for file in outbox.glob("*.parquet"):
        file.unlink()
    code, said = shop.rule.command(*replay)
    assert (code, "is gone" in said) == (3, True), said
    assert shop.numbers() == [5]


def test_only_rows_that_the_table_refuses_are_set_aside(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is there, one too large for its index, a character that no text has, a constraint as of COMMIT."""
    shop = Shop(server, place, monkeypatch, {})
    shop.run("CREATE TABLE rows (at timestamptz, k text UNIQUE, v float8 UNIQUE DEFERRABLE INITIALLY DEFERRED, n int8)")
    large = "".join(chr(65 + i * i % 9973) for i in range(9000))
    odd = [event(9, "1", v=101, n=101), event(9, large, v=102, n=102), event(9, "nul\0", v=103, n=103)]
    good = [event(9, str(n), v=n, n=n) for n in range(20)]
    shop.rule.epoch([*good[:9], *odd, *good[9:], event(9, "104", v=7, n=104)])
    shop.ship()
    assert shop.numbers() == list(range(20))
    assert sorted(n for *_, n in shop.rule.undelivered()) == [101, 102, 103, 104]
    code, listed = shop.rule.command("undelivered", "list", shop.rule.flow.name, "--json")
    said = ('unique constraint \\"rows_k_key', "index row", "invalid byte sequence", 'unique constraint \\"rows_v_key')
    assert (code, [one for one in said if one not in listed]) == (0, [])
    assert shop.rule.certified() == ([], {shop.rule.name: 4})


def test_without_it_a_refused_row_stops_the_relay(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(server, place, monkeypatch, {"on_error": "stop"})
    shop.run("CREATE TABLE rows (at timestamptz, k text, v float8, n bigint CHECK (n <> 3))")
    shop.rule.epoch(rows(1, 3))
    done = shop.rule.relays.ship()
    assert (done.code, "Failing row contains" in done.said) == (3, True), done.said
    assert (shop.numbers(), shop.rule.undelivered()) == ([], [])
