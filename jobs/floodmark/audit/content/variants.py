"""Decode VARIANT columns, which files hold in a binary encoding, to the text that Spark's `to_json` gives.

A variant is two fields of bytes: `metadata` has the names of all fields in it, `value` the rest. Both are laid out as
Parquet's specification says (Variant Binary Encoding); all numbers are little-endian.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

SPARKS = b"org.apache.spark.sql.parquet.row.metadata"  # where a file says which types Spark gave its columns
UNSURE = b"floodmark.floating"  # marks rows in which a variant holds floating point
_PARTS = {"metadata", "value"}
_DAY, _SECOND = 86_400_000_000, 1_000_000
_ERA = 146_097  # days in 400 years


def as_texts(rows: pa.Table, types: Mapping[str, Any]) -> pa.Table:
    """The rows, with each variant replaced by its text, as bytes. `types`: the table's, if the file does not have its
    own."""
    said = (rows.schema.metadata or {}).get(SPARKS)
    told = {one["name"]: one["type"] for one in json.loads(said)["fields"]} if said else types
    reader = _Reader()
    for place, name in enumerate(rows.column_names):
        kind = told.get(name)
        if _holds_any(kind):
            column = rows[name].combine_chunks()
            found = reader.read(column, kind)
            rows = rows.set_column(place, name, found)
    if reader.floating:
        rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), UNSURE: b"yes"})
    return rows


def is_unsure(rows: pa.Table) -> bool:
    """Whether a variant holds floating point: some versions of Java write a digit more for some numbers."""
    return UNSURE in (rows.schema.metadata or {})


def _holds_any(kind: Any) -> bool:
    if not isinstance(kind, Mapping):
        return bool(kind == "variant")
    return any(map(_holds_any, _inside(kind).values()))


def _inside(kind: Mapping[str, Any]) -> dict[str, Any]:
    if kind["type"] == "struct":
        return {field["name"]: field["type"] for field in kind["fields"]}
    return {name: kind[name] for name in ("elementType", "keyType", "valueType") if name in kind}


class _Reader:
    """`floating`: it has read a floating-point number."""

    def __init__(self) -> None:
        self.floating = False

    def read(self, array: pa.Array, kind: Any) -> pa.Array:
        """The array, with texts in place of variants at any depth."""
        if kind == "variant":
            return self._texts(array)
        if not _holds_any(kind):
            return array
        inner = _inside(kind)
        if pa.types.is_struct(array.type):
            parts = [
                self.read(part, inner.get(field.name)) for field, part in zip(array.type, array.flatten(), strict=True)
            ]
            names = [field.name for field in array.type]
            return pa.StructArray.from_arrays(parts, names, mask=array.is_null())
        if pa.types.is_map(array.type):
            items = self.read(array.items, inner["valueType"])
            return pa.MapArray.from_arrays(_offsets(array), array.keys, items)
        return pa.ListArray.from_arrays(_offsets(array), self.read(array.values, inner["elementType"]))

    def _texts(self, array: pa.Array) -> pa.Array:
        if not pa.types.is_struct(array.type) or set(array.type.names) != _PARTS:
            raise NotImplementedError(f"its rows cannot be recomputed: variants are stored as {array.type}")
        values, names = (array.field(part) for part in ("value", "metadata"))
        found = (
            self._text(value.as_py(), name.as_py()) if known.as_py() else None
            for known, value, name in zip(array.is_valid(), values, names, strict=True)
        )
        return pa.array(list(found), pa.large_binary())

    def _text(self, value: bytes, metadata: bytes) -> bytes:
        return "".join(self._json(value, 0, _names(metadata))).encode("utf-8", "replace")

    def _json(self, data: bytes, at: int, names: list[str]) -> Iterator[str]:
        basic, info = data[at] & 3, data[at] >> 2
        if basic == 0:
            yield self._plain(data, at + 1, info)
        elif basic == 1:
            yield _quoted(_decoded(data[at + 1 : at + 1 + info]))
        elif basic == 2:
            yield from self._object(data, at, info, names)
        else:
            yield from self._array(data, at, info, names)

    def _object(self, data: bytes, at: int, info: int, names: list[str]) -> Iterator[str]:
        wide, id_size, step = (info >> 4) & 1, ((info >> 2) & 3) + 1, (info & 3) + 1
        size, ids = _size(data, at + 1, wide)
        offsets = ids + size * id_size
        begin = offsets + (size + 1) * step
        yield "{"
        for i in range(size):
            yield "," if i else ""
            yield _quoted(names[_number(data, ids + i * id_size, id_size)]) + ":"
            yield from self._json(data, begin + _number(data, offsets + i * step, step), names)
        yield "}"

    def _array(self, data: bytes, at: int, info: int, names: list[str]) -> Iterator[str]:
        wide, step = (info >> 2) & 1, (info & 3) + 1
        size, offsets = _size(data, at + 1, wide)
        begin = offsets + (size + 1) * step
        yield "["
        for i in range(size):
            yield "," if i else ""
            yield from self._json(data, begin + _number(data, offsets + i * step, step), names)
        yield "]"

    def _plain(self, data: bytes, at: int, kind: int) -> str:
        if kind in (7, 14):
            self.floating = True
        if kind not in _KINDS:
            raise NotImplementedError(f"its rows cannot be recomputed: a variant holds a value of kind {kind}")
        return _KINDS[kind](data, at)


def _offsets(array: pa.Array) -> pa.Array:
    """The offset of each list or map; null for a null."""
    starts, known = array.offsets, array.is_valid()
    mask = np.append(~np.asarray(known.to_numpy(zero_copy_only=False)), False)
    return pa.array(starts.to_numpy(), pa.int32(), mask=mask)


def _names(metadata: bytes) -> list[str]:
    step = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, step)
    ends = [_number(metadata, 1 + step + i * step, step) for i in range(count + 1)]
    begin = 1 + step * (count + 2)
    return [_decoded(metadata[begin + one : begin + other]) for one, other in pairwise(ends)]


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _whole(size: int) -> Callable[[bytes, int], str]:
    return lambda data, at: str(_signed(data, at, size))


def _signed(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little", signed=True)


def _size(data: bytes, at: int, wide: int) -> tuple[int, int]:
    """A count, and the offset after it."""
    step = 4 if wide else 1
    return _number(data, at, step), at + step


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _quoted(text: str) -> str:
    """As Java's Jackson writes it."""
    return '"' + "".join(_ESCAPED.get(one, one) for one in text) + '"'


