"""The table of a PostgreSQL target: its columns and keys, as the server's catalogue has them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psycopg.errors import UniqueViolation

from floodmark.connectors.sources.postgres.options import MOST
from floodmark.connectors.targets.postgres import statements as sql
from floodmark.connectors.targets.postgres.types import cuts, holds, pg_type
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Refused, WrongColumn

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.ports.target import Layout


# What is no table: the server writes it elsewhere, or not within the transaction.
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index",
          "I": "an index", "c": "a type"}  # fmt: skip


class PostgresTable:
    """`place`: schema and name."""

    def __init__(self, address: str, place: tuple[str, str]):
        self._address, self._place = address, place

    @property
    def _named(self) -> dict[str, str]:
        return {"table": sql.quoted(*self._place)}

    def may_swallow(self, session: psycopg.Connection[Any]) -> bool:
        """Whether a trigger or a rule of somebody may leave rows out of a statement, without an error."""
        return session.execute(sql.SWALLOWING, self._named).fetchone() == (True,)

    def columns(self, session: psycopg.Connection[Any]) -> dict[str, tuple[str, bool]]:
        """Of the table, by name: the type, and whether a row must give a value. Empty: there is no table."""
        found = session.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND "
            "a.attidentity = '' FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON "
            "n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped",
            list(self._place),
        )
        return {name: (kind, needed) for name, kind, needed in found}

    def fit(self, session: psycopg.Connection[Any], layout: Layout) -> None:
        """Raise WrongColumn unless the table takes such rows; add columns that it lacks, if the rule says so."""
        self.check_names(layout)
        self.check_there(session)
        there = self.columns(session)
        missing = [one for one in layout.columns if one.name not in there]
        if missing and layout.adds_columns:
            session.execute(sql.new_columns(self._place, missing))
        elif missing:
            raise self._wrong(
                f"a column {missing[0].name} {pg_type(missing[0].type)}", f"none of {', '.join(there)}", "add it"
            )
        for one in (one for one in layout.columns if one.name in there):
            kind = there[one.name][0]
            if not holds(kind, pg_type(one.type)):
                raise self._wrong(f"column {one.name} of type {pg_type(one.type)}", kind, "change it")
        names = {one.name for one in layout.columns}
        for name in (name for name, (_, needed) in there.items() if needed and name not in names):
            raise self._wrong("no other column that must have a value", name, "give it a default")
        self._check_key(session, layout.key, there)

    def _check_key(
        self, session: psycopg.Connection[Any], key: Sequence[str], there: dict[str, tuple[str, bool]]
    ) -> None:
        """Raise WrongColumn if the table may take two keys for one, and so keep the row of one alone."""
        change = f"ALTER TABLE {sql.quoted(*self._place)} ALTER COLUMN"
        for name in (name for name in key if name in there and cuts(there[name][0])):
            raise self._merges(
                name, f"{there[name][0]}, which cuts off blanks", f"{change} {sql.quoted(name)} TYPE text"
            )
        found = session.execute(sql.MERGING, {**self._named, "key": list(key)}).fetchone() if key else None
        if found is not None:
            name, index, collation = found
            mend = f'{change} {sql.quoted(name)} TYPE text COLLATE "C"' if index is None else f"DROP INDEX {index}"
            of = "" if index is None else f" of index {index}"
            raise self._merges(name, f"the nondeterministic collation {collation}{of}", mend)

    def _merges(self, name: str, found: str, mend: str) -> WrongColumn:
        problem = f"expected column {name} of the key to tell all texts apart, found {found}: {mend}"
        return WrongColumn(about_sink(self._address, problem))

    def check_there(self, session: psycopg.Connection[Any]) -> None:
        """Raise Refused if the table is gone, or does not last."""
        if not self.columns(session):
            problem = (
                "expected the table, found none: somebody removed it. Restore it with its rows. If it is gone for "
            )
            problem += f"good, have it made anew: {sql.forget_position(self._place)}; then `floodmark relay RULE "
            raise Refused(about_sink(self._address, f"{problem}--resend` ships all that the outbox has"))
        self.check_lasts(session)

    def check_lasts(self, session: psycopg.Connection[Any]) -> None:
        """Raise Refused unless rows and position last together: in a table, or partitions, that no crash empties.

        Also if the login may not see all rows.
        """
        for name, kind, lasts in session.execute(sql.LASTING, self._named).fetchall():
            if kind not in ("r", "p"):
                found, mend = f"{_KINDS.get(kind, 'something else')}, {name}", "name another one"
            elif kind == "r" and lasts == "u":
                found, mend = f"{name}, which a crash of the server empties", f"ALTER TABLE {name} SET LOGGED"
            elif kind == "r" and lasts != "p":
                found, mend = f"the temporary {name}", "name another one"
            else:
                continue
            raise Refused(about_sink(self._address, f"expected a table that lasts, found {found}: {mend}"))
        self.check_shown(session)

    def check_shown(self, session: psycopg.Connection[Any]) -> None:
        """Raise Refused if row-level security may hide rows: a statement passes by such rows, without an error."""
        for name, login in session.execute(sql.HIDING, self._named).fetchall():
            problem = f"expected all rows of {name}, found row-level security, which may hide some from {login}: "
            problem += f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY, ALTER ROLE {login} BYPASSRLS, or name another "
            raise Refused(about_sink(self._address, f"{problem}table"))

    def check_names(self, layout: Layout) -> None:
        """Raise WrongColumn for a name that the server would cut off."""
        long = next((one.name for one in layout.columns if len(one.name.encode()) > MOST), None)
        if long is not None:
            raise self._wrong(f"names of columns of at most {MOST} bytes", long, "give it a shorter one")

    def _wrong(self, expected: str, found: str, mend: str) -> WrongColumn:
        return WrongColumn(about_sink(self._address, f"expected {expected}, found {found}: {mend}, or cast in the SQL"))

    def has_unique(self, session: psycopg.Connection[Any], key: Sequence[str]) -> bool:
        return any(names == set(key) for names, _ in self._uniques(session))

    def make_key(self, session: psycopg.Connection[Any], key: Sequence[str]) -> None:
        """Make a unique index on the key, if the sink has one and the table has no such index yet."""
        if not key or self.has_unique(session, key):
            return
        session.execute(sql.NOW)  # an index cannot be made while triggers of rows that have left are due
        before = self._indexes(session)
        session.execute(sql.unique_key(self._place, key, session.info.server_version >= 150000))
        for made in self._indexes(session) - before:
            session.execute(sql.said_of_index(made))

    def fit_key(self, session: psycopg.Connection[Any], key: Sequence[str], empties: bool) -> None:
        """Drop an index that a relay has made for another key: it would refuse rows that are right now.

        empties: the rows leave first, and `make_key` comes after them. Rows that stay may have a key twice; without an
        index they are merged, but slower.
        """
        others = self._made_for_others(session, key)
        for name in others:
            session.execute(f"DROP INDEX {name}")
        if others and not empties:
            with suppress(UniqueViolation), session.transaction():  # a savepoint
                self.make_key(session, key)

    def _made_for_others(self, session: psycopg.Connection[Any], key: Sequence[str]) -> list[str]:
        """The indexes that relays have made, but for one on the key."""
        found = session.execute(
            "SELECT i.indexrelid::regclass::text, array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON "
            "a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey::int2[]) WHERE i.indrelid = %s::regclass AND "
            "obj_description(i.indexrelid, 'pg_class') = %s GROUP BY i.indexrelid",
            [sql.quoted(*self._place), sql.OURS],
        )
        return [name for name, columns in found if set(columns) != set(key)]

    def _indexes(self, session: psycopg.Connection[Any]) -> set[str]:
        found = session.execute(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", [sql.quoted(*self._place)]
        )
        return {name for (name,) in found}

    def _uniques(self, session: psycopg.Connection[Any]) -> list[tuple[set[str], bool]]:
        """The columns of each unique index on columns alone, and whether it is checked at once."""
        found = session.execute(
            "SELECT array_agg(a.attname::text), i.indimmediate FROM pg_index i JOIN pg_attribute a ON a.attrelid = "
            "i.indrelid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]) WHERE i.indrelid = %s::regclass "
            "AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid GROUP BY i.indexrelid",
            [sql.quoted(*self._place)],
        )
        return [(set(names), immediate) for names, immediate in found]

    def is_ours_alone(self, session: psycopg.Connection[Any], layout: Layout) -> bool:
        """Whether it has only the layout's columns, the key's index is checked at once, and nothing of others acts."""
        acts = session.execute(sql.ACTING, self._named).fetchone()
        names = {one.name for one in layout.columns}
        return (
            acts == (False,)
            and set(self.columns(session)) == names
            and (set(layout.key), True) in self._uniques(session)
        )
