"""An Iceberg table as a target: rows and position change in one commit.

The position is a property of the table. Snapshots expire, and a mark in one of them would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.sources.iceberg.catalogs import Tables
from floodmark.connectors.sources.python.rows import schema_of
from floodmark.connectors.targets.iceberg.table import SNAPSHOT, IcebergTable, move
from floodmark.connectors.targets.iceberg.writing import Writer
from floodmark.core.relay.positions import Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, Refused, RunFailed

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from floodmark.connectors.sources.iceberg.options import WrittenIceberg


class IcebergTarget(Target):
    """One table. `options`: its place, and the name of the connection."""

    python_times = True

    def __init__(self, address: str, options: WrittenIceberg):
        self.address = address
        self._tables = Tables(options.connection, lambda problem: about_sink(address, problem))
        self._table = IcebergTable(address, options.place, self._tables)

    def claim(self, owner: str, layout: Layout) -> Position:
        with self._tables.explained():
            table, first = self._table.load(), Position(owner)
            found = None if table is None else self._table.position(table)
            if found is not None:
                return found
            if table is None:
                self._table.make(first, layout)
            else:
                self._table.take_over(table, first, layout)
            return first

    def position(self) -> Position | None:
        with self._tables.explained():
            table = self._table.load()
            return None if table is None else self._table.position(table)

    # --- Applying

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        with self._tables.explained():
            table = self._at(since)
            transaction = table.transaction()
            if operations:
                self._table.fit(table, layout)
                Writer(transaction, table.io, layout).write(operations)
            mine = move(transaction, table, upto)
            sent()
            try:
                transaction.commit_transaction()
            except CommitFailedException as fault:
                self._after(fault, since, mine)

    def _at(self, since: Position) -> Table:
        """The table as it is now; its position must be the one that this relay has read."""
        table = self._table.there()
        found = self._table.position(table)
        if found is None:
            problem = f"expected its position ({since.words}), found none: somebody removed it"
            raise Refused(about_sink(self.address, problem))
        if found != since:
            raise self._fenced(since, found)
        return table

    def _after(self, fault: CommitFailedException, since: Position, mine: str) -> None:
        """The catalogue says that the commit failed. The table says which one moved the position last: if it is this
        one, its answer was lost."""
        table = self._table.there()
        if table.properties.get(SNAPSHOT) == mine:
            return
        found = self._table.position(table)
        if found == since:
            problem = f"another program has changed it meanwhile, so nothing of this counts: {fault}. Ship again"
            raise RunFailed(about_sink(self.address, problem)) from fault
        raise self._fenced(since, found) from fault

    def _fenced(self, since: Position, found: Position | None) -> Fenced:
        there = "none" if found is None else found.words
        problem = f"expected its position at {since.words}, found {there}: another relay moved it"
        return Fenced(about_sink(self.address, f"{problem}; this one's work had no effect"))

    # --- Reading back

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        schema = schema_of(layout.columns)
        with self._tables.explained():
            scan = self._table.there().scan(selected_fields=tuple(schema.names))
            for batch in scan.to_arrow_batch_reader():
                arrays = [batch.column(field.name).cast(field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def close(self) -> None:
        self._tables.close()
