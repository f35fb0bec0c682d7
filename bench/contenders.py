"""Run the same SQL by Floodmark, by plain Spark batch, and by Spark's own stateful streaming."""

from __future__ import annotations

import os
import time
from pathlib import Path

import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from bench.events import COMMITS, LATENESS
from floodmark.core.rules.rule import load_rule
from floodmark.spark.rule.epochs.reports import EpochReport
from floodmark.spark.rule.run import RuleRun

PARTITIONS = 4
SELECT = "SELECT window.start AS minute, k, count(*) AS n, max(v) AS most, avg(v) AS mean FROM events"
SQL = f"{SELECT} GROUP BY window(ts, '1 minute'), k"


def rule_file(
    folder: Path, table: Path, sink: Path, qos: int = 2, epochs: int = 1, sql: str = SQL, **settings: str
) -> Path:
    """A rule over the events. `epochs`: 1 for everything at once; `settings`: more keys of the rule file."""
    rule = {
        "rule": "bench",
        "streams": {"events": {"delta": str(table), "event_time": "ts", "lateness": LATENESS, "start": {"version": 1}}},
        "sql": sql,
        "qos": qos,
        "sinks": [{"delta": str(sink)}],
        "timezone": "UTC",
        "spark": {"driver_memory": "3g", "shuffle_partitions": PARTITIONS},
        **settings,
    }
    if epochs > 1:
        rule["epoch"] = {"max_files": _files(epochs)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(rule))
    return path


def _files(epochs: int) -> int:
    """Files of an epoch: a commit has two files, and there are at most as many epochs as commits."""
    return max(2, 2 * COMMITS // epochs)


def floodmark(
    spark: SparkSession, table: Path, work: Path, epochs: int, qos: int = 2, sql: str = SQL, **settings: str
) -> tuple[float, list[EpochReport]]:
    """Seconds of a whole run, gate and lock included, and its epochs."""
    rule = load_rule(rule_file(work / "rules", table, work / "sink", qos, epochs, sql, **settings), os.environ)
    done: list[EpochReport] = []
    begun = time.monotonic()
    RuleRun(spark, rule, work / "home", "bench", done.append).run()
    return time.monotonic() - begun, done


def batch(spark: SparkSession, table: Path, work: Path) -> float:
    """The same SQL over the whole table, written to a Delta table."""
    begun = time.monotonic()
    spark.read.format("delta").load(str(table)).createOrReplaceTempView("events")
    spark.sql(SQL).write.format("delta").save(str(work / "sink"))
    return time.monotonic() - begun


def stateful(spark: SparkSession, table: Path, work: Path, epochs: int) -> float:
    """Spark's own stateful streaming: RocksDB with changelog, the same partitions, trigger and epochs."""
    begun = time.monotonic()
    reader = spark.readStream.format("delta").option("startingVersion", "1")
    limit = _files(epochs) if epochs > 1 else 2**31 - 1
    events = reader.option("maxFilesPerTrigger", str(limit)).load(str(table)).withWatermark("ts", LATENESS)
    results = (
        events.groupBy(F.window("ts", "1 minute"), "k")
        .agg(F.count("*").alias("n"), F.max("v").alias("most"), F.avg("v").alias("mean"))
        .selectExpr("window.start AS minute", "k", "n", "most", "mean")
    )
    query = (
        results.writeStream.format("delta")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(work / "checkpoint"))
        .start(str(work / "sink"))
    )
    query.awaitTermination()
    return time.monotonic() - begun


def rows_in(spark: SparkSession, table: Path) -> int:
    return spark.read.format("delta").load(str(table)).count()


STATEFUL_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
