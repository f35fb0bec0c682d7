"""An Iceberg table as a source: the rows that snapshots append. Only the methods that take a session need a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.connectors.sources.iceberg.catalogs import Tables
from floodmark.connectors.sources.iceberg.columns import columns_of, replaced
from floodmark.connectors.sources.iceberg.offsets import KEEP, SAME, At, Gone, Step, first_of, since
from floodmark.connectors.sources.iceberg.options import WrittenIceberg
from floodmark.connectors.sources.python.rows import frame_of, schema_of
from floodmark.core.text.ddl import delta_name
from floodmark.core.text.tablenames import about
from floodmark.errors import HistoryGone, NotThereYet, Refused

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.model import Stream
    from floodmark.core.rules.rule import EpochLimits


class IcebergSource(Stepped):
    """One table, by its catalogue's connection."""

    def __init__(self, name: str, stream: Stream):
        self.name, self.address, self._starts_at = name, stream.address, stream.start
        said = WrittenIceberg.model_validate(stream.options)
        self._place, self._tables = said.place, Tables(said.connection, self._about)

    def _about(self, problem: str) -> str:
        return about(f"stream {self.name}", self.address, problem)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with self._tables.explained():
                yield
        except Gone as fault:
            raise HistoryGone(self._about(str(fault))) from None

    def _table(self) -> Table:
        with self._explained():
            found = self._tables.load(self._place)
            if found is None:
                raise NotThereYet(self._about("expected the table, found none: make it; a retry checks again"))
            if found.format_version < 2:
                problem = "expected format version 2 or newer, found 1, whose snapshots have no order: upgrade it"
                raise Refused(self._about(problem))
            return found

    # --- Offsets

    def start(self) -> str:
        table = self._table()
        return _at(table, table.current_snapshot() if self._starts_at == "latest" else None).line()

    def end(self) -> str:
        table = self._table()
        newest = table.current_snapshot()
        # A table that was replaced by an empty one ends behind all snapshots that it had.
        return (_at(table, newest) if newest else replace(_at(table, None), sequence=table.last_sequence_number)).line()

    def take_end(self, since: str) -> str:
        table = self._table()
        steps = self._since(table, At.parse(since))
        return since if not steps else _after(table.metadata.current_schema_id, At.parse(since), steps[-1]).line()

    def _since(self, table: Table, begin: At, end: At | None = None) -> list[Step]:
        """Raises HistoryGone."""
        with self._explained():
            newest = table.current_snapshot() if end is None else self._snapshot(table, end)
            there = begin.snapshot is not None and table.snapshot_by_id(begin.snapshot) is not None
            return since(map(_step, ancestors_of(newest, table.metadata)), begin, there)

    def _snapshot(self, table: Table, at: At) -> Snapshot | None:
        found = None if at.snapshot is None else table.snapshot_by_id(at.snapshot)
        if found is None and at.snapshot is not None:
            raise Gone(
                f"expected snapshot {at.snapshot}, found that it has expired, so its rows cannot be read again. Start "
                f"over with `floodmark reset`, and {KEEP}"
            )
        return found

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        if limits.max_rows is None:
            return upto
        begin, end = At.parse(since), At.parse(upto)
        return _after(end.schema, begin, first_of(self._since(self._table(), begin, end), limits.max_rows)).line()

    def news(self, since: str, upto: str | None = None) -> bool:
        read, now = At.parse(since), At.parse(self.end() if upto is None else upto)
        if read.snapshot == now.snapshot:
            return False
        if now.snapshot is None:  # it was replaced by an empty table
            return upto is None or 0 < now.sequence >= read.sequence
        if upto is not None and read.sequence == now.sequence:  # from before an upgrade from format version 1
            return not self._is_before(now, read)
        return upto is None or read.sequence < now.sequence

    def _is_before(self, at: At, other: At) -> bool:
        """Whether a snapshot is known to be an ancestor of another one."""
        table = self._table()
        newest = None if other.snapshot is None else table.snapshot_by_id(other.snapshot)
        return any(one.parent_snapshot_id == at.snapshot for one in ancestors_of(newest, table.metadata))

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        table, begin = self._table(), At.parse(since)
        steps = self._since(table, At(begin.of) if rebuilt else begin)
        rows = sum(one.rows for one in steps)
        said = "nothing new" if not steps else f"{len(steps)} snapshots with {rows:,} rows"
        return Backlog(len(steps), "snapshots", said, {"snapshots": len(steps), "rows": rows})

    def identity(self, offset: str) -> str:
        return At.parse(offset).of

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        return At.parse(offset).of != str(self._table().metadata.table_uuid)

    def check_columns(self, offset: str, read: Iterable[str]) -> None:
        table, at = self._table(), At.parse(offset)
        if at.schema is None:
            return
        before = _schema_at(table, at.schema, at.snapshot)
        if before is None and at.snapshot is None:
            return  # nothing was read
        if before is None:
            raise HistoryGone(
                self._about(
                    f"expected schema {at.schema}, by which it was read up to {self.describe(offset)}, found that an "
                    "expiry of metadata has removed it, so nobody can tell whether the columns are still the same. "
                    f"Start over with `floodmark reset`, and {KEEP}"
                )
            )
        column = replaced(before, table.schema(), {name.lower() for name in read})
        if column is not None:
            raise HistoryGone(
                self._about(
                    f"column {column}, as it was read up to {self.describe(offset)}, was dropped or renamed since, and "
                    "another column has its name now. Start over with `floodmark reset`"
                )
            )

    def check_appended(self, since: str) -> None:
        self._since(self._table(), At.parse(since))

    def describe(self, offset: str) -> str:
        at = At.parse(offset)
        return "before the first row" if at.snapshot is None else f"snapshot {at.snapshot} (number {at.sequence})"

    # --- Rows

    def columns(self) -> dict[str, str]:
        return {one.name: delta_name(one.type) for one in columns_of(self._table().schema())}

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        table, low, high = self._table(), At.parse(begin), At.parse(end)
        if low == high:
            return self.typed(spark)
        with self._explained():
            return frame_of(spark, self._rows(table, self._files(table, low, high)), columns_of(table.schema()))

    def _files(self, table: Table, low: At, high: At) -> Iterable[FileScanTask]:
        """Of a range: those that its snapshots added. From before the first row on, all that were there at its end."""
        if not self._since(table, low, high):
            return ()
        if low.snapshot is None:
            return DataScan(table.metadata, table.io, snapshot_id=high.snapshot).plan_files()
        added = table.incremental_append_scan(
            from_snapshot_id_exclusive=low.snapshot, to_snapshot_id_inclusive=high.snapshot
        )
        return added.plan_files()

    def _rows(self, table: Table, files: Iterable[FileScanTask]) -> pa.Table:
        columns = columns_of(table.schema())
        names = [one.name for one in columns]
        try:
            found = ArrowScan(table.metadata, table.io, table.schema().select(*names), AlwaysTrue()).to_table(files)
        except FileNotFoundError as fault:
            problem = f"expected a data file, found none: {fault}. Restore it, or start over with `floodmark reset`"
            raise HistoryGone(self._about(problem)) from fault
        return found.select(names).cast(schema_of(columns))

    def typed(self, spark: SparkSession) -> DataFrame:
        columns = columns_of(self._table().schema())
        return frame_of(spark, schema_of(columns).empty_table(), columns)


def _at(table: Table, snapshot: Snapshot | None) -> At:
    of = str(table.metadata.table_uuid)
    schema = table.metadata.current_schema_id
    if snapshot is None:
        return At(of, schema=schema)
    return At(of, snapshot.snapshot_id, snapshot.sequence_number or 0, schema)


def _schema_at(table: Table, number: int, snapshot: int | None) -> Schema | None:
    """A schema, or else that of a snapshot: an engine removes schemas to which no snapshot refers."""
    read = None if snapshot is None else table.snapshot_by_id(snapshot)
    known = table.schemas()
    return known.get(number) or (None if read is None or read.schema_id is None else known.get(read.schema_id))


def _after(schema: int | None, begin: At, step: Step) -> At:
    return At(begin.of, step.snapshot, step.sequence, schema)


def _step(one: Snapshot) -> Step:
    said = one.summary
    operation = "unknown" if said is None else said.operation.value
    rows = 0 if said is None or operation == SAME else int(said["added-records"] or 0)
    whole, number = None if said is None else said["total-records"], one.sequence_number or 0
    known = None if whole is None else int(whole)
    return Step(one.snapshot_id, one.parent_snapshot_id, number, one.timestamp_ms, operation, rows, known)