_ESCAPED = {chr(i): f"\\u{i:04X}" for i in range(32)}
_ESCAPED |= {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _decimal(size: int) -> Callable[[bytes, int], str]:
    return lambda data, at: _scaled(_signed(data, at + 1, size), data[at])


def _scaled(number: int, scale: int) -> str:
    """A decimal number as text, without trailing zeros."""
    digits = str(abs(number)).rjust(scale + 1, "0")
    before, after = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    return ("-" if number < 0 else "") + before + ("." + after if after else "")


def _floating(code: str) -> Callable[[bytes, int], str]:
    kind = np.float32 if code == "<f" else np.float64
    return lambda data, at: _java(kind(struct.unpack_from(code, data, at)[0]))


def _java(number: Any) -> str:
    """A floating-point number as newer versions of Java write it: with the fewest digits that identify it."""
    if np.isnan(number):
        return '"NaN"'
    if np.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    digits, _, power = np.format_float_scientific(abs(number), unique=True, trim="-").partition("e")
    exponent, digits = int(power), digits.replace(".", "")
    sign = "-" if np.signbit(number) else ""
    if number == 0:
        return f"{sign}0.0"
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 2, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _day(days: int) -> str:
    """A date of the proleptic Gregorian calendar."""
    era, day = divmod(days - date(2000, 1, 1).toordinal() + date(1970, 1, 1).toordinal(), _ERA)
    found = date.fromordinal(date(2000, 1, 1).toordinal() + day)
    year = found.year + 400 * era
    said = f"{'-' if year < 0 else ''}{abs(year):04}" if abs(year) <= 9999 else f"{year:+}"
    return f"{said}-{found.month:02}-{found.day:02}"


def _instant(zone: str) -> Callable[[bytes, int], str]:
    return lambda data, at: f'"{_time(_signed(data, at, 8))}{zone}"'


def _time(micros: int) -> str:
    days, rest = divmod(micros, _DAY)
    seconds, part = divmod(rest, _SECOND)
    minutes, second = divmod(seconds, 60)
    fraction = f".{part:06}".rstrip("0") if part else ""
    return f"{_day(days)} {minutes // 60:02}:{minutes % 60:02}:{second:02}{fraction}"


def _counted(data: bytes, at: int) -> bytes:
    return data[at + 4 : at + 4 + _number(data, at, 4)]


_KINDS: dict[int, Callable[[bytes, int], str]] = {
    0: lambda data, at: "null",
    1: lambda data, at: "true",
    2: lambda data, at: "false",
    3: _whole(1),
    4: _whole(2),
    5: _whole(4),
    6: _whole(8),
    7: _floating("<d"),
    8: _decimal(4),
    9: _decimal(8),
    10: _decimal(16),
    11: lambda data, at: f'"{_day(_signed(data, at, 4))}"',
    12: _instant("+00:00"),
    13: _instant(""),
    14: _floating("<f"),
    15: lambda data, at: '"' + base64.b64encode(_counted(data, at)).decode() + '"',
    16: lambda data, at: _quoted(_decoded(_counted(data, at))),
}
