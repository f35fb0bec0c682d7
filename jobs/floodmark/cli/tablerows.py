"""Rows of a rule's own tables, by a query that Rust runs.

Not through pyarrow: its data sets import pandas, which takes longer than everything else, and leave threads behind that
may abort the process as it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, QueryBuilder

if TYPE_CHECKING:
    from floodmark.core.records import Head

Rows = list[dict[str, Any]]


def query(table: DeltaTable, sql: str) -> Rows:
    """What `sql` gives; it names the table `t`."""
    found = QueryBuilder().register("t", table).execute(sql).read_all()
    columns = [values_of(found[name]) for name in found.column_names]
    return [dict(zip(found.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def committed(head: Head) -> str:
    """The condition that leaves out what an open or a lost epoch wrote."""
    lost = f" AND _epoch NOT IN ({', '.join(map(str, head.lost))})" if head.lost else ""
    return f"_epoch <= {head.epoch}{lost}"


def quoted(column: str) -> str:
    doubled = column.replace('"', '""')
    return f'"{doubled}"'


def values_of(column: Any) -> list[Any]:
    """Python's values of an Arrow column."""
    return [value.as_py() for value in column]
