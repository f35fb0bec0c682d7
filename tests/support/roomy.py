"""The Spark session that tests share: with room for what some hundred tests leave, and a JVM for two cores."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import SparkSession

from floodmark.core.application.sparkconf import JAVA_OPTIONS
from floodmark.spark.session.session import root_session
from support.flow import Flow

# By default the JVM marks garbage beside the tests, in threads of its own, and begins to whenever many classes are
# loaded; with two such JVMs on two cores that takes a tenth of all time.
QUIET = "-XX:+UseSerialGC -XX:MetaspaceSize=512m"

# Nearly all that a test calls is called too seldom for the second compiler to pay: with two such JVMs on two cores it
# takes a sixth of all time. With the first alone, the JVM has a fifth of its usual space for code.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# Spark compiles each new plan. To interpret it over the few rows of a test takes less: a third of a test's time.
# `make prove` compiles in all tests, and so do all processes that tests start.
WHOLE_STAGES, EXPRESSIONS = "spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"
INTERPRETED = {WHOLE_STAGES: "false", EXPRESSIONS: "NO_CODEGEN"}


def roomy_session(place: Path) -> SparkSession:
    """place: an empty directory, for a rule that is never run."""
    prove = bool(os.environ.get("FLOODMARK_PROVE"))
    java, how = (QUIET, {}) if prove else (f"{QUIET} {FIRST_COMPILER}", INTERPRETED)
    spark = {"driver_memory": "2g", "conf": {JAVA_OPTIONS: java, **how}}
    return root_session("local[2]", [Flow(place, settings={"spark": spark}).rule()])
