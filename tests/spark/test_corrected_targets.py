"""Backfills, corrections and resets in targets that add to what they have: topics with a key, a class, files."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from copy import deepcopy
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from fastavro import schemaless_reader
from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.kafka import Broker, served
from support.relays import Relays
from support.running import backfill, backfill_all, reset, run

from floodmark.audit.certificate import audit
from floodmark.connectors.targets.kafka.markers import PARTITIONS
from floodmark.reading import files_of

# A class whose rows are of windows. `Keyed` has a row for each start and k, and can do no more than that.
CODE = """\
import json
import sqlite3
from contextlib import closing
from datetime import datetime


class Keyed:
    def __init__(self, path):
        self.path = path

    def position(self):
        with closing(self._opened()) as database:
            return self._at(database)

    def apply(self, batch, token, since, upto):
        with closing(self._opened()) as database, database:
            self._claim(database, since)
            for row in batch.to_pylist():
                gone = row.pop("_floodmark_gone", None)
                del row["_floodmark_row"]
                key = (str(row.get("start")), row["k"])
                if gone is not None:
                    database.execute("DELETE FROM rows WHERE start IS ? AND k IS ?", key)
                if not gone:
                    text = json.dumps(row, default=lambda value: value.isoformat())
                    database.execute("INSERT INTO rows VALUES (?, ?, ?)", (*key, text))
            database.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", [upto])

    def rows(self):
        with closing(self._opened()) as database:
            found = [json.loads(text) for (text,) in database.execute("SELECT text FROM rows")]
        times = ("start", "last")
        return [{k: datetime.fromisoformat(v) if k in times else v for k, v in row.items()} for row in found]

    def _claim(self, database, since):
        database.execute("BEGIN IMMEDIATE")
        if self._at(database) != since:
            raise RuntimeError("another relay has moved the position")

    def _at(self, database):
        found = database.execute("SELECT text FROM position").fetchone()
        return found and found[0]

    def _opened(self):
        database = sqlite3.connect(self.path, isolation_level=None)
        database.execute("CREATE TABLE IF NOT EXISTS rows (start, k, text)")
        database.execute("CREATE TABLE IF NOT EXISTS position (one INTEGER PRIMARY KEY, text)")
        return database


class Emptied(Keyed):
    def empty(self, token, since):
        with closing(self._opened()) as database, database:
            self._claim(database, since)
            database.execute("DELETE FROM rows")


class Replaced(Emptied):
    def remove_between(self, column, intervals, token, since):
        with closing(self._opened()) as database, database:
            self._claim(database, since)
            for low, high in intervals:
                database.execute(f"DELETE FROM rows WHERE {column} >= ? AND {column} < ?", (str(low), str(high)))
