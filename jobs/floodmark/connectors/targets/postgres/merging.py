"""Merges staged rows into a PostgreSQL table by their key.

Rows of a table that only the relay changes go in by one statement, which looks each key up in the unique index. Where
others have a say in it (triggers, columns of their own, a key that is checked later), rows that are there are changed
first, and the others added. So no trigger for new rows, and no sequence, sees a row that is there already.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.postgres import statements as sql

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.ports.target import Layout
    from floodmark.connectors.targets.postgres.table import PostgresTable


class Merging:
    """Into one table, within one transaction. `place`: its schema and name."""

    def __init__(self, session: psycopg.Connection[Any], place: tuple[str, str], table: PostgresTable, layout: Layout):
        self._session, self._place, self._table, self._layout = session, place, table, layout

    @cached_property
    def _alone(self) -> bool:
        return self._table.is_ours_alone(self._session, self._layout)

    def merge(self, whole: bool) -> None:
        """Merge the staged rows. `whole`: each takes its key's place, whatever `newest` says."""
        found = self._session.execute(sql.marks(self._layout.key)).fetchone()
        has_gone, has_nulls = found or (False, False)
        if has_gone or has_nulls or not self._alone:
            self._session.execute(f"ANALYZE {sql.STAGED}")
        for nulls in (False, True)[: 1 + has_nulls]:
            if has_gone:
                self._session.execute(sql.deletion(self._place, self._layout.key, nulls))
            if self._alone and not nulls:
                self._session.execute(sql.upsertion(self._place, self._layout, whole))
            else:
                self._join(whole, nulls)

    def _join(self, whole: bool, nulls: bool) -> None:
        if len(self._layout.columns) > len(self._layout.key):
            self._session.execute(sql.update(self._place, self._layout, whole, nulls))
        self._session.execute(sql.insertion(self._place, self._layout, nulls))
