"""Rows of a Delta table as of a version, and of some of its files, with the columns that the table has now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.tablenames import about_table
from floodmark.errors import HistoryGone

DELTA = "org.apache.spark.sql.delta"
PHYSICAL = "delta.columnMapping.physicalName"
# Actions that add files, as a log has them, and the version by whose metadata they are read; None: the newest one.
Added = tuple[Iterable[str], int | None]


def rows_at(spark: SparkSession, address: str, version: int) -> DataFrame:
    """The rows of a version. Columns that came since are null; a type that was widened is the present one."""
    now, then = _present(spark, address), _at(spark, address, version)
    if _partitions(now) != _partitions(then):
        return _as_now(address, now, then, then)
    if now.schema == then.schema and not _renames(now):
        return then
    return _of_files(spark, now, _snapshot(then).allFiles().collectAsList())


def renamed_as(then: DataFrame, now: DataFrame) -> DataFrame:
    """The rows of a version with the names that a later version has for its columns. Those of fields stay."""
    if not _renames(now):
        return then
    names = names_now(*({field.name: _in_files(field) for field in _fields(one)} for one in (then, now)))
    if all(name == later for name, later in names.items()):
        return then
    return then.select(*(F.col(quoted(name)).alias(later) for name, later in names.items()))


def names_now(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """By its name in an older version, the name that a column has now. A column that is gone keeps its own name, unless
    another has it now.

    then, now: by name, the columns' names in files.
    """
    names = {in_files: name for name, in_files in now.items()}
    kept = {name: names[in_files] for name, in_files in then.items() if in_files in names}
    taken = {name.lower() for name in kept.values()}
    found = {name: kept.get(name, name) for name in then}
    return {name: later for name, later in found.items() if name in kept or name.lower() not in taken}


def rows_fed(spark: SparkSession, address: str, first: int, last: int) -> tuple[DataFrame, DataFrame]:
    """The rows that left and came by some versions, from the table's change feed."""
    feed = spark.read.format("delta").option("readChangeFeed", True)
    rows = feed.option("startingVersion", first).option("endingVersion", last).load(address)
    now = _present(spark, address).schema.toNullable()  # the feed of a table with column mapping may lack new columns
    left = rows.where("_change_type IN ('delete', 'update_preimage')").to(now)
    return left, rows.where("_change_type IN ('insert', 'update_postimage')").to(now)


CHANGES = {"update_preimage": "update_before", "update_postimage": "update_after"}


def changes_of(spark: SparkSession, address: str, times: Mapping[int, int | None]) -> DataFrame:
    """The table's change feed over versions in a row, with when each was committed, in milliseconds.

    With column mapping, Spark reads it with the columns of the last version: those that came since are null.
    The feed's own times are those of the log's files, which a copy of the table changes.
    """
    feed = spark.read.format("delta").option("readChangeFeed", True)
    rows = feed.option("startingVersion", min(times)).option("endingVersion", max(times)).load(address)
    kind = F.col("_change_type")
    for theirs, ours in CHANGES.items():
        kind = F.when(F.col("_change_type") == theirs, ours).otherwise(kind)
    first = min(times)
    known = ",".join(str(times.get(version)) for version in range(first, max(times) + 1))
    at = F.split(F.lit(known), ",").try_cast("array<bigint>")  # one literal, however many versions there are
    committed = F.timestamp_millis(F.element_at(at, (F.col("_commit_version") - first + 1).cast("int")))
    found = {"_change": kind, "_version": F.col("_commit_version"), "_committed": committed}
    return rows.withColumns(found).to(no_changes(spark, address).schema)


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


def rows_of_both(spark: SparkSession, address: str, left: Added, came: Added) -> tuple[DataFrame, DataFrame]:
    """The rows of files that left and of files that came, with today's columns."""
    return _of_lines(spark, address, *left), _of_lines(spark, address, *came)


def _of_lines(spark: SparkSession, address: str, added: Iterable[str], version: int | None) -> DataFrame:
    actions = java_class(spark, f"{DELTA}.actions.Action")
    files, now = [actions.fromJson(line) for line in added], _present(spark, address)
    if version is None:
        return _of_files(spark, now, files)
    then = _at(spark, address, version)
    return _as_now(address, now, then, _of_files(spark, then, files))


def _as_now(address: str, now: DataFrame, then: DataFrame, rows: DataFrame) -> DataFrame:
    """Rows as an older version has them, with the columns of now.

    Files are read by the metadata with which they were written: of a partition column, they do not hold the values.
    """
    had = {_in_files(field): field for field in _fields(then)}
    return rows.select(*(_column(address, had.get(_in_files(field)), field) for field in _fields(now)))


def _column(address: str, had: StructField | None, now: StructField) -> Column:
    kind = now.dataType
    if had is None:
        return F.lit(None).cast(kind).alias(now.name)
    if had.dataType.simpleString() == kind.simpleString():
        return F.col(quoted(had.name)).alias(now.name)
    if any(isinstance(one, (StructType, ArrayType, MapType)) for one in (had.dataType, kind)):
        problem = (
            f"expected column {now.name} as it was before the table was partitioned by other columns, "
            f"{had.dataType.simpleString()}, found {kind.simpleString()}: its older rows are not read as such. Start "
            "over with `floodmark reset`"
        )
        raise HistoryGone(about_table(address, problem))
    return F.col(quoted(had.name)).cast(kind).alias(now.name)


def _in_files(field: StructField) -> str:
    """The name of a column in files."""
    return str(field.metadata.get(PHYSICAL, field.name))


def _present(spark: SparkSession, address: str) -> DataFrame:
    return spark.read.format("delta").load(address)


def _at(spark: SparkSession, address: str, version: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(address)


def _of_files(spark: SparkSession, now: DataFrame, files: Iterable[Any]) -> DataFrame:
    listed = java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(list(files))
    snapshot, none = _snapshot(now), java_class(spark, "scala.Option").empty()
    frame = snapshot.deltaLog().createDataFrame(snapshot, listed, False, none)
    session: Any = spark._jsparkSession
    return DataFrame(session.baseRelationToDataFrame(_relation(frame)), spark)


def _snapshot(frame: DataFrame) -> Any:
    """The version of the table that a frame over all of it reads."""
    return _relation(frame._jdf).location().getSnapshot()


def _relation(frame: Any) -> Any:
    """The table below a frame of the JVM. Where a column is of type CHAR, Spark puts a projection over it."""
    return frame.queryExecution().analyzed().collectLeaves().apply(0).relation()


def _fields(frame: DataFrame) -> list[StructField]:
    """The columns of a version, with their names in files, which a frame's own schema lacks."""
    found: StructType = StructType.fromJson(json.loads(_snapshot(frame).metadata().schemaString()))
    return found.fields


def _partitions(frame: DataFrame) -> list[str]:
    """The names in files of the columns that partition a version, in their order."""
    named = {field.name: _in_files(field) for field in _fields(frame)}
    listed = _snapshot(frame).metadata().partitionColumns()
    return [named[listed.apply(i)] for i in range(listed.size())]


def _renames(frame: DataFrame) -> bool:
    """Whether columns of the table can be renamed, so that an older version has other names for them."""
    mode = _snapshot(frame).metadata().configuration().get("delta.columnMapping.mode")
    return bool(mode.isDefined() and mode.get().lower() != "none")


def java_class(spark: SparkSession, name: str) -> Any:
    """The class by its full name. `jvm.org.apache…` would search all jars for each part of the name."""
    jvm: Any = spark._jvm
    return JavaClass(name, jvm._gateway_client)
