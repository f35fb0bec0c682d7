"""Answer a question with Spark's own structured streaming: the rule's SQL, over streams with watermarks.

The session sets the state store. `TEXTS` has other texts for SQL that Spark refuses, yet can answer. Spark has no sink
with a key: for such a rule, `foreachBatch` merges each batch into the table, in update mode, as one would write it
manually.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from floodmark.core.rules.rule import Rule

TEXTS = {
    # The window and the bid's time both have a watermark; here the time is recreated, without one.
    "q7": """
        WITH bids AS (
          SELECT window(dateTime, '10 seconds') AS w, auction, price, bidder,
                 timestamp_micros(unix_micros(dateTime)) AS dateTime, extra FROM bid),
        highest AS (SELECT w, max(price) AS maxprice FROM bids GROUP BY w)
        SELECT auction, price, bidder, dateTime, extra
        FROM bids JOIN highest ON bids.w = highest.w AND price = maxprice""",
}


class Refused(Exception):
    """Spark's streaming does not support this; the text is the class of Spark's error, or its message."""


def drain(spark: SparkSession, rule: Rule, checkpoint: Path, files: int) -> None:
    """Run the rule over all its input, with `files` files of each stream in an epoch. Raises Refused."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it would print each refusal as JSON
    try:
        _drain(spark, rule, checkpoint, files)
    except (AnalysisException, StreamingQueryException) as fault:
        refusal = fault if isinstance(fault, AnalysisException) else fault._cause
        if not isinstance(refusal, AnalysisException):
            raise
        raise Refused(_reason(refusal)) from fault


def _drain(spark: SparkSession, rule: Rule, checkpoint: Path, files: int) -> None:
    for name, stream in rule.streams.items():
        reader = spark.readStream.format("delta").option("startingVersion", "1").option("maxFilesPerTrigger", files)
        assert stream.event_time is not None
        late = f"{stream.lateness_us} microseconds"
        reader.load(stream.address).withWatermark(stream.event_time.name, late).createOrReplaceTempView(name)
    for name, lookup in rule.lookups.items():
        spark.read.format("delta").load(lookup.address).createOrReplaceTempView(name)
    results = spark.sql(TEXTS.get(rule.rule, rule.sql))
    writer = _writer(spark, rule, results).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def _reason(fault: AnalysisException) -> str:
    condition = fault.getCondition() or ""
    return condition if condition and "LEGACY" not in condition else str(fault).split(". ")[0]


def _writer(spark: SparkSession, rule: Rule, results: DataFrame) -> DataStreamWriter:
    sink = rule.sinks[0]
    if not sink.key:
        return results.writeStream.format("delta").outputMode("append").option("path", sink.address)
    spark.createDataFrame([], results.schema).write.format("delta").save(sink.address)
    return results.writeStream.outputMode("update").foreachBatch(_merging(str(sink.address), sink.key))


def _merging(address: str, key: tuple[str, ...]) -> Callable[[DataFrame, int], None]:
    """Merge by key: a new row replaces the row with its key."""

    def merge(rows: DataFrame, _: int) -> None:
        same = " AND ".join(f"s.{name} = t.{name}" for name in key)
        merged = DeltaTable.forPath(rows.sparkSession, address).alias("t").merge(rows.alias("s"), same)
        merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return merge
