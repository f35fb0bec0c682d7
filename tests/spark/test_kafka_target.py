"""Kafka as a target, beside a real broker: a consumer of committed records gets each once, whatever ends a relay."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterator
from datetime import datetime
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType as OpType,
)
from confluent_kafka.admin import ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from fastavro import schemaless_reader
from pyspark.sql import SparkSession
from support.deliveries import EPOCHS, KEYED, Copied, flow_of, in_order, run_all
from support.flow import Flow, event
from support.kafka import Broker, served
from support.outboxed import Outboxed, redone
from support.relays import Relays
from support.running import reset, run

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.sources.kafka.brokers import brokers
from floodmark.connectors.targets.kafka.markers import PARTITIONS, TOPIC_ID
from floodmark.connectors.targets.kafka.messages import LEDGER, ROW, Record
from floodmark.connectors.targets.kafka.options import WrittenTopic
from floodmark.connectors.targets.kafka.producing import ANSWER, Transactions
from floodmark.connectors.targets.kafka.reading import Blocked, CommittedReader
from floodmark.connectors.targets.kafka.target import KafkaTarget
from floodmark.core.relay.positions import MARKERS
from floodmark.core.text.ddl import columns_of
from floodmark.errors import InputFault, Refused
from floodmark.proving.play.processes import wait_until

SHOP = {"connection": "shop"}
SINKS: list[dict[str, Any]] = [
    {"kafka": {**SHOP, "topic": "rows"}},
    {"kafka": {**SHOP, "topic": "sent", "key": ["k", "n"]}},
    {"kafka": {**SHOP, "topic": "current"}, **KEYED},
]
TOPICS = ("rows", "sent", "current")
POINTS = ("relay.before", "relay.sent", "relay.after")
DDL = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"
TIME = {"type": "long", "logicalType": "timestamp-micros"}
TYPES: dict[str, Any] = {"at": TIME, "k": "string", "v": "double", "n": "long"}
AVRO = {"type": "record", "name": "row", "fields": [{"name": n, "type": ["null", t]} for n, t in TYPES.items()]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with served(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture(scope="module")
def written(root: Path, spark: SparkSession) -> Flow:
    return run_all(spark, flow_of(root, SINKS))


class Shop(Copied):
    """A broker without topics, and the rule's relays to it."""

    def __init__(self, written: Flow, place: Path, broker: Broker):
        super().__init__(written, place, {"FLOODMARK_CONN_SHOP": f"kafka://{broker.servers}"})
        self.broker = broker

    def records(self, topic: str) -> list[Any]:
        return self.broker.records(topic)

    def rows(self, topic: str) -> list[tuple[Any, ...]]:
        return _typed([json.loads(one.value()) for one in self.records(topic)])

    def current(self) -> list[tuple[Any, ...]]:
        """The rows that a compacted topic keeps."""
        newest = {one.key(): one.value() for one in self.records("current")}
        return _typed([json.loads(value) for value in newest.values() if value is not None])

    def has_all(self) -> bool:
        return [self.rows("rows"), self.rows("sent"), self.current()] == [self.expected(i) for i in range(3)]

    def marker(self) -> Any:
        """The record with the position of `rows`."""
        return [one for one in self.records(MARKERS) if one.key() == b"rows"][-1]

    def move(self, **changes: Any) -> None:
        """Change the position of `rows` by hand; it then lacks the topic's id, as one of an older version."""
        marker = self.marker()
        text = json.dumps({**json.loads(marker.value()), **changes})
        self.broker.producer.produce(MARKERS, text, b"rows", marker.partition())
        assert self.broker.producer.flush(10) == 0


def _typed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return in_order([{**row, "at": datetime.fromisoformat(row["at"])} for row in rows])


@pytest.fixture
def shop(broker: Broker, written: Flow, place: Path) -> Iterator[Shop]:
    yield Shop(written, place, broker)
    _clear(broker)


def _clear(broker: Broker) -> None:
    def topics() -> set[str]:
        return set(broker.admin.list_topics(timeout=10).topics) & {MARKERS, *TOPICS}

    for topic in topics():
        broker.delete(topic)
    assert broker.process is not None
    assert wait_until(lambda: not topics(), broker.process, 60.0)


