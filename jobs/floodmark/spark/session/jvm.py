"""Shortcuts to the JVM, for what PySpark does slowly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

ADDED = "org.apache.spark.sql.delta.actions.AddFile"
PORTION = 5_000  # actions in one text: up to some 20 MB with statistics, of which both sides hold a few copies


def jvm_class(session: SparkSession, name: str) -> Any:
    """The class with its static members, by its full name.

    `jvm.org.apache…` would search all of Spark's jars in vain for a class, once for each part of the name.
    """
    jvm: Any = session._jvm
    return JavaClass(name, jvm._gateway_client)


def as_log(session: SparkSession, actions: Any) -> Iterator[Any]:
    """What a log would say of actions of Delta's, a Scala sequence, in few calls: one for each adds up to seconds."""
    mapper, portions = _delta_json(session), actions.grouped(PORTION)
    while portions.hasNext():
        yield from json.loads(mapper.writeValueAsString(portions.next()))


def added_files(session: SparkSession, files: Iterable[Mapping[str, Any]]) -> Any:
    """The other way round, for files that a log adds: a list of the JVM."""
    mapper, rest = _delta_json(session), iter(files)
    kind = mapper.getTypeFactory().constructFromCanonical(f"java.util.ArrayList<{ADDED}>")
    found = mapper.readValue("[]", kind)
    while portion := list(islice(rest, PORTION)):
        found.addAll(mapper.readValue(json.dumps(portion), kind))
    return found


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
