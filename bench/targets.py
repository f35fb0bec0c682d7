"""Targets: what a relay ships exactly once, beside the plain writer of the same rows without guarantees.

    python -m bench.targets [--rows N] [--repeats N] [--only TARGET,...]

Each repeat is one epoch with new rows. A relay then ships them to each target, and the plain writer takes the same rows
from the same outbox, in turn. The first epoch is left out: it warms both sides up, and its upserts find empty tables.
The servers are those of the tests. Latencies are those of epochs with 1,000 rows and one target, shipped while a run
goes on: from the time in the ledger's commit to the time in the target.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.kafka import Broker, served
from support.postgres import Server, started

from bench.postgres import driver_jar
from bench.table import Line, Measured, show
from floodmark.connectors.relay.memory import recall
from floodmark.connectors.relay.relaying import Relay, target_named
from floodmark.connectors.relay.shipping import Shipping, shipping
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.spark.rule.run import RuleRun
from floodmark.spark.session.session import root_session

SINKS: dict[str, dict[str, Any]] = {
    "files": {"files": {"path": "{work}/delivered"}},
    "iceberg": {"iceberg": {"connection": "catalog", "table": "shop.delivered"}},
    "appended": {"postgres": {"connection": "shop", "table": "appended"}},
    "new keys": {"postgres": {"connection": "shop", "table": "new_keys"}, "key": ["id"]},
    "same keys": {"postgres": {"connection": "shop", "table": "same_keys"}, "key": ["k"]},
    "topic": {"kafka": {"connection": "broker", "topic": "delivered"}},
}
WHAT = {"files": "Parquet files", "iceberg": "Iceberg", "appended": "PostgreSQL, append",
        "new keys": "PostgreSQL, upsert of new keys", "same keys": "PostgreSQL, upsert of keys that are there",
        "topic": "Kafka"}  # fmt: skip
AIMS = {"files": 0.8, "iceberg": 0.8, "appended": None, "new keys": 2.0, "same keys": 2.0, "topic": 0.6}
LATENT = ("files", "appended")  # targets whose latency is measured
LATENCY, SMALL, EPOCHS = 0.2, 1_000, 10  # seconds; rows of an epoch; epochs
COLUMNS = ("id + {begin} AS id", "id AS k", "rand({begin}) AS v", "timestamp_seconds(id + {begin}) AS at",
           "concat('name ', id) AS name")  # fmt: skip


@dataclass
class Delivering:
    """A rule with targets, its home, and the servers of these."""

    spark: SparkSession
    work: Path
    names: list[str]
    server: Server
    broker: Broker | None
    rule: Rule = field(init=False)
    rows: int = 0  # that have arrived

    def __post_init__(self) -> None:
        os.environ["FLOODMARK_CONN_SHOP"] = self.server.uri
        if self.broker:
            os.environ["FLOODMARK_CONN_BROKER"] = json.dumps(
                {"conn_type": "kafka", "extra": {"bootstrap.servers": self.broker.servers}}
            )
            self.broker.create("plain", 1)  # as many as the relay makes
        os.environ["FLOODMARK_CONN_CATALOG"] = json.dumps({"conn_type": "iceberg", "extra": self.catalog})
        load_catalog("catalog", **self.catalog).create_namespace("shop")
        self.arrive(0)  # so that there is a table
        self.rule = load_rule(_rule_file(self.work, self.names), os.environ)

    @property
    def home(self) -> Home:
        return Home(self.work / "home", self.rule.rule)

    @property
    def catalog(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.work}/catalog.db", "warehouse": f"file://{self.work}/warehouse"}

    def arrive(self, rows: int) -> None:
        made = self.spark.range(rows).selectExpr(*(one.format(begin=self.rows) for one in COLUMNS))
        made.coalesce(1).write.format("delta").mode("append").save(str(self.work / "events"))
        self.rows += rows

    def fold(self, after: Callable[[Any], None] = lambda _: None) -> None:
        RuleRun(self.spark, self.rule, self.work / "home", "bench", after).run()

    def outbox(self, name: str) -> Path:
        return cast("Path", self.home.outbox(target_named(self.rule, name.replace(" ", "_"))))

    def newest(self, name: str) -> Path:
        """The outbox's newest file."""
        return max(self.outbox(name).glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)

    def arrived(self, name: str) -> float:
        """Seconds from the newest commit until the target has it; waits for that."""
        ledger = LedgerReader.load(self.home.ledger)
        assert ledger is not None
        [row], known = ledger.newest(1), recall(self.outbox(name))
        while known.position is None or known.position.seq < row.seq:
            time.sleep(0.001)
            known = recall(self.outbox(name))
        return (datetime.fromisoformat(str(known.at)) - datetime.fromisoformat(row.at)).total_seconds()

    def ship(self, name: str) -> float:
        begun = time.monotonic()
        with Relay(self.rule, target_named(self.rule, name.replace(" ", "_")), self.home) as relay:
            relay.ship()
        return time.monotonic() - begun

    def frame(self, name: str) -> DataFrame:
        """The newest rows, as Spark's own writers take them."""
        return self.spark.read.parquet(str(self.newest(name))).select("id", "k", "v", "at", "name")

    def plain(self, name: str) -> float:
        begun = time.monotonic()
        if name == "files":
            pq.write_table(pq.read_table(self.newest(name)), self.work / f"plain-{self.rows}.parquet")
        elif name == "iceberg":
            self._append(pq.read_table(self.newest(name)))
        elif name == "topic":
            self._into_kafka(self.frame(name))
        else:
            self._by_jdbc(self.frame(name), f"plain_{name.replace(' ', '_')}")
        return time.monotonic() - begun

    def _append(self, rows: pa.Table) -> None:
        catalog = load_catalog("catalog", **self.catalog)
        table = catalog.create_table_if_not_exists("shop.plain", rows.schema)
        table.append(rows)

    def _by_jdbc(self, rows: DataFrame, table: str) -> None:
        address = f"jdbc:postgresql://127.0.0.1:{self.server.port}/postgres"
        writer = rows.write.format("jdbc").option("url", address).option("driver", "org.postgresql.Driver")
        login = {"user": "airflow", "password": self.server.password, "dbtable": table}
        writer.options(**login).mode("append").save()

    def _into_kafka(self, rows: DataFrame) -> None:
        assert self.broker is not None
        writer = rows.selectExpr("to_json(struct(*)) AS value").write.format("kafka")
        writer.option("kafka.bootstrap.servers", self.broker.servers).option("topic", "plain").save()


