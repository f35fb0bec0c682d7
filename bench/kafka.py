"""Kafka as a source: a run of a rule over new JSON records, beside Spark's own readers of the same topic.

    python -m bench.kafka [--rows N] [--repeats N]

Each repeat brings new records to a topic with two partitions. A run of the rule, Spark's own stream and Spark's plain
reader then each parse them and add them to a Delta table, in turn. The first repeat is left out: it warms all up. The
plain reader is given the offsets, and keeps none. The broker is the one of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

import yaml
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.kafka import Broker, served

from bench.table import Line, Measured, show
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.spark.rule.run import RuleRun
from floodmark.spark.session.session import root_session

TOPIC, PARTITIONS = "orders", 2
COLUMNS = "id BIGINT, at TIMESTAMP, k STRING, v DOUBLE"
SQL = "SELECT id, at, k, v FROM orders WHERE v >= 0"
FIELDS = ("id", "timestamp_seconds(id) AS at", "concat('k', id % 1000) AS k", "id % 997 / 7 AS v")
RECORD = (f"to_json(struct({', '.join(FIELDS)})) AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition")
AIM = 0.8


def _rule(work: Path) -> Rule:
    kafka = {"connection": "broker", "topic": TOPIC, "format": "json", "schema": COLUMNS}
    rule = {"rule": "bench", "streams": {"orders": {"kafka": kafka}}, "sql": SQL,
            "sinks": [{"delta": str(work / "ours")}], "spark": {"driver_memory": "3g"}}  # fmt: skip
    path = work / "rules" / "bench.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(rule))
    return load_rule(path, os.environ)


class Reading:
    """The three readers of one topic, each with a table of its own."""

    def __init__(self, spark: SparkSession, broker: Broker, rule: Rule, work: Path):
        self._spark, self._broker, self._rule, self._work = spark, broker, rule, work
        self._rows = 0
        broker.create(TOPIC, PARTITIONS)

    def arrive(self, rows: int) -> None:
        self._before = self._rows
        made = self._spark.range(self._rows, self._rows + rows).selectExpr(*RECORD)
        made.write.format("kafka").options(**self._settings).option("topic", TOPIC).save()
        self._rows += rows

    def floodmark(self) -> float:
        begun = time.monotonic()
        RuleRun(self._spark, self._rule, self._work / "home", "bench", lambda _: None).run()
        return time.monotonic() - begun

    def stream(self) -> float:
        begun = time.monotonic()
        read = self._spark.readStream.format("kafka").options(**self._settings, startingOffsets="earliest").load()
        writer = _parsed(read).writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self._work / "checkpoint"))
        writer.start(str(self._work / "stream")).awaitTermination()
        return time.monotonic() - begun

    def plain(self) -> float:
        begun = time.monotonic()
        ends = {
            f"{side}Offsets": json.dumps({TOPIC: dict.fromkeys(map(str, range(PARTITIONS)), at // PARTITIONS)})
            for side, at in (("starting", self._before), ("ending", self._rows))
        }
        read = self._spark.read.format("kafka").options(**self._settings, **ends).load()
        _parsed(read).write.format("delta").mode("append").save(str(self._work / "plain"))
        return time.monotonic() - begun

    @property
    def _settings(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._broker.servers, "subscribe": TOPIC}

    def check(self) -> None:
        """All three have all rows."""
        for name in ("ours", "stream", "plain"):
            found = self._spark.read.format("delta").load(str(self._work / name)).selectExpr("count(*)", "sum(id)")
            assert tuple(found.first() or ()) == (self._rows, self._rows * (self._rows - 1) // 2), name


def _parsed(read: DataFrame) -> DataFrame:
    return read.selectExpr(f"from_json(CAST(value AS STRING), '{COLUMNS}') AS r").select("r.*").where("v >= 0")


def measured(of: Reading, rows: int, repeats: int) -> list[Line]:
    times = {"floodmark": Measured(), "stream": Measured(), "plain": Measured()}
    for number in range(repeats + 1):
        of.arrive(rows)
        for name, found in times.items():
            if number:
                found.take(getattr(of, name))
            else:
                getattr(of, name)()
    of.check()
    ours = times["floodmark"]
    return [
        Line.rate_of(f"Floodmark, {rows:,} JSON records of Kafka", ours, rows),
        Line.rate_of("  Spark's own stream into Delta", times["stream"], rows).against(ours, AIM),
        Line.rate_of("  Spark's plain reader into Delta", times["plain"], rows).against(ours, AIM),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.kafka", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    work = Path(__file__).parents[1] / ".cache" / "bench" / "kafka"
    shutil.rmtree(work, ignore_errors=True)
    with served(work / "broker") as broker:
        settings = {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.servers}}
        os.environ["FLOODMARK_CONN_BROKER"] = json.dumps(settings)
        rule = _rule(work)
        spark = root_session("local[*]", [rule])
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        lines = measured(Reading(spark, broker, rule, work), given.rows, given.repeats)
        spark.stop()
    shutil.rmtree(work, ignore_errors=True)
    show(lines, f"{given.rows:,} records a run, {given.repeats} repeats, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
