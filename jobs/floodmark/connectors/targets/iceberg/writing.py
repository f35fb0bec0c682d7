"""Turns operations into snapshots of one transaction: files are added, and files that hold rows which leave are written
again without these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
)
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Transaction

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.targets.iceberg.staged import Staged
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from floodmark.core.relay.portions import Replaced

    Producer: TypeAlias = _SnapshotProducer[Any]

ROWS = 250_000  # in memory at a time, for a table with partitions
_DAY = 86_400_000_000  # microseconds


def groups(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Operations that one snapshot can have together: only the first of a group takes rows of an interval, or all rows,
    away. What is emptied afterwards is left out."""
    empties = max((i for i, one in enumerate(operations) if one.empties), default=0)
    found = list[list[Operation]]()
    for one in operations[empties:]:
        if found and one.replaces is None:
            found[-1].append(one)
        else:
            found.append([one])
    return found


class Writer:
    """Writes into one transaction of one table."""

    def __init__(self, transaction: Transaction, io: FileIO, layout: Layout):
        self._transaction, self._io, self._layout = transaction, io, layout
        metadata = transaction.table_metadata
        self._all: pa.Schema = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
        self._own = pa.schema([self._all.field(one.name) for one in layout.columns])
        self._has_partitions = not metadata.spec().is_unpartitioned()

    def write(self, operations: Sequence[Operation]) -> None:
        for group in groups(operations):
            self._write(group)

    def _write(self, group: Sequence[Operation]) -> None:
        first = group[0]
        staged = self._staged(group)
        leaving = self._leaving(first, staged)
        tasks = [] if leaving is None else self._files(leaving)
        rows = self._new_rows(group, staged)
        if leaving is None or not tasks:
            if any(one.count for one in group):
                self._add(self._transaction.update_snapshot().fast_append(), rows)
            return
        producer = self._transaction.update_snapshot().overwrite()
        producer.delete_by_predicate(leaving)
        if first.empties:
            for task in tasks:
                producer.delete_data_file(task.file)
            return self._add(producer, rows)
        left = chain.from_iterable(self._left(task, producer, first.replaces, staged) for task in tasks)
        return self._add(producer, chain(left, rows))

    # --- Rows that come

    def _staged(self, group: Sequence[Operation]) -> Staged | None:
        """None if rows are added as they come: without a key, or as a single operation on an empty table."""
        rows = [one for one in group if one.count]
        if not self._layout.key or (len(rows) < 2 and (group[0].empties or not self._files(AlwaysTrue()))):
            return None
        staged = Staged(self._layout, self._own)
        for one in rows:
            batches = [(self._cast(batch), _gone(batch)) for batch in one.rows()]
            table = pa.Table.from_batches([batch for batch, _ in batches], self._own)
            staged.add(table, [gone for _, marks in batches for gone in marks], one.whole)
        return staged

    def _new_rows(self, group: Sequence[Operation], staged: Staged | None) -> Iterator[pa.RecordBatch]:
        """Once the rows that the table has are read."""
        if staged is not None:
            yield from map(self._padded, staged.rows().to_batches())
            return
        for batch in (batch for one in group if one.count for batch in one.rows()):
            marks = _gone(batch)
            found = batch.filter(pa.array([not gone for gone in marks])) if any(marks) else batch
            yield self._padded(self._cast(found))

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The layout's columns, with the table's types."""
        arrays = [batch.column(field.name).cast(field.type) for field in self._own]
        return pa.RecordBatch.from_arrays(arrays, schema=self._own)

    def _padded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With NULL in the table's other columns."""
        there = dict(zip(self._own.names, batch.columns, strict=True))
        arrays = [there.get(one.name, pa.nulls(len(batch), one.type)) for one in self._all]
        return pa.RecordBatch.from_arrays(arrays, schema=self._all)

    # --- Rows that leave

    def _leaving(self, first: Operation, staged: Staged | None) -> BooleanExpression | None:
        """The rows that leave, and others; None if no row does."""
        if first.empties:
            return AlwaysTrue()
        ranges = [] if first.replaces is None else [_within(first.replaces, self._own)]
        ranges += [] if staged is None else [_with_keys(staged)]
        found = Or(*ranges) if len(ranges) > 1 else next(iter(ranges), None)
        return found

    def _files(self, rows: BooleanExpression) -> list[FileScanTask]:
        scan = DataScan(self._transaction.table_metadata, self._io, row_filter=rows)
        return list(scan.plan_files())

    def _left(
        self, task: FileScanTask, producer: Producer, replaced: Replaced | None, staged: Staged | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file that stay, if others leave it; it is then deleted."""
        metadata = self._transaction.table_metadata
        there = ArrowScan(metadata, self._io, metadata.schema(), AlwaysTrue()).to_table([task])
        there = there.select(self._all.names).cast(self._all)
        stays = there
        if replaced is not None:
            stays = stays.filter(pc.invert(_is_within(stays[replaced.column], replaced)))
        if staged is not None:
            stays = stays.filter(staged.stays(stays))
        if len(stays) < len(there):
            producer.delete_data_file(task.file)
            yield from stays.to_batches()

    # --- Files

    def _add(self, producer: Producer, batches: Iterator[pa.RecordBatch]) -> None:
        with producer:
            for file in self._written(producer, batches):
                producer.append_data_file(file)

    def _written(self, producer: Producer, batches: Iterator[pa.RecordBatch]) -> Iterator[DataFile]:
        numbers = count()
        for rows in self._parts(batches):
            yield from _dataframe_to_data_files(
                self._transaction.table_metadata, rows, self._io, producer.commit_uuid, numbers
            )

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table | pa.RecordBatchReader]:
        """All in one stream, if the table has no partitions."""
        if not self._has_partitions:
            yield pa.RecordBatchReader.from_batches(self._all, batches)
            return
        held = list[pa.RecordBatch]()
        for batch in batches:
            held.append(batch)
            if sum(map(len, held)) >= ROWS:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)


def _gone(batch: pa.RecordBatch) -> list[bool]:
    """Of each row, whether it takes its key's row away."""
    if DELETE_COLUMN not in batch.schema.names:
        return [False] * len(batch)
    return [mark is True for mark in batch.column(DELETE_COLUMN).to_pylist()]


def _is_within(column: pa.ChunkedArray, replaced: Replaced) -> pa.ChunkedArray:
    """Of each row, whether it is in the interval."""
    micros = pc.multiply(column.cast(pa.int32()).cast(pa.int64()), _DAY) if at.is_date(column.type) else column
    micros = micros.cast(pa.int64())
    found = pa.chunked_array([[False] * len(column)], pa.bool_())
    for low, high in replaced.parts:
        found = pc.or_(found, pc.and_(pc.greater_equal(micros, low), pc.less(micros, high)))
    return pc.fill_null(found, False)


def _within(replaced: Replaced, schema: pa.Schema) -> BooleanExpression:
    """All rows of the interval, and maybe others at its ends."""
    unit = _DAY if at.is_date(schema.field(replaced.column).type) else 1
    name = replaced.column
    parts = [_from_to(name, low // unit, high // unit) for low, high in replaced.parts]
    return Or(*parts) if len(parts) > 1 else parts[0]


def _with_keys(staged: Staged) -> BooleanExpression:
    """All rows with one of the keys, and others between them."""
    parts = [part for name in staged.plain_key if (part := _between(name, staged.column(name))) is not None]
    return And(AlwaysTrue(), *parts) if parts else AlwaysTrue()


def _between(name: str, values: pa.ChunkedArray) -> BooleanExpression | None:
    if at.is_boolean(values.type):
        return None
    least, most = (pc.min_max(values)[end].as_py() for end in ("min", "max"))
    if least is None:
        return IsNull(term=name)
    found = _from_to(name, least, most)
    return Or(found, IsNull(term=name)) if values.null_count else found


def _from_to(name: str, least: Any, most: Any) -> BooleanExpression:
    return And(GreaterThanOrEqual(term=name, value=least), LessThanOrEqual(term=name, value=most))
