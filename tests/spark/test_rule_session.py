"""A rule's own session: what its SQL means there."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from support.flow import STATELESS, Flow

from floodmark.core.application.sparkconf import MEANING
from floodmark.spark.session.jvm import jvm_class
from floodmark.spark.session.session import rule_session


def test_what_sql_means_is_what_it_means_by_sparks_own_defaults(spark: SparkSession) -> None:
    """So a rule whose cluster has no settings goes on as before; a new Spark with other defaults shows here."""
    defaults = jvm_class(spark, "org.apache.spark.sql.internal.SQLConf")()
    assert {key: defaults.getConfString(key) for key in MEANING} == MEANING


def test_a_rules_session_has_its_own_settings(spark: SparkSession, place: Path) -> None:
    rule = Flow(place, sql=STATELESS, sinks=1).rule()
    conf = rule_session(spark, rule, "Asia/Tokyo", ansi=False).conf
    assert (conf.get("spark.sql.session.timeZone"), conf.get("spark.sql.ansi.enabled")) == ("Asia/Tokyo", "false")
    assert {key: conf.get(key) for key in MEANING} == MEANING
    assert spark.conf.get("spark.sql.ansi.enabled") == "true", "other rules do not see them"
