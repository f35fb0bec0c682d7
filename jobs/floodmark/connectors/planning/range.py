"""The rows of a range of offsets, as Spark plans it.

Spark plans the range like that of an open intent; the planned relation is then read in batch, so this module chooses
no files. It starts and stops a streaming query, which takes a second.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.planning import checkpoint
from floodmark.connectors.planning.plannedrows import relations
from floodmark.connectors.ports.source import Planned
from floodmark.core.protocol.entry import Entry
from floodmark.core.rules.rule import EpochLimits
from floodmark.core.text.tablenames import about
from floodmark.errors import Refused


def planned_range(spark: SparkSession, source: Planned, begin: str, end: str) -> DataFrame | None:
    """The rows of the range; None if it has none. Raises Refused if Spark does not plan the source as files."""
    with TemporaryDirectory(prefix="floodmark-") as parent:
        planning = _Planning(spark, Path(parent), Entry(0, (begin,)), Entry(1, (end,)))
        planning.run(source.stream(spark, EpochLimits()))
    if planning.failure is not None:
        raise planning.failure
    if 0 not in planning.found:
        problem = (
            "expected Spark to plan the table as files, found a plan of another kind. Runs do not need this; to "
            "recompute the rows that should have been read again, use `floodmark reset`"
        )
        raise Refused(about(f"stream {source.name}", source.address, problem))
    return planning.found[0]


class _Planning:
    """A streaming query that ends once its first batch is planned. None of its batches has an effect."""

    def __init__(self, session: SparkSession, parent: Path, begin: Entry, end: Entry):
        self._session = session
        partitions = int(str(session.conf.get("spark.sql.shuffle.partitions")))
        self._directory = checkpoint.make_checkpoint(parent, begin, end, partitions)
        self.found: dict[int, DataFrame | None] = {}
        self.failure: Exception | None = None

    def run(self, frame: DataFrame) -> None:
        writer = frame.writeStream.trigger(availableNow=True).foreachBatch(self._batch)
        query = writer.option("checkpointLocation", self._directory.as_uri()).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _batch(self, _: DataFrame, batch_id: int) -> None:
        if batch_id > checkpoint.HEAD + 1:  # newer data, beyond the range
            return
        try:
            self.found = relations(self._session, checkpoint.query_id(self._directory), 1)
        except Exception as fault:  # the waiting thread raises it; Spark would wrap it
            self.failure = fault
