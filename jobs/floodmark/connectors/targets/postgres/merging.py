"""Merges rows into a PostgreSQL table by their key.

Where all keys seem to be new, COPY adds the rows to the table at once, which takes a third of the time. If one is
there, this is taken back, and the rows are staged and merged.

Rows of a table that only the relay changes go in by one statement, which looks each key up in the unique index. Where
others have a say in it (triggers, columns of their own, a key that is checked later), rows that are there are changed
first, and the others added. So no trigger for new rows, and no sequence, sees a row that is there already.

A trigger or a rule may leave a row out, without an error: rows are then counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg

from floodmark.connectors.targets.postgres import statements as sql
from floodmark.connectors.targets.postgres.sessions import Swallowed, is_of_rows
from floodmark.connectors.targets.postgres.writing import copy_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.connectors.ports.target import Layout
    from floodmark.connectors.targets.postgres.table import PostgresTable

MANY = 5_000  # rows from which it pays to look whether all keys are new
SAMPLE = 100  # rows of a batch whose keys are looked up, or a few more


class Merging:
    """Into one table, within one transaction. `place`: its schema and name."""

    def __init__(self, session: psycopg.Connection[Any], place: tuple[str, str], table: PostgresTable, layout: Layout):
        self._session, self._place, self._table, self._layout = session, place, table, layout

    @cached_property
    def _alone(self) -> bool:
        return self._table.is_ours_alone(self._session, self._layout)

    @cached_property
    def _counts(self) -> bool:
        return self._table.may_swallow(self._session)

    def add_new(self, rows: Callable[[], Iterable[pa.RecordBatch]]) -> bool:
        """Add rows whose keys are all new; False, and no row is added, if one is not or the table refuses a row."""
        if not self._alone or not self._seem_new(rows()):
            return False
        try:
            with self._session.transaction():  # a savepoint
                copy_rows(self._session, sql.quoted(*self._place), self._layout.columns, rows())
        except psycopg.Error as fault:
            if not is_of_rows(fault):
                raise
            return False  # merging names a row that is refused
        return True

    def _seem_new(self, batches: Iterable[pa.RecordBatch]) -> bool:
        """COPY finds a key that is there, but maybe late, and an index may take two NULL for different keys."""
        samples: list[pa.RecordBatch] = []
        for batch in batches:
            if batch.column(sql.GONE).true_count or any(batch.column(name).null_count for name in self._layout.key):
                return False
            if places := list(range(0, batch.num_rows, max(1, batch.num_rows // SAMPLE))):
                samples.append(batch.take(places))
        self.stage(samples)
        self._session.execute(f"ANALYZE {sql.STAGED}")
        return self._session.execute(sql.first_known(self._place, self._layout.key)).fetchone() is None

    def stage(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Stage rows in place of those that are staged."""
        self._session.execute(f"TRUNCATE {sql.STAGED}")
        copy_rows(self._session, sql.STAGED, self._layout.columns, batches, (sql.GONE,))

    def merge(self, whole: bool) -> None:
        """Merge the staged rows. `whole`: each takes its key's place, whatever `newest` says."""
        found = self._session.execute(sql.marks(self._layout.key)).fetchone()
        has_gone, has_nulls = found or (False, False)
        if has_gone or has_nulls or not self._alone:
            self._session.execute(f"ANALYZE {sql.STAGED}")
        for nulls in (False, True)[: 1 + has_nulls]:
            if has_gone:
                self._perform(sql.deletion, sql.count_to_delete, self._layout.key, nulls)
            if self._alone and not nulls:
                self._session.execute(sql.upsertion(self._place, self._layout, whole))
            else:
                self._join(whole, nulls)

    def _join(self, whole: bool, nulls: bool) -> None:
        if len(self._layout.columns) > len(self._layout.key):
            self._perform(sql.update, sql.count_to_update, self._layout, whole, nulls)
        self._perform(sql.insertion, sql.count_to_insert, self._layout, nulls)

    def _perform(self, statement: Callable[..., str], count: Callable[..., str], *arguments: Any) -> None:
        """Raise Swallowed if the statement takes fewer rows than `count` finds before it."""
        found = self._session.execute(count(self._place, *arguments)).fetchone() if self._counts else None
        taken = self._session.execute(statement(self._place, *arguments)).rowcount
        if found and taken < found[0]:
            raise Swallowed(found[0], taken)
