"""Kafka as a source, beside a real broker: its promises, all of a rule's life, and all that happens to topics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from support import avro
from support.flow import STATELESS, Flow, event, rows_of
from support.kafka import Broker, served
from support.running import backfill_all, crash, run
from support.sourcekinds import Growing, KindUnderTest, promised, rows_promised
from support.sourcelives import sink, some, verdict, windows

from floodmark.connectors.avro.schemas import schema_of
from floodmark.connectors.planning.avrovalues import values_of_avro
from floodmark.connectors.ports import connections
from floodmark.connectors.ports.source import MALFORMED
from floodmark.connectors.sources.kafka.offsets import KafkaOffset
from floodmark.connectors.sources.kafka.options import Kafka
from floodmark.connectors.sources.kafka.records import decoded
from floodmark.connectors.sources.kafka.source import KafkaSource
from floodmark.core.protocol.crashpoints import EPOCH_POINTS
from floodmark.core.rules.model import StartAt
from floodmark.core.rules.rule import Stream
from floodmark.core.text.ddl import columns_of
from floodmark.errors import HistoryGone, InputFault, Refused, RunFailed, SourceBroken, exit_code
from floodmark.proving.play.processes import wait_until

DDL = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with served(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture(autouse=True)
def _connected(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", f"kafka://{broker.servers}")


@pytest.fixture
def topic(broker: Broker, place: Path) -> str:
    name = f"{place.name}.events"
    broker.create(name)
    return name


@pytest.fixture
def lasting(broker: Broker, place: Path) -> str:
    """A topic that keeps records of any age."""
    name = f"{place.name}.lasting"
    broker.create(name, retention_ms="-1")
    return name


def said(topic: str, **more: Any) -> dict[str, Any]:
    return {"connection": "lake", "topic": topic, "schema": DDL} | more


def stream_of(topic: str, **more: Any) -> Stream:
    return Stream(kind="kafka", address=f"kafka://lake/{topic}", options=said(topic, **more))


def source_of(topic: str, **more: Any) -> KafkaSource:
    return KafkaSource("events", stream_of(topic, **more))


def flow_of(place: Path, topic: str, kafka: Mapping[str, Any] = {}, **more: Any) -> Flow:
    flow = Flow(place, "counted", **more)
    flow.stream = {"delta": None, "kafka": said(topic) | dict(kafka), **flow.stream}
    return flow


def test_it_keeps_what_every_kind_promises(broker: Broker, place: Path, spark: SparkSession) -> None:
    topic = f"{place.name}.promised"
    broker.create(topic)

    def add(place: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        broker.send(topic, rows)

    growing = Growing(KindUnderTest(lambda place: stream_of(topic), add), place / "rows")
    promised(growing)
    rows_promised(growing, spark)


@pytest.mark.prove
@pytest.mark.parametrize("point", EPOCH_POINTS)
def test_an_epoch_that_was_killed_goes_on(
    broker: Broker, spark: SparkSession, place: Path, topic: str, point: str
) -> None:
    """While the epoch is open, the topic gets a partition, which the next epoch reads."""
    flow, events = flow_of(place, topic, settings={"epoch": {"max_rows": 14}}), some()
    broker.send(topic, [*events[:14], event(-600), event(None)])  # these two are the second epoch
    source, process = source_of(topic), broker.process
    assert process is not None
    seen = wait_until(lambda: source.backlog(source.start()).amount == 16, process, 60)
    assert seen, f"16 are to be seen, from {source.start()} to {source.end()}"
    assert crash(spark, flow, point, 1 if point == "offsets.before" else 2)
    broker.widen(topic, 3)
    run(spark, flow)
    broker.send(topic, events[14:], partition=2)  # no sooner, so that no other row is late because of them
    run(spark, flow)
    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert verdict(flow) == "proven"
    counts = flow.counts()
    assert (counts["read"], counts["late"], counts["dead"]) == (len(events) + 2, 1, 1)


def test_records_say_where_they_come_from(broker: Broker, spark: SparkSession, place: Path, lasting: str) -> None:
    broker.producer.produce(lasting, b'{"n": 1}', key=b"a", partition=1, timestamp=1_000, headers=[("h", b"x")])
    broker.send(lasting, [b'{"n": 2, "more": 3}'], partition=0)
    source = source_of(lasting, schema="n INT", metadata=["key", "topic", "partition", "timestamp", "headers"])
    assert source.columns() == {"n": "integer", "key": "string", "topic": "string", "partition": "integer",
                                "timestamp": "timestamp", "headers": "array"}  # fmt: skip
    first, second = sorted(source.whole(spark).collect(), key=lambda row: row["n"])
    assert (first["key"], first["topic"], first["partition"], first["headers"]) == ("a", lasting, 1, [("h", b"x")])
    assert first["timestamp"].replace(tzinfo=UTC) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (second["n"], second["partition"], second["headers"]) == (2, 0, None)


@pytest.mark.parametrize(("form", "expected"), [("text", ["x", "é", None]), ("binary", [b"x", "é".encode(), None])])
def test_values_that_are_no_json(
    broker: Broker, spark: SparkSession, topic: str, form: str, expected: list[object]
) -> None:
    broker.send(topic, [b"x", "é".encode(), None], partition=0)
    stream = Stream(
        kind="kafka", address="kafka://lake/t", options={"connection": "lake", "topic": topic, "format": form}
    )
    assert [row["value"] for row in KafkaSource("s", stream).whole(spark).collect()] == expected


def test_text_that_is_not_in_utf8_is_malformed(broker: Broker, spark: SparkSession, topic: str) -> None:
    broker.send(topic, [b"\xe4", "ä".encode()], partition=0)
    options = {"connection": "lake", "topic": topic, "format": "text"}
    found = KafkaSource("s", Stream(kind="kafka", address="kafka://lake/t", options=options)).whole(spark).collect()
    told = f"topic {topic}, partition 0, offset 0: \ufffd"
    assert [(row["value"], row[MALFORMED]) for row in found] == [(None, told), ("ä", None)]


@pytest.mark.parametrize("form", ["json", "text", "avro"])
def test_a_key_that_is_not_in_utf8_is_malformed(spark: SparkSession, form: str) -> None:
    value = {"json": b'{"n": 1}', "text": b"x", "avro": b"\2\2"}[form]
    rows = [(key, value, "t", 0, i) for i, key in enumerate([b"\xff\xfe", None, b"ok"])]
    columns = {} if form == "text" else {"schema": "n BIGINT"}
    said = Kafka.model_validate({"connection": "c", "topic": "t", "format": form, "metadata": ["key"], **columns})
    frame = spark.createDataFrame(rows, "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT")
    found = [(row["key"], row[MALFORMED]) for row in decoded(frame, said).collect()]
    told = "topic t, partition 0, offset 0: its key is not UTF-8: \ufffd\ufffd"
    assert found == [(None, told), (None, None), ("ok", None)]


def test_a_record_without_a_time_has_none(spark: SparkSession) -> None:
    """Kafka says -1: the last millisecond of 1969."""
    said = Kafka.model_validate({"connection": "c", "topic": "t", "format": "binary", "metadata": {"timestamp": "at"}})
    rows = spark.sql("SELECT timestamp_millis(ms) AS timestamp, X'00' AS value FROM VALUES (-2), (-1), (0) AS t (ms)")
    found = decoded(rows, said).selectExpr("unix_millis(at) AS ms").collect()
    assert [row["ms"] for row in found] == [-2, None, 0]


BAD = [b"", b"no", b'{"n": "x"}', b"[]", b"5", b"null", b'{"n": 1', b"\xff\xfe",
       b'{"n": 1}{"n": 2}', b'{"n": 1}\n{"n": 2}', b'{"n": 1},{"n": 2}', b'{"n": 1} and more',
       b'{"k": "\xe4", "n": 1}']  # fmt: skip


@pytest.mark.prove
def test_what_is_no_row_is_dead_or_stops_the_run(broker: Broker, spark: SparkSession, place: Path, topic: str) -> None:
    good = [event(10 * i, n=i) for i in range(3)]
    broker.send(topic, [*good, *BAD, None], partition=1)
    flow = flow_of(place, topic, sql=STATELESS, sinks=1, settings={"on_error": "fail"})
    with pytest.raises(
        InputFault, match=rf"malformed record: topic {topic}, partition 1, offset 3: .*{len(BAD)} such rec"
    ):
        run(spark, flow)
    flow.settings = {"on_error": "dead"}
    run(spark, flow)
    dead = sorted(row["_reason"] for row in rows_of(str(flow.home / flow.name / "dead")))
    places = sorted(f"malformed record: topic {topic}, partition 1, offset {3 + i}: " for i in range(len(BAD)))
    found = [reason for reason in dead if reason.startswith("malformed")]
    assert all(reason.startswith(place) for reason, place in zip(found, places, strict=True))
    assert f'malformed record: topic {topic}, partition 1, offset 5: {{"n": "x"}}' in found
    assert len(rows_of(flow.sink())) == len(good)
    assert flow.counts()["dead"] == len(dead) == len(BAD) + 1, "a record without a value has no event time"
    assert verdict(flow) == "proven"


def test_avro_values_are_rows_and_what_is_no_record_is_dead(
    broker: Broker, spark: SparkSession, place: Path, topic: str
) -> None:
    """Over a kill. A record has to take up the whole value, from the first byte to the last."""
    schema, events = schema_of(columns_of(DDL)), some(12)
    good = [avro.value(schema, row) for row in events]
    bad = [b"", good[0][:-1], good[0] + b"\0", avro.framed(7, good[0]), b"\2" + b"\xff" * 40]
    broker.send(topic, [*bad[:3], *good[:6], None, *good[6:], *bad[3:]], partition=1)
    flow = flow_of(
        place,
        topic,
        {"format": "avro"},
        sql=STATELESS,
        sinks=1,
        settings={"on_error": "fail", "epoch": {"max_rows": 9}},
    )
    with pytest.raises(InputFault, match=f"malformed record: topic {topic}, partition 1, offset 0: expected Avro of t"):
        run(spark, flow)
    flow.settings["on_error"] = "dead"
    assert crash(spark, flow, "sink0.after", 2)
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [row["n"] for row in events]
    assert sorted(row["at"] for row in rows_of(flow.sink())) == sorted(row["at"] for row in events)
    dead = sorted(row["_reason"] for row in rows_of(str(flow.home / flow.name / "dead")))
    found = [reason.partition("partition 1, ")[2] for reason in dead if reason.startswith("malformed")]
    found.sort(key=lambda reason: int(reason.split(":")[0].removeprefix("offset ")))
    head = f"expected Avro of the schema, found {len(good[0]) - 1} bytes, {good[0][:-1].hex().upper()}"
    assert [reason.partition(":")[0] for reason in found] == [f"offset {i}" for i in (0, 1, 2, 16, 17)]
    assert found[1] == f"offset 1: {head}"
    assert found[3].endswith("Confluent's wire format, it seems, with schema id 7: write `avro_schema: {7: FILE.avsc}`")
    assert flow.counts()["dead"] == len(dead) == len(bad) + 1, "a record without a value has no event time"
    assert verdict(flow) == "proven"


OLD = {"type": "record", "name": "Old", "fields": [
    {"name": "gone", "type": "string"}, {"name": "n", "type": "int"}, {"name": "k", "type": ["string", "null"]},
]}  # fmt: skip
NEW = {"type": "record", "name": "New", "namespace": "shop", "fields": [
    {"name": "k", "type": ["null", "string"]}, {"name": "n", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1000},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "default": "B"},
]}  # fmt: skip


def test_avro_values_are_read_by_the_schema_that_each_was_written_with(
    broker: Broker, spark: SparkSession, place: Path, topic: str
) -> None:
    """A field was added with a default, one removed, and all reordered; the topic is empty at first."""
    files = {"9": "old.avsc", "10": "new.avsc"}
    texts = json.dumps({"9": json.dumps(OLD), "10": json.dumps(NEW)})
    options = {"connection": "lake", "topic": topic, "format": "avro", "avro_schema": files, "code": texts}
    source = KafkaSource("s", Stream(kind="kafka", address="kafka://lake/t", options=options))
    assert source.columns() == {"k": "string", "n": "long", "at": "timestamp", "e": "string"}
    assert source.whole(spark).collect() == []
    first = avro.framed(9, avro.value(OLD, {"gone": "x", "n": 5, "k": "a"}))
    at = datetime(2001, 2, 3, 4, 5, 6, 7000)
    second = avro.framed(10, avro.value(NEW, {"k": None, "n": 2**40, "at": at.replace(tzinfo=UTC), "e": "A"}))
    bad = [b"\0\0\0", b"\1" + first[1:], avro.framed(2**32 - 1, first[5:]), first + b"\0", first[:-1]]
    broker.send(topic, [first, None, second, *bad], partition=0)
    rows = sorted(source.whole(spark).collect(), key=lambda row: (row[MALFORMED] is not None, row["n"] or 0))
    epoch = datetime(1970, 1, 1, 0, 0, 1)
    assert [tuple(row)[:4] for row in rows[:3]] == [(None,) * 4, ("a", 5, epoch, "B"), (None, 2**40, at, "A")]
    assert sorted(row[MALFORMED].partition("partition 0, offset ")[2][:60] for row in rows[3:]) == [
        "3: expected Confluent's wire format (0, then the schema's id",
        "4: expected Confluent's wire format (0, then the schema's id",
        "5: expected the schema id 9 or 10, found 4294967295",
        "6: expected Avro of schema id 9, found 12 bytes, 00000000090",
        "7: expected Avro of schema id 9, found 10 bytes, 00000000090",
    ]


def test_values_of_every_avro_type_are_read_at_their_bounds(spark: SparkSession) -> None:
    columns = columns_of(avro.EVERY)
    values = [(i, bytearray(avro.value(schema_of(columns), row))) for i, row in enumerate(avro.AT_BOUNDS)]
    read, _ = values_of_avro(F.col("value"), {"": json.dumps(schema_of(columns))})
    rows = spark.createDataFrame(values, "i INT, value BINARY").select("i", read.alias("r")).orderBy("i").collect()
    found = [row.r.row.asDict(recursive=True) for row in rows]
    assert found == [{**row, "at": row["at"] and row["at"].replace(tzinfo=None)} for row in avro.AT_BOUNDS]


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
PRICED = {"type": "record", "name": "Priced", "fields": [
    {"name": "k", "type": "int"},
    {"name": "m", "type": ["null", MONEY]},
    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 10}},
    {"name": "o", "type": {"type": "record", "name": "O", "fields": [{"name": "a", "type": {
        "type": "array", "items": ["null", {"type": "map", "values": MONEY}]}}]}},
]}  # fmt: skip


def test_avro_decimals_that_are_wider_than_declared_are_malformed(spark: SparkSession) -> None:
    """Spark's decoder reads the last 64 bits: 2^64 + 5 as 5."""
    bare = json.loads(json.dumps(PRICED).replace('"logicalType": "decimal", ', ""))  # for numbers beyond the precision
    wide = 2**64 + 5

    def record(m: int | None, f: int, *inner: int | None) -> bytearray:
        maps = [None if one is None else {"x": _big(one, 9)} for one in inner]
        row = {"k": 1, "m": None if m is None else _big(m, 9), "f": _big(f, 9), "o": {"a": maps}}
        return bytearray(avro.value(bare, row))

    good = [record(5, -5), record(None, 10**10 - 1, 7, None), record(-(10**10) + 1, 0)]
    bad = [record(wide, 1), record(1, wide), record(10**10, 1), record(1, 1, None, 1, wide), record(1, -wide)]
    values = [(one, "t", 0, i) for i, one in enumerate([*good, *bad])]
    rows = spark.createDataFrame(values, "value BINARY, topic STRING, partition INT, offset BIGINT")
    said = Kafka.model_validate({"connection": "c", "topic": "t", "format": "avro", "avro_schema": "a.avsc"})
    found = [tuple(row) for row in decoded(rows, said, {"": json.dumps(PRICED)}).collect()]
    cents, units = Decimal("0.05"), Decimal("99999999.99")
    assert found[:3] == [
        (1, cents, Decimal(-5), ([],), None),
        (1, None, Decimal(10**10 - 1), ([{"x": Decimal("0.07")}, None],), None),
        (1, -units, Decimal(0), ([],), None),
    ]
    assert [row[:4] for row in found[3:]] == [(None,) * 4] * 5
    for row, name in zip(found[3:], "mfmof", strict=True):
        assert f" for {name}, found a number of more digits" in row[4]
    assert found[3][4].endswith("offset 3: expected values of decimal(10,2) for m, found a number of more digits")


