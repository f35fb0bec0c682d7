"""Writes and reads data files: Parquet, JSON lines, CSV."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import IO, Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from floodmark.connectors.sources.python.rows import schema_of
from floodmark.connectors.targets.values.jsonvalues import from_json, json_bytes, json_lines, json_value, row_of
from floodmark.connectors.targets.values.rowbatches import batches_of
from floodmark.core.text.ddl import Column, Type

_NESTED = ("array", "map", "struct")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_GROUP = 64_000_000  # bytes in memory of the rows that become a row group
_BLOCK = 64 << 20  # bytes of CSV that are parsed at a time: no row may be longer
_SAMPLE = 16_384  # rows that show whether a column's values repeat
Write: TypeAlias = Callable[[pa.RecordBatch], None]


class Counted(io.RawIOBase):
    """Writes to a file, and knows how many bytes it has and their SHA-256."""

    def __init__(self, file: IO[bytes]):
        self._file, self._sum, self.bytes = file, hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        found = memoryview(content).cast("B")  # Arrow's may be of signed bytes
        self._file.write(found)
        self._sum.update(found)
        self.bytes += found.nbytes
        return found.nbytes


def write(file: IO[bytes] | Counted, kind: str, columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> int:
    """Write the rows to a new file; how many there are. `kind`: parquet, json or csv."""
    schema, rows = schema_of(columns), 0
    with _WRITERS[kind](file, columns) as put:
        for batch in batches:
            put(pa.record_batch([batch.column(field.name).cast(field.type) for field in schema], schema=schema))
            rows += batch.num_rows
    return rows


@contextmanager
def _parquet(file: IO[bytes], columns: Sequence[Column]) -> Iterator[Write]:
    """Each row group has its own dictionaries, so a group for each batch would take twice as long."""
    waiting, schema = list[pa.RecordBatch](), schema_of(columns)

    @cache
    def writer() -> pq.ParquetWriter:
        """Made when the first rows are known."""
        return stack.enter_context(pq.ParquetWriter(file, schema, use_dictionary=_repeating(schema, waiting[:1])))

    def write_group() -> None:
        writer().write_table(pa.Table.from_batches(waiting, schema))
        waiting.clear()

    def put(batch: pa.RecordBatch) -> None:
        waiting.append(batch)
        if sum(one.nbytes for one in waiting) >= _GROUP:
            write_group()

    with ExitStack() as stack:
        yield put
        if waiting:
            write_group()
        writer()


def _repeating(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> list[str]:
    """The Parquet columns that get a dictionary: not those whose values are mostly different. There, Arrow would give
    it up after a third of the time that the writing takes."""
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    samples = [batch.slice(0, _SAMPLE) for batch in batches]
    different = {name for one in samples for name in flat if 2 * len(one[name].unique()) > len(one)}
    with io.BytesIO() as file:
        pq.ParquetWriter(file, schema).close()
        found = pq.read_metadata(file).schema
    return [path for path in (found.column(i).path for i in range(len(found))) if path not in different]


@contextmanager
def _json(file: IO[bytes], columns: Sequence[Column]) -> Iterator[Write]:
    def put(batch: pa.RecordBatch) -> None:
        file.writelines(line + b"\n" for line in json_lines(batch, columns))

    yield put


@contextmanager
def _csv(file: IO[bytes], columns: Sequence[Column]) -> Iterator[Write]:
    schema = pa.schema([_plain(field, column.type) for field, column in zip(schema_of(columns), columns, strict=True)])
    with pc.CSVWriter(file, schema) as writer:
        yield lambda batch: writer.write_batch(
            pa.record_batch([_written(batch.column(one.name), one.type) for one in columns], schema=schema)
        )


_WRITERS: Mapping[str, Any] = {"parquet": _parquet, "json": _json, "csv": _csv}


def _plain(field: pa.Field, kind: Type) -> pa.Field:
    return pa.field(field.name, pa.string()) if kind.name in (*_NESTED, "binary") else field


def _written(array: pa.Array, kind: Type) -> pa.Array:
    """As CSV can have it: bytes as base64, nested values as JSON."""
    if kind.name in _NESTED:
        texts = (None if one is None else json_bytes(json_value(one, kind)).decode() for one in array.to_pylist())
        return pa.array(texts, pa.string())
    if kind.name == "binary":
        return pa.array(None if one is None else base64.b64encode(one).decode() for one in array.to_pylist())
    return array


def read(file: BinaryIO, kind: str, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The rows of a file."""
    if kind == "parquet":
        names = [column.name for column in columns]
        with pq.ParquetFile(file) as found:
            yield from found.iter_batches(columns=names)
        return
    yield from batches_of(_json_lines(file, columns) if kind == "json" else _csv_rows(file, columns), columns)


def _json_lines(file: BinaryIO, columns: Sequence[Column]) -> Iterator[dict[str, Any]]:
    yield from (row_of(json.loads(line), columns) for line in file)


def _csv_rows(file: BinaryIO, columns: Sequence[Column]) -> Iterator[dict[str, Any]]:
    texts = pc.ConvertOptions(
        column_types={column.name: pa.string() for column in columns},
        strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""],
    )  # fmt: skip
    parsing = pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)  # a NULL alone is an empty line
    with pc.open_csv(file, pc.ReadOptions(block_size=_BLOCK), parsing, texts) as found:
        for batch in found:
            for row in batch.to_pylist():
                yield {one.name: _from_text(row.get(one.name), one.type) for one in columns}


def _from_text(text: str | None, kind: Type) -> Any:
    if text is None:
        return None
    if kind.name in _NESTED:
        return from_json(json.loads(text), kind)
    if kind.name in _WHOLE:
        return int(text)
    return text == "true" if kind.name == "boolean" else from_json(text, kind)
