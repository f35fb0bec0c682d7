"""Values of results as JSON has them, and back. Pure but for Arrow.

| Spark | JSON |
|---|---|
| BOOLEAN, STRING, TINYINT to BIGINT | as they are |
| FLOAT, DOUBLE | a number; NaN and infinities are text (`"nan"`, `"inf"`, `"-inf"`) |
| DECIMAL | text, exactly |
| BINARY | text, base64 |
| DATE, TIMESTAMP, TIMESTAMP_NTZ | text, ISO 8601; times with microseconds, a TIMESTAMP in UTC (`+00:00`) |
| ARRAY, STRUCT | an array, an object |
| MAP | an object by the keys' text; of an ARRAY or STRUCT, its JSON |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from floodmark.core.lifecycle.zones import CYCLE_US, near_text
from floodmark.core.text.ddl import Column, Type
from floodmark.core.text.durations import DAY

if TYPE_CHECKING:
    import pyarrow as pa

_ENCODER = msgspec.json.Encoder()
_SAME = ("boolean", "tinyint", "smallint", "int", "bigint", "string")
_TIMES = {"timestamp": "+00:00", "timestamp_ntz": ""}


def json_value(value: Any, kind: Type) -> Any:
    """A value as JSON has it."""
    if value is None:
        return None
    if kind.name == "struct":
        return {part.name: json_value(value[part.name], part.type) for part in kind.parts}
    if kind.name == "array":
        return [json_value(one, kind.parts[0].type) for one in value]
    if kind.name == "map":
        return {_key_text(key, kind.parts[0].type): json_value(one, kind.parts[1].type) for key, one in value}
    return next((write(value) for known, write in _TO_JSON.items() if isinstance(value, known)), value)


def _key_text(key: Any, kind: Type) -> str:
    found = json_value(key, kind)
    return json_bytes(found).decode() if kind.parts else str(found)


_TO_JSON: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    datetime: lambda value: value.isoformat(timespec="microseconds"),
    date: lambda value: value.isoformat(),
    Decimal: lambda value: format(value, "f"),
    float: lambda value: value if value == value and abs(value) != float("inf") else str(value),
}


def json_lines(batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[bytes]:
    """The rows of a batch, each as an object of its columns, in their order and on one line."""
    lists = [_json_list(batch.column(column.name), column.type) for column in columns]
    return map(_ENCODER.encode, map(_objects(tuple(column.name for column in columns)), *lists))


@lru_cache
def _objects(names: tuple[str, ...]) -> Callable[..., Any]:
    """What makes an object of the values of a row. A struct takes a third of a dict's time, and has no name that JSON
    escapes."""
    if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name in names):
        return lambda *values: dict(zip(names, values, strict=True))
    fields = [f"c{number}" for number in range(len(names))]
    return msgspec.defstruct("Row", fields, rename=dict(zip(fields, names, strict=True)), gc=False)


def _json_list(array: pa.Array, kind: Type) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type == pa.null() or kind.name in _SAME:
        same: list[Any] = array.to_pylist()
        return same
    if kind.name in _TIMES:  # a fraction of the time that datetimes take
        plain = array.cast(pa.timestamp("us")).cast(pa.string())
        texts = pc.replace_substring(plain, " ", "T", max_replacements=1)  # a year may have more than four digits
        written: list[Any] = pc.binary_join_element_wise(texts, _TIMES[kind.name], "").to_pylist()
        return written
    if kind.name == "date":
        days: list[Any] = array.cast(pa.string()).to_pylist()
        return days
    values: list[Any] = array.to_pylist()
    if kind.name in ("float", "double") and pc.all(pc.is_finite(array)).as_py() is not False:
        return values
    return [json_value(one, kind) for one in values]


def json_bytes(value: Any) -> bytes:
    """JSON on one line, in the order of its keys. `value`: of what `json_value` gives."""
    return _ENCODER.encode(value)


def from_json(value: Any, kind: Type) -> Any:
    """The value that `json_value` wrote: a map as pairs, a time of a year that Python lacks as an integer, as Arrow has
    it. Raises ValueError for one that is none of the type's.
    """
    if value is None:
        return None
    if kind.name == "struct":
        return {part.name: from_json(value.get(part.name), part.type) for part in kind.parts}
    if kind.name == "array":
        return [from_json(one, kind.parts[0].type) for one in value]
    if kind.name == "map":
        return [(key_of(key, kind.parts[0].type), from_json(one, kind.parts[1].type)) for key, one in value.items()]
    return _FROM_JSON.get(kind.name, _same)(value)


def key_of(text: str, kind: Type) -> Any:
    """A key of a map, which JSON has as text."""
    if kind.name == "boolean":
        return text == "True"
    return from_json(text if kind.name == "string" or kind.name in _FROM_JSON else json.loads(text), kind)


def _date(text: str) -> date | int:
    near, cycles = near_text(text)
    found = date.fromisoformat(near)
    return (found - date(1970, 1, 1)).days + cycles * CYCLE_US // DAY if cycles else found


def _time(text: str) -> datetime | int:
    near, cycles = near_text(text)
    found = datetime.fromisoformat(near)
    since = found - datetime(1970, 1, 1, tzinfo=found.tzinfo)
    return since // timedelta(microseconds=1) + cycles * CYCLE_US if cycles else found


def _same(value: Any) -> Any:
    return value


_FROM_JSON: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "double": float,
    "decimal": Decimal,
    "binary": base64.b64decode,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _time,
}


def row_of(value: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """The row that `json_lines` wrote. A column that the object lacks is null."""
    return {column.name: from_json(value.get(column.name), column.type) for column in columns}
