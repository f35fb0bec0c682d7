"""One streaming query: Spark plans its epochs, and the folder folds each."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.connectors.planning import checkpoint
from floodmark.spark.rule.epochs.epoch import EpochFolder


class _OnlyTheOpenEpoch(Exception):
    """Ends a query that is to finish one epoch and plan no other."""


class EpochQuery:
    """One streaming query. Spark wraps an error that a batch raises; this class keeps the original."""

    def __init__(self, folder: EpochFolder, only_open: bool):
        self._folder, self._only_open = folder, only_open
        self._failure: Exception | None = None
        self._busy = threading.Lock()

    def run(self, frame: DataFrame, directory: Path) -> None:
        query = (
            frame.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(directory))
            .foreachBatch(self._batch)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            if self._failure is not None:
                raise self._failure from None
            if not self._ended_on_purpose:
                raise
        finally:
            query.stop()
            with self._busy:  # wait for every started write before the rule's lock is released
                pass

    _ended_on_purpose = False

    def _batch(self, _: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._only_open and batch_id > checkpoint.HEAD + 1:
                self._ended_on_purpose = True
                raise _OnlyTheOpenEpoch
            try:
                self._folder.fold(batch_id)
            except Exception as fault:
                self._failure = fault
                raise
