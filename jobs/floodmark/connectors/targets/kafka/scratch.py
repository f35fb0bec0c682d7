"""Topics of their own beside a Kafka target, for copies of its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.target import ScratchPlaces
from floodmark.connectors.sources.kafka.brokers import Brokers, brokers
from floodmark.connectors.sources.kafka.settings import client_settings
from floodmark.connectors.targets.kafka.markers import PROOF, positions_of
from floodmark.connectors.targets.kafka.target import KafkaTarget

if TYPE_CHECKING:
    from floodmark.connectors.targets.kafka.options import WrittenTopic

LONGEST = 150  # characters of the target's own name, of the 249 that a topic's may have


class ScratchTopics(ScratchPlaces):
    """A topic for each copy, and one for its position; its relay makes them. `mark`: a word that no other proof has."""

    def __init__(self, address: str, written: WrittenTopic, mark: str):
        self._address, self._written = address, written
        self._prefix = f"{written.topic[:LONGEST]}{PROOF}{mark}."
        self.place = f"the topics {self._prefix}* of connection {written.connection}"

    def options(self, copy: str) -> dict[str, Any]:
        return self._written.model_dump() | {"topic": self._prefix + copy}

    def make(self) -> None:
        """Only ask: the relays make the topics."""
        self._brokers.beginning(self._prefix)

    def remove(self) -> None:
        """End the transactions of killed relays first."""
        found = self._brokers.beginning(self._prefix)
        for topic in found:
            if positions_of(topic)[0] in found:
                self._end_relays(topic)
        for topic in found:
            self._brokers.delete(topic)

    def _end_relays(self, topic: str) -> None:
        target = KafkaTarget(self._address, self._written.model_copy(update={"topic": topic}))
        try:
            target.end_others()
        finally:
            target.close()

    @property
    def _brokers(self) -> Brokers:
        name = self._written.connection
        return brokers(name, dict(client_settings(connection(name))))
