"""The Spark session: one root for a process, one child of it for each rule."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from floodmark import __version__
from floodmark.core.application.sparkconf import (
    DELTA,
    MEANING,
    MEANING_UNSET,
    NO_COMPACTION,
    OLD_VERSIONS,
    STATISTICS,
    WHOLE_FILES,
    application_conf,
    java_place,
)
from floodmark.core.health import machine
from floodmark.core.protocol import engine
from floodmark.core.rules.groups import shared
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused, RunFailed
from floodmark.redaction import redacted
from floodmark.spark.session.jvm import jvm_class

HASH_SEED = "PYTHONHASHSEED"
TXN_CONF = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
ZONED_PARTITIONS = "spark.databricks.delta.write.utcTimestampPartitionValues"

# What Spark logs of an error that also reaches its caller as an exception: the traces of each layer.
_LOGGED_BESIDES = (
    r"(?s)(Aborting (task|job)|Job \S+ aborted|Exception in task|Task .* in stage .* failed .* aborting job"
    r"|Query .* terminated with error).*"
)
_LOGGED_BY_PYSPARK = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def root_session(master: str, rules: list[Rule], backlog: int | None = None) -> SparkSession:
    """The application's session, with the settings that its rules share.

    `backlog`: bytes of unread input of all rules; None: unknown. Raises Refused if there is no Java to start.
    """
    _check_java()
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    spark = shared(rules)
    builder = SparkSession.builder.master(master).appName("floodmark")
    for key, value in application_conf(spark.driver_memory, spark.shuffle_partitions, spark.conf, backlog).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if os.environ.get("FLOODMARK_DEBUG") != "1" and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _hide_traces(session)
    return session


def _hide_traces(session: SparkSession) -> None:
    """Have Spark not log the errors that the command line reports, each in one line.

    An application of spark-submit logs them, as under Airflow, where nobody can call it again with FLOODMARK_DEBUG.
    """
    log4j = "org.apache.logging.log4j.core"
    result = jvm_class(session, f"{log4j}.Filter$Result")
    regex = jvm_class(session, f"{log4j}.filter.RegexFilter")
    context = jvm_class(session, f"{log4j}.LoggerContext").getContext(False)
    context.getConfiguration().addFilter(regex.createFilter(_LOGGED_BESIDES, None, False, result.DENY, result.NEUTRAL))
    context.updateLoggers()
    for name in _LOGGED_BY_PYSPARK:
        PySparkLogger.getLogger(name).disabled = True


def _check_java() -> None:
    """Raise Refused if Spark has to start a JVM but Java is missing, which Spark's script reports poorly."""
    given = "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._active_spark_context is not None
    if not given and java_place() is None:
        told = machine.java(None, "")
        raise Refused(f"{told.name}: expected {told.expected}, found {told.found}: {told.fix}")


def rule_session(root: SparkSession, rule: Rule, zone: str, ansi: bool) -> SparkSession:
    """The rule's own session: other rules see neither its settings nor its names."""
    session = root.newSession()
    settings = {
        **rule.spark.conf,
        "spark.sql.session.timeZone": zone,
        "spark.sql.ansi.enabled": str(ansi).lower(),
        "spark.sql.shuffle.partitions": str(rule.spark.shuffle_partitions),
        **WHOLE_FILES,
        **OLD_VERSIONS,
        **STATISTICS,
        **NO_COMPACTION,
        **MEANING,
    }
    for key, value in settings.items():
        # Most have the value already, from the application's own settings, and each call of the JVM takes time.
        if session.conf.get(key, None) != value and session.conf.isModifiable(key):
            session.conf.set(key, value)
    for key in MEANING_UNSET:
        session.conf.unset(key)
    return session


def pin_hash_seed(session: SparkSession) -> None:
    """Start every Python worker with the same hash seed, whatever the environment or a setting says.

    A class that follows the order of a set then gives a retry the same rows. Spark passes these variables to workers
    with each plan, also on executors, and starts new workers if they differ.
    """
    session.sparkContext.environment[HASH_SEED] = "0"


def cut(session: SparkSession, recorded: Mapping[str, str]) -> None:
    """Fix how Spark splits files and shuffles: as in the attempt that is to be finished, if it recorded that."""
    for name, value in engine.cutting(recorded, _set(session), cores(session)).items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)


def cores(session: SparkSession) -> int:
    """How many tasks Spark plans to run in parallel."""
    return session.sparkContext.defaultParallelism


def engine_of(session: SparkSession) -> dict[str, str]:
    """The engine of an attempt in the rule's session, as its intent records it."""
    context = session.sparkContext
    java = jvm_class(session, "java.lang.System").getProperty("java.version")
    return {
        "cores": str(cores(session)),
        "master": redacted(str(context.master)),
        "floodmark": __version__,
        "spark": context.version,
        "delta": DELTA,
        "java": str(java),
        **_set(session),
    }


def _set(session: SparkSession) -> dict[str, str]:
    """The settings for splitting files and shuffles that are not Spark's defaults."""
    conf = session._jsparkSession.sessionState().conf()
    return {name: str(conf.getConfString(name)) for name in engine.CUTTING if conf.contains(name)}


def in_utc(session: SparkSession) -> SparkSession:
    """A copy of a rule's session with zone UTC, in which Delta writes instants with their zone."""
    java: Any = session._jsparkSession
    copy = SparkSession(session.sparkContext, java.cloneSession())
    copy.conf.set("spark.sql.session.timeZone", "UTC")
    copy.conf.set(ZONED_PARTITIONS, "true")
    return copy


def refuse_leaked_transaction(session: SparkSession) -> None:
    """Raise RunFailed if a write transaction is left in the session's settings: it would swallow unrelated writes."""
    leaked = [key for key in TXN_CONF if session.conf.get(key, None) is not None]
    if leaked:
        raise RunFailed(f"{', '.join(leaked)} is set in the session and would discard writes: unset it")
