"""A replication slot and its publication: made, read without an effect, advanced, dropped. No JVM."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from psycopg import errors, sql

from floodmark.connectors.sources.postgres.decoding.pgoutput import EPOCH_US, lsn_of, lsn_text

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.sources.postgres.server.catalog import Table
    from floodmark.connectors.sources.postgres.server.database import Database

T = TypeVar("T")
PATIENCE = 60.0  # seconds to wait for another session that reads the slot, such as one that a killed run has left
EVERY = 0.1
MOST = (1 << 63) - 1
_STATE = """
SELECT plugin::text, database::text, (confirmed_flush_lsn - '0/0')::bigint, wal_status, safe_wal_size,
  pg_size_bytes(current_setting('max_slot_wal_keep_size')), to_jsonb(s) ->> 'invalidation_reason'
FROM pg_replication_slots s WHERE slot_name = %s"""
_NOW = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
  - '0/0')::bigint"""
_PEEKED = (
    "pg_logical_slot_peek_binary_changes({slot}, {upto}, {most}, 'proto_version', '1', "
    "'publication_names', {publication})"
)
# By transaction: where its commit is, where that ends, when it was, how many changes it has, and up to its end.
_TRANSACTIONS = """
SELECT at, until, committed, n, sum(n) OVER (ORDER BY at) AS total FROM (
  SELECT max(lsn) FILTER (WHERE kind = 67) AS at, max(until) FILTER (WHERE kind = 67) AS until,
    max(committed) FILTER (WHERE kind = 67) AS committed, count(*) FILTER (WHERE kind IN (68, 73, 84, 85)) AS n
  FROM (
    SELECT xid, get_byte(data, 0) AS kind, {at_3} AS lsn, {at_11} AS until, {at_19} AS committed FROM {peeked}
  ) messages GROUP BY xid
) transactions WHERE n > 0 AND at >= {since} AND at < {upto}"""
_LONG = "('x' || encode(substr(data, %s, 8), 'hex'))::bit(64)::bigint"


@dataclass(frozen=True)
class State:
    """confirmed: what lies before it is not sent again. safe: bytes until the server may remove what is needed.
    why: the server's word for why the slot is lost; None before PostgreSQL 17."""

    plugin: str
    database: str
    confirmed: int
    wal_status: str | None
    safe: int | None
    most: int
    why: str | None = None


@dataclass(frozen=True)
class Names:
    slot: str
    publication: str


@dataclass(frozen=True)
class Transaction:
    """`end`: the place behind it. `at_us`: when it was committed."""

    end: int
    at_us: int


@dataclass(frozen=True)
class Exported:
    """A snapshot of the database at the place where a slot begins. It lasts as long as its connection. storage: of the
    table, before it was taken."""

    snapshot: str
    lsn: int
    at_us: int
    storage: str
    connection: psycopg.Connection[Any]


_EXPORTED: dict[tuple[int, str, str], Exported] = {}


def _key(database: Database, slot: str) -> tuple[int, str, str]:
    return os.getpid(), database.about, slot


def exported(database: Database, slot: str) -> Exported | None:
    """The snapshot that this process has taken with the slot, while it lasts."""
    found = _EXPORTED.get(_key(database, slot))
    return None if found is None or found.connection.closed or found.connection.broken else found


def forget_exported(database: Database, slot: str) -> None:
    found = _EXPORTED.pop(_key(database, slot), None)
    if found is not None:
        found.connection.close()


def state(connection: psycopg.Connection[Any], slot: str) -> State | None:
    row = connection.execute(_STATE, (slot,)).fetchone()
    return None if row is None else State(*row)


def now(connection: psycopg.Connection[Any]) -> int:
    """The end of the log."""
    row = connection.execute(_NOW).fetchone()
    assert row is not None
    return int(row[0])


def create(database: Database, slot: str, of: Table) -> Exported:
    """Make the slot. It begins once all transactions that run now have ended."""
    connection = database.replicating()
    with database.explained():
        command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(sql.Identifier(slot))
        row = connection.execute(command).fetchone()
    assert row is not None
    found = Exported(str(row[2]), lsn_of(str(row[1])), time.time_ns() // 1000, of.storage, connection)
    _EXPORTED[_key(database, slot)] = found
    return found


def drop(connection: psycopg.Connection[Any], slot: str) -> None:
    """Drop the slot, if there is one."""
    wanted = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
    patiently(lambda: connection.execute(wanted, (slot,)))


def publish(connection: psycopg.Connection[Any], publication: str, table: Table) -> None:
    """Make the publication, if there is none of its name."""
    if connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (publication,)).fetchone() is None:
        made = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
        connection.execute(made.format(sql.Identifier(publication), sql.Identifier(table.schema, table.name)))