def _big(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


def test_plans_made_in_parallel_decode_avro_alike(spark: SparkSession) -> None:
    """Spark's own `from_avro` failed in 28 of 240 such plans."""
    schema = json.dumps(schema_of(columns_of(DDL)))
    frame = spark.range(1).select(values_of_avro(F.unhex(F.col("id").cast("string")), {"": schema})[0].alias("read"))

    def plan(_: int) -> str:
        return str(frame.union(frame)._jdf.queryExecution().optimizedPlan().toString())  # type: ignore[attr-defined]

    with ThreadPoolExecutor(4) as pool:
        assert {found.count("PERMISSIVE") for found in pool.map(plan, range(200))} == {2}


def test_rows_of_open_transactions_wait_and_those_of_aborted_ones_never_come(
    broker: Broker, spark: SparkSession, place: Path, topic: str
) -> None:
    flow = flow_of(place, topic, sql=STATELESS, sinks=1)
    writer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic, "log_level": 0})
    writer.init_transactions()

    def within(rows: list[dict[str, Any]]) -> None:
        writer.begin_transaction()
        for row in rows:
            writer.produce(topic, json.dumps(row, default=str).encode(), partition=0)
        writer.flush()

    events = some(9)
    within(events[:3])
    writer.commit_transaction()
    within([event(i, n=99) for i in range(5)])
    writer.abort_transaction()
    within(events[3:6])
    broker.send(topic, events[6:], partition=0)  # behind the open transaction
    assert [epoch.read for epoch in run(spark, flow).epochs] == [3]
    head = flow.ledger().head
    assert head is not None
    backlog = source_of(topic).backlog(head.lines["events"])
    assert (backlog.amount, backlog.facts["in_open_transactions"]) == (0, 6)
    assert "wait for an open transaction" in backlog.text
    writer.commit_transaction()
    assert sum(epoch.read for epoch in run(spark, flow).epochs) == 6
    assert sorted(row["n"] for row in rows_of(flow.sink())) == list(range(9))
    within([event(i, n=99) for i in range(2)])
    writer.abort_transaction()
    assert [epoch.read for epoch in run(spark, flow).epochs] == [0], "a range of markers ends"
    assert not run(spark, flow).epochs
    assert verdict(flow) == "proven"


