"""Asks the catalog of a database for a table: its identity, columns, keys. No JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.decoding.types import Known, column_type
from floodmark.core.text.ddl import Column
from floodmark.errors import NotThereYet, Refused

if TYPE_CHECKING:
    import psycopg

OLDEST = 130_000
# The files of a table and its partitions: others, once a statement has written all rows anew.
STORAGE = """\
coalesce((SELECT md5(string_agg(concat(relid::oid, ' ', pg_relation_filenode(relid)), ',' ORDER BY relid::oid))
  FROM pg_partition_tree({oid})), pg_relation_filenode({oid})::text)"""
# The number of a row's transaction in 64 bits: a row that a query sees is older than the query's own snapshot.
NOW = "(SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS x) floodmark_now"
NUMBER = """\
CASE WHEN xmin::text::bigint < 3 THEN xmin::text::bigint
 WHEN xmin::text::bigint <= floodmark_now.x & 4294967295 THEN (floodmark_now.x >> 32 << 32) + xmin::text::bigint
 ELSE (floodmark_now.x >> 32 << 32) - 4294967296 + xmin::text::bigint END"""
_TABLE = """
SELECT (SELECT system_identifier::text FROM pg_control_system()), current_database(), c.oid::bigint, c.relkind::text,
  c.relreplident::text, c.reltuples::float8, pg_relation_size(c.oid), has_table_privilege(c.oid, 'SELECT'),
  row_security_active(c.oid), c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
  {storage}, concat_ws(' ', c.relpersistence, c.relam::oid,
    (SELECT md5(string_agg(concat_ws(' ', attnum, attname, atttypid, atttypmod, a.xmin), ',' ORDER BY attnum))
     FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"""
_ASKED = _TABLE.replace("{storage}", STORAGE.format(oid="c.oid")).encode()
_COLUMNS = """
SELECT attname::text, atttypid::bigint, atttypmod, attgenerated <> '', coalesce(attnum = ANY(k.indkey), false)
FROM pg_attribute a LEFT JOIN pg_index k ON k.indrelid = a.attrelid AND k.indisprimary
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_TYPES = """
WITH RECURSIVE used AS (
  SELECT oid, typname, typbasetype, typtypmod, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END AS element, typdelim
  FROM pg_type WHERE oid = ANY(%s::oid[])
  UNION
  SELECT t.oid, t.typname, t.typbasetype, t.typtypmod, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,
    t.typdelim
  FROM pg_type t JOIN used u ON t.oid IN (u.typbasetype, u.element))
SELECT oid::bigint, typname::text, typbasetype::bigint, typtypmod, element::bigint, typdelim::text FROM used"""
_PUBLISHED = """
SELECT attnames::text[], rowfilter, array_remove(ARRAY[CASE WHEN pubinsert THEN 'insert' END,
  CASE WHEN pubupdate THEN 'update' END, CASE WHEN pubdelete THEN 'delete' END,
  CASE WHEN pubtruncate THEN 'truncate' END], NULL)
FROM pg_publication_tables JOIN pg_publication USING (pubname)
WHERE pubname = %s AND schemaname = %s AND tablename = %s"""
_KINDS = {"r": "table", "p": "partitioned table", "v": "view", "m": "materialized view", "f": "foreign table"}


@dataclass(frozen=True)
class Table:
    """system: the identifier of the cluster. generated: columns that PostgreSQL computes. key: of the primary key.

    kind, identity: `relkind`, `relreplident`. rows, size: an estimate, and bytes. storage: by STORAGE.
    layout: another text once a statement has altered a column, or how the table is stored.
    """

    system: str
    database: str
    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    rows: float
    size: int
    columns: tuple[Column, ...]
    generated: frozenset[str]
    key: frozenset[str]
    storage: str = ""
    layout: str = ""

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def tells_rows_apart(self) -> bool:
        """Whether it has a replica identity: without one, PostgreSQL refuses updates of a published table."""
        return self.identity in ("f", "i") or (self.identity == "d" and bool(self.key))


def table(connection: psycopg.Connection[Any], about: str, named: str) -> Table:
    """The table `SCHEMA.TABLE`. Raises NotThereYet, Refused."""
    if connection.info.server_version < OLDEST:
        found = connection.info.server_version // 10_000
        raise Refused(f"{about}: expected PostgreSQL 13 or newer, found {found}. Upgrade the server")
    schema, _, name = named.partition(".")
    row = connection.execute(_ASKED, (schema, name)).fetchone()
    if row is None:
        raise NotThereYet(
            f"{about}, database {connection.info.dbname}: expected table {named}, found none: create it, or correct "
            "its name"
        )
    system, database, oid, kind, identity, rows, size, may_read, is_filtered, is_parent, storage, layout = row
    if kind not in ("r", "p"):
        raise Refused(f"{about}: expected a table, found {named}, a {_KINDS.get(kind, 'relation of another kind')}")
    if not may_read:
        raise Refused(
            f"{about}: expected the right to read {named}, found none: GRANT SELECT ON {named} TO "
            f"{connection.info.user}"
        )
    if is_filtered:
        raise Refused(
            f"{about}: expected all rows of {named}, found row-level security, which hides some from "
            f"{connection.info.user}: ALTER ROLE {connection.info.user} BYPASSRLS, or name its owner in the connection"
        )
    if is_parent:
        raise Refused(
            f"{about}: expected a table with all rows of its own, found {named}, from which others inherit, whose "
            "changes PostgreSQL sends as theirs: read each of them as a stream, and join these by UNION ALL"
        )
    read = connection.execute(_COLUMNS, (oid,)).fetchall()
    known = _types(connection, [one[1] for one in read])
    return Table(
        system, database, oid, schema, name, kind, identity, max(rows, 0.0), size,
        tuple(Column(column, column_type(of, mod, known)) for column, of, mod, *_ in read),
        frozenset(one[0] for one in read if one[3]), frozenset(one[0] for one in read if one[4]), storage,
        layout,
    )  # fmt: skip


def _types(connection: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, Known]:
    rows = connection.execute(_TYPES, (list(oids),)).fetchall()
    return {oid: Known(name, base, mod, element, delimiter) for oid, name, base, mod, element, delimiter in rows}


@dataclass(frozen=True)
class Published:
    """What a publication has of a table: its columns, if it names any, the condition for its rows, kinds of changes."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    kinds: tuple[str, ...] = ()


MADE = Published(kinds=("insert", "update", "delete", "truncate"))  # as Floodmark makes one


def published(connection: psycopg.Connection[Any], publication: str, of: Table) -> Published | None:
    """None if there is no such publication, or it lacks the table."""
    if connection.info.server_version < 150_000:
        query = _PUBLISHED.replace("attnames::text[], rowfilter", "NULL, NULL")
    else:
        query = _PUBLISHED
    row = connection.execute(query, (publication, of.schema, of.name)).fetchone()
    return None if row is None else Published(None if row[0] is None else tuple(row[0]), row[1], tuple(row[2]))