def test_a_topic_gets_what_a_delta_table_gets(shop: Shop) -> None:
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said
    assert shop.relays.ship().said.count("nothing new") == 3
    records = shop.records("sent")
    assert len({dict(one.headers())["floodmark.row"] for one in records}) == len(records)
    assert {dict(one.headers())["floodmark.epoch"] for one in records} == {b"1", b"2", b"3", b"5"}
    keys = {one.key() for one in records if json.loads(one.value())["n"] == 3}
    assert keys == {b'{"k":null,"n":3}', b'{"k":"a","n":3}'}
    assert b"a" in {one.key() for one in shop.records("current")}


def test_all_can_be_read_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.relays.ship().code == 0
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", shop.relays.env["FLOODMARK_CONN_SHOP"])
    for i, topic in enumerate(TOPICS):
        target = KafkaTarget(f"kafka://shop/{topic}", WrittenTopic(connection="shop", topic=topic))
        batches = target.read_back(Layout(columns_of(DDL), ("k",) if topic == "current" else ()))
        assert in_order([row for batch in batches for row in batch.to_pylist()]) == shop.expected(i)


@pytest.mark.parametrize(
    "point", [point if point == "relay.sent" else pytest.param(point, marks=pytest.mark.prove) for point in POINTS]
)
def test_a_killed_relay_neither_loses_nor_doubles_a_record(shop: Shop, point: str) -> None:
    for topic in TOPICS:
        shop.relays.killed_at(point, "--target", topic)
    done = shop.relays.ship()
    assert (done.code, shop.has_all()) == (0, True), done.said


@pytest.mark.prove
def test_a_killed_relay_neither_loses_nor_doubles_a_record_in_avro(
    broker: Broker, place: Path, spark: SparkSession
) -> None:
    """The records are read with Avro's own reader and a schema that is written here."""
    sinks = [{**one, "kafka": {**one["kafka"], "format": "avro"}} for one in SINKS]
    shop = Shop(run_all(spark, flow_of(place, sinks)), place, broker)
    for topic in TOPICS:
        for point in ("relay.sent", *POINTS):
            shop.relays.killed_at(point, "--target", topic)
    done = shop.relays.ship()
    assert done.code == 0, done.said
    for i, topic in enumerate(("rows", "sent")):
        records = shop.records(topic)
        assert in_order([_in_avro(one.value()) for one in records]) == shop.expected(i)
        assert len({dict(one.headers())["floodmark.row"] for one in records}) == len(records)
    newest = {one.key(): one.value() for one in shop.records("current")}
    assert in_order([_in_avro(value) for value in newest.values() if value is not None]) == shop.expected(2)
    _clear(broker)


def _in_avro(value: bytes) -> dict[str, Any]:
    left = BytesIO(value)
    found = schemaless_reader(left, AVRO, None)
    assert isinstance(found, dict) and left.read() == b""
    return found


@pytest.mark.prove
@pytest.mark.parametrize("point", ["relay.before", "relay.sent"])
def test_a_stopped_relay_that_goes_on_after_another_has_no_effect(shop: Shop, point: str) -> None:
    shop.relays.killed_at("relay.before", "--target", "rows")  # so that the zombie has only read the position
    with shop.relays.stopped_at(point, "--target", "rows") as zombie:
        done = shop.relays.ship()
        assert (done.code, shop.has_all()) == (0, True), done.said
        shop.relays.go_on(point)
        assert wait_until(lambda: zombie.poll() is not None, zombie, 60.0)
    assert zombie.returncode == 1
    assert shop.has_all()


@pytest.mark.prove  # another relay has that id, too
def test_a_stranger_with_the_same_transactional_id_ends_the_relay(shop: Shop) -> None:
    with shop.relays.stopped_at("relay.sent", "--target", "rows") as relay:
        said = {"bootstrap.servers": shop.broker.servers, "log_level": 0}
        stranger = Producer({**said, "transactional.id": "floodmark.rows"})
        stranger.init_transactions(30)
        shop.relays.go_on("relay.sent")
        assert wait_until(lambda: relay.poll() is not None, relay, 60.0)
    assert relay.returncode == 1
    assert shop.rows("rows") == []
    assert shop.relays.ship().code == 0
    assert shop.has_all()


