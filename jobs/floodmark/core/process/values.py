"""Converts Python values to the values that a declared type holds.

A value that is stored and read back must equal the value that was put; otherwise it would depend on whether an epoch
ended in between. So numbers are rounded to FLOAT and DOUBLE, a DECIMAL gets its scale, and lists and dicts are copied
when they are put.
"""

from __future__ import annotations

import difflib
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from numbers import Integral, Real
from typing import Any

from floodmark.core.text.ddl import Column, Type

Convert = Callable[[Any], Any]
BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_EXACT = Context(prec=76)


class Record:
    """Converts rows of declared columns from a dict or tuple to values in column order, and back."""

    def __init__(self, columns: Sequence[Column]):
        self.names = tuple(column.name for column in columns)
        self._converts = tuple(converter(column.type) for column in columns)
        self._known = frozenset(self.names)
        self._copies = any(column.type.parts for column in columns)

    def values(self, row: Any) -> tuple[Any, ...]:
        """The values in column order; a column that a dict leaves out is null.

        Raises ValueError if `row` does not fit.
        """
        given = self._given(row)
        try:
            pairs = zip(self._converts, given, strict=True)
            return tuple([None if value is None else convert(value) for convert, value in pairs])
        except ValueError:
            self._name_the_column(given)
            raise

    def row(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """The values by column; changing them does not change stored values."""
        return dict(zip(self.names, self.values(values) if self._copies else values, strict=True))

    def _given(self, row: Any) -> Sequence[Any]:
        if isinstance(row, (tuple, list)) and len(row) == len(self.names):
            return row
        if not isinstance(row, Mapping):
            raise ValueError(f"expected a dict or a tuple of {', '.join(self.names)}, found {short(row)}")
        if not row.keys() <= self._known:
            self._refuse_unknown(row)
        return [row.get(name) for name in self.names]

    def _refuse_unknown(self, row: Mapping[Any, Any]) -> None:
        unknown = next(name for name in row if name not in self._known)
        near = difflib.get_close_matches(str(unknown), self.names, 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"expected columns {', '.join(self.names)}, found {unknown!r}{hint}")

    def _name_the_column(self, given: Sequence[Any]) -> None:
        for name, convert, value in zip(self.names, self._converts, given, strict=True):
            try:
                if value is not None:
                    convert(value)
            except ValueError as fault:
                raise ValueError(f"{name}: {fault}") from None


def short(value: Any) -> str:
    """A value as messages show it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def converter(kind: Type) -> Convert:
    """The function that converts a Python value, never None, to the type. It raises ValueError."""
    if kind.name in BITS:
        return _whole(kind.name)
    if kind.name == "decimal":
        return _decimal(kind)
    if kind.parts:
        return {"array": _array, "map": _map, "struct": _struct}[kind.name](kind)
    plain: dict[str, Convert] = {"boolean": _boolean, "float": _float, "double": _double, "string": _string,
                                 "binary": _binary, "date": _date, "timestamp": _timestamp,
                                 "timestamp_ntz": _timestamp_ntz}  # fmt: skip
    return plain[kind.name]


def _wrong(expected: str, value: Any) -> ValueError:
    return ValueError(f"expected {expected}, found {short(value)}")


def _whole(name: str) -> Convert:
    limit = 1 << BITS[name]

    def convert(value: Any) -> int:
        if type(value) is int and -limit <= value < limit:  # fast path: the check for Integral takes ten times as long
            return value
        if isinstance(value, bool) or not isinstance(value, Integral) or not -limit <= int(value) < limit:
            raise _wrong(f"a whole number that fits {name.upper()}", value)
        return int(value)

    return convert


def _decimal(kind: Type) -> Convert:
    step, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, (Decimal, int)) and not isinstance(value, bool):
            try:
                found = Decimal(value).quantize(step, context=_EXACT)
                if found == value and found.copy_abs() < limit:
                    return found if found else found.copy_abs()  # a table has no -0
            except InvalidOperation:
                pass  # not a finite number, or longer than any DECIMAL: reported below
        raise _wrong(f"a Decimal that fits {str(kind).upper()} exactly", value)

    return convert


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _wrong("a number that fits DOUBLE", value) from None


def _float(value: Any) -> float:
    try:  # "<f" and not "f", which turns numbers that are too large into infinity
        found: float = struct.unpack("<f", struct.pack("<f", _double(value)))[0]
    except OverflowError:
        raise _wrong("a number that fits FLOAT", value) from None
    return found


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong("True or False", value)
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong("text", value)
    return plain_text(value)


def plain_text(value: str) -> str:
    """The plain text of one that may be of a subclass. Raises ValueError for one that UTF-8 does not have."""
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        raise _wrong("text that UTF-8 can have, without lone surrogates", value) from None
    return value if type(value) is str else str.__str__(value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong("bytes", value)
    return bytes(value)


def _date(value: Any) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _wrong("a date", value)
    return value if type(value) is date else date(value.year, value.month, value.day)


def _timestamp(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _wrong("a datetime with a time zone, such as datetime(2001, 1, 1, tzinfo=UTC)", value)
    return _plain_time(value if value.tzinfo is UTC else value.astimezone(UTC))


def _timestamp_ntz(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is not None or value != value:  # NaT of pandas
        raise _wrong("a datetime without a time zone", value)
    return _plain_time(value)


def _plain_time(at: datetime) -> datetime:
    """Without what a subclass has beside it, such as the nanoseconds of pandas, and tables do not."""
    if type(at) is datetime:
        return at
    return datetime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, at.tzinfo, fold=at.fold)


def _array(kind: Type) -> Convert:
    element = converter(kind.parts[0].type)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise _wrong("a list", value)
        return [None if one is None else element(one) for one in value]

    return convert


def _map(kind: Type) -> Convert:
    key, element = (converter(part.type) for part in kind.parts)

    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping) or None in value:
            raise _wrong("a dict without None as a key", value)
        found = {key(name): None if one is None else element(one) for name, one in value.items()}
        if len(found) < len(value):  # such as two numbers that are one FLOAT
            raise _wrong(f"a dict whose keys stay different as {str(kind.parts[0].type).upper()}", value)
        return found

    return convert


def _struct(kind: Type) -> Convert:
    record = Record(kind.parts)

    def convert(value: Any) -> dict[str, Any]:
        return dict(zip(record.names, record.values(value), strict=True))

    return convert
