"""Shortcuts to the JVM, for what PySpark does slowly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

ADDED = "org.apache.spark.sql.delta.actions.AddFile"


def jvm_class(session: SparkSession, name: str) -> Any:
    """The class with its static members, by its full name.

    `jvm.org.apache…` would search all of Spark's jars in vain for a class, once for each part of the name.
    """
    jvm: Any = session._jvm
    return JavaClass(name, jvm._gateway_client)


def as_log(session: SparkSession, actions: Any) -> Any:
    """What a log would say of actions of Delta's, in one call for all of them: a call each adds up to seconds."""
    return json.loads(_delta_json(session).writeValueAsString(actions))


def added_files(session: SparkSession, files: Iterable[Mapping[str, Any]]) -> Any:
    """The other way round, for files that a log adds: a list of the JVM."""
    mapper = _delta_json(session)
    kind = mapper.getTypeFactory().constructFromCanonical(f"java.util.ArrayList<{ADDED}>")
    return mapper.readValue(json.dumps(list(files)), kind)


def _delta_json(session: SparkSession) -> Any:
    return jvm_class(session, "org.apache.spark.sql.delta.util.JsonUtils").mapper()


def without_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """An empty frame with these columns, for analysis. `createDataFrame([])` would create an RDD of Python rows."""
    java: Any = session._jsparkSession
    columns = java.parseDataType(schema.json())
    return DataFrame(java.createDataFrame(jvm_class(session, "java.util.ArrayList")(), columns), session)


def materialised(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same rows in `session`, computed up to the last shuffle, from which every action on them continues.

    foreachBatch creates its frame in this way. Unlike a cache, it copies no rows, so it costs no memory.
    """
    java: Any = session._jsparkSession
    execution = frame._jdf.queryExecution()
    rows = java.internalCreateDataFrame(execution.toRdd(), execution.analyzed().schema(), False)
    return DataFrame(rows, session)


def bytes_read(frame: DataFrame) -> int:
    """The size of what a frame reads, as Spark knows it before it plans: of files, their bytes."""
    return _bytes_of_leaves(frame._jdf.queryExecution().analyzed())


def bytes_not_passed_over(frame: DataFrame) -> int:
    """The same, less the files in which no row can match the frame's conditions."""
    return _bytes_of_leaves(frame._jdf.queryExecution().optimizedPlan())


def _bytes_of_leaves(plan: Any) -> int:
    leaves = plan.collectLeaves()
    return sum(int(leaves.apply(i).stats().sizeInBytes()) for i in range(leaves.size()))
