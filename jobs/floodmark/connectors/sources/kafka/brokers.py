"""Asks Kafka's brokers for topics and offsets, without a JVM."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

from floodmark.connectors.sources.kafka.offsets import Ends, KafkaOffset, Partition, Topic
from floodmark.connectors.sources.kafka.settings import SERVERS
from floodmark.errors import FloodmarkError, NotThereYet, Refused, RunFailed

WAIT = 10.0  # seconds for an answer
FIRST_TURN = 1.0
# Of librdkafka's names for errors: those for which no retry helps, and what to do.
_HOPELESS = {
    "_AUTHENTICATION": "Check login, password and `sasl.mechanism` of the connection",
    "_SSL": "Check the certificates of the connection",
    "TOPIC_AUTHORIZATION_FAILED": "The login needs Read and DescribeConfigs on the topic, to write also Write",
    "CLUSTER_AUTHORIZATION_FAILED": "The login needs the right to describe the cluster",
}

# Errors of a partition that has no leader yet, or one that its broker does not know of yet.
_YOUNG = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH")


def brokers(name: str, settings: Mapping[str, str]) -> Brokers:
    """The brokers of a connection, with one client for each process. `settings`: librdkafka's.

    Raises Refused if the client's package is missing, or it does not take the settings.
    """
    return _client(os.getpid(), name, tuple(sorted(settings.items())))  # its threads do not survive a fork


@lru_cache(maxsize=16)
def _client(pid: int, name: str, settings: tuple[tuple[str, str], ...]) -> Brokers:
    return Brokers(name, dict(settings))


class Brokers:
    def __init__(self, name: str, settings: dict[str, Any]):
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ImportError as fault:
            problem = "expected the package confluent-kafka, found none: pip install 'FLOODMARK.whl[kafka]'"
            raise Refused(f"connection {name}: {problem}") from fault
        self._about = f"connection {name}: Kafka at {settings[SERVERS]}"
        self._failure, self._told = KafkaException, list[Any]()
        self._settings = settings | {"log_level": 0}  # else it writes each attempt to connect to standard error
        try:
            self._admin = AdminClient(self._settings | {"error_cb": self._told.append})
        except KafkaException as fault:
            raise Refused(f"{self._about}: expected settings that librdkafka takes: {fault.args[0].str()}") from None

    def topics(self, wanted: Collection[str], pattern: str | None, committed: bool = True) -> KafkaOffset:
        """The topics, and all those that a pattern matches as a whole, with their first and last records.

        committed: without the records of open transactions, and what follows them. Raises NotThereYet for a topic that
        does not exist, RunFailed if no broker answers.
        """
        cluster = self._asked(self._cluster)
        matching = (one for one in cluster.topics if pattern and re.fullmatch(pattern, one))
        described = self._described({*wanted, *matching})
        places = [(name, number) for name, (_, numbers) in described.items() for number in numbers]
        first, last = self._offsets(places, "earliest"), self._offsets(places, "latest", committed)
        topics = {
            name: Topic(known, {number: Ends(first[name, number], last[name, number]) for number in numbers})
            for name, (known, numbers) in described.items()
        }
        return KafkaOffset(cluster.cluster_id, topics)

    def _cluster(self) -> Any:
        """Asked in turns, each twice as long, so that a refusal ends it before the whole time has passed."""
        until, turn = time.monotonic() + WAIT, FIRST_TURN
        while True:
            try:
                return self._admin.list_topics(timeout=min(turn, max(0.1, until - time.monotonic())))
            except self._failure:
                self._admin.poll(0)  # delivers the reasons
                refused = any(one.name() in _HOPELESS for one in self._told)
                if refused or time.monotonic() > until:
                    raise
            turn *= 2

    def _described(self, names: Collection[str]) -> dict[str, tuple[str, list[int]]]:
        """Id and partitions of topics."""
        from confluent_kafka import TopicCollection

        if not names:
            return {}
        found = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=WAIT)
        described = {name: self._asked(one.result, name) for name, one in found.items()}
        return {name: (str(one.topic_id), [part.id for part in one.partitions]) for name, one in described.items()}

    def offsets_at(self, places: Iterable[Partition], at_ms: int) -> dict[Partition, int]:
        """The first record of each partition whose timestamp is not before an instant; negative if there is none."""
        return self._offsets(places, at_ms)

    def _offsets(self, places: Iterable[Partition], which: str | int, committed: bool = True) -> dict[Partition, int]:
        """`which`: `earliest`, `latest`, or a time in ms since 1970."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        spec = OffsetSpec.for_timestamp(which) if isinstance(which, int) else getattr(OffsetSpec, which)()
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}

        def ask(places: dict[Any, Any]) -> Mapping[Any, Any]:
            found: Mapping[Any, Any] = self._admin.list_offsets(places, isolation_level=level, request_timeout=WAIT)
            return found

        return {
            (place.topic, place.partition): int(
                self._asked(partial(self._settled, one, partial(ask, {place: spec})), place.topic).offset
            )
            for place, one in ask(wanted).items()
        }

    def _settled(self, found: Any, again: Callable[[], Mapping[Any, Any]]) -> Any:
        """What a partition answers once it has a leader: that of a new topic takes a moment."""
        until = time.monotonic() + WAIT
        while True:
            try:
                return found.result()
            except self._failure as fault:
                if fault.args[0].name() not in _YOUNG or time.monotonic() > until:
                    raise
            time.sleep(0.1)
            (found,) = again().values()

    def retention_ms(self, topic: str) -> int | None:
        """For how long the topic keeps a record; None if it does not remove records by their age."""
        settings = self._settings_of(topic)
        limit = int(settings["retention.ms"].value)
        return limit if limit >= 0 and "delete" in settings["cleanup.policy"].value else None

    def compacts(self, topic: str) -> bool:
        """Whether the topic removes records whose key has come again."""
        return "compact" in self._settings_of(topic)["cleanup.policy"].value

    def largest(self, topic: str) -> int:
        """The bytes of the largest batch of records that the topic takes."""
        return int(self._settings_of(topic)["max.message.bytes"].value)

    def _settings_of(self, topic: str) -> Any:
        (found,) = self._configs("TOPIC", [topic])
        return self._asked(found.result, topic)

    def _configs(self, kind: str, names: Iterable[str]) -> list[Any]:
        """What will hold the settings of each topic or broker. `kind`: TOPIC or BROKER."""
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        asked = [ConfigResource(ConfigResource.Type[kind], name) for name in names]
        return list(self._admin.describe_configs(asked, request_timeout=WAIT).values())

    def longest(self) -> float | None:
        """Seconds for which all brokers allow a transaction to be open; None if they do not tell this login."""
        numbers = map(str, self._asked(self._cluster).brokers)
        try:
            found = [one.result() for one in self._configs("BROKER", numbers)]
            return min(int(one["transaction.max.timeout.ms"].value) for one in found) / 1000
        except (self._failure, KeyError, TypeError, ValueError):
            return None

    def make(self, topic: str, partitions: int = -1, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic, with the broker's number of partitions and copies; one that is there stays as it is."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        made = self._admin.create_topics(
            [NewTopic(topic, partitions, -1, config=dict(settings or {}))], request_timeout=WAIT
        )[topic]
        self._asked(partial(self._unless_there, made.result), topic)
        until = time.monotonic() + WAIT
        while not self._there(topic) and time.monotonic() < until:
            time.sleep(0.1)

    def beginning(self, prefix: str) -> list[str]:
        """The names of the topics whose name begins so."""
        cluster = self._asked(self._cluster)
        return sorted(one for one in cluster.topics if one.startswith(prefix))

    def delete(self, topic: str) -> None:
        self._asked(self._admin.delete_topics([topic], request_timeout=WAIT)[topic].result, topic)

    def _there(self, topic: str) -> bool:
        try:
            return bool(self.topics([topic], None))
        except NotThereYet:
            return False

    def _unless_there(self, made: Callable[[], Any]) -> None:
        try:
            made()
        except self._failure as fault:
            if fault.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise

    def written_ms(self, place: Partition, offset: int) -> int | None:
        """The timestamp of the first record from an offset on; None if there is none, or it has no timestamp."""
        from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

        unused = {"group.id": "floodmark", "enable.auto.commit": "false", "isolation.level": "read_committed"}
        consumer = Consumer({**self._settings, **unused})
        try:
            consumer.assign([TopicPartition(*place, offset)])
            record = consumer.poll(WAIT)
        finally:
            consumer.close()
        if record is None or record.error() is not None:
            return None
        kind, at = record.timestamp()
        return None if kind == TIMESTAMP_NOT_AVAILABLE else int(at)

    def _asked(self, ask: Callable[[], Any], topic: str | None = None) -> Any:
        """The answer. Raises an error of ours, with the reason that librdkafka gave beside its own error."""
        self._told.clear()
        try:
            return ask()
        except self._failure as fault:
            self._admin.poll(0)  # delivers the reasons
            raise self._problem(fault.args[0], topic) from None

    def _problem(self, error: Any, topic: str | None) -> FloodmarkError:
        if error.name() == "UNKNOWN_TOPIC_OR_PART":
            return NotThereYet(f"{self._about} has no topic {topic}: create it, or correct its name")
        told = [one for one in self._told if one.name() != "_ALL_BROKERS_DOWN"] or [error]
        causes = {one.name(): one for one in reversed((*told, error))}
        hopeless = next((name for name in _HOPELESS if name in causes), None)
        if hopeless:
            return Refused(f"{self._about} refuses: {_reason(causes[hopeless])}. {_HOPELESS[hopeless]}")
        return RunFailed(
            f"{self._about} does not answer: {_reason(told[0])}. Start it or correct the connection, then retry"
        )


def _reason(error: Any) -> str:
    """librdkafka's reason, without the name of its thread and the time that it took."""
    return re.sub(r"\s*\(after .*?\)", "", str(error.str())).rpartition("bootstrap: ")[2]
