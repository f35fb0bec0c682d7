"""Rows that were read back from a target, as Arrow's batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from floodmark.connectors.sources.python.rows import schema_of
from floodmark.core.text.ddl import Column

_ROWS = 10_000  # of a batch


def batches_of(rows: Iterator[Mapping[str, Any]], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The rows, in their order. A map is a dict, or pairs; a time is one of Python's, or an integer: the number of
    microseconds, or of a date's days, since 1970. Raises ValueError for a value of another type.
    """
    schema = schema_of(columns)
    while part := list(islice(rows, _ROWS)):
        arrays = [pa.array([row[field.name] for row in part], field.type) for field in schema]
        yield pa.record_batch(arrays, schema=schema)
