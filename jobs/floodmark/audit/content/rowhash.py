"""Recompute digests of rows from Arrow, as docs/reference/digests.md defines them, without code of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.audit.content import xxh64
from floodmark.audit.content.xxh64 import Hashes

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sums:
    """Sums of a floating-point column that is not in the hashes."""

    nulls: int
    nans: int
    sum: float
    size: float


@dataclass(frozen=True)
class RowDigest:
    """The number of rows; sums of the high and of the low half of their hashes; floating point by path."""

    rows: int
    high: int
    low: int
    floats: dict[str, Sums] = field(default_factory=dict)


def digest(table: pa.Table, computed: bool) -> RowDigest:
    """`computed`: floating point is left out of the hashes and summed; else it is hashed as it is."""
    high, low = 0, 0
    for batch in table.to_batches():
        hashes = row_hashes(batch, computed)
        high += sum((hashes >> np.uint64(32)).tolist())
        low += sum((hashes & np.uint64(0xFFFFFFFF)).tolist())
    floats = {}
    for name in _by_name(table.schema.names) if computed else []:
        for path, values in _paths(table[name].combine_chunks(), name):
            floats[path] = _sums(values)
    return RowDigest(table.num_rows, high, low, floats)


def row_hashes(batch: pa.RecordBatch, computed: bool) -> Hashes:
    names = batch.schema.names
    columns = {name: batch.column(names.index(name)) for name in names}
    return _columns(columns, xxh64.seeds(batch.num_rows), computed)


def _columns(columns: dict[str, pa.Array], hashes: Hashes, computed: bool) -> Hashes:
    """Hash columns in the order of their names: for each that is not null, its name's hash, then its value."""
    for name in _by_name(columns):
        known = _known(columns[name])
        tagged = xxh64.of_int64(np.full(len(hashes), _tag(name), np.int64), hashes)
        hashes = _value(columns[name], np.where(known, tagged, hashes), computed)
    return hashes


def _by_name(names: Any) -> list[str]:
    return sorted(names, key=lambda name: str(name).lower())


def _tag(name: str) -> int:
    data = np.frombuffer(name.lower().encode(), np.uint8)
    found = xxh64.of_bytes(data, np.array([0, len(data)]), xxh64.seeds(1))
    return int(found.view(np.int64)[0])