def test_a_topic_that_was_made_anew_is_another_one(
    broker: Broker, spark: SparkSession, place: Path, topic: str
) -> None:
    flow = flow_of(place, topic, sql=STATELESS, sinks=1)
    broker.send(topic, some(4))
    run(spark, flow)
    broker.delete(topic)
    with pytest.raises(HistoryGone, match=f"topic {topic} was read, and is not there now"):
        run(spark, flow)
    broker.create(topic)
    broker.send(topic, some(9))
    with pytest.raises(HistoryGone, match=f"topic {topic} was deleted and made anew: expected the one with id"):
        run(spark, flow)


def test_records_that_retention_removed_before_they_were_read_are_missed(
    broker: Broker, spark: SparkSession, place: Path, topic: str
) -> None:
    flow, source = flow_of(place, topic, sql=STATELESS, sinks=1), source_of(topic)
    broker.send(topic, some(4))
    run(spark, flow)
    head = flow.ledger().head
    assert head is not None
    line = head.lines["events"]
    broker.send(topic, some(9))
    kept = source.forgets(line, 0)
    assert {limit.retention_us for limit in kept} == {7 * 86_400_000_000} and not any(limit.lost for limit in kept)
    broker.forget(topic, {0: 4, 1: 2})  # of partition 0 two records that were not read, of partition 1 none
    assert [limit.lost for limit in source.forgets(line, 0)].count(True) == 1
    with pytest.raises(
        HistoryGone, match=rf"topic {topic}, partition 0: expected the records from offset 2 on, found none b"
    ):
        run(spark, flow)
    with pytest.raises(HistoryGone, match="read again"):
        source.frame(spark, source.start().replace("[4, 4]", "[0, 0]"), source.end())


