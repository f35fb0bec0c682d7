"""One append to a Delta table under an app transaction, through Delta's own transaction.

With the writer's options `txnAppId` and `txnVersion`, Delta reconstructs the table's whole state in Spark jobs before
each write, only to find the app's recorded version. That takes a third of a small epoch. delta-rs reads it from the log
in milliseconds. So the transaction starts first, then the caller reads the recorded version. The app is among the
transaction's reads, so a commit under the same app after its start makes it conflict.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType, TimestampType

from floodmark.core.protocol.digests import Digest
from floodmark.core.rules.sinks.upserts import Effect
from floodmark.core.text.tablenames import about_named
from floodmark.errors import InputFault
from floodmark.ledger.delta import datafiles, tablelog
from floodmark.ledger.delta.syncing import is_enabled, sync_files
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.typechanges import wrong_types
from floodmark.spark.session.jvm import added_files, jvm_class, materialised
from floodmark.spark.session.session import in_utc
from floodmark.spark.write.layouts import refuse_padded

# A commit since the transaction started: under the same app, or on files that the transaction has read.
CONFLICT = "io.delta.exceptions.Concurrent"
ROWS_IN_A_FILE = 500_000
BYTES_OF_A_CORE = 4 << 20  # from here on, it is worth it that another core writes


def files_for(rows: int, size: int = 0, cores: int = 1) -> int:
    """How many files to write for at most `rows` rows, out of `size` bytes: few for readers, enough for the cores."""
    return max(1 + rows // ROWS_IN_A_FILE, min(cores, 1 + size // BYTES_OF_A_CORE))


class Appending:
    """A transaction on the table at `address`, started at the newest version, that writes as `app`.

    Use it from one thread at a time; different threads may write and commit.

    `exact`: its floating point is a copy of the input. `effect`: what a write does to existing rows; None: nothing.
    `digest`: of the rows written; `results`: of the rows merged, if these differ.
    """

    conflict = CONFLICT

    def __init__(self, session: SparkSession, address: str, app: str, exact: bool = False):
        self._session, self._address, self._app, self._exact = session, address, app, exact
        self._enter()
        self._txn = self._delta("DeltaLog").forTable(session._jsparkSession, address).startTransaction()
        getattr(self._txn.readTxn(), "$plus$eq")(app)
        self._files = self._seq()
        self.effect: Effect | None = None
        self.digest = Digest()
        self.results: Digest | None = None

    def _enter(self) -> None:
        """Set the session of the current thread. If the newest version has no checksum, Delta computes the table's
        state in the thread's session, and threads of Python have none."""
        self._class("org.apache.spark.sql.classic.SparkSession").setActiveSession(self._session._jsparkSession)

    def check_types(self, name: str, frame: DataFrame) -> None:
        """Refuse rows whose types differ from the table's: Delta's file writer checks only names, and delta-rs fails
        on a file of another type."""
        table = self._schema()
        wrong = "; ".join(
            f"{path}: table {there}, rows {kind}" for path, there, kind in wrong_types(table, frame.schema)
        )
        if wrong:
            raise InputFault(
                about_named(
                    name,
                    f"expected rows with the column types of the table, found others ({wrong}). A column of a "
                    "source has changed its type since then; start over with `floodmark reset`",
                )
            )

    def _schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._txn.metadata().schemaString()))

    def write(self, frame: DataFrame) -> int:
        """Write the rows to files that no version of the table names yet; returns the number of rows.

        The commit leaves out files without rows; VACUUM removes them.
        """
        self.digest = self._written(frame, self._digesting(frame))
        return self.digest.rows

    def discard(self) -> None:
        """Remove the files that were written, which no version names. The table is in a folder of this machine."""
        for action in self._actions():
            for path in datafiles.paths_of(action):
                datafiles.remove_file(Path(self._address, unquote(path)))

    def _written(self, frame: DataFrame, digesting: Digesting) -> Digest:
        taken = Observation()
        if self._is_in_utc(frame.schema):
            frame = materialised(frame, in_utc(self._session))
        rows = digesting.hashed(frame).observe(taken, *map(F.expr, digesting.measures()))
        self._files = self._txn.writeFiles(digesting.without(rows)._jdf)
        return digesting.digest(taken.get)

    def _is_in_utc(self, schema: StructType) -> bool:
        """Whether the table is partitioned by instants. Spark names a directory by the session's local time, which is
        ambiguous when daylight saving time ends: only UTC is not."""
        by = {str(name).lower() for name in self._values(self._txn.metadata().partitionColumns())}
        return any(isinstance(field.dataType, TimestampType) and field.name.lower() in by for field in schema)

    def compute(self, frame: DataFrame) -> int:
        """Compute the digest that a write of these rows would have, without writing; returns the number of rows."""
        self.digest = self._digesting(frame).of(frame)
        return self.digest.rows

    def digest_of_commit(self, commit: int) -> Digest:
        """The digest of the rows in the files that commit `commit` of the table added.

        Raises HistoryGone if a file, or the commit's log entry, no longer exists.
        """
        files = datafiles.added_files(self._address, commit)
        if not files:
            return Digest()
        rows = self._table_of(added_files(self._session, (json.loads(line)["add"] for line in files)))
        return self._digesting(rows).of(rows)

    def expected_effect(self) -> Effect:
        """The computed effect of the commit on the table: a plain append adds its rows."""
        return self.effect or Effect(self.digest.rows, inserted=self.digest.rows)

    def moves(self) -> tuple[int, int]:
        """How many rows the commit would add and remove, according to the files that it names."""
        return tablelog.rows_moved(self._actions())

    def facts(self) -> dict[str, Any]:
        """What the commit's metadata says about the rows."""
        results = {} if self.results is None else {"results": self.results.model_dump()}
        return {"digest": self.digest.model_dump(), **results, **(asdict(self.effect) if self.effect else {})}

    def _digesting(self, frame: DataFrame) -> Digesting:
        return Digesting(frame.schema, self._exact)

    def _table_of(self, files: Any) -> DataFrame:
        """The rows of some of the table's files, a list of the JVM, as the transaction sees them."""
        refuse_padded(self._address, self._schema())
        none = self._class("scala.Option").empty()
        frame = self._txn.deltaLog().createDataFrame(self._txn.snapshot(), self._seq_of(files), False, none)
        relation = frame.queryExecution().analyzed().relation()
        return DataFrame(self._session._jsparkSession.baseRelationToDataFrame(relation), self._session)

    def commit(self, version: int, metadata: str) -> int | None:
        """Record (app, version), and the files written, in one commit.

        Returns the commit's Delta version, or None if another commit came between; then nothing was recorded.
        """
        said = self._delta("actions.SetTransaction")(self._app, version, self._some(int(time.time() * 1000)))
        return self._commit([said], self._operation(version, metadata))

    def _commit(self, besides: Sequence[Any], operation: Any) -> int | None:
        """Commit the files written, and other actions, with the same result as `commit`."""
        self._enter()
        sync_files(self._address, self._paths())
        try:
            return int(self._txn.commit(self._seq(*besides).concat(self._files), operation))
        except Py4JJavaError as fault:
            if not fault.java_exception.getClass().getName().startswith(self.conflict):
                raise
            return None

    def _paths(self) -> list[str]:
        """The paths of the files that the commit adds, as the log spells them."""
        return [path for action in (self._actions() if is_enabled() else []) for path in datafiles.paths_of(action)]

    def _actions(self) -> list[dict[str, Any]]:
        """The files that the commit adds and removes, as actions of the log."""
        return [json.loads(self._files.apply(i).json()) for i in range(self._files.size())]

    def _operation(self, version: int, metadata: str) -> Any:
        return self._write_operation("Append", metadata)

    def _write_operation(self, mode: str, metadata: str | None) -> Any:
        """What the log calls the commit. `mode`: one of Spark's save modes."""
        none = self._class("scala.Option").empty()
        how = getattr(self._class("org.apache.spark.sql.SaveMode"), mode)
        write = self._delta("DeltaOperations$Write")
        return write(how, self._some(self._seq()), none, self._some(metadata), none, none, none, none, none)

    def _some(self, value: Any) -> Any:
        return self._class("scala.Option").apply(value)

    def _seq(self, *values: Any) -> Any:
        return self._seq_of(list(values))

    def _seq_of(self, values: Any) -> Any:
        return self._class("org.apache.spark.api.python.PythonUtils").toSeq(values)

    def _values(self, seq: Any) -> list[Any]:
        return [seq.apply(i) for i in range(seq.size())]

    def _delta(self, name: str) -> Any:
        return self._class(f"org.apache.spark.sql.delta.{name}")

    def _class(self, name: str) -> Any:
        return jvm_class(self._session, name)
