"""Values as PostgreSQL prints them, as Arrow arrays of the columns' types. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.text.ddl import Type

_PLAIN = {
    "boolean": pa.bool_(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
# How a session prints values, so that the functions here can read them.
PRINTED = {
    "TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "iso_8601", "bytea_output": "hex",
    "extra_float_digits": "1", "client_encoding": "UTF8", "xmloption": "content",
}  # fmt: skip


def arrow_type(kind: Type) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "array":
        return pa.list_(arrow_type(kind.parts[0].type))
    return _PLAIN[kind.name]


def decoded(values: pa.Array) -> tuple[pa.Array, list[int]]:
    """Values of bytes as text, and the places of those that are not in UTF-8, which are null."""
    try:
        return values.cast(pa.string()), []
    except pa.ArrowInvalid:
        texts = [None if one is None else _text(one) for one in values.to_pylist()]
        return pa.array(texts, pa.string()), [i for i, one in enumerate(texts) if one is None and values[i].is_valid]


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def converted(texts: pa.Array, kind: Type) -> tuple[pa.Array, list[int]]:
    """The values of a column, and the places of those that its type cannot hold, which are null."""
    try:
        return _convert(texts, kind), []
    except (ValueError, pa.ArrowInvalid):
        return _one_by_one(texts, kind)


def _one_by_one(texts: pa.Array, kind: Type) -> tuple[pa.Array, list[int]]:
    bad = [i for i, text in enumerate(texts) if not _is_good(text, kind)]
    good: list[Any] = texts.to_pylist()
    for i in bad:
        good[i] = None
    return _convert(pa.array(good, pa.string()), kind), bad


def _is_good(text: pa.Scalar, kind: Type) -> bool:
    try:
        _convert(pa.array([text.as_py()], pa.string()), kind)
    except (ValueError, pa.ArrowInvalid):
        return False
    return True


def _convert(texts: pa.Array, kind: Type) -> pa.Array:
    """Raises ValueError or ArrowInvalid if a value does not fit."""
    if kind.name in _PARSED:
        return pa.array(
            [None if one is None else _PARSED[kind.name](one) for one in texts.to_pylist()], _PLAIN[kind.name]
        )
    if kind.name == "boolean":
        return pc.equal(texts, "t")
    if kind.name == "array":
        return _arrays(texts, kind)
    return texts if kind.name == "string" else texts.cast(arrow_type(kind))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_PARSED: Mapping[str, Callable[[str], Any]] = {"binary": _bytes}


def _arrays(texts: pa.Array, kind: Type) -> pa.Array:
    """Arrays of one dimension."""
    lists = [None if one is None else elements(one) for one in texts.to_pylist()]
    flat = pa.array([one for found in lists if found is not None for one in found], pa.string())
    ends, at = [0], 0
    for found in lists:
        at += len(found or ())
        ends.append(at)
    offsets: Sequence[int | None] = [None if one is None else ends[i] for i, one in enumerate(lists)] + [at]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _convert(flat, kind.parts[0].type))


def elements(text: str) -> list[str | None]:
    """The elements of an array as PostgreSQL prints it: `{1,NULL,"a b"}`. Raises ValueError for more dimensions."""
    if text.startswith("["):
        text = text.partition("=")[2]  # its lower bound
    if not (text.startswith("{") and text.endswith("}")) or text.startswith("{{"):
        raise ValueError("expected an array of one dimension")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        value, at = _element(text, at, end)
        found.append(value)
        at += 1  # the comma
    return found


def _element(text: str, at: int, end: int) -> tuple[str | None, int]:
    """The element that begins there, and where it ends."""
    if text[at] != '"':
        close = text.find(",", at, end)
        close = end if close < 0 else close
        plain = text[at:close]
        return (None if plain == "NULL" else _unescaped(plain)), close
    close = at + 1
    while text[close] != '"':
        close += 2 if text[close] == "\\" else 1
    return _unescaped(text[at + 1 : close]), close + 1


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts, at = [], 0
    while at < len(text):
        at += text[at] == "\\"
        parts.append(text[at])
        at += 1
    return "".join(parts)
