"""How columns of results become columns of PostgreSQL, and how their values are written for COPY. Pure but for Arrow.

| Spark | PostgreSQL |
|---|---|
| BOOLEAN | boolean |
| TINYINT, SMALLINT | smallint |
| INT | integer |
| BIGINT | bigint |
| FLOAT, DOUBLE | real, double precision |
| DECIMAL(p,s) | numeric(p,s) |
| STRING | text |
| BINARY | bytea |
| DATE | date |
| TIMESTAMP | timestamptz |
| TIMESTAMP_NTZ | timestamp |
| ARRAY of one of these | an array of its type |
| STRUCT, MAP, other arrays | jsonb |
"""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.values.jsonvalues import json_value
from floodmark.core.text.ddl import Column, Type

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
# Types of an existing table that hold all values of ours, by ours; `format_type` spells them without their size.
_ALSO = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying",),
    "jsonb": ("json",),
}


def pg_type(kind: Type) -> str:
    """The type as PostgreSQL's `format_type` spells it."""
    if kind.name == "decimal":
        return f"numeric({kind.precision},{kind.scale})"
    if kind.name == "array" and kind.parts[0].type.name in _PLAIN | {"decimal": ""}:
        return f"{pg_type(kind.parts[0].type)}[]"
    return _PLAIN.get(kind.name, "jsonb")


def holds(there: str, wanted: str) -> bool:
    """Whether a column of type `there` takes every value of type `wanted`, both as `format_type` spells them."""
    return there == wanted or there in _ALSO.get(wanted, ()) or (wanted.startswith("numeric(") and there == "numeric")


def copied(batch: pa.RecordBatch, columns: tuple[Column, ...], more: tuple[str, ...] = ()) -> bytes:
    """The rows as CSV for COPY, with `columns` and then the boolean columns `more`: null is empty, text is quoted."""
    import pyarrow as pa
    import pyarrow.csv as pc

    arrays = [_written(batch.column(one.name), one.type) for one in columns]
    arrays += [batch.column(name) for name in more]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
    pc.write_csv(table, sink, pc.WriteOptions(include_header=False))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _written(array: pa.Array, kind: Type) -> pa.Array:
    """The column as what CSV can write."""
    import pyarrow as pa

    if kind.name == "binary":
        return pa.array((None if one is None else rf"\x{one.hex()}" for one in array.to_pylist()), pa.string())
    if kind.name in ("array", "map", "struct"):
        text = _array_text if pg_type(kind).endswith("[]") else _json_text
        return pa.array((None if one is None else text(one, kind) for one in array.to_pylist()), pa.string())
    return array


def _array_text(values: list[Any], kind: Type) -> str:
    """A literal of PostgreSQL's arrays."""
    element = kind.parts[0].type
    return "{" + ",".join("NULL" if one is None else _quoted(_text(one, element)) for one in values) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(value: Any, kind: Type) -> str:
    if kind.name == "binary":
        return rf"\x{value.hex()}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def _json_text(value: Any, kind: Type) -> str:
    return json.dumps(json_value(value, kind), ensure_ascii=False)
