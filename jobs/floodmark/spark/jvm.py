"""Classes of the JVM by their names."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession


def jvm_class(session: SparkSession, name: str) -> Any:
    """The class with its static members, by its whole name.

    Written as `jvm.org.apache…`, each part of the name would be looked for as a class, in vain, in all of Spark's jars.
    """
    jvm: Any = session._jvm
    return JavaClass(name, jvm._gateway_client)
