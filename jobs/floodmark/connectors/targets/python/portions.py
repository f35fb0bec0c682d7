"""A portion as the batch that a class gets."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.python.rows import schema_of
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


def no_rows(layout: Layout) -> pa.Table:
    """A batch that only moves the position."""
    return schema_of(columns_of(layout)).empty_table()
