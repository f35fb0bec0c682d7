"""The SQL of a PostgreSQL target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.targets.postgres.types import pg_type
from floodmark.core.relay.positions import KEYS
from floodmark.core.text.ddl import Column

POSITIONS = "floodmark_position"  # the table of positions, in the target's schema
OURS = "made by floodmark for the key of a sink"  # the comment of an index
NOW = "SET CONSTRAINTS ALL IMMEDIATE"  # so that nothing is left for COMMIT to find
FULL = 70  # percent of a page that new rows fill
STAGED, GONE, NUMBER = "_floodmark_rows", "_floodmark_gone", "_floodmark_number"
# Of the table and its partitions: what each is; whether anything acts on its rows; whether that may leave rows out.
# Of the table alone, whose policies hold for its partitions, too: whether they may hide rows from the login.
_PARTS = """pg_class c
WHERE c.oid = to_regclass(%(table)s) OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))"""
LASTING = f"SELECT c.oid::regclass::text, c.relkind::text, c.relpersistence::text FROM {_PARTS} ORDER BY c.oid"
HIDING = """
SELECT c.oid::regclass::text, quote_ident(current_user)
FROM pg_class c WHERE c.oid = to_regclass(%(table)s) AND row_security_active(c.oid)"""
# Where columns of a key, or a unique index on them, take different texts for one, such as "a" and "A".
MERGING = """
SELECT a.attname::text, k.index, l.collname::text FROM pg_attribute a CROSS JOIN LATERAL (
  SELECT NULL AS index, a.attcollation AS compares UNION ALL SELECT i.indexrelid::regclass::text, part.compares
  FROM pg_index i, unnest(i.indkey::int2[], i.indcollation::oid[]) part (attnum, compares)
  WHERE i.indrelid = a.attrelid AND i.indisunique AND part.attnum = a.attnum) k
JOIN pg_collation l ON l.oid = k.compares AND NOT l.collisdeterministic
WHERE a.attrelid = to_regclass(%(table)s) AND a.attname = ANY(%(key)s) ORDER BY k.index NULLS FIRST LIMIT 1"""
THERE = "SELECT 1 WHERE to_regclass(%s) IS NOT NULL"
ACTING = f"SELECT bool_or(c.relhastriggers OR c.relhasrules) FROM {_PARTS}"
SWALLOWING = f"""
SELECT bool_or(c.relhasrules OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal))
FROM {_PARTS}"""


def quoted(*names: str) -> str:
    """An identifier, or several with dots between them."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def positions_table(schema: str) -> str:
    """`CREATE TABLE` of the positions."""
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(schema, POSITIONS)} (target text PRIMARY KEY, ledger text NOT NULL, "
        "generation bigint NOT NULL, token text NOT NULL, epoch bigint NOT NULL, seq bigint NOT NULL, hash text NOT "
        "NULL, moved timestamptz NOT NULL DEFAULT now())"
    )


def position_of(schema: str) -> str:
    return f"SELECT {', '.join(KEYS)} FROM {quoted(schema, POSITIONS)} WHERE target = %s"


def first_position(schema: str) -> str:
    names = ", ".join(("target", *KEYS))
    return f"INSERT INTO {quoted(schema, POSITIONS)} ({names}) VALUES ({', '.join(['%s'] * (len(KEYS) + 1))})"


def moved_position(schema: str) -> str:
    sets = ", ".join(f"{key} = %s" for key in KEYS)
    return f"UPDATE {quoted(schema, POSITIONS)} SET {sets}, moved = clock_timestamp() WHERE target = %s"


def forget_position(place: tuple[str, str]) -> str:
    """For somebody who has dropped the table."""
    return f"DELETE FROM {quoted(place[0], POSITIONS)} WHERE target = '{'.'.join(place)}'"


def new_table(place: tuple[str, str], layout: Layout) -> str:
    """With a key, pages have room for changed rows, so that these need no new entry in the index."""
    room = f" WITH (fillfactor = {FULL})" if layout.key else ""
    return f"CREATE TABLE {quoted(*place)} ({', '.join(map(_column, layout.columns))}){room}"


