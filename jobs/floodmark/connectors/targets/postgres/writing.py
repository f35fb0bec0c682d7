"""Rows as CSV for COPY."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.postgres.types import pg_type
from floodmark.core.text.ddl import Column, Type

if TYPE_CHECKING:
    import pyarrow as pa


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
    return json.dumps(_jsonable(value, kind), ensure_ascii=False)


def _jsonable(value: Any, kind: Type) -> Any:
    """A value as JSON has it: bytes as base64, times as ISO 8601, a map as an object by its keys' text."""
    if value is None:
        return None
    if kind.name == "struct":
        return {part.name: _jsonable(value[part.name], part.type) for part in kind.parts}
    if kind.name == "array":
        return [_jsonable(one, kind.parts[0].type) for one in value]
    if kind.name == "map":
        return {str(key): _jsonable(one, kind.parts[1].type) for key, one in value}
    return next((write(value) for known, write in _JSON.items() if isinstance(value, known)), value)


_JSON: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    datetime: lambda value: value.isoformat(),
    date: lambda value: value.isoformat(),
    Decimal: str,
    float: lambda value: value if value == value and abs(value) != float("inf") else str(value),
}