@pytest.mark.prove
def test_a_broker_that_dies_in_a_transaction_neither_loses_nor_doubles_a_record(shop: Shop) -> None:
    with shop.relays.stopped_at("relay.sent", "--target", "rows") as relay:
        shop.broker.kill()
        shop.broker.start()
        shop.relays.go_on("relay.sent")
        assert wait_until(lambda: relay.poll() is not None, relay, 120.0)
    assert shop.relays.ship().code == 0
    assert shop.has_all()


@pytest.mark.parametrize(("qos", "times"), [(1, 2), pytest.param(0, 0, marks=pytest.mark.prove)])
def test_qos_1_doubles_and_qos_0_loses(shop: Shop, place: Path, qos: int, times: int) -> None:
    redone(place / "own", {"kafka": {**SHOP, "topic": "rows"}, "qos": qos}, shop.relays.env)
    assert sorted(json.loads(one.value())["n"] for one in shop.records("rows")) == sorted([1, 2] * times)


@pytest.mark.prove
def test_a_topic_of_positions_that_was_deleted_is_named(shop: Shop) -> None:
    shop.relays.ship("--target", "rows")
    shop.broker.delete(MARKERS)
    done = shop.relays.ship("--target", "rows")
    assert (done.code, f"the topic {MARKERS} has no position of a rule" in done.said) == (2, True), done.said
    shop.broker.delete("rows")
    done = shop.relays.ship("--target", "rows")
    assert (done.code, "it was restored from a copy" in done.said) == (3, True), done.said


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        ({"epoch": 2}, "its position is not one of the ledger's", 3),
        pytest.param({"ledger": "x"}, "it belongs to another rule's ledger (id x", 2, marks=pytest.mark.prove),
        pytest.param({"seq": 99}, "the home is an older copy", 3, marks=pytest.mark.prove),
        pytest.param({"more": 1}, "its position in floodmark.positions cannot be read", 3, marks=pytest.mark.prove),
    ],
)
def test_a_position_that_somebody_changed_is_named(shop: Shop, change: dict[str, Any], said: str, code: int) -> None:
    shop.relays.ship("--target", "rows")
    shop.move(**change)
    done = shop.relays.ship("--target", "rows")
    assert (done.code, said in done.said) == (code, True), done.said
    assert shop.rows("rows") == shop.expected(0)


def test_the_end_of_a_topic_is_read_only_once_no_transaction_is_open(broker: Broker) -> None:
    """Else an older position would be taken for the newest."""
    broker.create(MARKERS, 1)
    said = {"bootstrap.servers": broker.servers, "log_level": 0}
    writer = Producer({**said, "transactional.id": "floodmark.other"})
    writer.init_transactions(30)
    reader = CommittedReader(said, brokers("shop", said), MARKERS, [0])
    for commits in (True, False):
        writer.begin_transaction()
        writer.produce(MARKERS, b"new", b"other")
        assert writer.flush(30) == 0
        with pytest.raises(Blocked):
            list(reader.to_end(0.5))
        writer.commit_transaction(30) if commits else writer.abort_transaction(30)
        assert [one.value() for one in reader.to_end(30)] == [b"new"] * commits
    assert list(reader.to_end(0.5)) == []
    reader.close()
    _clear(broker)


def test_topics_of_somebody_are_taken_over_if_they_are_empty(shop: Shop) -> None:
    shop.broker.create("rows", 3)
    shop.broker.create("sent", 1)
    shop.broker.send("sent", [{"k": 1}], partition=0)
    shop.broker.create("current", 1, max_message_bytes="120")
    assert shop.relays.ship("--target", "rows").code == 0
    assert shop.rows("rows") == shop.expected(0)
    done = shop.relays.ship("--target", "sent")
    assert (done.code, "it has records, and the topic" in done.said) == (2, True), done.said
    done = shop.relays.ship("--target", "current")
    assert (done.code, "/0: expected a record that the topic takes" in done.said) == (3, True), done.said