def new_columns(place: tuple[str, str], columns: Iterable[Column]) -> str:
    return f"ALTER TABLE {quoted(*place)} {', '.join(f'ADD COLUMN {_column(one)}' for one in columns)}"


def unique_key(place: tuple[str, str], key: Sequence[str], nulls: bool) -> str:
    """An index on the key. `nulls`: the server can have NULL count as a value (PostgreSQL 15)."""
    names = ", ".join(map(quoted, key))
    return f"CREATE UNIQUE INDEX ON {quoted(*place)} ({names}){' NULLS NOT DISTINCT' if nulls else ''}"


def said_of_index(name: str) -> str:
    """By which a relay knows later that it has made the index. `name`: as the server writes it."""
    return f"COMMENT ON INDEX {name} IS '{OURS}'"


def staging(columns: Iterable[Column]) -> str:
    """A table for the rows of one portion, in which they keep their order."""
    names = ", ".join(map(_column, columns))
    return f"CREATE TEMPORARY TABLE {STAGED} ({names}, {GONE} boolean) ON COMMIT DROP"


def first_row(place: tuple[str, str]) -> str:
    return f"SELECT 1 FROM {quoted(*place)} LIMIT 1"


def no_rows(place: tuple[str, str]) -> str:
    """Take all rows away, so that other sessions see them until the transaction's end."""
    return f"DELETE FROM {quoted(*place)}"


def no_rows_within(place: tuple[str, str], column: Column, parts: int) -> str:
    """Take away the rows whose column is in one of several intervals, each given by its two ends."""
    return f"DELETE FROM {_rows_within(place, column, parts)}"


def first_row_within(place: tuple[str, str], column: Column, parts: int) -> str:
    return f"SELECT 1 FROM {_rows_within(place, column, parts)} LIMIT 1"


def _rows_within(place: tuple[str, str], column: Column, parts: int) -> str:
    at, kind = quoted(column.name).replace("%", "%%"), pg_type(column.type)
    within = " OR ".join([f"({at} >= %s::{kind} AND {at} < %s::{kind})"] * parts)
    return f"{quoted(*place).replace('%', '%%')} WHERE {within}"


def copy_into(table: str, columns: Iterable[str]) -> str:
    """`table`: quoted."""
    return f"COPY {table} ({', '.join(map(quoted, columns))}) FROM STDIN (FORMAT csv)"


def copy_out(place: tuple[str, str], columns: Iterable[Column]) -> str:
    """All rows as CSV; arrays as JSON."""
    names = (
        f"array_to_json({quoted(one.name)})" if pg_type(one.type).endswith("[]") else quoted(one.name)
        for one in columns
    )
    return f"COPY (SELECT {', '.join(names)} FROM {quoted(*place)}) TO STDOUT (FORMAT csv)"


def marks(key: Sequence[str]) -> str:
    """Whether a staged row takes its key's row away, and whether one has NULL in its key."""
    return f"SELECT coalesce(bool_or({GONE}), false), coalesce(bool_or{_null(key)}, false) FROM {STAGED} s"


def first_known(place: tuple[str, str], key: Sequence[str]) -> str:
    """A staged row whose key the table has."""
    return f"SELECT 1 FROM {STAGED} s WHERE EXISTS (SELECT FROM {quoted(*place)} t WHERE {_same(key, False)}) LIMIT 1"


def deletion(place: tuple[str, str], key: Sequence[str], nulls: bool) -> str:
    """Take away the rows whose key is marked. `nulls`: for staged rows with NULL in their key; else for all others.

    Equality joins by hash. A comparison that takes NULL as a value does not.
    """
    return f"DELETE FROM {quoted(*place)} t USING {STAGED} s WHERE {_goes(key, nulls)}"


def count_to_delete(place: tuple[str, str], key: Sequence[str], nulls: bool) -> str:
    return _count_of(place, _goes(key, nulls))


def _goes(key: Sequence[str], nulls: bool) -> str:
    return f"s.{GONE} AND {_same(key, nulls)}"


def _count_of(place: tuple[str, str], which: str) -> str:
    """How many rows of the table have such a staged row."""
    return f"SELECT count(*) FROM {quoted(*place)} t WHERE EXISTS (SELECT FROM {STAGED} s WHERE {which})"


