"""Reads an outbox's portions from its files, without a JVM."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from floodmark.core.relay.ranks import rank
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column, Type
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import HistoryGone, WrongColumn
from floodmark.ledger.delta import datafiles, tables

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from floodmark.connectors.ports.target import Layout
    from floodmark.core.relay.portions import Portion

NO_RETRY = (
    ". No retry mends that. Give the column the earlier type in the SQL, and reset the rule; or write `on_reset: "
    "empty` at the sink, and reset it"
)
NAMED_AGAIN = (
    ". No retry mends that. Name a column so again in the SQL, and reset the rule; or write `on_reset: empty` at the "
    "sink, and reset it"
)
BATCH = 65_536  # rows in memory at a time
_SPELT = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_PLAIN = ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
          "timestamp_ntz")  # fmt: skip


def columns_in(target: str, folder: Path) -> tuple[Column, ...]:
    """The columns of an outbox that leave for the target. Raises WrongColumn for a type that no target has."""
    table = tables.open_table(str(folder))
    if table is None:
        raise HistoryGone(about_sink(target, f"expected its outbox at {folder}, found none: restore the home"))
    return columns_of(target, table.schema().to_json())


def columns_of(target: str, schema: str) -> tuple[Column, ...]:
    """The same, by a table's schema in Spark's JSON."""
    return tuple(
        Column(str(one["name"]), _type(target, str(one["name"]), one["type"]))
        for one in json.loads(schema)["fields"]
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

    for file in _files_of(folder, commit):
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH, columns=there):
            held = {name: batch.column(name) for name in there}
            nulls = pa.nulls(batch.num_rows)
            yield pa.RecordBatch.from_pydict({name: held.get(name, nulls) for name in columns})


def _files_of(folder: Path, commit: int | None) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    for text in [] if commit is None else datafiles.added_files(str(folder), commit):
        with pq.ParquetFile(folder / unquote(json.loads(text)["add"]["path"])) as file:
            yield file


def with_types(target: str, batches: Iterator[pa.RecordBatch], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The rows with the columns' types, whichever they were written with. Raises WrongColumn as `fitted`."""
    import pyarrow as pa

    types = _types(columns)
    for batch in batches:
        arrays = {name: batch.column(name) for name in batch.schema.names}
        fit = {name: fitted(target, name, one, types.get(name.lower(), one.type)) for name, one in arrays.items()}
        yield pa.RecordBatch.from_pydict(fit)


def fitted(target: str, name: str, array: Any, kind: pa.DataType, advice: str = NO_RETRY) -> Any:
    """The values of a column in another type. Raises WrongColumn if one has no value of that type."""
    import pyarrow as pa

    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as fault:
        said = str(fault).splitlines()[0]
        problem = f"column {name} of rows from before a reset has another type, {array.type}, of which a value is no "
        problem += f"{kind} ({said}){advice}"
        raise WrongColumn(about_sink(target, problem)) from fault


def spelt_as(target: str, column: str, columns: Sequence[Column], advice: str = NAMED_AGAIN) -> str:
    """A column by which rows leave, as the target spells it. Raises WrongColumn if it is gone."""
    for one in columns:
        if one.name.lower() == column.lower():
            return one.name
    problem = f"expected column {column}, by whose interval a backfill replaces rows, found none of that name{advice}"
    raise WrongColumn(about_sink(target, problem))


def check_fits(target: str, batches: Iterator[pa.RecordBatch], columns: Sequence[Column]) -> None:
    """Raise WrongColumn if a row has no value of a column's type, or has a value in a column that is none of these."""
    types = _types(columns)
    for batch in batches:
        for name in (one for one in batch.schema.names if one != DELETE_COLUMN):
            values = batch.column(name)
            if name.lower() in types:
                fitted(target, name, values, types[name.lower()], "")
            elif values.null_count < len(values):
                raise WrongColumn(about_sink(target, f"the results have no column {name} any more, and its rows do"))


def unlike(folder: Path, commit: int | None, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The rows that the outbox's version `commit` added, of files whose columns are others than these."""
    types = _types(columns)
    for file in _files_of(folder, commit):
        if any(types.get(one.name.lower()) != one.type for one in file.schema_arrow if one.name != DELETE_COLUMN):
            yield from file.iter_batches(BATCH)


def _types(columns: Sequence[Column]) -> dict[str, pa.DataType]:
    """Arrow's types of columns, by their names in small letters."""
    from floodmark.connectors.sources.python.rows import schema_of

    return {field.name.lower(): field.type for field in schema_of(columns)}


def compared(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[tuple[tuple[Any, ...], Any, bool]]:
    """Of each row its key, its place among that key's rows by `newest`, and whether it takes the key's row away."""
    order = [layout.newest, *sorted(one.name for one in layout.columns)] if layout.newest else []
    for batch in batches:
        gone = batch.column(DELETE_COLUMN).to_pylist() if layout.key else [False] * batch.num_rows
        yield from zip(_ranks(batch, layout.key), _ranks(batch, order), map(bool, gone), strict=True)


def _ranks(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Of each row its values in these columns: text as bytes, times as numbers."""
    if not names:
        return itertools.repeat((), batch.num_rows)
    columns = (batch.column(name) for name in names)
    return zip(*(map(rank, one.cast(_readable(one.type)).to_pylist()) for one in columns), strict=True)


def _readable(kind: pa.DataType) -> pa.DataType:
    """A type whose values Python has: not of text that is not UTF-8, and not of times of any year."""
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_string(kind) or t.is_large_string(kind):
        return pa.large_binary()
    if t.is_date(kind) or t.is_timestamp(kind):
        return pa.int32() if t.is_date(kind) else pa.int64()
    if t.is_struct(kind):
        return pa.struct([(one.name, _readable(one.type)) for one in kind])
    if t.is_map(kind):
        pair = pa.struct([("key", _readable(kind.key_type)), ("value", _readable(kind.item_type))])
        return pa.list_(pair)
    return pa.list_(_readable(kind.value_type)) if t.is_list(kind) else kind


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


def size_of(folder: Path, one: Portion) -> int:
    """Bytes of a portion's files in the outbox; 0 if they are gone: who reads them says so."""
    if one.commit is None:
        return 0
    try:
        return _size_at(folder, one.commit, one.token)
    except HistoryGone:
        return 0


@lru_cache(maxsize=100_000)
def _size_at(folder: Path, commit: int, _token: str) -> int:
    """Cached, as looks at a target that is down ask for all that waits. The token tells a new outbox from an old one
    whose commit had the same number."""
    return sum(int(json.loads(text)["add"]["size"]) for text in datafiles.added_files(str(folder), commit))
