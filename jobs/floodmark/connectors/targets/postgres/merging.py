"""Merges staged rows into a PostgreSQL table by their key.

Rows of a table that only the relay changes go in by one statement, which looks each key up in the unique index. Where
others have a say in it (triggers, columns of their own, a key that is checked later), rows that are there are changed
first, and the others added. So no trigger for new rows, and no sequence, sees a row that is there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.postgres import statements as sql

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.ports.target import Layout
    from floodmark.connectors.targets.postgres.table import PostgresTable


class Merging:
    """Into one table. `place`: its schema and name."""

    def __init__(self, place: tuple[str, str], table: PostgresTable):
        self._place, self._table = place, table

    def merge(self, session: psycopg.Connection[Any], layout: Layout, whole: bool) -> None:
        """Merge the staged rows. `whole`: each takes its key's place, whatever `newest` says."""
        found = session.execute(sql.marks(layout.key)).fetchone()
        has_gone, has_nulls = found or (False, False)
        alone = self._table.is_ours_alone(session, layout)
        if has_gone or has_nulls or not alone:
            session.execute(f"ANALYZE {sql.STAGED}")
        for nulls in (False, True)[: 1 + has_nulls]:
            if has_gone:
                session.execute(sql.deletion(self._place, layout.key, nulls))
            if alone and not nulls:
                session.execute(sql.upsertion(self._place, layout, whole))
            else:
                self._join(session, layout, whole, nulls)

    def _join(self, session: psycopg.Connection[Any], layout: Layout, whole: bool, nulls: bool) -> None:
        if len(layout.columns) > len(layout.key):
            session.execute(sql.update(self._place, layout, whole, nulls))
        session.execute(sql.insertion(self._place, layout, nulls))
