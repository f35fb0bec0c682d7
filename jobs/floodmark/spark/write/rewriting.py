"""A transaction that rewrites some of a table's files: its reads and writes see one version of the table."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from floodmark.core.sql.tree.names import CHANGE_FEED, FEED_BEFORE
from floodmark.errors import InputFault
from floodmark.ledger.delta.keybounds import Bound, may_hold
from floodmark.spark.write.appending import Appending

RENAMED = "delta.columnMapping.mode"  # with it, statistics use other names than the columns


class Rewriting(Appending):
    """The transaction has read the table, so any commit of rows in the meantime makes it conflict."""

    def _files_within(self, bounds: list[Bound]) -> list[Any]:
        """The table's files that may hold a value within the bounds. The transaction counts as having read them all."""
        self._txn.readWholeTable()
        known = [] if self._has_setting(RENAMED) else bounds
        return [file for file in self._live_files() if may_hold(file.stats(), known, _partition(file, known))]

    def _live_files(self) -> list[Any]:
        """All files of the table: from its checksum, if that lists them, otherwise by Spark jobs over its log."""
        checksum = self._txn.snapshot().checksumOpt()
        listed = checksum.get().allFiles() if checksum.isDefined() else checksum
        if listed.isDefined():
            return [listed.get().apply(i) for i in range(listed.get().size())]
        return list(self._txn.snapshot().allFiles().collectAsList())

    def _has_setting(self, setting: str) -> bool:
        """Whether a table property is set, to a value other than `false` and `none`, which Delta reads in any case."""
        known, names = self._txn.metadata().configuration(), [setting]
        names += [FEED_BEFORE] if setting == CHANGE_FEED else []
        values = (found.get().lower() for found in map(known.get, names) if found.isDefined())
        return next(values, "none") not in ("false", "none")

    def _operation(self, version: int, metadata: str) -> Any:
        update = self._class("org.apache.spark.sql.streaming.OutputMode").Update()
        operation = self._delta("DeltaOperations$StreamingUpdate")
        return operation(update, self._app, version, self._some(metadata))


def _partition(file: Any, bounds: list[Bound]) -> dict[str, str | None]:
    """The partition columns among those of the bounds, with their values in the file."""
    values = file.partitionValues()
    return {bound.column: values.apply(bound.column) for bound in bounds if values.contains(bound.column)}


def name_of(file: Any) -> str:
    return unquote(str(file.path()).rsplit("/", 1)[-1])


def rows_of(file: Any) -> int:
    """How many rows a file has, by its statistics. Raises InputFault without these."""
    found = file.numLogicalRecords()
    if not found.isDefined():
        raise InputFault(
            f"expected statistics of file {name_of(file)} in the table's log, found none, so it is unknown how many "
            "rows the file has: another writer left them out, or a checkpoint of the table (`delta.checkpoint."
            "writeStatsAsJson`, `delta.checkpoint.writeStatsAsStruct`). Set one of these to true in the table, and "
            "start over with `floodmark reset`"
        )
    return int(found.get())
