"""The Spark session: one root for a process, one child of it for each rule."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from floodmark.core.rules import Rule
from floodmark.core.sparkconf import application_conf
from floodmark.errors import RunFailed

TXN_CONF = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


def root_session(master: str, rules: list[Rule], backlog: int | None = None) -> SparkSession:
    """The application's session. Rules that share it get the most generous of their static settings.

    `backlog`: bytes of input that wait for them all; None: not known.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    memory = max((rule.spark.driver_memory for rule in rules), key=_bytes, default="1g")
    partitions = max((rule.spark.shuffle_partitions for rule in rules), default=4)
    conf = {key: value for rule in rules for key, value in rule.spark.conf.items()}
    builder = SparkSession.builder.master(master).appName("floodmark")
    for key, value in application_conf(memory, partitions, conf, backlog).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _bytes(text: str) -> int:
    return int(text[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[text[-1].lower()]


def rule_session(root: SparkSession, rule: Rule, zone: str, ansi: bool) -> SparkSession:
    """A session of the rule's own: what it sets and names, no other rule sees."""
    session = root.newSession()
    settings = {
        **rule.spark.conf,
        "spark.sql.session.timeZone": zone,
        "spark.sql.ansi.enabled": str(ansi).lower(),
        "spark.sql.shuffle.partitions": str(rule.spark.shuffle_partitions),
    }
    for key, value in settings.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def refuse_leaked_transaction(session: SparkSession) -> None:
    """A write transaction left in the session's settings would make unrelated writes vanish without a word."""
    leaked = [key for key in TXN_CONF if session.conf.get(key, None) is not None]
    if leaked:
        raise RunFailed(f"{', '.join(leaked)} is set in the session and would swallow writes: unset it")