def test_a_backfill_over_a_compacted_topic_is_refused(broker: Broker, spark: SparkSession, place: Path) -> None:
    topic = f"{place.name}.compacted"
    broker.create(topic, cleanup_policy="compact", retention_ms="-1")
    flow = flow_of(place, topic, sql=STATELESS, sinks=1)
    broker.send(topic, [event(10 * i, n=i) for i in range(4)])
    run(spark, flow)
    before = rows_of(flow.sink())
    with pytest.raises(HistoryGone, match=r"found .*compacted with `cleanup.policy: compact`.*`landing: true`"):
        backfill_all(spark, flow)
    broker.send(topic, [event(50, n=4)])
    run(spark, flow)
    assert len(rows_of(flow.sink())) == len(before) + 1 == 5


def test_a_record_whose_time_no_timestamp_can_hold_is_named(broker: Broker, spark: SparkSession, place: Path) -> None:
    topic, any_time = f"{place.name}.timed", str(2**63 - 1)
    broker.create(topic, retention_ms="-1", message_timestamp_after_max_ms=any_time)
    flow = flow_of(place, topic, sql=STATELESS, sinks=1)
    broker.producer.produce(topic, b'{"n": 1}', partition=0, timestamp=1_767_225_600_000_000_000)
    assert broker.producer.flush(60) == 0
    with pytest.raises(SourceBroken, match=r"Record at topic .*timed partition 0 offset 0.*`kafka-delete-records`"):
        run(spark, flow)


