"""Rows as Avro's binary records of the schema that follows from their columns, and back. Pure but for Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from floodmark.connectors.avro.schemas import schema_of
from floodmark.core.text.ddl import Column

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = {"date": "int32", "timestamp": "int64", "timestamp_ntz": "int64"}  # as Avro has them


def records(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[bytes]:
    """The rows of a batch, each as a record."""
    from fastavro import schemaless_writer

    schema = _parsed(tuple(columns))
    names = [column.name for column in columns]
    lists = [_values(batch.column(column.name), column.type.name) for column in columns]
    for row in zip(*lists, strict=True):
        out = BytesIO()
        schemaless_writer(out, schema, dict(zip(names, row, strict=True)))
        yield out.getvalue()


def _values(array: pa.Array, kind: str) -> list[Any]:
    """Times as numbers: any year, and no time to make a time of each."""
    found: list[Any] = (array.cast(_NUMBERS[kind]) if kind in _NUMBERS else array).to_pylist(maps_as_pydicts="strict")
    return found


def row_in(record: bytes, columns: Sequence[Column]) -> dict[str, Any]:
    """The row of a record. Raises ValueError for a value that is not one record of these columns."""
    from fastavro import schemaless_reader

    value = BytesIO(record)
    try:
        found = schemaless_reader(value, _parsed(tuple(columns)), None)
    except (EOFError, IndexError, ValueError, OverflowError) as fault:
        raise ValueError(f"expected Avro of {len(columns)} columns, found {record[:30].hex()} ({fault})") from None
    if value.read(1):
        raise ValueError(f"expected Avro of {len(columns)} columns, found bytes behind it: {record[:30].hex()}")
    assert isinstance(found, dict)
    return found


@lru_cache(maxsize=64)
def _parsed(columns: tuple[Column, ...]) -> Any:
    from fastavro import parse_schema

    return parse_schema(schema_of(columns))


@lru_cache(maxsize=64)
def fingerprint(columns: tuple[Column, ...]) -> str:
    """Of the schema of columns: Avro's 64 bits (CRC-64-AVRO) of its canonical form, in 16 hexadecimal digits."""
    from fastavro.schema import fingerprint as of_text
    from fastavro.schema import to_parsing_canonical_form

    return str(of_text(to_parsing_canonical_form(_parsed(columns)), "CRC-64-AVRO"))


def columns_by(found: str, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The first columns, whose schema has this fingerprint: columns are added at the end. Raises ValueError."""
    known = (columns[:count] for count in range(len(columns), 0, -1))
    wanted = next((one for one in known if fingerprint(one) == found), None)
    if wanted is None:
        raise ValueError(f"expected a record of the schema {fingerprint(columns)}, found one of {found or 'none'}")
    return wanted
