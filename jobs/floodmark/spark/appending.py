"""One append to a Delta table under an app transaction, through Delta's own transaction.

The writer's options `txnAppId` and `txnVersion` make Delta reconstruct the table's whole state in Spark jobs before
each write, only to learn what version the app has recorded: a third of a small epoch. delta-rs reads the same from the
log in milliseconds. So the transaction begins first, then the caller asks for the recorded version, and the transaction
has the app among its reads: whoever commits under the same app after it began makes it conflict.
"""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.upserts import Effect

# Somebody committed since the transaction began: as the same app, or to files that the transaction has read.
CONFLICT = "io.delta.exceptions.Concurrent"
ROWS_IN_A_FILE = 500_000


def files_for(rows: int) -> int:
    """How many files to write at most so many rows to: few for readers, enough for the cores."""
    return 1 + rows // ROWS_IN_A_FILE


class Appending:
    """A transaction on the table at `address`, begun at the newest version, that writes as `app`.

    `effect`: what a write does to rows that are there; None: nothing.
    """

    def __init__(self, session: SparkSession, address: str, app: str):
        jvm: Any = session._jvm
        self._jvm, self._delta, self._app = jvm, jvm.org.apache.spark.sql.delta, app
        self._txn = self._delta.DeltaLog.forTable(session._jsparkSession, address).startTransaction()
        getattr(self._txn.readTxn(), "$plus$eq")(app)
        self._files = self._seq()
        self.effect: Effect | None = None

    def write(self, frame: DataFrame) -> int:
        """Write the rows to files that no version of the table names yet; returns how many rows there were.

        Files without rows stay out of the commit; VACUUM takes them.
        """
        counted = Observation()
        rows = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
        self._files = self._txn.writeFiles(rows._jdf)
        return int(counted.get["rows"])

    def commit(self, version: int, metadata: str) -> int | None:
        """Record (app, version), and the files written, in one commit.

        Returns the commit's Delta version, or None where another commit came between: nothing was recorded.
        """
        said = self._delta.actions.SetTransaction(self._app, version, self._some(int(time.time() * 1000)))
        try:
            return int(self._txn.commit(self._seq(said).concat(self._files), self._operation(version, metadata)))
        except Py4JJavaError as fault:
            if not fault.java_exception.getClass().getName().startswith(CONFLICT):
                raise
            return None

    def _operation(self, version: int, metadata: str) -> Any:
        none = self._jvm.scala.Option.empty()
        append = self._jvm.org.apache.spark.sql.SaveMode.Append
        write = getattr(self._delta, "DeltaOperations$Write")
        return write(append, self._some(self._seq()), none, self._some(metadata), none, none, none, none, none)

    def _some(self, value: Any) -> Any:
        return self._jvm.scala.Option.apply(value)

    def _seq(self, *values: Any) -> Any:
        return self._jvm.PythonUtils.toSeq(list(values))
