"""What servers, other sessions and stopped processes do to a relay: each row still arrives once.

The rule's home is made by hand; relays are real processes.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.flow import event
from support.forked import IMPATIENT
from support.inbox import CLASSES
from support.outboxed import Outboxed
from support.postgres import Server, started

from floodmark.connectors.ports.target import Operation
from floodmark.connectors.relay.relaying import layout_of, target_of
from floodmark.connectors.targets.postgres.target import PostgresTarget
from floodmark.core.relay.positions import Position
from floodmark.errors import RunFailed
from floodmark.proving.play.processes import wait_until

OURS = "starts_with(application_name, 'floodmark relay')"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found:
        yield found


class Shop:
    """A rule with one target in a database of its own, which has got its first epoch."""

    def __init__(self, server: Server, place: Path, monkeypatch: pytest.MonkeyPatch, key: tuple[str, ...] = ()):
        self.server, self.database = server, f"d{place.name[:12]}"
        server.run(f"CREATE DATABASE {self.database}")
        uri = server.uri.replace("/postgres", f"/{self.database}")
        monkeypatch.setenv("FLOODMARK_CONN_SHOP", uri)
        sink = {"postgres": {"connection": "shop", "table": "rows"}, **({"key": list(key)} if key else {})}
        self.rule = Outboxed(place, sink, {"FLOODMARK_CONN_SHOP": uri})
        self.rule.epoch([event(1, "a", n=1), event(1, "b", n=2)])
        assert self.rule.relays.ship().code == 0

    def connect(self) -> psycopg.Connection[Any]:
        return self.server.connect(dbname=self.database)

    def run(self, *statements: str) -> None:
        with self.connect() as session:
            for one in statements:
                session.execute(one)

    def numbers(self) -> list[int]:
        with self.connect() as session:
            return sorted(n for (n,) in session.execute("SELECT n FROM rows"))

    @contextmanager
    def relay(self) -> Iterator[Any]:
        """A relay that is at work. It ends within the context."""
        folders = ["--rules", str(self.rule.flow.root / "rules"), "--home", str(self.rule.flow.home)]
        with self.rule.relays.at_work("relay", self.rule.flow.name, *folders) as process:
            yield process
            assert wait_until(lambda: process.poll() is not None, process, 60.0)

    def wait_for(self, process: Any, what: str) -> None:
        """Until a session of a relay is in such a state, by `pg_stat_activity`."""
        query = f"SELECT 1 FROM pg_stat_activity WHERE {OURS} AND datname = %s AND {what}"
        with self.connect() as session:
            session.autocommit = True
            assert wait_until(lambda: bool(session.execute(query, [self.database]).fetchall()), process, 60.0)

    def end(self) -> None:
        with self.connect() as session:
            found = session.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS} AND datname = %s",
                [self.database],
            ).fetchall()
        assert found == [(True,)]

    def delivers_once(self, *numbers: int) -> None:
        done = self.rule.relays.ship()
        assert (done.code, self.numbers()) == (0, list(numbers)), done.said
        assert "nothing new" in self.rule.relays.ship().said
        assert self.rule.certified() == ([], {})


@pytest.fixture
def shop(server: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(server, place, monkeypatch)


def test_a_session_that_is_ended_in_copy_leaves_nothing(shop: Shop) -> None:
    """A trigger holds COPY up."""
    shop.run(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END'",
        "CREATE TRIGGER wait BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION wait()",
    )
    shop.rule.epoch([event(1, "c", n=3)])
    with shop.connect() as held:
        held.execute("SELECT pg_advisory_lock(7)")
        with shop.relay() as relay:
            shop.wait_for(relay, "wait_event = 'advisory' AND starts_with(query, 'COPY')")
            shop.end()
    assert (relay.returncode, shop.numbers()) == (1, [1, 2])
    shop.delivers_once(1, 2, 3)


def test_a_session_that_is_ended_in_commit_has_delivered(server: Server, shop: Shop) -> None:
    """COMMIT waits for a standby that is not there: it is done, and nobody gets the answer."""
    shop.rule.epoch([event(1, "c", n=3)])
    server.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.run("SELECT pg_reload_conf()")
    try:
        with shop.relay() as relay:
            shop.wait_for(relay, "wait_event = 'SyncRep' AND query = 'COMMIT'")
            shop.end()
    finally:
        server.run("SET synchronous_commit = local", "ALTER SYSTEM RESET synchronous_standby_names")
        server.run("SELECT pg_reload_conf()")
    assert (relay.returncode, shop.numbers()) == (1, [1, 2, 3])
    shop.delivers_once(1, 2, 3)


def test_a_session_that_is_ended_after_commit_has_delivered(shop: Shop) -> None:
    shop.rule.epoch([event(1, "c", n=3)])
    with shop.rule.relays.stopped_at("relay.after") as relay:
        shop.end()
        shop.rule.relays.go_on("relay.after")
        assert wait_until(lambda: relay.poll() is not None, relay, 60.0)
    assert (relay.returncode, shop.numbers()) == (0, [1, 2, 3])
    shop.delivers_once(1, 2, 3)


def test_a_commit_that_is_answered_by_a_rollback_is_noticed(shop: Shop) -> None:
    """Somebody swallows the error of a statement. The client's COMMIT then raises nothing."""
    shop.rule.epoch([event(1, "c", n=3)])
    outbox = Path(shop.rule.outbox)
    target, layout = target_of(shop.rule.sink, outbox), layout_of(shop.rule.sink, outbox)
    assert isinstance(target, PostgresTarget)
    since = target.position()
    assert since is not None

    def swallow() -> None:
        assert target._open is not None
        with suppress(psycopg.Error):
            target._open.execute("SELECT 1 / 0")

    upto = Position(since.ledger, 1, "t1", 9, 9, "h")
    with pytest.raises(RunFailed, match="its transaction failed, and has no effect; ship again"):
        target.apply([_nothing(upto)], layout, since, upto, swallow)
    assert target.position() == since
    target.close()
    shop.delivers_once(1, 2, 3)


