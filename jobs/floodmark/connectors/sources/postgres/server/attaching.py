"""Finds rows that a partition had when it was attached: PostgreSQL does not send them. No JVM."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.server import slots
from floodmark.connectors.sources.postgres.server.catalog import NOW, NUMBER

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.sources.postgres.server.catalog import Table

FLUSHED_WITHIN = 2.0  # seconds until the log has what was committed with synchronous_commit = off
_NAMED = """
SELECT oid::regclass::text, has_table_privilege(oid, 'SELECT') AND NOT row_security_active(oid)
FROM pg_class WHERE oid = %s::oid"""
_BELOW = "(SELECT relid FROM pg_partition_ancestors(%s) EXCEPT SELECT relid FROM pg_partition_ancestors(%s)) p (relid)"
# ATTACH writes the catalog's rows of all columns anew; those of system columns stay as CREATE TABLE has written them.
_MADE = (
    """
SELECT bool_and(EXISTS (
  SELECT FROM pg_attribute a JOIN pg_attribute s USING (attrelid)
  WHERE attrelid = relid AND a.attnum > 0 AND NOT a.attisdropped AND s.attnum = -1
    AND concat(a.xmin, ' ', a.cmin, ' ', a.xmax) = concat(s.xmin, ' ', s.cmin, ' ', 0) AND s.xmax::text = '0'))
FROM """
    + _BELOW
)
# The place of the last attachment: its transaction, and its command in there.
_ATTACHED = """
SELECT {number}, cmin::text::bigint FROM pg_inherits, {now} WHERE inhrelid IN (SELECT relid FROM {below})
ORDER BY 1 DESC, 2 DESC LIMIT 1"""
# A row if there are more rows of transactions up to some number than inserts that were sent of such transactions.
_UNSENT = """
SELECT FROM (SELECT sum(sum(rows)) OVER (ORDER BY n) AS more FROM (
  SELECT {row} AS n, count(*) AS rows FROM {rows}, {now} WHERE {row} < {upto} GROUP BY 1
  UNION ALL
  SELECT {message}, -count(*) FROM {peeked}, {now}
  WHERE get_byte(data, 0) = 73 AND ('x' || encode(substr(data, 2, 4), 'hex'))::bit(32)::bigint = {table}
    AND {message} >= {since}
  GROUP BY 1) t GROUP BY n) t
WHERE more > 0 LIMIT 1"""


@dataclass(frozen=True)
class Sent:
    """What a slot sends. following: the number of the next transaction once the last offset was taken; 0: unknown.

    where: the condition for its rows. inserts: whether it sends any.
    """

    names: slots.Names
    following: int
    where: str | None
    inserts: bool


def named(connection: psycopg.Connection[Any], oid: str) -> str:
    found = connection.execute(_NAMED, (oid,)).fetchone()
    return f"with oid {oid}" if found is None else str(found[0])


def rows_of(connection: psycopg.Connection[Any], of: Table, oid: str, where: str | None = None) -> str:
    """The rows of the table or partition, as a table of what PostgreSQL knows of each.

    A login may have no right to see a partition's rows but by the table.
    """
    own, whole = (connection.execute(_NAMED, (one,)).fetchone() for one in (oid, of.oid))
    assert whole is not None
    tables = f"ONLY {own[0]}" if own is not None and own[1] else whole[0]
    return f"(SELECT xmin, cmin, xmax FROM {tables} WHERE tableoid = {oid} AND ({where or 'true'})) t"  # noqa: S608 - quoted


def came_with_rows(connection: psycopg.Connection[Any], of: Table, oid: str, sent: Sent) -> bool:
    """Whether it has rows that were not sent as inserts, because it had them before it was attached."""
    if _one(connection, _MADE, oid, of.oid)[0]:
        return False
    rows = rows_of(connection, of, oid, sent.where)
    number, command = _one(connection, _ATTACHED.format(number=NUMBER, now=NOW, below=_BELOW), oid, of.oid)
    if _has_any(connection, f"SELECT FROM {rows}, {NOW} WHERE {_is_older(number, command, sent)} LIMIT 1"):
        return True
    return _is_known(number, sent) and _has_unsent(connection, of, rows, number, sent)


def _is_known(number: int, sent: Sent) -> bool:
    """Whether it was attached after the last offset was taken, so that the slot has each insert since."""
    return sent.inserts and 0 < sent.following <= number


def _is_older(number: int, command: int, sent: Sent) -> str:
    """The condition of rows from before. A row keeps its command only if nobody has tried to remove the row."""
    before = f"{NUMBER} < {number}"
    if _is_known(number, sent):
        return before
    return f"{before} OR {NUMBER} = {number} AND (xmax::text <> '0' OR cmin::text::bigint <= {command})"


def _has_unsent(connection: psycopg.Connection[Any], of: Table, rows: str, since: int, sent: Sent) -> bool:
    upto = slots.following(connection)
    _await_log(connection)
    texts = {"row": NUMBER, "now": NOW, "rows": rows, "message": NUMBER.replace("xmin", "xid"), "table": of.oid}
    query = _UNSENT.format(**texts, since=since, upto=upto, peeked=slots.peeked_text(connection, sent.names))
    with slots.unchecked(connection):
        return slots.patiently(lambda: _has_any(connection, query))


def _await_log(connection: psycopg.Connection[Any]) -> None:
    """Wait until the log has all commits that are seen."""
    pause, give_up = threading.Event(), time.monotonic() + FLUSHED_WITHIN
    (end,) = _one(connection, "SELECT pg_current_wal_insert_lsn()")
    while (
        time.monotonic() < give_up and not _one(connection, "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", end)[0]
    ):
        pause.wait(slots.EVERY)


def _has_any(connection: psycopg.Connection[Any], query: str) -> bool:
    return connection.execute(query.encode()).fetchone() is not None


def _one(connection: psycopg.Connection[Any], query: str, *given: object) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), given or None).fetchone()
    assert row is not None
    return tuple(row)
