"""Reads the end of a topic's partitions: no record of a transaction is missed that committed before."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from floodmark.connectors.sources.kafka.brokers import Brokers
from floodmark.errors import Refused

POLL = 0.2  # seconds


class Blocked(Exception):
    """A transaction is open, and what comes after it cannot be read yet."""


class CommittedReader:
    """Records of committed transactions in some partitions, from their first record on; each is read once."""

    def __init__(self, settings: Mapping[str, Any], brokers: Brokers, topic: str, partitions: list[int]):
        self._brokers, self._topic, self._partitions = brokers, topic, partitions
        self._read = dict.fromkeys(partitions, 0)
        unused = {"group.id": "floodmark", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        wanted = {"isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0}
        wanted["fetch.wait.max.ms"] = 20  # the end of a partition is told with the answer after the last record
        self._consumer = Consumer({**settings, **unused, **wanted})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def to_end(self, patience: float) -> Iterator[Any]:
        """All further records before the end as of now, that of open transactions included.

        Raises Blocked if one is still open `patience` seconds after the last record, and Refused if the login may not
        read the topic.
        """
        found = self._brokers.topics([self._topic], None, committed=False).topics[self._topic].partitions
        ends, until = {number: found[number].next for number in self._partitions}, time.monotonic() + patience
        while any(self._read[number] < end for number, end in ends.items()):
            message = self._consumer.poll(POLL)
            error = None if message is None else message.error()
            if message is not None and error is None:
                until = time.monotonic() + patience
                yield message
            elif error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise Refused(f"topic {self._topic}: the login may not read it. Give it the right to: a relay has to")
            elif message is not None and error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._read[int(message.partition() or 0)] = int(message.offset() or 0)
            elif time.monotonic() > until:
                raise Blocked

    def close(self) -> None:
        self._consumer.close()