def unpublish(connection: psycopg.Connection[Any], publication: str) -> None:
    connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(publication)))


def advance(connection: psycopg.Connection[Any], slot: str, lsn: int) -> None:
    """Let the server remove the log before `lsn`. Its effect may be lost in a crash of the server."""
    found = state(connection, slot)
    if found is not None and found.confirmed < lsn:
        wanted = "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)"
        patiently(lambda: connection.execute(wanted, (slot, lsn_text(lsn))))


def peeked(names: Names, upto: int | None, most: int | None = None) -> sql.Composed:
    """The messages up to a place in the log, as a table. `most`: it ends after the transaction that reaches it."""
    quoted = '"' + names.publication.replace('"', '""') + '"'
    return sql.SQL(_PEEKED).format(
        slot=sql.Literal(names.slot),
        upto=sql.SQL("NULL") if upto is None else sql.Literal(lsn_text(upto)),
        most=sql.SQL("NULL") if most is None else sql.Literal(most),
        publication=sql.Literal(quoted),
    )


def peeked_text(connection: psycopg.Connection[Any], names: Names) -> str:
    """All messages, as a table in a query."""
    return peeked(names, None).as_string(connection)


def following(connection: psycopg.Connection[Any]) -> int:
    """A number above those of all transactions that have ended."""
    row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None
    return int(row[0])


def messages(connection: psycopg.Connection[Any], names: Names, upto: int) -> str:
    """The query of all messages up to a place in the log."""
    return sql.SQL("SELECT data FROM {}").format(peeked(names, upto)).as_string(connection)


def kept_since(connection: psycopg.Connection[Any], names: Names, since: int) -> str:
    """The query that has a row if nobody has advanced the slot beyond `since`, nor made it anew."""
    query = "SELECT FROM pg_replication_slots WHERE slot_name = {} AND confirmed_flush_lsn <= {}::pg_lsn"
    return sql.SQL(query).format(sql.Literal(names.slot), sql.Literal(lsn_text(since))).as_string(connection)


def sends_no_empty_transactions(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server leaves out transactions without a change of a published table."""
    return connection.info.server_version >= 150_000


def first(connection: psycopg.Connection[Any], names: Names, since: int, is_first: bool) -> Transaction | None:
    """The first transaction with changes from `since` on. `is_first`: the slot sends none before `since`."""
    return _transaction(connection, names, since, 1 if is_first else None, "ORDER BY at LIMIT 1")


def newest(connection: psycopg.Connection[Any], names: Names, since: int) -> Transaction | None:
    """The last transaction with changes from `since` on."""
    return _transaction(connection, names, since, None, "ORDER BY at DESC LIMIT 1")


def ends(connection: psycopg.Connection[Any], names: Names, since: int, upto: int, most: int) -> list[int]:
    """Places behind some so many changes each; a transaction is not divided."""
    of = _of(names, since, upto, None)
    query = sql.SQL("SELECT max(until) FROM ({}) t GROUP BY div(total - 1, {}) ORDER BY 1").format(
        of, sql.Literal(most)
    )
    with unchecked(connection):
        return [int(row[0]) for row in patiently(lambda: connection.execute(query).fetchall())]


def _transaction(
    connection: psycopg.Connection[Any], names: Names, since: int, most: int | None, end: LiteralString
) -> Transaction | None:
    query = sql.SQL("SELECT until, committed FROM ({}) t {}").format(_of(names, since, None, most), sql.SQL(end))
    with unchecked(connection):
        row = patiently(lambda: connection.execute(query).fetchone())
    return None if row is None else Transaction(int(row[0]), int(row[1]) + EPOCH_US)


def _of(names: Names, since: int, upto: int | None, most: int | None) -> sql.Composed:
    """The query of the transactions with changes from `since` on, and before `upto`."""
    longs = {f"at_{place}": sql.SQL(_LONG.replace("%s", place)) for place in ("3", "11", "19")}
    return sql.SQL(_TRANSACTIONS).format(
        peeked=peeked(names, upto, most),
        since=sql.Literal(since),
        upto=sql.Literal(MOST if upto is None else upto),
        **longs,
    )


@contextmanager
def unchecked(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Let a database with the encoding SQL_ASCII look into changes whose text is not UTF-8: it checks all of it for the
    client, also text that no query asks for. Queries within return no text."""
    checks = connection.info.parameter_status("server_encoding") == "SQL_ASCII"
    if checks:
        connection.execute("SET client_encoding TO SQL_ASCII")
    yield
    if checks:
        connection.execute("RESET client_encoding")


def patiently(act: Callable[[], T]) -> T:
    """Act as soon as no other session uses the slot."""
    pause, give_up = threading.Event(), time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except errors.ObjectInUse:
            if time.monotonic() > give_up:
                raise
            pause.wait(EVERY)