@pytest.mark.prove
def test_epochs_take_their_share_of_each_partition_of_several_topics(
    broker: Broker, spark: SparkSession, place: Path, topic: str
) -> None:
    other = f"{topic}.more"
    broker.create(other, 1)
    broker.send(topic, some(6))
    broker.send(other, [event(30 + i, n=100 + i) for i in range(4)], partition=0)
    both = {"topic": None, "pattern": f"{topic}.*"}
    flow = flow_of(place, topic, both, sql=STATELESS, sinks=1, settings={"epoch": {"max_rows": 5}})
    assert [epoch.read for epoch in run(spark, flow).epochs] == [5, 5]
    broker.create(f"{topic}.third", 1)
    broker.send(f"{topic}.third", [event(900, n=7)], partition=0)
    assert [epoch.read for epoch in run(spark, flow).epochs] == [1], "a topic that came since"
    assert len(rows_of(flow.sink())) == 11
    assert verdict(flow) == "proven"


def test_it_starts_where_the_rule_says(broker: Broker, lasting: str) -> None:
    for at in (1_000, 2_000, 3_000):
        broker.producer.produce(lasting, b"{}", partition=0, timestamp=at)
    broker.producer.flush()
    begins = {}
    for start in ("earliest", "latest", {"timestamp": "1970-01-01T00:00:02+00:00"}):
        stream = stream_of(lasting).model_copy(update={"start": StartAt(**start) if isinstance(start, dict) else start})
        begins[str(start)] = KafkaOffset.parse(KafkaSource("s", stream).start()).topics[lasting].partitions[0].next
    assert [*begins.values()] == [0, 3, 1]


