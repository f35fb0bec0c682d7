"""Read values of partition columns: the log has them as text, the files do not have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = ("date", "timestamp", "timestamp_ntz")
FAR = re.compile(r"[+-]|0000-")  # a year outside 1 to 9999


def constant(text: str | None, kind: Any, rows: int) -> pa.Array:
    """An array of `rows` times the value of a text in the log. Raises NotImplementedError for one that is not read.

    `kind`: the type as Delta names it. None and an empty text mean null.
    """
    arrow, value = _reader(str(kind))
    if text and FAR.match(text) and str(kind) in TIMES:
        raise NotImplementedError(f"its rows cannot be recomputed: the log has {text} as the {kind} of a partition, a "
                                  "year that is not read here")  # fmt: skip
    return pa.array([value(text) if text else None] * rows, arrow)


def differ(one: str | None, other: str | None, kind: Any) -> bool:
    """Whether two texts of the log surely mean different values: writers spell one value in several ways."""
    if one == other:
        return False
    try:
        return not constant(one, kind, 1).equals(constant(other, kind, 1))
    except (NotImplementedError, ValueError, ArithmeticError, pa.ArrowException):
        return False


def _reader(kind: str) -> tuple[pa.DataType, Callable[[str], Any]]:
    decimal = re.fullmatch(r"decimal\((\d+), *(\d+)\)", kind)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2])), Decimal
    if kind not in _TYPES:
        raise NotImplementedError(f"its rows cannot be recomputed: it has partitions by a column of type {kind}")
    return _TYPES[kind]


def _instant(text: str) -> int:
    """Microseconds of a TIMESTAMP. A text without a zone means that of the writing or the reading session: unknown."""
    found = datetime.fromisoformat(text.replace(" ", "T"))
    if found.tzinfo is None:
        raise NotImplementedError(
            f"its rows cannot be recomputed: the log has the time {text} of a partition without a zone, which each "
            "reader takes in its own"
        )
    return (found - EPOCH) // timedelta(microseconds=1)


def _local(text: str) -> int:
    """Microseconds of a TIMESTAMP_NTZ, as if it were in UTC."""
    return (datetime.fromisoformat(text.replace(" ", "T")).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


_TYPES: dict[str, tuple[pa.DataType, Callable[[str], Any]]] = {
    "string": (pa.string(), str),
    "boolean": (pa.bool_(), "true".__eq__),
    "byte": (pa.int8(), int),
    "short": (pa.int16(), int),
    "integer": (pa.int32(), int),
    "long": (pa.int64(), int),
    "date": (pa.date32(), date.fromisoformat),
    "timestamp": (pa.timestamp("us", "UTC"), _instant),
    "timestamp_ntz": (pa.timestamp("us"), _local),
}
