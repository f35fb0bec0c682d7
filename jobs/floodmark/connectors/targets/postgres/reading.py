"""Rows of a table, from the CSV that COPY writes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.postgres.types import arrow_type
from floodmark.connectors.targets.values.jsonvalues import key_of
from floodmark.core.lifecycle.zones import CYCLE_US, near_text
from floodmark.core.text.ddl import Column, Type
from floodmark.core.text.durations import DAY

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS, _TIMES = ("binary", "array", "map", "struct"), ("date", "timestamp", "timestamp_ntz")
READ = 8 << 20  # bytes of CSV that are parsed at a time


def read(blocks: Iterable[bytes | bytearray | memoryview], columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
    """Rows that COPY writes as CSV, each in a block of its own; arrays as JSON."""
    held, size = list[bytes](), 0
    for block in blocks:
        held.append(bytes(block))
        size += len(held[-1])
        if size > READ:
            yield _parsed(b"".join(held), columns)
            held, size = [], 0
    if held:
        yield _parsed(b"".join(held), columns)


def _parsed(text: bytes, columns: tuple[Column, ...]) -> pa.RecordBatch:
    """Arrow reads no times before Christ, nor of years with more than four digits: they are then read one by one."""
    import pyarrow as pa

    try:
        return _parsed_as(text, columns, _TEXTS)
    except pa.ArrowInvalid:
        if not any(one.type.name in _TIMES for one in columns):
            raise
        return _parsed_as(text, columns, (*_TEXTS, *_TIMES))


def _parsed_as(text: bytes, columns: tuple[Column, ...], texts: Collection[str]) -> pa.RecordBatch:
    """texts: the types of columns that are read as text first."""
    import pyarrow as pa
    import pyarrow.csv as pc

    names = [f"c{i}" for i in range(len(columns))]
    as_text = {name: arrow_type(one.type) for name, one in zip(names, columns, strict=True)}
    as_text |= {name: pa.string() for name, one in zip(names, columns, strict=True) if one.type.name in texts}
    table = pc.read_csv(
        pa.BufferReader(text),
        pc.ReadOptions(column_names=names, use_threads=False, block_size=len(text)),  # no row is longer than it
        pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),  # a NULL alone is one
        pc.ConvertOptions(
            column_types=as_text, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
            true_values=["t"], false_values=["f"],
        ),
    )  # fmt: skip
    arrays = [_valued(table[name].combine_chunks(), one.type) for name, one in zip(names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[one.name for one in columns])


def _valued(array: pa.Array, kind: Type) -> pa.Array:
    """A column of CSV with its values."""
    import pyarrow as pa

    if kind.name == "binary":
        values = (None if one is None else bytes.fromhex(one[2:]) for one in array.to_pylist())
        return pa.array(values, pa.binary())
    if kind.name in _TIMES and array.type == pa.string():
        of = pa.int32() if kind.name == "date" else pa.int64()
        found = [None if one is None else _number(one, kind) for one in array.to_pylist()]
        return pa.array(found, of).cast(arrow_type(kind))
    if kind.name in _TEXTS:
        values = (
            None if one is None else _from_json(json.loads(one, parse_float=Decimal), kind) for one in array.to_pylist()
        )
        return pa.array(values, arrow_type(kind))
    return array


def _number(text: str, kind: Type) -> int:
    """Days or microseconds since 1970 of a time as PostgreSQL writes it: `10000-01-01 00:00:00+00`, `0044-03-15 BC`."""
    year, dash, rest = text.removesuffix(" BC").partition("-")
    astronomical = f"{1 - int(year):+05}" if text.endswith(" BC") else year  # the year before 1 is 0
    near, cycles = near_text(f"{astronomical}{dash}{rest}")
    found = datetime.fromisoformat(near)
    since = found - datetime(1970, 1, 1, tzinfo=found.tzinfo)
    us = since // timedelta(microseconds=1) + cycles * CYCLE_US
    return us // DAY if kind.name == "date" else us


def _from_json(value: Any, kind: Type) -> Any:
    """The value that JSON has for one of ours; arrays as `array_to_json` writes them."""
    if value is None:
        return None
    if kind.name == "struct":
        return {part.name: _from_json(value[part.name], part.type) for part in kind.parts}
    if kind.name == "array":
        return [_from_json(one, kind.parts[0].type) for one in value]
    if kind.name == "map":
        key, held = (part.type for part in kind.parts)
        return [(key_of(one, key), _from_json(other, held)) for one, other in value.items()]
    return _FROM.get(kind.name, lambda one: one)(value)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else base64.b64decode(text)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value


_FROM: dict[str, Callable[[Any], Any]] = {
    "decimal": lambda value: Decimal(str(value)),
    "binary": _bytes,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
    "double": float,
    "float": float,
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _whole),
}
