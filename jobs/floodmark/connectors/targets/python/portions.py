"""A portion as the batch that a class gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pyarrow as pa

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.python.rows import schema_of
from floodmark.core.relay.portions import Replaced, micros_of
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column, Type

ROW = "_floodmark_row"  # the column with each row's token


def columns_of(layout: Layout) -> tuple[Column, ...]:
    """The columns that `apply` gets: those of the results, with a key the mark of deletions, and each row's token."""
    marks = [Column(DELETE_COLUMN, Type("boolean"))] if layout.key else []
    return (*layout.columns, *marks, Column(ROW, Type("string")))


def portion_of(one: Operation, layout: Layout) -> pa.Table:
    """All rows of a portion."""
    schema = schema_of(columns_of(layout))
    plain = pa.schema(list(schema)[:-1])
    batches = [_typed(batch, plain) for batch in (one.rows() if one.count else ())]
    found = pa.Table.from_batches(batches, plain)
    numbers = islice(one.numbers(), found.num_rows)
    tokens = pa.array([f"{one.token}/{number}" for number in numbers], pa.string())
    return found.append_column(schema.field(ROW), tokens)


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def bounds_of(replaced: Replaced, layout: Layout) -> list[tuple[datetime, datetime]]:
    """The intervals whose rows leave, as values of their column: a row at the first leaves, one at the second stays."""
    kind = next(column.type.name for column in layout.columns if column.name == replaced.column)
    return [(_bound(low, kind), _bound(high, kind)) for low, high in replaced.parts]


def _bound(micros: int, kind: str) -> datetime:
    """The time as a value of the type; Python's first or last one, if it is beyond."""
    first, last = (micros_of(one) for one in (datetime.min, datetime.max))
    assert first is not None and last is not None
    at = datetime(1970, 1, 1) + timedelta(microseconds=min(max(micros, first), last))
    return at.replace(tzinfo=UTC) if kind == "timestamp" else at


def no_rows(layout: Layout) -> pa.Table:
    """A batch that only moves the position."""
    return schema_of(columns_of(layout)).empty_table()
