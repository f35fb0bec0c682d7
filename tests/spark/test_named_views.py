"""Views by which SQL reads rows: another one of the same name leaves alone what is persisted."""

from __future__ import annotations

from pyspark.sql import SparkSession

from floodmark.spark.session.views import put_view


def test_what_is_persisted_of_a_view_outlives_the_view(spark: SparkSession) -> None:
    put_view(spark.range(3), "seen")
    read = spark.sql("SELECT id + 1 AS n FROM seen").persist()
    put_view(spark.range(5), "seen")
    assert read.storageLevel.useMemory
    assert [row.n for row in read.collect()] == [1, 2, 3]
    assert spark.sql("SELECT * FROM seen").count() == 5
    read.unpersist()