"""
TOPICS = ("windows", "avro", "totals", "sessions")
BY_START: dict[str, Any] = {"key": ["start", "k"]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with served(tmp_path_factory.mktemp("kafka")) as found:
        yield found


class Delivered:
    """A rule with targets, and a Delta table that gets the same."""

    def __init__(self, flow: Flow, broker: Broker, sinks: Mapping[str, Mapping[str, Any]], twin: Mapping[str, Any]):
        self.flow, self._broker, self.names = flow, broker, list(sinks)
        env = {"FLOODMARK_CONN_SHOP": f"kafka://{broker.servers}"}
        named = [{**sink, "name": name} for name, sink in sinks.items()]
        flow.settings = {**flow.settings, "sinks": [*named, {"delta": flow.sink(), **deepcopy(twin)}]}
        (flow.root / "rules").mkdir(exist_ok=True)
        (flow.root / "rules" / "kept.py").write_text(CODE)
        self.relays = Relays(flow.name, flow.root, env)

    def ship(self, *killed: str) -> None:
        """Ship all; a relay of each of these targets is killed first, before it commits."""
        for name in killed:
            self.relays.killed_at("relay.sent", "--target", name)
        done = self.relays.ship()
        assert done.code == 0, done.said

    def twin(self) -> list[str]:
        return _in_order(rows_of(self.flow.sink()))

    def topic(self, topic: str, avro: bool = False) -> list[str]:
        """The rows that a compacted topic keeps."""
        newest = {one.key(): one.value() for one in self.records(topic)}
        return _in_order([_in_avro(value) if avro else json.loads(value) for value in newest.values() if value])

    def records(self, topic: str) -> list[Any]:
        return self._broker.records(topic)

    def held(self, path: Path) -> list[str]:
        """The rows of a class."""
        with closing(sqlite3.connect(path)) as database:
            return _in_order([json.loads(text) for (text,) in database.execute("SELECT text FROM rows")])

    def certified(self) -> tuple[str, list[str]]:
        certificate = audit(self.flow.name, self.flow.home, deep=True)
        assert certificate is not None
        return certificate.verdict, [str(one) for one in certificate.findings]


SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": name, "type": ["null", kind]}
        for name, kind in {
            "start": {"type": "long", "logicalType": "timestamp-micros"},
            "k": "string",
            "c": "long",
            "total": "double",
            "top": "long",
        }.items()
    ],
}


def _in_avro(value: bytes) -> dict[str, Any]:
    found = schemaless_reader(BytesIO(value), SCHEMA, None)
    assert isinstance(found, dict)
    return found


def _in_order(rows: list[dict[str, Any]]) -> list[str]:
    """As text, with times of one form."""
    return sorted(
        json.dumps({name: _plain(value) for name, value in row.items()}, sort_keys=True, default=str) for row in rows
    )


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[:4].isdigit():
        value = datetime.fromisoformat(value)
    return str(value) if isinstance(value, datetime) else value


def _kept(name: str, path: Path) -> dict[str, Any]:
    return {"python": {"class": f"kept:{name}", "settings": {"path": str(path)}}}


@pytest.fixture(autouse=True)
def _connected(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", f"kafka://{broker.servers}")


def test_an_interval_is_replaced_with_the_groups_that_are_gone(
    broker: Broker, place: Path, spark: SparkSession
) -> None:
    """Late rows come in by a backfill; a group of one window leaves by a correction, and the next window stays."""
    flow = Flow(place, "windowed", stream={"lateness": "0 seconds", "on_rewrite": "correct"})
    kafka = {"connection": "shop"}
    sinks: dict[str, Mapping[str, Any]] = {
        "json": {"kafka": {**kafka, "topic": "windows"}, **BY_START},
        "avro": {"kafka": {**kafka, "topic": "avro", "format": "avro"}, **deepcopy(BY_START)},
        "appended": _kept("Replaced", place / "appended.db"),
    }
    shop = Delivered(flow, broker, sinks, deepcopy(BY_START))

    def agrees() -> bool:
        found = [shop.topic("windows"), shop.topic("avro", avro=True), shop.held(place / "appended.db")]
        return found == [shop.twin()] * 3

    flow.arrive([event(s, k, n=s) for s in (1, 59, 61, 119, 121, 300) for k in ("a", "b")])
    run(spark, flow)
    flow.arrive([event(62, "a"), event(63, "c"), event(600, "a")])
    run(spark, flow)
    shop.ship()
    assert agrees()
    before = len(shop.records("windows"))
    begin = int(START.timestamp() * 1e6) + 60_000_000
    backfill(spark, flow, begin, begin + 60_000_000)
    shop.ship(*shop.names)
    assert agrees()
    assert [one.value() is None for one in shop.records("windows")[before:]].count(True) == 0, "no key is gone"
    DeltaTable(flow.source).delete("k = 'c' OR (k = 'b' AND n IN (61, 119))")
    run(spark, flow)
    shop.ship(*shop.names)
    assert agrees()
    gone = [json.loads(one.key()) for one in shop.records("windows") if one.value() is None]
    assert sorted((row["k"], row["start"][14:19]) for row in gone) == [("b", "01:00"), ("c", "01:00")]
    assert shop.certified() == ("proven", [])
    assert len({dict(one.headers())["floodmark.row"] for one in shop.records("windows")}) == len(
        shop.records("windows")
    )


@pytest.mark.prove
def test_keys_are_corrected_without_any_capability_but_the_key(
    broker: Broker, place: Path, spark: SparkSession
) -> None:
    flow = Flow(place, "totals", sql="SELECT k, count(*) AS c, max(at) AS last FROM events GROUP BY k")
    flow.stream, flow.settings = {"lateness": None, "on_rewrite": "correct"}, {"unbounded": True}
    sinks: dict[str, Mapping[str, Any]] = {
        "sent": {"kafka": {"connection": "shop", "topic": "totals"}, "key": ["k"]},
        "kept": {**_kept("Keyed", place / "kept.db"), "key": ["k"]},
    }
    shop = Delivered(flow, broker, sinks, {"key": ["k"]})
    flow.arrive([event(s, k, n=s) for s in (1, 61, 121) for k in ("a", "b", "c")])
    run(spark, flow)
    shop.ship()
    DeltaTable(flow.source).delete("k = 'c' OR (k = 'b' AND n > 100)")
    run(spark, flow)
    shop.ship(*shop.names)
    assert [shop.topic("totals"), shop.held(place / "kept.db")] == [shop.twin()] * 2
    assert sorted(json.loads(text)["k"] for text in shop.twin()) == ["a", "b"]
    assert shop.certified() == ("proven", [])


@pytest.mark.prove
def test_everything_is_replaced_and_reset(broker: Broker, place: Path, spark: SparkSession) -> None:
    """Sessions that late rows join: two become one. A reset then takes all away, also what is not in the new one."""
    by = "session_window(at, '20 seconds'), k"
    sql = f"SELECT session_window.start AS start, k, count(*) AS c FROM events GROUP BY {by}"
    flow = Flow(place, "sessions", sql=sql, stream={"lateness": "0 seconds"})
    sinks: dict[str, Mapping[str, Any]] = {
        "sent": {"kafka": {"connection": "shop", "topic": "sessions"}, **BY_START},
        "kept": _kept("Emptied", place / "kept.db"),
        "files": {"files": {"path": str(place / "files"), "format": "parquet"}},
    }
    shop = Delivered(flow, broker, sinks, deepcopy(BY_START))

    def agrees() -> bool:
        paths = files_of(str(place / "files"))
        files = pa.concat_tables([pq.ParquetFile(one.path).read() for one in paths]).to_pylist() if paths else []
        return [shop.topic("sessions"), shop.held(place / "kept.db"), _in_order(files)] == [shop.twin()] * 3

    flow.arrive([event(s, k) for s in (0, 30, 200) for k in ("a", "b")])
    run(spark, flow)
    shop.ship()
    assert agrees()
    flow.arrive([event(15, "a"), event(400, "a")])
    run(spark, flow)
    _ = backfill_all(spark, flow)
    shop.ship(*shop.names)
    assert agrees()
    assert shop.certified() == ("proven", [])
    flow.sql = sql.replace("FROM events", "FROM events WHERE k = 'b'")
    reset(spark, flow)
    shop.ship(*shop.names)
    assert shop.topic("sessions") == []
    run(spark, flow)
    shop.ship()
    assert agrees()
    assert len(shop.twin()) == 3
    assert shop.certified() == ("proven", [])


def test_partitions_of_the_topics_of_this_test_differ() -> None:
    """So that an open transaction of one does not hold up another."""
    assert len({zlib.crc32(topic.encode()) % PARTITIONS for topic in TOPICS}) == len(TOPICS)
