"""A Kafka broker as a process of this machine: a JVM with the jars of Maven Central.

It listens twice: for anybody, and for the user `reader` with a password (SASL PLAIN).
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from floodmark.connectors.sources.kafka.brokers import _client
from floodmark.core.application.sparkconf import java_place
from floodmark.proving.play.processes import kill_all, wait_until
from floodmark.spark.session.jars import resolved
from support.cluster import free_ports

ROOT = Path(__file__).parents[2]
BROKER = "org.apache.kafka:kafka_2.13:4.3.1"
LIMIT = 60.0
# A producer without idempotence may send a batch again behind a later one: tests count on the order.
PRODUCER = {"enable.idempotence": True, "log_level": 0}
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{open},SASL_PLAINTEXT://127.0.0.1:{closed},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{open},SASL_PLAINTEXT://127.0.0.1:{closed}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_reader="{password}";
log.dirs={place}/logs
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.retention.check.interval.ms=500
log.cleaner.backoff.ms=200
log.segment.delete.delay.ms=100
"""


def class_path() -> str:
    """The broker's jars, fetched once for the checkout. Scala's library is Spark's, which resolves none."""
    folder = ROOT / ".cache" / "kafka"
    if not folder.exists():
        with tempfile.TemporaryDirectory(prefix="floodmark-kafka-") as work:
            found = resolved([BROKER], "none:none", Path(work))
            part = folder.with_name(f"kafka.{os.getpid()}")
            shutil.copytree(next(iter(found.values())).parent, part)
        if folder.exists():  # another process was faster
            shutil.rmtree(part)
        else:
            part.rename(folder)
    scala = next((Path(pyspark.__file__).parent / "jars").glob("scala-library-2.13*.jar"))
    return os.pathsep.join(map(str, [*sorted(folder.glob("*.jar")), scala]))


@dataclass
class Broker:
    """`servers`: the address for anybody; `closed`: the one for `reader`."""

    place: Path
    servers: str
    closed: str
    password: str
    process: subprocess.Popen[bytes] | None = None
    clients: dict[str, Any] = field(default_factory=dict)

    @property
    def admin(self) -> AdminClient:
        return self.clients.setdefault("admin", AdminClient({"bootstrap.servers": self.servers, "log_level": 0}))

    @property
    def producer(self) -> Producer:
        return self.clients.setdefault("producer", Producer(PRODUCER | {"bootstrap.servers": self.servers}))

    def create(self, topic: str, partitions: int = 2, **settings: str) -> None:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result()
        self.clients.clear()  # one that knew a topic of that name may take the new one's leaders for outdated
        assert self.process is not None
        assert wait_until(lambda: self._led(topic, partitions), self.process, LIMIT), f"topic {topic} has no leaders"

    def _led(self, topic: str, partitions: int) -> bool:
        """Whether the broker takes records for each partition."""
        places = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        try:
            return all(one.result().offset == 0 for one in self.admin.list_offsets(places).values())
        except KafkaException:
            return False

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()

    def widen(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self.clients.pop("producer", None)  # which knows the old number

    def forget(self, topic: str, upto: Mapping[int, int]) -> None:
        """Remove the records before these offsets, by partition, as the topic's retention does."""
        places = [TopicPartition(topic, number, offset) for number, offset in upto.items()]
        for removed in self.admin.delete_records(places).values():
            removed.result()

    def send(self, topic: str, rows: Iterable[Mapping[str, Any] | bytes | None], partition: int | None = None) -> None:
        """Rows as JSON, or values as they are; by turns into two partitions, if none is named."""
        lost: list[str] = []
        for i, row in enumerate(rows):
            value = json.dumps(row, default=str).encode() if isinstance(row, Mapping) else row
            self.producer.produce(topic, value, key=b"k", partition=i % 2 if partition is None else partition,
                                  on_delivery=lambda error, _: lost.append(str(error)) if error else None)  # fmt: skip
        assert (self.producer.flush(LIMIT), lost) == (0, [])

    def records(self, topic: str) -> list[Any]:
        """All records of committed transactions, each partition in its order."""
        settings = {"bootstrap.servers": self.servers, "group.id": "test", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
        numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found, left = [], set(numbers)
        while left:
            message = consumer.poll(10)
            assert message is not None, "no answer"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
        consumer.close()
        return found

    def start(self) -> None:
        """Returns once it answers."""
        command = [str(java_place()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path()]
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self.place / "server.properties")],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        assert wait_until(self._answers, self.process, LIMIT), (self.place / "log").read_text()[-4000:]

    def _answers(self) -> bool:
        try:
            return bool(AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        assert self.process is not None
        kill_all(self.process.pid)
        self.process.wait()


@contextmanager
def served(place: Path) -> Iterator[Broker]:
    """A broker without topics; its process ends with the context."""
    place.mkdir(parents=True, exist_ok=True)
    names = dict(zip(("open", "closed", "control"), free_ports(3), strict=True))
    password = secrets.token_hex(16)
    (place / "server.properties").write_text(SETTINGS.format(**names, place=place, password=password))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run(
        [str(java_place()), "-cp", class_path(), "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster,
         "-c", str(place / "server.properties")],
        check=True, capture_output=True,
    )  # fmt: skip
    broker = Broker(place, f"127.0.0.1:{names['open']}", f"127.0.0.1:{names['closed']}", password)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
        broker.clients.clear()  # clients look for their broker for ever, at a port that Spark's JVM may have by then
        _client.cache_clear()
