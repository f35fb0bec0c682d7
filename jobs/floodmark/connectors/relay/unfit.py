"""Finds rows with a value that Spark's tables hold and targets do not, before a target fails on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from floodmark.connectors.ports.target import Operation
from floodmark.core.text.ddl import Column
from floodmark.core.text.durations import DAY
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import InputFault

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = "expected text in UTF-8, found "
_PYTHON = range(-719_162, 2_932_897)  # days since 1970 of the years 1 to 9999, which Python has
_ARROW = range(-12_687_428, 11_248_738)  # of the years that Arrow writes as text
TIME = "expected a time of the years -32767 to 32767, found one beyond"
NESTED_TIME = "expected a time of the years 1 to 9999 within an array, a map or a struct, found one beyond"
PYTHON_TIME = "expected a time of the years 1 to 9999, found one beyond"

_ANY = {False: (_ARROW, TIME), True: (_PYTHON, PYTHON_TIME)}


def fit_rows(address: str, one: Operation, columns: Sequence[Column], near: bool = False) -> Iterator[pa.RecordBatch]:
    """The operation's rows. Raises InputFault at the first row that most targets do not hold. near: nor times that
    Python lacks."""
    numbers = one.numbers()
    for batch in one.rows():
        here = list(islice(numbers, batch.num_rows))
        for place, why in _unfit(batch, columns, near, 0, batch.num_rows):
            raise InputFault(about_sink(address, f"row {one.token}/{here[place]}: {why}"))
        yield batch


def unfit_rows(one: Operation, columns: Sequence[Column], near: bool = False) -> dict[int, str]:
    """All such rows of the operation, each with the reason, by their place in `rows`."""
    found, first = dict[int, str](), 0
    for batch in one.rows() if one.count else ():
        found |= {first + place: why for place, why in _unfit(batch, columns, near, 0, batch.num_rows)}
        first += batch.num_rows
    return found


def _unfit(
    batch: pa.RecordBatch, columns: Sequence[Column], near: bool, low: int, high: int
) -> Iterator[tuple[int, str]]:
    """Halves are looked at until a row is alone. near: times are to be those that Python has."""
    import pyarrow as pa

    part = batch if high - low == batch.num_rows else batch.take(pa.array(range(low, high)))
    reasons = (f"column {one.name}: {why}" for one in columns if (why := _reason(part.column(one.name), _ANY[near])))
    why = next(reasons, None)
    if why is not None and high - low == 1:
        yield low, why
    elif why is not None:
        middle = (low + high) // 2
        yield from _unfit(batch, columns, near, low, middle)
        yield from _unfit(batch, columns, near, middle, high)


def _reason(array: pa.Array, times: tuple[range, str] = (_PYTHON, NESTED_TIME)) -> str | None:
    """Why the values do not fit; None: they do. times: the days that fit at the top, and why others do not."""
    import pyarrow.types as t

    if t.is_string(array.type) or t.is_large_string(array.type):
        return None if _is_utf8(array) else TEXT + _shown(array)
    if t.is_timestamp(array.type) or t.is_date(array.type):
        days, why = times
        return None if _are_within(days, array) else why
    if t.is_struct(array.type):
        return next(filter(None, map(_reason, array.flatten())), None)
    if t.is_map(array.type):
        return _reason(_pairs(array))
    return _reason(array.flatten()) if t.is_list(array.type) else None


def _pairs(array: pa.Array) -> pa.Array:
    """Maps as lists of structs."""
    import pyarrow as pa

    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _shown(array: pa.Array) -> str:
    """The start of its first text."""
    import pyarrow as pa

    first: bytes | None = array.cast(pa.binary())[0].as_py()
    return (first or b"").decode(errors="backslashreplace")[:60]


def _is_utf8(array: pa.Array) -> bool:
    import pyarrow as pa

    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _are_within(days: range, array: pa.Array) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as t

    kind, unit = (pa.int32(), 1) if t.is_date(array.type) else (pa.int64(), DAY)
    found = pc.min_max(array.cast(kind)).as_py()
    return found["min"] is None or (found["min"] // unit in days and found["max"] // unit in days)