def _nothing(upto: Position) -> Operation:
    return Operation("t", upto, False, None, False, 0, lambda: iter(()))


def test_a_deadlock_with_another_session_is_retried(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other session holds a row, and wants the position, which the relay holds, before the relay wants the row: the
    server looks for deadlocks once in each wait. Until then a third session holds the relay up."""
    shop = Shop(server, place, monkeypatch, ("k",))
    shop.rule.epoch([event(1, "b", n=4), event(1, "a", n=3)])
    with shop.connect() as other, shop.connect() as third:
        other.execute("SET deadlock_timeout = '300s'")
        for session, key in ((other, "a"), (third, "b")):
            session.execute("BEGIN")
            session.execute("UPDATE rows SET v = v WHERE k = %s", [key])
        with shop.relay() as relay:
            shop.wait_for(relay, f"{third.info.backend_pid} = ANY(pg_blocking_pids(pid))")
            wants = threading.Thread(target=other.execute, args=["SELECT * FROM floodmark_position FOR UPDATE"])
            wants.start()
            shop.wait_for(relay, f"pid = ANY(pg_blocking_pids({other.info.backend_pid}))")
            third.execute("ROLLBACK")
        wants.join()
        other.execute("ROLLBACK")
    assert (relay.returncode, shop.numbers()) == (1, [1, 2])
    shop.delivers_once(3, 4)


def test_a_database_that_is_frozen_gets_nothing(server: Server, shop: Shop) -> None:
    """As before a move to another server: what is written after it would be lost."""
    shop.rule.epoch([event(1, "c", n=3)])
    server.run(f"ALTER DATABASE {shop.database} SET default_transaction_read_only = on")
    done = shop.rule.relays.ship()
    server.run(f"ALTER DATABASE {shop.database} RESET default_transaction_read_only")
    assert (done.code, shop.numbers()) == (1, [1, 2])
    assert "in a read-only transaction" in done.said
    shop.delivers_once(1, 2, 3)


def test_a_lock_that_somebody_holds_ends_the_relay_with_the_name_of_the_session(shop: Shop) -> None:
    """Such as a terminal that was left open."""
    shop.rule.epoch([event(1, "c", n=3)])
    shop.rule.env = {**shop.rule.env, **IMPATIENT}
    with shop.connect() as held:
        held.execute("SET application_name = 'terminal'")
        held.execute("BEGIN")
        held.execute("LOCK TABLE rows IN SHARE MODE")
        done = shop.rule.relays.ship()
        held.execute("ROLLBACK")
        session = f"process {held.info.backend_pid} (login airflow, terminal, idle in transaction, in a transaction"
    assert done.code == 1
    assert f"waited 3s for a lock that another session holds: {session}" in done.said
    assert "for a lock that another session holds" in shop.rule.command("status")[1]
    shop.delivers_once(1, 2, 3)


# --- A stopped process


def test_a_server_that_hangs_ends_the_relay(shop: Shop) -> None:
    """The kernel stops all of its processes: its host still takes connections, and nobody answers."""
    shop.rule.epoch([event(1, "c", n=3)])
    shop.rule.env = {**shop.rule.env, **IMPATIENT}
    with shop.rule.relays.stopped_at("relay.before") as relay:
        with shop.server.stopped():
            shop.rule.relays.go_on("relay.before")
            assert wait_until(lambda: relay.poll() is not None, relay, 60.0)
        said = relay.communicate()[0].decode()
    assert relay.returncode == 1
    assert "has not answered for 1 seconds, nor does it answer a new session" in said
    shop.delivers_once(1, 2, 3)


STORED = {"python": {"class": "stores:Store", "settings": {"path": "${SHOP_ROWS}"}}, "name": "stored"}


@pytest.mark.parametrize("kind", ["files", "python"])
def test_a_relay_that_was_stopped_before_its_commit_has_no_effect(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The kernel stops it, at the moment when all is written and does not count yet; another relay delivers."""
    (place / "rules").mkdir()
    (place / "rules" / "stores.py").write_text(CLASSES[1])
    monkeypatch.setenv("SHOP_ROWS", str(place / "rows.db"))
    sinks: dict[str, dict[str, Any]] = {"files": {"files": {"path": str(place / "files")}}, "python": STORED}
    rule = Outboxed(place, sinks[kind], {"SHOP_ROWS": str(place / "rows.db")})
    rule.epoch([event(1, "a", n=1), event(2, "b", n=2)])
    with rule.relays.stopped_at("relay.sent") as zombie:
        zombie.send_signal(signal.SIGSTOP)
        rule.relays.go_on("relay.sent")
        rule.epoch([event(3, "c", n=3)])
        assert rule.relays.ship().code == 0
        before = numbers(rule)
        zombie.send_signal(signal.SIGCONT)
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert (zombie.returncode, before, numbers(rule)) == (1, [1, 2, 3], [1, 2, 3])
    assert "nothing new" in rule.relays.ship().said


def numbers(rule: Outboxed) -> list[int]:
    """What the folder, or the database of the class, has."""
    if rule.sink.kind == "python":
        with closing(sqlite3.connect(rule.env["SHOP_ROWS"])) as database:
            return sorted(n for (n,) in database.execute("SELECT n FROM rows"))
    outbox = Path(rule.outbox)
    batches = target_of(rule.sink, outbox).read_back(layout_of(rule.sink, outbox))
    return sorted(n for batch in batches for n in batch.column("n").to_pylist())