def _rule_file(work: Path, names: list[str]) -> Path:
    text = json.dumps([{**SINKS[name], "name": name.replace(" ", "_")} for name in names])
    rule = {"rule": "bench", "streams": {"events": {"delta": str(work / "events")}},
            "sql": "SELECT id, k, v, at, name FROM events", "sinks": json.loads(text.replace("{work}", str(work))),
            "spark": {"driver_memory": "3g"}}  # fmt: skip
    path = work / "rules" / "bench.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(rule))
    return path


def throughput(of: Delivering, rows: int, repeats: int) -> list[Line]:
    times = {name: (Measured(), Measured()) for name in of.names}
    for number in range(repeats + 1):
        of.arrive(rows)
        of.fold()
        for name, (ours, theirs) in times.items():
            for measured, work in ((ours, of.ship), (theirs, of.plain)):
                if number:
                    measured.take(lambda work=work, name=name: work(name))  # type: ignore[misc]
                else:
                    work(name)
    return [line for name, (ours, theirs) in times.items() for line in _pair(name, ours, theirs, rows)]


def _pair(name: str, ours: Measured, theirs: Measured, rows: int) -> list[Line]:
    other = {"files": "pyarrow's own writer", "iceberg": "pyiceberg's append", "topic": "Spark's Kafka sink"}.get(
        name, "Spark's JDBC append"
    )
    own = Line.rate_of(f"{WHAT[name]}, {rows:,} rows", ours, rows)
    return [own, Line.rate_of(f"  {other}", theirs, rows).against(ours, AIMS[name])]


def latency(of: Delivering) -> Line:
    """Of the only target: warm, with 1,000 rows an epoch. The first epoch is left out."""
    (name,), found, ships = of.names, Measured(), Shipping()
    with shipping(of.rule, of.home, ships):
        for number in range(EPOCHS + 1):
            of.arrive(SMALL)
            of.fold(lambda _: ships.wake())
            seconds = of.arrived(name)
            if number:
                found.add(seconds)
    return Line.of(f"{WHAT[name]}: {SMALL:,} rows after their commit", found, LATENCY)


def prepare() -> None:
    """Have the JVM that is started next find JDBC's driver."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {driver_jar()} pyspark-shell"


def measured(spark: SparkSession, work: Path, rows: int, repeats: int, names: list[str] | None = None) -> list[Line]:
    """`spark`: of a JVM that is prepared. names: of the sinks; None: all."""
    work.mkdir(parents=True, exist_ok=True)
    names = names or list(SINKS)
    with ExitStack() as stack:
        server = stack.enter_context(started(work / "postgres", shared_buffers="128MB"))
        broker = stack.enter_context(served(work / "kafka")) if "topic" in names else None
        lines = throughput(Delivering(spark, work, names, server, broker), rows, repeats)
        for name in (one for one in names if one in LATENT):
            alone = stack.enter_context(started(work / name / "postgres"))
            lines.append(latency(Delivering(spark, work / name, [name], alone, None)))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.targets", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SINKS), help=", ".join(SINKS))
    given = parser.parse_args()
    work = Path(__file__).parents[1] / ".cache" / "bench" / "targets"
    shutil.rmtree(work, ignore_errors=True)
    prepare()
    spark = root_session("local[*]", [load_rule(_rule_file(work, given.only), os.environ)])
    lines = measured(spark, work, given.rows, given.repeats, given.only)
    spark.stop()
    shutil.rmtree(work, ignore_errors=True)
    show(lines, f"{given.rows:,} rows an epoch, {given.repeats} repeats, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
