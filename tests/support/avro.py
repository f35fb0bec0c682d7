"""Values and files of Avro as others write them: by fastavro, which shares no code with Spark's reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from fastavro.types import Schema

EVERY = (
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(38,3), s STRING, y BINARY, t DATE, at TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, a ARRAY<DECIMAL(4,1)>, o STRUCT<x: INT, int: STRUCT<x: ARRAY<DATE>>>, p MAP<STRING, DOUBLE>"
)
FIRST, LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
# Rows of these columns: at the bounds of their types, without values, without elements.
AT_BOUNDS: list[dict[str, Any]] = [
    {"b": True, "i": 2**31 - 1, "l": 2**63 - 1, "f": 0.5, "d": 1.7976931348623157e308, "m": Decimal("9" * 35 + ".999"),
     "s": "é\0\U0001f600", "y": b"\x00\xff", "t": date(9999, 12, 31), "at": LAST.replace(tzinfo=UTC), "ntz": LAST,
     "a": [Decimal("999.9"), None], "o": {"x": 1, "int": {"x": [date(1969, 12, 31), None]}}, "p": {"": 0.5, "n": None}},
    {"b": False, "i": -(2**31), "l": -(2**63), "f": -0.0, "d": 5e-324, "m": Decimal("-" + "9" * 35 + ".999"), "s": "",
     "y": b"", "t": date(1, 1, 1), "at": FIRST.replace(day=2, tzinfo=UTC), "ntz": FIRST, "a": [],
     "o": {"x": None, "int": None}, "p": {}},
]  # fmt: skip
AT_BOUNDS.append(dict.fromkeys(AT_BOUNDS[0]))


def value(schema: Schema, row: Mapping[str, Any]) -> bytes:
    """A record alone, in binary."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row, strict=True)
    return out.getvalue()


def framed(id: int, record: bytes) -> bytes:
    """The record in Confluent's wire format."""
    return b"\0" + id.to_bytes(4, "big") + record


def write_bare(file: Path, schema: Any, rows: Iterable[Mapping[str, Any]]) -> None:
    """A file of this schema, with bytes in place of its decimals: of any number."""
    write_file(file, json.loads(json.dumps(schema).replace('"decimal"', '"decimax"')), rows)
    file.write_bytes(file.read_bytes().replace(b'"decimax"', b'"decimal"'))


def write_file(file: Path, schema: Schema, rows: Iterable[Mapping[str, Any]], codec: str = "null") -> None:
    with file.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=100)