@pytest.mark.parametrize(
    ("text", "fault", "said"),
    [
        (None, Refused, "connection lake: expected it in FLOODMARK_CONN_LAKE or AIRFLOW_CONN_LAKE; found none"),
        ("kafka://127.0.0.1:1", RunFailed, "connection lake: Kafka at 127.0.0.1:1 does not answer: .*refused"),
        ("kafka://no.such.host.invalid", RunFailed, "Failed to resolve"),
        ("{closed}, wrong", Refused, "refuses: .*Invalid username or password. Check login"),
        ("{closed}", None, ""),
    ],
)
def test_a_server_in_any_state_is_told_in_one_line(
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    fault: type[Exception] | None,
    said: str,
) -> None:
    monkeypatch.setattr("floodmark.connectors.sources.kafka.brokers.WAIT", 3.0)
    if text is None:
        monkeypatch.delenv("FLOODMARK_CONN_LAKE")
    else:
        password = "wrong" if "wrong" in text else broker.password
        extra = {"security.protocol": "SASL_PLAINTEXT"}
        closed = {"host": broker.closed, "login": "reader", "password": password, "extra": extra}
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps(closed) if "closed" in text else text)
    if fault is None:
        assert source_of(topic).end()
        return
    with pytest.raises(fault, match=said) as found:
        source_of(topic).end()
    assert "\n" not in str(found.value) and "wrong" not in str(found.value)