@pytest.mark.prove
def test_a_topic_that_was_made_anew_is_named_and_gets_all_again_on_demand(shop: Shop) -> None:
    def ship(code: int, said: str, *arguments: str) -> None:
        done = shop.relays.ship("--target", "rows", *arguments)
        assert (done.code, said in done.said) == (code, True), done.said

    def make_anew() -> None:
        shop.broker.delete("rows")
        ship(3, "found none: somebody deleted it")
        shop.broker.create("rows", 1)
        ship(3, "it was deleted and made anew")

    ship(0, "shipped")
    noted_by = shop.marker()
    noted = noted_by.headers()
    assert [name for name, _ in noted] == [TOPIC_ID]
    shop.move()
    shop.broker.widen("rows", 3)
    ship(0, "nothing new")
    assert shop.marker().headers() == noted, "a position without an id takes the topic's on"
    make_anew()
    shop.relays.killed_at("relay.sent", "--target", "rows", "--resend")
    ship(3, "it was deleted and made anew")
    ship(0, "shipped", "--resend")
    assert shop.rows("rows") == shop.expected(0)
    make_anew()
    shop.broker.send("rows", [b"of another writer"], partition=0)
    ship(0, "shipped", "--resend")
    assert len(shop.records("rows")) == len(shop.expected(0)) + 1
    make_anew()
    ledger = json.loads(noted_by.value())["ledger"]
    shop.broker.producer.produce("rows", b"restored", partition=0, headers={LEDGER: ledger})
    assert shop.broker.producer.flush(10) == 0
    ship(0, "nothing new", "--resend")
    ship(0, "nothing new")
    shop.broker.delete("rows")
    ship(0, "shipped", "--resend")
    assert shop.rows("rows") == shop.expected(0)


def test_a_resend_that_is_killed_before_its_position_sends_all_the_same(broker: Broker, place: Path) -> None:
    sink = {"kafka": {"connection": "shop", "topic": "resent"}, "qos": 1}
    rule = Outboxed(place, sink, {"FLOODMARK_CONN_SHOP": f"kafka://{broker.servers}"})
    rule.epoch([event(1, n=1)] * 250_001)  # a transaction
    rule.epoch([event(2, n=2)])
    assert rule.relays.ship().code == 0
    broker.delete("resent")
    broker.create("resent", 1)
    rule.relays.killed_at("relay.between", "--resend")
    assert "was restored from a copy" in rule.relays.ship().said
    assert rule.relays.ship("--resend").code == 0
    assert {json.loads(one.value())["n"] for one in broker.records("resent")} == {1, 2}


def test_a_record_that_is_too_large_is_named_soon(shop: Shop) -> None:
    """librdkafka gives up or holds back the records beside it, and reports them in any order."""
    shop.broker.create("rows", 3, max_message_bytes="200")
    writer = Transactions("kafka://shop/rows", {"bootstrap.servers": shop.broker.servers}, "large", 200)
    small = [Record(str(i).encode(), b"x", [(ROW, b"1/%d" % i)]) for i in range(100)]
    large = Record(b"1", Random(4).randbytes(400), [(ROW, b"1/large")])  # which no compression makes smaller
    begun = time.monotonic()
    with pytest.raises(InputFault, match="row 1/large: expected a record that the topic takes"):
        writer.send("rows", [*small[:50], large, *small[50:]], None)
    assert time.monotonic() - begun < ANSWER, "it waited for the records that were held back"


@pytest.mark.parametrize(
    ("uri", "said", "code"),
    [
        ("kafka://reader:wrong@{closed}?security.protocol=SASL_PLAINTEXT", "refuses: ", 2),
        ("kafka://{open}?acks.all=1", "connection shop: expected the settings bootstrap.servers", 2),
        ("", "connection shop: expected it in FLOODMARK_CONN_SHOP", 2),
    ],
)
def test_a_wrong_connection_is_answered_in_one_line(shop: Shop, uri: str, said: str, code: int) -> None:
    text = uri.format(open=shop.broker.servers, closed=shop.broker.closed)
    done = Relays(shop.written.name, shop.root, {"FLOODMARK_CONN_SHOP": text}).ship("--target", "rows")
    assert (done.code, said in done.said) == (code, True), done.said
    assert len(done.said.splitlines()) == 1