def _known(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def _value(array: pa.Array, hashes: Hashes, computed: bool) -> Hashes:
    """The hashes after the values of one array; those of its nulls stay as they are."""
    kind = array.type
    if pa.types.is_null(kind):
        return hashes
    if pa.types.is_struct(kind):
        return _columns(dict(zip(kind.names, array.flatten(), strict=True)), hashes, computed)
    if pa.types.is_map(kind):
        return _map(array, hashes, computed)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(array, hashes, computed)
    return np.where(_known(array), _atoms(array, hashes, computed), hashes)


def _atoms(array: pa.Array, hashes: Hashes, computed: bool) -> Hashes:
    """Hash values as if there were no nulls."""
    kind = array.type
    if pa.types.is_floating(kind) and computed:
        return xxh64.of_int32(_filled(pc.is_nan(array), False).astype(np.int32), hashes)
    if pa.types.is_floating(kind):
        return _floating(array, hashes)
    if pa.types.is_boolean(kind):
        return xxh64.of_int32(_filled(array, False).astype(np.int32), hashes)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return xxh64.of_int64(_filled(_micros(array), 0).astype(np.int64), hashes)
    if pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return xxh64.of_int32(_filled(array.cast(pa.int32()), 0).astype(np.int32), hashes)
    if pa.types.is_decimal(kind):
        return _decimal(array, hashes)
    if any(check(kind) for check in _BYTES):
        return _bytes(array.cast(pa.large_binary()), hashes)
    raise NotImplementedError(f"the digest of {kind} is not known")


_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _filled(array: pa.Array, value: Any) -> npt.NDArray[Any]:
    return np.asarray(pc.fill_null(array, value).to_numpy(zero_copy_only=False))


def _micros(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    return array


def _floating(array: pa.Array, hashes: Hashes) -> Hashes:
    """Hash the bits of the number; there is one zero and one NaN."""
    values = _filled(array, 0.0) + 0.0  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan
    if values.dtype == np.float32:
        return xxh64.of_int32(values.view(np.int32), hashes)
    return xxh64.of_int64(values.view(np.int64), hashes)


def _decimal(array: pa.Array, hashes: Hashes) -> Hashes:
    """Hash the unscaled number: up to 18 digits as 64 bits, else in as few bytes as it needs, the highest first."""
    wide = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)[wide.offset : wide.offset + len(wide)]
    if array.type.precision <= 18:
        return xxh64.of_int64(words[:, 0], hashes)
    return _bytes(pa.array([_shortest(row.tobytes()) for row in words], pa.large_binary()), hashes)


def _shortest(word: bytes) -> bytes:
    number = int.from_bytes(word, "little", signed=True)
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def _bytes(array: pa.Array, hashes: Hashes) -> Hashes:
    """Hash a large_binary array."""
    filled = pa.concat_arrays([pc.fill_null(array, b"")])  # a copy without an offset
    _, places, data = filled.buffers()
    offsets = np.frombuffer(places, np.int64, len(filled) + 1, filled.offset * 8)
    return xxh64.of_bytes(np.frombuffer(data or b"", np.uint8), offsets, hashes)


def _list(array: pa.Array, hashes: Hashes, computed: bool) -> Hashes:
    """Hash the number of elements, then for each whether it is null, and its value."""
    starts, sizes = _extent(array)
    hashes = _sized(_known(array), sizes, hashes)
    for rows, places in _steps(starts, sizes):
        hashes[rows] = _element(array.values.take(pa.array(places)), hashes[rows], computed)
    return hashes


def _element(elements: pa.Array, hashes: Hashes, computed: bool) -> Hashes:
    absent = (~_known(elements)).astype(np.int32)
    return _value(elements, xxh64.of_int32(absent, hashes), computed)


def _map(array: pa.Array, hashes: Hashes, computed: bool) -> Hashes:
    """Hash the number of entries, then their hashes, sorted as signed numbers; each of these starts from the seed."""
    starts, sizes = _extent(array)
    hashes = _sized(_known(array), sizes, hashes)
    entries = _element(array.items, _element(array.keys, xxh64.seeds(len(array.keys)), computed), computed)
    signed = entries.view(np.int64)
    for row in np.flatnonzero(sizes):
        signed[starts[row] : starts[row] + sizes[row]].sort()
    for rows, places in _steps(starts, sizes):
        hashes[rows] = xxh64.of_int64(signed[places], hashes[rows])
    return hashes


def _extent(array: pa.Array) -> tuple[Places, Places]:
    """Where the values of each row begin, and how many there are; 0 for a null."""
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), np.int64)
    return offsets[:-1], np.where(_known(array), np.diff(offsets), 0)


def _sized(known: npt.NDArray[np.bool_], sizes: Places, hashes: Hashes) -> Hashes:
    return np.where(known, xxh64.of_int32(sizes.astype(np.int32), hashes), hashes)


def _steps(starts: Places, sizes: Places) -> Iterator[tuple[Places, Places]]:
    """First elements, second elements, …: the rows that have one, and where it is."""
    for step in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > step)
        yield rows, starts[rows] + step


def _paths(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """Each path to floating point, with one number for each row: in lists and maps the sum without NaN."""
    kind = array.type
    if pa.types.is_floating(kind):
        yield path, array.cast(pa.float64())
    elif pa.types.is_struct(kind):
        for name, values in zip(kind.names, array.flatten(), strict=True):
            yield from _paths(values, f"{path}.{name}")
    elif pa.types.is_map(kind):
        yield from _inside(array, array.keys, f"{path}{{key}}")
        yield from _inside(array, array.items, f"{path}{{value}}")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _inside(array, array.values, f"{path}[]")


def _inside(array: pa.Array, values: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    starts, sizes = _extent(array)
    for found, numbers in _paths(values, path):
        plain = np.nan_to_num(_filled(numbers, 0.0), nan=0.0, posinf=np.inf, neginf=-np.inf)
        with np.errstate(invalid="ignore"):
            sums = [float(plain[start : start + size].sum()) for start, size in zip(starts, sizes, strict=True)]
        yield found, pa.array(sums, pa.float64(), mask=~_known(array))


def _sums(values: pa.Array) -> Sums:
    known = values.drop_null().to_numpy(zero_copy_only=False)
    numbers = known[~np.isnan(known)]
    nans = len(known) - len(numbers)
    with np.errstate(invalid="ignore"):  # both infinities together are NaN
        return Sums(values.null_count, nans, float(numbers.sum()), float(np.abs(numbers).sum()))
