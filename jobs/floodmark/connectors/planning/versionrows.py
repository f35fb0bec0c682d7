"""Rows of a Delta table as of a version, and of some of its files, with the columns that the table has now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.sql.words.lexis import quoted

DELTA = "org.apache.spark.sql.delta"


def rows_at(spark: SparkSession, address: str, version: int) -> DataFrame:
    """The rows of a version. Columns that came since are null; a type that was widened is the present one."""
    now, then = _present(spark, address), spark.read.format("delta").option("versionAsOf", version).load(address)
    if now.schema == then.schema and not _renames(now):
        return then
    return _of_files(spark, now, _snapshot(then).allFiles().collectAsList())


def rows_fed(spark: SparkSession, address: str, first: int, last: int) -> tuple[DataFrame, DataFrame]:
    """The rows that left and came by some versions, from the table's change feed."""
    feed = spark.read.format("delta").option("readChangeFeed", True)
    rows = feed.option("startingVersion", first).option("endingVersion", last).load(address)
    left = rows.where("_change_type IN ('delete', 'update_preimage')").select(
        *map(quoted, _present(spark, address).columns)
    )
    came = rows.where("_change_type IN ('insert', 'update_postimage')").select(*map(quoted, left.columns))
    return left, came


CHANGES = {"update_preimage": "update_before", "update_postimage": "update_after"}


def changes_of(spark: SparkSession, address: str, times: Mapping[int, int | None]) -> DataFrame:
    """The table's change feed over versions in a row, with when each was committed, in milliseconds.

    The feed's own times are those of the log's files, which a copy of the table changes.
    """
    feed = spark.read.format("delta").option("readChangeFeed", True)
    rows = feed.option("startingVersion", min(times)).option("endingVersion", max(times)).load(address)
    kind = F.col("_change_type")
    for theirs, ours in CHANGES.items():
        kind = F.when(F.col("_change_type") == theirs, ours).otherwise(kind)
    at = F.create_map(*(F.lit(one) for pair in times.items() for one in pair))
    committed = F.timestamp_millis(F.element_at(at, F.col("_commit_version")).cast("bigint"))
    own = (F.col(quoted(name)) for name in _present(spark, address).columns)
    return rows.select(
        *own, kind.alias("_change"), F.col("_commit_version").alias("_version"), committed.alias("_committed")
    )


def inserted_at(spark: SparkSession, address: str, version: int, committed: int | None) -> DataFrame:
    """The rows of a version, as changes that inserted them."""
    at = F.timestamp_millis(F.lit(committed).cast("bigint"))
    found = {"_change": F.lit("insert"), "_version": F.lit(version).cast("bigint"), "_committed": at}
    return rows_at(spark, address, version).select("*", *(one.alias(name) for name, one in found.items()))


def no_changes(spark: SparkSession, address: str) -> DataFrame:
    """No rows, with the columns of all changes. Each may be null, so that a union with others has the same schema."""
    schema = _present(spark, address).schema.toNullable()
    for name, kind in {"_change": "string", "_version": "long", "_committed": "timestamp"}.items():
        schema = schema.add(name, kind)
    return spark.createDataFrame([], schema)


def rows_of_both(
    spark: SparkSession, address: str, left: Iterable[str], came: Iterable[str]
) -> tuple[DataFrame, DataFrame]:
    """The rows of files that left and of files that came; for each, the action that adds it, as a log has it."""
    return _of_lines(spark, address, left), _of_lines(spark, address, came)


def _of_lines(spark: SparkSession, address: str, added: Iterable[str]) -> DataFrame:
    actions = java_class(spark, f"{DELTA}.actions.Action")
    return _of_files(spark, _present(spark, address), [actions.fromJson(line) for line in added])


def _present(spark: SparkSession, address: str) -> DataFrame:
    return spark.read.format("delta").load(address)


def _of_files(spark: SparkSession, now: DataFrame, files: Iterable[Any]) -> DataFrame:
    listed = java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(files))
    snapshot, none = _snapshot(now), java_class(spark, "scala.Option").empty()
    frame = snapshot.deltaLog().createDataFrame(snapshot, listed, False, none)
    relation = frame.queryExecution().analyzed().relation()
    session: Any = spark._jsparkSession
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def _snapshot(frame: DataFrame) -> Any:
    """The version of the table that a frame over all of it reads."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    return leaves.apply(0).relation().location().getSnapshot()


def _renames(frame: DataFrame) -> bool:
    """Whether columns of the table can be renamed, so that an older version has other names for them."""
    mode = _snapshot(frame).metadata().configuration().get("delta.columnMapping.mode")
    return bool(mode.isDefined() and mode.get() != "none")


def java_class(spark: SparkSession, name: str) -> Any:
    """The class by its full name. `jvm.org.apache…` would search all jars for each part of the name."""
    jvm: Any = spark._jvm
    return JavaClass(name, jvm._gateway_client)
