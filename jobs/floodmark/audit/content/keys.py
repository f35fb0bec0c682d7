"""Find rows that share a key: in a sink with a key, merges leave one row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.audit.content.rowhash import row_hashes

LOOKED_AT = 1000  # repeated hashes: rows with the same hash are compared by value


def doubled(parts: Sequence[pa.Table], key: Sequence[str]) -> Iterator[str]:
    """A message if rows of one table share their key. `key`: columns, in any case; if one is missing, there is no
    message."""
    if not all({name.lower() for name in key} <= {name.lower() for name in part.column_names} for part in parts):
        return
    keys = [_of_key(part, key) for part in parts]
    hashes = [_hashes(part) for part in keys]
    twice = _twice(np.concatenate([np.empty(0, np.uint64), *hashes]))
    alike = [tuple(row.values()) for part, found in zip(keys, hashes, strict=True)
             for row in part.filter(pa.array(np.isin(found, twice))).to_pylist()]  # fmt: skip
    rows = sum(count for count in Counter(map(repr, alike)).values() if count > 1)
    if rows:
        yield f"{rows} of its rows share their key ({', '.join(key)}) with another row"


def _of_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    named = {name.lower(): name for name in rows.column_names}
    found = rows.select([named[name.lower()] for name in key]).combine_chunks()
    return found.cast(pa.schema([field.with_type(_in_bytes(field.type)) for field in found.schema]))


def _in_bytes(kind: pa.DataType) -> pa.DataType:
    """The type with bytes for text: Python cannot represent a text that is not UTF-8."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_bytes(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_bytes(field.type)) for field in kind])
    return kind


def _hashes(rows: pa.Table) -> npt.NDArray[np.uint64]:
    found = [row_hashes(batch, computed=False) for batch in rows.to_batches()]
    return np.concatenate([np.empty(0, np.uint64), *found])


def _twice(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    found, counts = np.unique(hashes, return_counts=True)
    return found[counts > 1][:LOOKED_AT]
