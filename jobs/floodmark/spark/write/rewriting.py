"""A transaction that rewrites some of a table's files: its reads and writes see one version of the table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame

from floodmark.core.sql.tree.names import CHANGE_FEED, FEED_BEFORE
from floodmark.errors import InputFault
from floodmark.ledger.delta.keybounds import Bound, may_hold
from floodmark.spark.session.jvm import added_files, as_log
from floodmark.spark.write.appending import Appending

RENAMED = "delta.columnMapping.mode"  # with it, statistics use other names than the columns


@dataclass(frozen=True)
class LiveFile:
    """A file of the version that a transaction sees. `said`: what the table's log says of it."""

    said: dict[str, Any]

    @property
    def path(self) -> str:
        """Its path, as the log spells it."""
        return str(self.said["path"])

    @property
    def stats(self) -> str | None:
        """Delta's statistics, as JSON; None without."""
        return self.said.get("stats")

    @property
    def partition(self) -> dict[str, str | None]:
        """The one value that each partition column has in the file."""
        return self.said.get("partitionValues") or {}

    @property
    def rows_written(self) -> int | None:
        """Its rows, those included that a deletion vector deletes; None without statistics."""
        found = json.loads(self.stats or "{}").get("numRecords")
        return None if found is None else int(found)


class Rewriting(Appending):
    """The transaction has read the table, so any commit of rows in the meantime makes it conflict."""

    def _files_within(self, bounds: list[Bound]) -> list[LiveFile]:
        """The table's files that may hold a value within the bounds. The transaction counts as having read them all."""
        self._txn.readWholeTable()
        known = [] if self._has_setting(RENAMED) else bounds
        return [file for file in self._live_files() if may_hold(file.stats, known, file.partition)]

    def _live_files(self) -> Iterator[LiveFile]:
        """All files of the table: from its checksum, if that lists them, otherwise by Spark jobs over its log."""
        checksum = self._txn.snapshot().checksumOpt()
        listed = checksum.get().allFiles() if checksum.isDefined() else checksum
        return self._live(listed.get() if listed.isDefined() else self._all_of(self._txn.snapshot()))

    def _all_of(self, snapshot: Any) -> Any:
        return self._seq_of(snapshot.allFiles().collectAsList())

    def _live(self, files: Any) -> Iterator[LiveFile]:
        return map(LiveFile, as_log(self._session, files))

    def _deltas(self, files: Iterable[LiveFile]) -> Any:
        """The files as Delta's own, in a list of the JVM."""
        return added_files(self._session, (file.said for file in files))

    def _table(self, files: Iterable[LiveFile]) -> DataFrame:
        """The rows of some of the table's files, as the transaction sees them."""
        return self._table_of(self._deltas(files))

    def _removed(self, files: Iterable[LiveFile]) -> Any:
        """The actions that remove files. Delta itself makes them, one by one: it knows what they have to say."""
        return self._seq(*(file.remove() for file in self._deltas(files)))

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


def name_of(file: LiveFile) -> str:
    return unquote(file.path.rsplit("/", 1)[-1])


def rows_of(file: LiveFile) -> int:
    """How many rows a file has, by its statistics. Raises InputFault without these."""
    held = file.rows_written
    if held is None:
        raise InputFault(
            f"expected statistics of file {name_of(file)} in the table's log, found none, so it is unknown how many "
            "rows the file has: another writer left them out, or a checkpoint of the table (`delta.checkpoint."
            "writeStatsAsJson`, `delta.checkpoint.writeStatsAsStruct`). Set one of these to true in the table, and "
            "start over with `floodmark reset`"
        )
    return held - int((file.said.get("deletionVector") or {}).get("cardinality", 0))
