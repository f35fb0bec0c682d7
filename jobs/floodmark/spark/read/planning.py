"""The frame by which Spark plans epochs: for each stream Spark's own source, or ours, which knows where epochs end.

No rows are read here. An epoch reads the relations that Spark planned for it, or reads its range from the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from floodmark.connectors.planning.epochends import steps
from floodmark.connectors.ports.registering import register
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.ports.source import Planned, Source
from floodmark.core.protocol.entry import Entry
from floodmark.core.rules.kinds import SourceCan, stream_can
from floodmark.core.rules.rule import EpochLimits, Rule
from floodmark.ledger.home import Home

FORMAT, ENDS, COLUMN = "floodmark", "ends", "planned"


def planning(spark: SparkSession, rule: Rule, home: Home, entry: Entry) -> DataFrame:
    """The rule's streams as one streaming frame that continues from `entry`; it serves only for planning."""
    frames = [
        streamed(spark, source, stream_can(rule.streams[name]), line, rule.epoch)
        for (name, source), line in zip(sources(rule, home).items(), entry.offsets, strict=True)
    ]
    return reduce(DataFrame.unionAll, (frame.selectExpr(f"1 AS {COLUMN}") for frame in frames))


def streamed(spark: SparkSession, source: Source, can: SourceCan, since: str, limits: EpochLimits) -> DataFrame:
    """One source as a streaming frame that continues from `since`."""
    if can.planned:
        return cast(Planned, source).stream(spark, limits)
    register(spark, Steps)
    return spark.readStream.format(FORMAT).option(ENDS, json.dumps(steps(source, since, limits))).load()


class Steps(DataSource):
    """A stream without rows that knows the ends of all epochs, as a list of offsets."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{COLUMN} INT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _Reader([json.loads(line) for line in json.loads(self.options[ENDS])])


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, ends: list[Any]):
        self._ends = ends

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The ends already cover all available data."""

    def initialOffset(self) -> Any:  # noqa: N802 - Spark's name
        return self._ends[0]

    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:  # noqa: N802 - Spark's name
        """The end of the epoch that starts at `start`: the next offset."""
        place = self._ends.index(start)
        return self._ends[min(place + 1, len(self._ends) - 1)]

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())
