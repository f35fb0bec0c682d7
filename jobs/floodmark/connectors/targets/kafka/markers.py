"""The positions of targets that are topics: records of the compacted topic `floodmark.positions`, by the topic's name.

A header has the id of the topic that got there: Kafka gives a topic that was deleted and made anew another one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.sources.kafka.brokers import Brokers, brokers
from floodmark.connectors.sources.kafka.offsets import NO_ID, Topic
from floodmark.connectors.sources.kafka.settings import client_settings
from floodmark.connectors.targets.kafka.messages import Marker
from floodmark.connectors.targets.kafka.producing import OPEN
from floodmark.connectors.targets.kafka.reading import Blocked, CommittedReader
from floodmark.core.relay.positions import MARKERS, Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import LedgerBroken, NotThereYet, Refused, RunFailed

PARTITIONS = 16  # of the topic of positions: an open transaction of one target holds few others up
PROOF = ".floodmark_prove_"  # in the name of a topic that a copy of a rule ships to
SOON, LONG = 2.0, OPEN + 30.0  # seconds to wait for the end of an open transaction
TOPIC_ID = "floodmark.topic"


class Mark(NamedTuple):
    """A target's position. `topic`: the id of the topic that got there; None: nobody has noted it."""

    position: Position
    topic: str | None = None


def positions_of(topic: str) -> tuple[str, int]:
    """The topic with the position of a target's topic, and how many partitions it has.

    Copies of a proof stop in the middle of their transactions. So each has a topic of its own, and holds nobody up.
    """
    return (f"{topic}.positions", 1) if PROOF in topic else (MARKERS, PARTITIONS)


def id_of(found: Topic) -> str | None:
    return None if found.id == NO_ID else found.id


def difference(noted: str | None, found: Topic | None) -> str | None:
    """Why a topic is not the one whose id was noted. None: it is, or nobody knows."""
    if found is None:
        return f"expected the topic{f' with id {noted}' if noted else ''}, found none: somebody deleted it"
    now = id_of(found)
    if noted is None or now is None or noted == now:
        return None
    return f"it was deleted and made anew: expected the topic with id {noted}, found {now}"


class Cluster:
    """The brokers of a connection, by its name. They are asked only when they are needed."""

    def __init__(self, name: str):
        self._name = name

    @cached_property
    def settings(self) -> dict[str, Any]:
        return dict(client_settings(connection(self._name)))

    @property
    def brokers(self) -> Brokers:
        return brokers(self._name, self.settings)

    def topic(self, name: str) -> Topic | None:
        """Its id, and first and next record of each partition; None if there is no such topic."""
        try:
            return self.brokers.topics([name], None).topics[name]
        except NotThereYet:
            return None


class Markers:
    """The positions of one target. `topic`: its name."""

    def __init__(self, address: str, cluster: Cluster, topic: str):
        self._address, self._cluster, self._topic = address, cluster, topic
        self.place, self._parts = positions_of(topic)
        self._reader: CommittedReader | None = None
        self._known: Mark | None = None

    def newest(self, unblock: Callable[[], object]) -> Mark | None:
        """`unblock`: called if an open transaction is in the way."""
        if self._reader is None and not self._open():
            return None
        try:
            self._read(SOON)
        except Blocked:
            unblock()
            self._read_late()
        except NotThereYet:  # the topic of positions was there before
            return None
        return self._known

    def record(self, mark: Mark) -> Marker:
        headers: list[tuple[str, str | bytes | None]] = [(TOPIC_ID, mark.topic.encode())] if mark.topic else []
        return Marker(self.place, self._partition, self._topic, mark.position.text(), headers)

    def make(self) -> None:
        """The topic of positions, unless it is there."""
        if self._cluster.topic(self.place) is None:
            self._cluster.brokers.make(self.place, self._parts, {"cleanup.policy": "compact"})

    @property
    def _partition(self) -> int:
        """The partition with this target's positions."""
        return zlib.crc32(self._topic.encode()) % self._parts

    def _open(self) -> bool:
        """Whether there is a topic of positions."""
        found = self._cluster.topic(self.place)
        if found is None:
            return False
        count = len(found.partitions)
        if count != self._parts:
            problem = f"expected {self._parts} partitions of the topic {self.place}, found {count}: make it anew"
            raise Refused(about_sink(self._address, f"{problem}, or restore it"))
        self._reader = CommittedReader(self._cluster.settings, self._cluster.brokers, self.place, [self._partition])
        return True

    def _read(self, patience: float) -> None:
        assert self._reader is not None
        for message in self._reader.to_end(patience):
            if message.key() == self._topic.encode():
                self._known = self._parsed(message.value(), dict(message.headers() or ()))

    def _parsed(self, value: bytes | None, headers: dict[str, bytes]) -> Mark | None:
        try:
            noted = headers.get(TOPIC_ID)
            return None if value is None else Mark(Position.parse(value.decode()), noted.decode() if noted else None)
        except ValueError as fault:
            problem = f"its position in {self.place} cannot be read: {fault}"
            raise LedgerBroken(about_sink(self._address, problem)) from None

    def _read_late(self) -> None:
        try:
            self._read(LONG)
        except Blocked:
            problem = f"a transaction of another target is open in {self.place} for long: end its relay"
            raise RunFailed(about_sink(self._address, f"{problem}, then ship again")) from None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
