"""Rows of a source of one's own as an Arrow table of the declared columns, and as a frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as t

from floodmark.core.process.values import Record, short
from floodmark.core.text.ddl import Column, Type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLAIN = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_FAMILIES = (
    (t.is_integer,),
    (t.is_floating,),
    (t.is_decimal,),
    (t.is_string, t.is_large_string),
    (t.is_binary, t.is_large_binary),
    (lambda kind: t.is_timestamp(kind) and kind.tz is None,),
    (lambda kind: t.is_timestamp(kind) and kind.tz is not None,),
)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Arrow's schema of declared columns."""
    return pa.schema([(column.name, _arrow(column.type)) for column in columns])


def frame_of(spark: SparkSession, rows: pa.Table, columns: Sequence[Column]) -> DataFrame:
    """Rows in the memory of this process, with the columns as declared.

    Spark takes a batch without rows for the end: the rows of batches after it would be lost.
    """
    filled = [batch for batch in rows.to_batches() if batch.num_rows]
    declared = ", ".join(f"`{one.name}` {one.type}" for one in columns)
    return spark.createDataFrame(pa.Table.from_batches(filled, rows.schema), declared)


def _arrow(kind: Type) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    parts = [_arrow(part.type) for part in kind.parts]
    if kind.name == "array":
        return pa.list_(parts[0])
    if kind.name == "map":
        return pa.map_(*parts)
    if kind.name == "struct":
        return pa.struct([(part.name, found) for part, found in zip(kind.parts, parts, strict=True)])
    return _PLAIN[kind.name]


def table_of(columns: Sequence[Column], given: Iterable[Any]) -> pa.Table:
    """All rows. `given`: batches and tables of Arrow, lists of rows, and single rows, as dicts.

    Raises ValueError for rows that lack a declared column, or have another type there. Other columns are left out.
    """
    schema, record = schema_of(columns), Record(columns)
    return pa.Table.from_batches([one for part in given for one in _batches(part, schema, record, columns)], schema)


def _batches(part: Any, schema: pa.Schema, record: Record, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    if isinstance(part, pa.Table):
        yield from (_batch(one, schema, columns) for one in part.to_batches())
    elif isinstance(part, pa.RecordBatch):
        yield _batch(part, schema, columns)
    else:
        rows = [_values(row, record) for row in ([part] if isinstance(part, Mapping) else _listed(part))]
        arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
        yield pa.record_batch(arrays, schema=schema)


def _listed(part: Any) -> list[Any]:
    if not isinstance(part, list):
        raise ValueError(f"expected a pyarrow.RecordBatch, a list of dicts or a dict, found {short(part)}")
    return part


def _values(row: Any, record: Record) -> tuple[Any, ...]:
    if not isinstance(row, Mapping):
        raise ValueError(f"expected a row as a dict, found {short(row)}")
    missing = next((name for name in record.names if name not in row), None)
    if missing is not None:
        raise _lacks(missing, [str(name) for name in row])
    return record.values({name: row[name] for name in record.names})


def _lacks(name: str, found: Sequence[str]) -> ValueError:
    return ValueError(f"expected a column {name} in every row, found {', '.join(found) or 'none'}")


def _batch(batch: pa.RecordBatch, schema: pa.Schema, columns: Sequence[Column]) -> pa.RecordBatch:
    arrays = []
    for field, column in zip(schema, columns, strict=True):
        if field.name not in batch.schema.names:
            raise _lacks(field.name, batch.schema.names)
        arrays.append(_cast(batch.column(field.name), field, column))
    return pa.record_batch(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field, column: Column) -> pa.Array:
    """Exactly the same values in the declared type, of which their own type has to be a relative."""
    same = any(_is_of(family, array.type) and _is_of(family, field.type) for family in _FAMILIES)
    if array.type != field.type and not same:
        raise ValueError(f"{column.name}: expected {str(column.type).upper()} ({field.type}), found {array.type}")
    fits = f"{column.name}: expected values that fit {str(column.type).upper()}"
    try:
        found = array.cast(field.type)
    except pa.ArrowInvalid as fault:
        raise ValueError(f"{fits}: {fault}") from None
    if t.is_float32(field.type) and not pc.is_finite(array).equals(pc.is_finite(found)):
        raise ValueError(f"{fits}, found one that is too large")
    return found


def _is_of(family: Sequence[Any], kind: pa.DataType) -> bool:
    return any(one(kind) for one in family)
