"""How columns of results become columns of PostgreSQL. Pure but for Arrow.

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

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from floodmark.core.text.ddl import Type

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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAST, _MOST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, which Python has
_SIZE = re.compile(r"(?<=^character varying)\(\d+\)$")


def pg_type(kind: Type) -> str:
    """The type as PostgreSQL's `format_type` spells it."""
    if kind.name == "decimal":
        return f"numeric({kind.precision},{kind.scale})"
    if kind.name == "array" and kind.parts[0].type.name in _PLAIN | {"decimal": ""}:
        return f"{pg_type(kind.parts[0].type)}[]"
    return _PLAIN.get(kind.name, "jsonb")


def holds(there: str, wanted: str) -> bool:
    """Whether a column of type `there` takes every value of type `wanted`, both as `format_type` spells them.

    A value that is too long for `character varying(n)` is refused as a row, unless blanks alone are too many.
    """
    plain = _SIZE.sub("", there)
    return there == wanted or plain in _ALSO.get(wanted, ()) or (wanted.startswith("numeric(") and there == "numeric")


def cuts(there: str) -> bool:
    """Whether a column of that type cuts off blanks, so that two texts become one."""
    return _SIZE.search(there) is not None


def time_text(micros: int) -> str:
    """An instant, in microseconds since 1970, as a literal of any type of time; one beyond the years 1 to 9999 as
    infinity."""
    if not LEAST <= micros <= _MOST:
        return "infinity" if micros > 0 else "-infinity"
    return (_EPOCH + timedelta(microseconds=micros)).isoformat()


def arrow_type(kind: Type) -> pa.DataType:
    """The type as an outbox has it."""
    import pyarrow as pa

    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "array":
        return pa.list_(arrow_type(kind.parts[0].type))
    if kind.name == "map":
        return pa.map_(*(arrow_type(part.type) for part in kind.parts))
    if kind.name == "struct":
        return pa.struct([(part.name, arrow_type(part.type)) for part in kind.parts])
    return _arrow_types()[kind.name]()


def _arrow_types() -> dict[str, Callable[[], Any]]:
    import pyarrow as pa

    return {
        "boolean": pa.bool_,
        "tinyint": pa.int8,
        "smallint": pa.int16,
        "int": pa.int32,
        "bigint": pa.int64,
        "float": pa.float32,
        "double": pa.float64,
        "string": pa.string,
        "binary": pa.binary,
        "date": pa.date32,
        "timestamp": partial(pa.timestamp, "us", "UTC"),
        "timestamp_ntz": partial(pa.timestamp, "us"),
    }
