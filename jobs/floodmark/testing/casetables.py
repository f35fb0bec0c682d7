"""Write and read the tables of a case; each input is one commit. Without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalake import DeltaTable, write_deltalake

from floodmark.core.cases.casefile import Row
from floodmark.core.text.ddl import Column
from floodmark.ledger.delta import datafiles, tables
from floodmark.testing.deltatypes import schema_of


def make(address: str, columns: tuple[Column, ...]) -> None:
    """Create an empty table."""
    tables.create(address, schema_of(columns), {})


def append(address: str, rows: Sequence[Row]) -> None:
    """Add rows in one file; without rows, add an empty commit."""
    table = DeltaTable(address)
    if rows:
        write_deltalake(table, _arrow(table, rows), mode="append")
    else:
        table.create_write_transaction([], "append", table.schema())


def replace(address: str, rows: Sequence[Row]) -> None:
    """Replace all rows of the table."""
    table = DeltaTable(address)
    write_deltalake(table, _arrow(table, rows), mode="overwrite")


def _arrow(table: DeltaTable, rows: Sequence[Row]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=pa.schema(table.schema().to_arrow()))


def rows_of(address: str) -> tuple[str, list[Row]]:
    """The schema and the rows of an existing table."""
    table = DeltaTable(address)
    return table.schema().to_json(), datafiles.query(table, "SELECT * FROM t")
