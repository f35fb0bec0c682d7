"""Compare a file's rows with what readers rely on: the table's columns, and the bounds of values in the log.

Readers find columns by name, and skip files that by the log's bounds hold nothing for them. A wrong name, type or bound
hides rows, though all of them are in place. A type or a bound with several readings passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.audit.evidence import File, TableLog

WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
SLACK = 1e-6  # of 32-bit floats
ROUNDED = timedelta(milliseconds=1)
ZONED_WELL = 1973  # before then, some zones have offsets with seconds, which texts omit


def misread(rows: pa.Table, file: File, log: TableLog) -> Iterator[str]:
    """Columns and partitions that readers would misread, as messages. `rows`: of the file."""
    yield from (f"the file {file.path} has {what}" for what in _columns(rows, file, log))
    if log.partitions is not None and set(log.partitions) != set(file.partition):
        declared = f"{sorted(file.partition)}, the table has partitions by {sorted(log.partitions)}"
        yield f"the log has values of the file {file.path} for partitions by {declared}"


def _columns(rows: pa.Table, file: File, log: TableLog) -> Iterator[str]:
    for name in (name for name in rows.column_names if log.types and name not in file.partition):
        column = rows[name]
        if name not in log.types and column.null_count < len(column):
            yield f"values in a column {name}, which the table does not have under that name"
        elif column.null_count < len(column) and not fits(column.type, log.types[name]):
            yield f"a column {name} of type {column.type}, the table has it as {log.types[name]}"
        elif name in log.types:
            fields = (one for chunk in column.chunks for one in _unnamed(chunk, log.types[name]))
            for field in dict.fromkeys(fields):
                yield f"values in a field {name}.{field}, which the table does not have under that name"


def _unnamed(values: pa.Array, declared: Any) -> Iterator[str]:
    """Fields within a column that the table does not have, and that have values: readers see NULL there."""
    if not isinstance(declared, Mapping):
        return
    if declared["type"] == "struct":
        fields = {field["name"].lower(): field["type"] for field in declared["fields"]}
        for name, inner in zip(values.type.names, values.flatten(), strict=True):
            if name.lower() in fields:
                yield from (f"{name}.{one}" for one in _unnamed(inner, fields[name.lower()]))
            elif inner.null_count < len(inner):
                yield name
    elif declared["type"] == "array":
        yield from (f"element.{one}" for one in _unnamed(values.flatten(), declared["elementType"]))
    elif declared["type"] == "map":
        yield from (f"key.{one}" for one in _unnamed(values.keys, declared["keyType"]))
        yield from (f"value.{one}" for one in _unnamed(values.items, declared["valueType"]))


def fits(kind: pa.DataType, declared: Any) -> bool:
    """Whether values of a file's type fit the type that Delta names, as they are or widened."""
    if pa.types.is_dictionary(kind):
        return fits(kind.value_type, declared)
    if isinstance(declared, Mapping):
        return _nested(kind, declared)
    decimal = re.fullmatch(r"decimal\((\d+), *(\d+)\)", str(declared))
    if decimal:
        return _decimal(kind, int(decimal[1]), int(decimal[2]))
    if declared in BITS:
        return kind in WHOLE and kind.bit_width <= BITS[declared]
    return declared not in _PLAIN or _PLAIN[declared](kind)


def _nested(kind: pa.DataType, declared: Mapping[str, Any]) -> bool:
    """Compare only fields that both sides have: a missing field may be null everywhere."""
    if declared["type"] == "struct":
        fields = {field["name"].lower(): field["type"] for field in declared["fields"]}
        there = [field for field in kind if field.name.lower() in fields] if pa.types.is_struct(kind) else []
        return pa.types.is_struct(kind) and all(fits(field.type, fields[field.name.lower()]) for field in there)
    if declared["type"] == "array":
        return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and fits(
            kind.value_type, declared["elementType"]
        )
    if declared["type"] == "map":
        return (
            pa.types.is_map(kind)
            and fits(kind.key_type, declared["keyType"])
            and fits(kind.item_type, declared["valueType"])
        )
    return True


