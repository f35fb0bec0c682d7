"""Finds what has happened to a table beside the changes that its slot sends. No JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.offsets import FULL_ROWS, KEYS, Form
from floodmark.connectors.sources.postgres.server.attaching import came_with_rows, named, rows_of
from floodmark.connectors.sources.postgres.server.catalog import NOW, NUMBER

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.sources.postgres.server.attaching import Sent
    from floodmark.connectors.sources.postgres.server.catalog import Table

# From rows of the catalog alone, which one snapshot sees: a function such as pg_relation_filenode looks beyond it.
_FORM = """
WITH holders AS (SELECT oid, relreplident AS identity FROM pg_class
  WHERE relkind = 'r' AND (oid = %s OR oid IN (SELECT relid FROM pg_partition_tree(%s))))
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  (SELECT json_object_agg(attname, concat(attnum, ' ', a.xmin) ORDER BY attnum) FROM pg_attribute a
   WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = ''),
  ({files}),
  (SELECT bool_and(relreplident = 'f') FROM pg_class WHERE oid = %s OR oid IN (SELECT oid FROM holders)),
  CASE WHEN EXISTS (SELECT FROM holders) THEN (SELECT coalesce(json_agg(attname ORDER BY attname), '[]') FROM ({key}) k)
  END"""
# Columns without NULL that the log has of each removed row, in all partitions.
_KEY = """
SELECT attname FROM holders h JOIN pg_attribute a ON attrelid = h.oid AND attnum > 0 AND NOT attisdropped AND attnotnull
WHERE identity = 'f' OR EXISTS (SELECT FROM pg_index WHERE indrelid = h.oid
  AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1])
  AND CASE identity WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END)
GROUP BY attname HAVING count(*) = (SELECT count(*) FROM holders)"""
_FILE = "SELECT json_build_object(c.oid, c.relfilenode::text) FROM pg_class c WHERE c.oid = %s"
_FILES = """
SELECT json_object_agg(c.oid, concat(CASE WHEN pg_relation_size(c.oid) > 0 THEN c.relfilenode END, ' ', (
    SELECT string_agg(i.xmin::text, ',' ORDER BY i.inhrelid) FROM pg_inherits i
    WHERE i.inhrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))) ORDER BY c.oid)
FROM pg_partition_tree(%s) p JOIN pg_class c ON c.oid = p.relid WHERE p.isleaf AND c.relkind <> 'p'"""


def form_of(connection: psycopg.Connection[Any], of: Table) -> Form:
    query = _FORM.format(files=_FILES if of.kind == "p" else _FILE, key=_KEY)
    row = connection.execute(query.encode(), [of.oid] * 5).fetchone()
    assert row is not None
    before, columns, files, is_full, key = row
    return Form(int(before), columns or {}, files or {}, FULL_ROWS if is_full else KEYS, None if is_full else key)


def what_the_log_lacks(
    connection: psycopg.Connection[Any], of: Table, was: Form, now: Form, tells_emptied: bool, sent: Sent
) -> str | None:
    """What has changed the table since, and is not among the changes that a slot sends.

    tells_emptied: whether what removes all rows of a partition matters, as its publication has it.
    """
    if not was.before:
        return None
    other = another_column(was, now)
    if other is not None:
        return other
    if of.kind == "p":
        return _of_partitions(connection, of, was, now, tells_emptied, sent)
    return _of_rows(connection, of, was, now, was.written_anew(now))


def another_column(was: Form, now: Form) -> str | None:
    found = was.replaced(now)
    if not found:
        return None
    return (
        f"expected column {', '.join(found)} as it was read, found another one of that name: columns were renamed, or "
        "dropped and added, and rows that were read have the values of the former"
    )


def _of_rows(
    connection: psycopg.Connection[Any], of: Table, was: Form, now: Form, written_anew: list[str]
) -> str | None:
    """VACUUM FULL and CLUSTER leave rows with the numbers of older transactions, and ALTER TABLE none."""
    altered = was.altered(now)
    if not altered or all(_has_rows(connection, of, oid, was.before) for oid in written_anew):
        return None
    return (
        "expected rows that only changes in the log alter, found that a statement such as ALTER TABLE ... TYPE ... "
        f"USING has written all of them anew, and altered {', '.join(altered)}: the log does not have their values"
    )


def _of_partitions(
    connection: psycopg.Connection[Any], of: Table, was: Form, now: Form, tells_emptied: bool, sent: Sent
) -> str | None:
    title, again = of.title, was.attached_again(now)
    if again:
        name = named(connection, again[0])
        return f"partition {name} was detached, and attached again: changes in between are not sent"
    with_rows = next((oid for oid in was.come(now) if came_with_rows(connection, of, oid, sent)), None)
    if with_rows:
        name = named(connection, with_rows)
        return (
            f"partition {name} was attached with rows, which PostgreSQL does not send. If no rows were inserted into "
            f"it since, ALTER TABLE {title} DETACH PARTITION {name}, and attach it empty, in a transaction of its own: "
            f"INSERT the rows that it had into {title} afterwards. Rows that were inserted since would be sent twice"
        )
    emptied = [oid for oid in was.written_anew(now) if not _has_rows(connection, of, oid, was.before)]
    if not tells_emptied:
        return _of_rows(connection, of, was, now, emptied)
    gone = was.gone(now)
    if not gone and not emptied:
        return None
    what = "detached or dropped" if gone else "emptied by TRUNCATE, or written anew by ALTER TABLE"
    return (
        f"partition {named(connection, (gone or emptied)[0])} was {what}: PostgreSQL does not send which rows it "
        "removed. If they may stay in the results, begin anew with a `publication` that leaves truncate out: CREATE "
        f"PUBLICATION a_name FOR TABLE {title} WITH (publish = 'insert, update, delete', publish_via_partition_root = "
        "true)"
    )


def _has_rows(connection: psycopg.Connection[Any], of: Table, oid: str, below: int) -> bool:
    """Whether the table or partition has rows of transactions with a number below that."""
    query = f"SELECT FROM {rows_of(connection, of, oid)}, {NOW} WHERE {NUMBER} < {below} LIMIT 1"
    return connection.execute(query.encode()).fetchone() is not None
