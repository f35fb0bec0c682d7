"""Finds the rows that a table refuses: they are tried within a transaction that its caller takes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg

from floodmark.connectors.ports.target import Operation
from floodmark.connectors.targets.postgres.sessions import of_row
from floodmark.errors import InputFault

if TYPE_CHECKING:
    import pyarrow as pa


class Sieve:
    """`perform`: applies an operation in the session's transaction, and raises InputFault for a row."""

    def __init__(self, session: psycopg.Connection[Any], perform: Callable[[Operation], None]):
        self._session, self._perform = session, perform

    def refused(self, one: Operation) -> dict[int, str]:
        """The rows of an operation that cannot be taken after those before them; the others are taken."""
        self._perform(replace(one, count=0))
        found, first = dict[int, str](), 0
        for batch in one.rows() if one.count else ():
            found |= self._within(one, batch, first)
            first += batch.num_rows
        return found

    def _within(self, one: Operation, batch: pa.RecordBatch, first: int) -> dict[int, str]:
        """Halves are tried until a row is alone. `first`: the place of the batch's first row."""
        said = self._tried(replace(one, empties=False, replaces=None, count=batch.num_rows, rows=_only(batch)))
        if said is None or not batch.num_rows:
            return {}
        if batch.num_rows == 1:
            return {first: said}
        half = batch.num_rows // 2
        return self._within(one, batch.slice(0, half), first) | self._within(one, batch.slice(half), first + half)

    def _tried(self, part: Operation) -> str | None:
        try:
            with self._session.transaction():  # a savepoint
                self._perform(part)
        except InputFault as fault:
            cause = fault.__cause__
            return of_row(cause) if isinstance(cause, psycopg.Error) else str(fault)
        return None


def _only(batch: pa.RecordBatch) -> Callable[[], Iterator[pa.RecordBatch]]:
    return lambda: iter((batch,))
