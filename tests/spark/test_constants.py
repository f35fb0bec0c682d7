"""What changes with every epoch must not make new code of the same plan."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from support.roomy import EXPRESSIONS, WHOLE_STAGES

from floodmark.spark.session.constants import uncompiled_constant


@pytest.fixture
def compiling(spark: SparkSession) -> SparkSession:
    """A session that compiles, as a rule's does."""
    session = spark.newSession()
    session.conf.set(WHOLE_STAGES, "true")
    session.conf.set(EXPRESSIONS, "FALLBACK")
    return session


def compiled(spark: SparkSession) -> int:
    """How many classes Spark has generated so far."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    return int(metrics.METRIC_COMPILATION_TIME().getCount())


def below(spark: SparkSession, limit: str) -> int:
    return spark.range(0, 1000, 1, 1).selectExpr("nullif(id, -1) AS at").where(f"at < {limit}").count()


def test_a_number_set_aside_is_compiled_once(compiling: SparkSession) -> None:
    spark = compiling
    assert below(spark, uncompiled_constant("10L", "at")) == 10
    before = compiled(spark)

    assert below(spark, uncompiled_constant("20L", "at")) == 20
    assert compiled(spark) == before

    assert below(spark, "987L") == 987  # the control: a number in the text is new code
    assert compiled(spark) > before


@pytest.mark.parametrize("limit", ["5L", "timestamp_micros(5)"])
def test_a_null_is_no_fault_and_no_row(spark: SparkSession, limit: str) -> None:
    rows = spark.sql("SELECT * FROM VALUES (CAST(NULL AS BIGINT)), (4), (5) AS t(n)")
    value = "timestamp_micros(n)" if "micros" in limit else "n"

    found = rows.where(f"{value} < {uncompiled_constant(limit, value)}").collect()

    assert [row.n for row in found] == [4]
