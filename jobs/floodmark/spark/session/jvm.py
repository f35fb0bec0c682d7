"""What PySpark gets from the JVM by long ways, by a short one."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def jvm_class(session: SparkSession, name: str) -> Any:
    """The class with its static members, by its whole name.

    Written as `jvm.org.apache…`, each part of the name would be looked for as a class, in vain, in all of Spark's jars.
    """
    jvm: Any = session._jvm
    return JavaClass(name, jvm._gateway_client)


def without_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """A frame of these columns, to see what becomes of them. `createDataFrame([])` would make an RDD of Python rows."""
    java: Any = session._jsparkSession
    columns = java.parseDataType(schema.json())
    return DataFrame(java.createDataFrame(jvm_class(session, "java.util.ArrayList")(), columns), session)


def materialised(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same rows in `session`, computed as far as the last shuffle: every action on them goes on from there.

    foreachBatch makes its frame in this way. Unlike a cache it copies no rows, so it costs no memory.
    """
    java: Any = session._jsparkSession
    execution = frame._jdf.queryExecution()
    rows = java.internalCreateDataFrame(execution.toRdd(), execution.analyzed().schema(), False)
    return DataFrame(rows, session)