def test_a_key_that_is_no_column_and_another_number_of_partitions_are_named(shop: Shop) -> None:
    shop.rewrite("    - k\n    - n\n", "    - k\n    - m\n")
    done = shop.relays.ship("--target", "sent")
    assert (done.code, "expected columns of the results in its key, found m" in done.said) == (2, True), done.said
    shop.broker.create(MARKERS, 3)
    done = shop.relays.ship("--target", "rows")
    assert (done.code, f"expected {PARTITIONS} partitions of the topic {MARKERS}, found 3" in done.said) == (2, True)


@pytest.mark.prove
def test_a_reset_is_refused_unless_rows_are_kept(broker: Broker, place: Path, spark: SparkSession) -> None:
    flow = flow_of(place, SINKS)
    shop = Shop(flow, place, broker)
    flow.arrive(EPOCHS[0])
    run(spark, flow)
    assert shop.relays.ship().code == 0
    with pytest.raises(Refused, match=r"found kafka without a `key` at the sink\. Write `on_reset: keep`"):
        reset(spark, flow)
    assert flow.ledger().begun.seal is None
    flow.settings["sinks"] = [{**one, "on_reset": "keep"} if "kafka" in one else one for one in flow.settings["sinks"]]
    reset(spark, flow)
    run(spark, flow)
    assert shop.relays.ship().code == 0
    assert shop.rows("rows") == sorted(shop.expected(0) * 2, key=str)
    assert {dict(one.headers())["floodmark.generation"] for one in shop.records("rows")} == {b"1", b"2"}
    assert shop.current() == shop.expected(2)
    _clear(broker)


def test_records_that_are_too_large_are_set_aside_and_replayed(
    broker: Broker, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third has just enough room: by a rough count it is too large."""
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", f"kafka://{broker.servers}")
    env = {"FLOODMARK_CONN_SHOP": f"kafka://{broker.servers}"}
    rule = Outboxed(place, {"kafka": {**SHOP, "topic": "large"}, "on_error": "dead"}, env)
    broker.create("large", 1, **{"max.message.bytes": "4000"})
    noise = "".join(chr(0x4E00 + number * number % 9973) for number in range(3000))
    rule.epoch([event(1, "a", n=1), event(1, noise, n=2), event(1, "b" * 3700, n=3), event(1, noise[::-1], n=4)])
    for point in ("relay.refused", "relay.sent"):
        rule.relays.killed_at(point)
    done = rule.relays.ship()
    assert (done.code, "2 rows of 1 portion shipped, 2 refused" in done.said) == (0, True), done.said
    assert [n for *_, n in rule.undelivered()] == [2, 4]
    assert rule.certified() == ([], {rule.name: 2})
    change = ConfigResource(ConfigResource.Type.TOPIC, "large")
    change.add_incremental_config(ConfigEntry("max.message.bytes", "40000", incremental_operation=OpType.SET))
    broker.admin.incremental_alter_configs([change])[change].result(10)
    code, said = rule.command("undelivered", "replay", rule.flow.name)
    assert (code, "2 rows of 1 portion shipped" in said) == (0, True), said
    assert rule.certified() == ([], {})
    records = Shop(rule.flow, place, broker).records("large")
    found = [(json.loads(one.value())["n"], dict(one.headers())["floodmark.row"].decode()) for one in records]
    numbers = [(n, re.sub(r"-[0-9a-f]{8}/", "/", row.split("/", 1)[1])) for n, row in found]
    assert numbers == [(1, "3/0"), (3, "3/2"), (2, "4/0"), (4, "4/1")]
    for topic in ("large", MARKERS):
        broker.delete(topic)


def test_partitions_of_the_topics_of_this_test_differ() -> None:
    """So that an open transaction of one does not hold up another."""
    assert len({zlib.crc32(topic.encode()) % PARTITIONS for topic in TOPICS}) == len(TOPICS)