def _decimal(kind: pa.DataType, precision: int, scale: int) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.scale <= scale and kind.precision - kind.scale <= precision - scale)
    return kind in WHOLE


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_bytes(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_number(kind: pa.DataType) -> bool:
    return kind in (pa.float32(), pa.float64(), *WHOLE[:3])


_PLAIN: dict[Any, Callable[[pa.DataType], bool]] = {
    "string": _is_text,
    "binary": _is_text,
    "boolean": pa.types.is_boolean,
    "date": pa.types.is_date32,
    "float": lambda kind: kind in (pa.float32(), *WHOLE[:2]),
    "double": _is_number,
    "timestamp": pa.types.is_timestamp,
    "timestamp_ntz": lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date32(kind),
}


def unbounded(rows: pa.Table, file: File) -> Iterator[str]:
    """Columns with values outside the log's bounds, which readers would miss. `rows`: those that readers see."""
    low, high, nulls = (file.bounds.get(name) for name in ("minValues", "maxValues", "nullCount"))
    for name in rows.column_names if rows.num_rows else ():
        column = rows[name].combine_chunks()
        sides = ((one or {}).get(name) if isinstance(one, Mapping) else None for one in (low, high, nulls))
        if any(_outside(column, file.rows, *sides)):
            yield f"the log's bounds of column {name} in the file {file.path} are not those of its values"


def _outside(column: pa.Array, rows: int | None, low: Any, high: Any, nulls: Any) -> Iterator[bool]:
    """Whether a column, or a field of it, has values outside the bounds. `rows`: of the whole file, by the log."""
    if pa.types.is_struct(column.type):
        for field, values in zip(column.type.names, column.flatten(), strict=True):
            inner = ((one.get(field) if isinstance(one, Mapping) else None) for one in (low, high, nulls))
            yield from _outside(values, rows, *inner)
        return
    if type(nulls) is int:  # readers check whether there are nulls, and whether there is anything else
        yield nulls == 0 < column.null_count or (nulls == rows and column.null_count < len(column))
    if _has_nan(column):  # which Spark holds to be the largest value
        yield isinstance(high, int | float | Decimal)
    if column.null_count < len(column) and (low is not None or high is not None):
        found = _extremes(column)
        if found is not None:
            yield low is not None and _above(low, found[0])
            yield high is not None and _below(high, found[1])


def _extremes(column: pa.Array) -> tuple[Any, Any] | None:
    """The smallest and the largest value, without NaN; None if the type has no order here."""
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    try:
        found = pc.min_max(column).as_py()
    except (pa.ArrowException, ValueError, OverflowError):  # such as for a time that Python cannot represent
        return None
    return None if found["min"] is None else (found["min"], found["max"])


def _has_nan(column: pa.Array) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def _above(bound: Any, value: Any) -> bool:
    """Whether a lower bound is surely above a value."""
    pair = _comparable(bound, value)
    return pair is not None and pair[0] > pair[1]


def _below(bound: Any, value: Any) -> bool:
    pair = _comparable(value, bound)
    return pair is not None and pair[0] > pair[1]


def _comparable(larger: Any, smaller: Any) -> tuple[Any, Any] | None:
    """Both as values of one type, the first less what rounding may have added; None if they are not comparable."""
    try:
        return _alike(larger, smaller)
    except (ValueError, OverflowError, TypeError, ArithmeticError):
        return None


def _alike(larger: Any, smaller: Any) -> tuple[Any, Any] | None:
    kinds = [type(one) for one in (larger, smaller)]
    if set(kinds) <= {int, Decimal}:
        return larger, smaller
    if str in kinds and (datetime in kinds or date in kinds):
        return _times(larger, smaller)
    if kinds == [str, str]:
        return larger, smaller
    if str in kinds or bool in kinds or bytes in kinds:
        return None
    one, other = float(larger), float(smaller)
    return None if math.isnan(one) or math.isnan(other) else (one - SLACK * max(abs(one), abs(other)), other)


def _times(larger: Any, smaller: Any) -> tuple[Any, Any] | None:
    if type(larger) is date or type(smaller) is date:
        one, other = (date.fromisoformat(each) if isinstance(each, str) else each for each in (larger, smaller))
        return one, other
    zoned = next(each for each in (larger, smaller) if isinstance(each, datetime)).tzinfo is not None
    one, other = (_instant(each) if isinstance(each, str) else each for each in (larger, smaller))
    if min(one.year, other.year) < ZONED_WELL or (zoned and None in (one.tzinfo, other.tzinfo)):
        return None
    if not zoned and (one.utcoffset() or other.utcoffset()):
        return None
    one, other = (each.replace(tzinfo=each.tzinfo if zoned else UTC) for each in (one, other))
    return one - ROUNDED, other


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace(" ", "T"))
