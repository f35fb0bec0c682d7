"""The columns that a target has now, and rows of other times in them.

A reset that keeps the rows (`on_reset: keep`) may drop a column or change its type: older files of the outbox have it
as it was, and the target is read back as it is now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import Schema

from floodmark.audit.content.content import GONE
from floodmark.audit.delivered.portions import Undecided


@dataclass(frozen=True)
class Columns:
    """Of an outbox. `types`: of its columns, as Delta names them."""

    types: Mapping[str, Any]

    @cached_property
    def _schema(self) -> pa.Schema:
        kinds = {name: kind for name, kind in self.types.items() if name != GONE}
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
        return pa.schema(Schema.from_json(json.dumps({"type": "struct", "fields": fields})).to_arrow())

    def of(self, rows: pa.Table, besides: Sequence[str] = (GONE,)) -> pa.Table:
        """The rows in these columns: NULL in one that they lack. besides: columns that stay as they are, if there are
        any. Raises Undecided where a value may not be the same in the type of now."""
        there = {name.lower(): at for at, name in enumerate(rows.column_names)}
        columns = {
            field.name: _as(rows.column(there[field.name.lower()]), field.type, field.name)
            for field in self._schema
            if field.name.lower() in there
        }
        # A column that they lack adds nothing to the hash of a row, as NULL does.
        return pa.table(columns | {name: rows[name] for name in besides if name in rows.column_names})


def _as(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    if _is_alike(column.type, kind):
        return column
    try:
        return pa.chunked_array([_cast(one, kind) for one in column.chunks], kind)
    except (pa.ArrowException, NotImplementedError) as fault:
        raise Undecided(
            f"its rows cannot be compared: column {name} was {column.type} when some of them came, and is {kind} now "
            f"({fault})"
        ) from None


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises for values that are not the same in the other type, or may not be once they have been text."""
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(array.type) and pa.types.is_struct(kind):
        there = {field.name.lower(): one for field, one in zip(array.type, array.flatten(), strict=True)}
        found = (there.get(field.name.lower(), pa.nulls(len(array))) for field in kind)
        fields = [_cast(one, field.type) for one, field in zip(found, kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(array.type) and pa.types.is_list(kind):
        ends = np.cumsum([0, *array.value_lengths().fill_null(0).to_pylist()])
        mask = np.array([*array.is_null().to_pylist(), False])
        values = _cast(array.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32(), mask=mask), values).cast(kind)
    if pa.types.is_integer(array.type) and pa.types.is_decimal(kind):
        return array.cast(pa.decimal128(38, 0)).cast(kind)
    if not _is_exact(array.type, kind):
        raise NotImplementedError("such values may differ")
    return array.cast(kind)


def _is_exact(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a cast gives the same number, or fails. Not so of floating point: 0.1 of 32 bits is written as 0.1, and
    read as another number of 64."""
    number = pa.types.is_integer(one) and (pa.types.is_integer(other) or other == pa.float64())
    return one == other or number or (pa.types.is_decimal(one) and bool(pa.types.is_decimal(other)))


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether equal values have equal hashes, though Arrow may keep them in another way."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        ones, others = ({field.name.lower(): field.type for field in kind} for kind in (one, other))
        return ones.keys() == others.keys() and all(_is_alike(ones[name], others[name]) for name in ones)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _is_alike(one.key_type, other.key_type) and _is_alike(one.item_type, other.item_type)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _is_alike(one.value_type, other.value_type)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return bool((one.tz is None) == (other.tz is None))
    return one == other or any(one in kinds and other in kinds for kinds in _ALIKE)


_ALIKE = (
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
    (pa.int8(), pa.int16(), pa.int32()),
)
