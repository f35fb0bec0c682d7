"""Reads an outbox's portions from its files, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column, Type
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import HistoryGone, WrongColumn
from floodmark.ledger.delta import datafiles, tables

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 65_536  # rows in memory at a time
_SPELT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_PLAIN = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
          "timestamp_ntz")  # fmt: skip


def columns_in(target: str, folder: Path) -> tuple[Column, ...]:
    """The columns of an outbox that leave for the target. Raises WrongColumn for a type that no target has."""
    table = tables.open_table(str(folder))
    if table is None:
        raise HistoryGone(about_sink(target, f"expected its outbox at {folder}, found none: restore the home"))
    fields = json.loads(table.schema().to_json())["fields"]
    return tuple(
        Column(str(one["name"]), _type(target, str(one["name"]), one["type"]))
        for one in fields
        if one["name"] != DELETE_COLUMN
    )


def _type(target: str, column: str, kind: Any) -> Type:
    if isinstance(kind, dict):
        return _nested(target, column, kind)
    if str(kind).startswith("decimal("):
        precision, scale = str(kind)[len("decimal(") : -1].split(",")
        return Type("decimal", int(precision), int(scale))
    if kind not in _PLAIN:
        raise WrongColumn(
            about_sink(target, f"column {column}: expected a type that leaves Spark, found {kind}: cast it in the SQL")
        )
    return Type(_SPELT.get(kind, kind))


def _nested(target: str, column: str, kind: dict[str, Any]) -> Type:
    if kind["type"] == "struct":
        fields = kind["fields"]
        return Type("struct", parts=tuple(Column(one["name"], _type(target, column, one["type"])) for one in fields))
    names = {"array": (("element", "elementType"),), "map": (("key", "keyType"), ("value", "valueType"))}[kind["type"]]
    return Type(kind["type"], parts=tuple(Column(name, _type(target, column, kind[key])) for name, key in names))


def rows_of(folder: Path, commit: int | None, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows that the outbox's version `commit` added; None: none. A column that they lack is null.

    Raises HistoryGone if a file, or the log's entry, no longer exists.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for text in [] if commit is None else datafiles.added_files(str(folder), commit):
        path = folder / unquote(json.loads(text)["add"]["path"])
        with pq.ParquetFile(path) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(BATCH, columns=there):
                held = {name: batch.column(name) for name in there}
                nulls = pa.nulls(batch.num_rows)
                yield pa.RecordBatch.from_pydict({name: held.get(name, nulls) for name in columns})


def without(batches: Iterator[pa.RecordBatch], left_out: Collection[int]) -> Iterator[pa.RecordBatch]:
    """The rows but for some, by their number; their number in `numbers` is the same again."""
    import pyarrow as pa

    first = 0
    for batch in batches:
        numbers = range(first, first + batch.num_rows)
        first += batch.num_rows
        kept = [number not in left_out for number in numbers]
        yield batch if all(kept) else batch.filter(pa.array(kept))


def picked(batches: Iterator[pa.RecordBatch], places: Collection[int]) -> pa.Table:
    """Some of the rows, by their place."""
    import pyarrow as pa

    found, first = list[Any](), 0
    for batch in batches:
        here = sorted(place - first for place in places if first <= place < first + batch.num_rows)
        found.append(batch.take(pa.array(here, pa.int64())))
        first += batch.num_rows
    return pa.Table.from_batches(found)


def size_of(folder: Path, commit: int) -> int:
    """Bytes of the files that the outbox's version `commit` added."""
    return sum(int(json.loads(text)["add"]["size"]) for text in datafiles.added_files(str(folder), commit))