def test_a_password_is_in_no_file_of_the_home_and_no_plan(
    broker: Broker, spark: SparkSession, place: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = {"host": broker.closed, "login": "reader", "password": broker.password}
    extra = {"security.protocol": "SASL_PLAINTEXT", "group.id": "others"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({**closed, "conn_type": "kafka", "extra": json.dumps(extra)}))
    monkeypatch.delenv("FLOODMARK_CONN_LAKE")
    flow = flow_of(place, topic, sql=STATELESS)
    broker.send(topic, some(5))
    assert [epoch.read for epoch in run(spark, flow).epochs] == [5]
    secret = broker.password.encode()
    files = [file for file in place.rglob("*") if file.is_file()]
    assert len(files) > 9 and not [file for file in files if secret in file.read_bytes()]
    source = source_of(topic)
    plan = source.frame(spark, source.start(), source.end())._jdf.queryExecution().toString()
    assert "kafka" in plan.lower() and broker.password not in plan


@pytest.mark.prove
def test_a_broker_that_is_killed_while_it_is_read(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    """The run fails, may be tried again, and reads the same range once the broker is back."""
    with served(tmp_path / "own") as broker, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOODMARK_CONN_LAKE", f"kafka://{broker.servers}")
        broker.create("much")
        for portion in range(20):
            broker.send(
                "much", [event(i % 600, "ab"[i % 2], 1.0, i) for i in range(portion * 10_000, (portion + 1) * 10_000)]
            )
        flow = flow_of(place, "much", sql=STATELESS, sinks=1, settings={"epoch": {"max_rows": 50_000}})
        flow.stream["lateness"] = "1 hour"
        with ThreadPoolExecutor(1) as beside:
            running = beside.submit(run, spark, flow)
            ledger, process = flow.home / flow.name / "ledger", broker.process
            assert process is not None
            assert wait_until(lambda: len([*ledger.glob("_delta_log/*.json")]) > 4, process, 120), "an epoch is open"
            broker.kill()
            with pytest.raises(Exception) as fault:  # noqa: PT011 - of Spark, or of ours: where it is noticed first
                running.result(timeout=600)
        assert exit_code(fault.value) == 1, fault.value
        committed = flow.counts()["read"]
        assert 0 < committed < 200_000, "it was killed in the middle"
        broker.start()
        run(spark, flow)
        assert sorted(row["n"] for row in rows_of(flow.sink())) == list(range(200_000))
        assert verdict(flow) == "proven"


@pytest.mark.prove
def test_twelve_hours_in_uneven_portions_with_partitions_that_are_added(
    broker: Broker, spark: SparkSession, place: Path
) -> None:
    """Runs at random moments; records come late within the rule's lateness, partitions differ in their share."""
    random, topic = Random(7), f"{place.name}.day"
    broker.create(topic, 4)
    flow, partitions = flow_of(place, topic, settings={"epoch": {"max_rows": 700}}), 4
    flow.stream["lateness"] = "20 minutes"
    events = [event(second, random.choice("abc"), float(second % 7), second) for second in range(0, 12 * 3600, 7)]
    sent = 0
    while sent < len(events):
        portion = events[sent : sent + random.choice([1, 40, 300, 900])]
        sent += len(portion)
        if len(portion) <= 40:
            random.shuffle(portion)
        for row in portion:
            broker.send(topic, [row], partition=min(random.randrange(partitions), random.randrange(partitions)))
        if random.random() < 0.2 and partitions < 7:
            partitions += 1
            broker.widen(topic, partitions)
        if random.random() < 0.5:
            crash(spark, flow, random.choice(EPOCH_POINTS))
        run(spark, flow)
    assert partitions > 4
    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert flow.counts()["late"] == 0 and flow.counts()["read"] == len(events)
    assert verdict(flow) == "proven"
