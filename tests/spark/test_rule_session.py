"""A rule's own session: what its SQL means there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession
from support.flow import STATELESS, Flow

from floodmark.core.application.sparkconf import MEANING, MEANING_UNSET
from floodmark.spark.session.jvm import jvm_class
from floodmark.spark.session.session import rule_session

# Settings of a cluster's own, SQL whose result they change, and the result by Spark's defaults.
DEVIATING = {
    "spark.sql.jsonGenerator.ignoreNullFields": ("false", "to_json(named_struct('a', CAST(NULL AS INT)))", "{}"),
    "spark.sql.legacy.truncateForEmptyRegexSplit": ("true", "concat_ws('-', split('abc', '', 2))", "a-bc"),
    "spark.sql.function.concatBinaryAsString": ("true", "typeof(concat(X'61', X'62'))", "binary"),
    "spark.sql.preserveCharVarcharTypeInfo": ("true", "typeof(CAST('abc' AS VARCHAR(9)))", "string"),
    "spark.sql.chunkBase64String.enabled": ("false", "length(base64(repeat('a', 100)))", 138),
    "spark.sql.columnNameOfCorruptRecord": (
        "_bad",
        "from_json('[', 'a INT, _corrupt_record STRING')._corrupt_record",
        "[",
    ),
    "spark.sql.legacy.csv.enableDateTimeParsingFallback": (
        "false",
        "CAST(from_csv('2001-1-2', 'a DATE').a AS STRING)",
        "2001-01-02",
    ),
}

# The same for columns of a table: c CHAR(5), and s, whose field b is newer than the row.
DEVIATING_READS = {
    "spark.sql.readSideCharPadding": ("false", "length(c)", 5),
    "spark.sql.legacy.charVarcharAsString": ("true", "length(c)", 5),
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": ("true", "concat_ws(' ', s IS NULL, s.b)", "false"),
}


def test_what_sql_means_is_what_it_means_by_sparks_own_defaults(spark: SparkSession) -> None:
    """So a rule whose cluster has no settings goes on as before; a new Spark with other defaults shows here."""
    defaults = jvm_class(spark, "org.apache.spark.sql.internal.SQLConf")()
    assert {key: defaults.getConfString(key) for key in MEANING} == MEANING
    assert {key: defaults.getConfString(key) for key in MEANING_UNSET} == dict.fromkeys(MEANING_UNSET)


class Cluster:
    """Stands in for the root session of an application with settings of a cluster's own."""

    def __init__(self, spark: SparkSession, deviating: Mapping[str, tuple[str, str, object]]):
        self._spark, self._deviating = spark, deviating

    def newSession(self) -> SparkSession:  # noqa: N802 - Spark's name
        session = self._spark.newSession()
        for key, (value, _, _) in self._deviating.items():
            session.conf.set(key, value)
        return session


def test_no_setting_of_a_cluster_changes_what_a_rules_sql_means(spark: SparkSession, place: Path) -> None:
    rule, root = Flow(place, sql=STATELESS, sinks=1).rule(), cast(SparkSession, Cluster(spark, DEVIATING))
    values = ", ".join(sql for _, sql, _ in DEVIATING.values())
    wanted = [result for _, _, result in DEVIATING.values()]
    (others,) = root.newSession().sql(f"SELECT {values}").collect()
    assert all(one != other for one, other in zip(others, wanted, strict=True)), "each of them matters"
    (found,) = rule_session(root, rule, "UTC", ansi=True).sql(f"SELECT {values}").collect()
    assert list(found) == wanted


@pytest.mark.parametrize("setting", DEVIATING_READS)
def test_no_setting_of_a_cluster_changes_what_a_column_holds(spark: SparkSession, place: Path, setting: str) -> None:
    rule, table, (_, sql, wanted) = Flow(place, sql=STATELESS, sinks=1).rule(), place / "read", DEVIATING_READS[setting]
    spark.sql(f"CREATE TABLE delta.`{table}` (c CHAR(5), s STRUCT<a: INT>) USING delta")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES ('ab', named_struct('a', 1))")
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (s.b INT)")
    root = cast(SparkSession, Cluster(spark, {setting: DEVIATING_READS[setting]}))

    def read(session: SparkSession) -> object:
        return session.read.format("delta").load(str(table)).selectExpr(sql).collect()[0][0]

    assert read(root.newSession()) != wanted, "it matters"
    assert read(rule_session(root, rule, "UTC", ansi=True)) == wanted


def test_a_rules_session_has_its_own_settings(spark: SparkSession, place: Path) -> None:
    rule = Flow(place, sql=STATELESS, sinks=1).rule()
    conf = rule_session(spark, rule, "Asia/Tokyo", ansi=False).conf
    assert (conf.get("spark.sql.session.timeZone"), conf.get("spark.sql.ansi.enabled")) == ("Asia/Tokyo", "false")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true", "other rules do not see them"