def upsertion(place: tuple[str, str], layout: Layout, whole: bool) -> str:
    """Add the other staged rows, or put them in the place of those with their keys; none with NULL in its key."""
    names, key = (", ".join(map(quoted, some)) for some in ((one.name for one in layout.columns), layout.key))
    which = f"NOT {GONE} AND NOT {_null(layout.key)}"
    rows = f"INSERT INTO {quoted(*place)} AS t ({names}) SELECT {names} FROM {STAGED} s WHERE {which}"
    return f"{rows} ON CONFLICT ({key}) DO {_change(layout, whole)}"


def _change(layout: Layout, whole: bool) -> str:
    sets = _sets(layout, "excluded")
    if not sets:
        return "NOTHING"
    newer = "" if whole or layout.newest is None else f" WHERE {_newer(layout, 'excluded')}"
    return f"UPDATE SET {sets}{newer}"


def update(place: tuple[str, str], layout: Layout, whole: bool, nulls: bool) -> str:
    """Put the other staged rows in the place of those with their keys, also of newer ones if `whole`."""
    which = _changes(layout, whole, nulls)
    return f"UPDATE {quoted(*place)} t SET {_sets(layout, 's')} FROM {STAGED} s WHERE {which}"


def count_to_update(place: tuple[str, str], layout: Layout, whole: bool, nulls: bool) -> str:
    return _count_of(place, _changes(layout, whole, nulls))


def _changes(layout: Layout, whole: bool, nulls: bool) -> str:
    newer = "" if whole or layout.newest is None else f" AND {_newer(layout, 's')}"
    return f"NOT s.{GONE} AND {_same(layout.key, nulls)}{newer}"


def insertion(place: tuple[str, str], layout: Layout, nulls: bool) -> str:
    """Add the staged rows whose key is not there."""
    names = ", ".join(quoted(one.name) for one in layout.columns)
    return f"INSERT INTO {quoted(*place)} ({names}) SELECT {names} {_new(place, layout, nulls)}"


def count_to_insert(place: tuple[str, str], layout: Layout, nulls: bool) -> str:
    return f"SELECT count(*) {_new(place, layout, nulls)}"


def _new(place: tuple[str, str], layout: Layout, nulls: bool) -> str:
    there = f"SELECT FROM {quoted(*place)} t WHERE {_same(layout.key, nulls)}"
    which = _null(layout.key) if nulls else f"NOT {_null(layout.key)}"
    return f"FROM {STAGED} s WHERE NOT {GONE} AND {which} AND NOT EXISTS ({there})"


def _sets(layout: Layout, side: str) -> str:
    names = (one.name for one in layout.columns if one.name not in layout.key)
    return ", ".join(f"{quoted(name)} = {side}.{quoted(name)}" for name in names)


def _same(key: Sequence[str], nulls: bool) -> str:
    how = "IS NOT DISTINCT FROM" if nulls else "="
    same = " AND ".join(f"t.{quoted(name)} {how} s.{quoted(name)}" for name in key)
    return f"{same} AND {_null(key)}" if nulls else same


def _null(key: Sequence[str]) -> str:
    return f"({' OR '.join(f's.{quoted(name)} IS NULL' for name in key)})"


def _newer(layout: Layout, side: str) -> str:
    """Whether the row of `side` is newer, as the engine orders rows of one key: by `newest`, then by all columns sorted
    by name. NULL is the smallest, and text is ordered by its bytes."""
    by_name = {one.name: one for one in layout.columns}
    order = [by_name[str(layout.newest)], *(by_name[name] for name in sorted(by_name))]
    return f"CASE {' '.join(_differs(one, side) for one in order)} ELSE false END"


def _differs(column: Column, side: str) -> str:
    collate = ' COLLATE "C"' if column.type.name == "string" else ""
    ours, theirs = (f"{one}.{quoted(column.name)}" for one in (side, "t"))
    larger = f"({theirs} IS NULL OR ({ours} IS NOT NULL AND {ours}{collate} > {theirs}{collate}))"
    return f"WHEN {ours}{collate} IS DISTINCT FROM {theirs}{collate} THEN {larger}"


def _column(column: Column) -> str:
    return f"{quoted(column.name)} {pg_type(column.type)}"
