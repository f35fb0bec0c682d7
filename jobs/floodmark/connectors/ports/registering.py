"""Registers Python data sources with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register it with this session, or again.

    Spark refuses a name that the active session knows and this one does not, and several rules of one application have
    a session each. So this one is made the active one.
    """
    java: Any = spark
    java._jvm.SparkSession.setActiveSession(java._jsparkSession)
    spark.dataSource.register(source)
