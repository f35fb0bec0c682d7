"""Topics of their own beside a Kafka target, for copies of its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.target import ScratchPlaces
from floodmark.connectors.sources.kafka.brokers import Brokers, brokers
from floodmark.connectors.sources.kafka.settings import client_settings
from floodmark.connectors.targets.kafka.target import KafkaTarget

if TYPE_CHECKING:
    from floodmark.connectors.targets.kafka.options import WrittenTopic

LONGEST = 150  # characters of the target's own name, of the 249 that a topic's may have


class ScratchTopics(ScratchPlaces):
    """A topic for each copy, which its relay makes. `mark`: a word that no other proof has."""

    def __init__(self, address: str, written: WrittenTopic, mark: str):
        self._address, self._written = address, written
        self._prefix = f"{written.topic[:LONGEST]}.floodmark_prove_{mark}."
        self.place = f"the topics {self._prefix}* of connection {written.connection}"

    def options(self, copy: str) -> dict[str, Any]:
        return self._written.model_dump() | {"topic": self._prefix + copy}

    def make(self) -> None:
        """Only ask: the relays make the topics."""
        self._brokers.beginning(self._prefix)

    def remove(self) -> None:
        """Take back what killed relays have left open, too: it would hold up those that read positions."""
        for topic in self._brokers.beginning(self._prefix):
            target = KafkaTarget(self._address, self._written.model_copy(update={"topic": topic}))
            try:
                target.forget()
            finally:
                target.close()
            self._brokers.delete(topic)

    @property
    def _brokers(self) -> Brokers:
        name = self._written.connection
        return brokers(name, dict(client_settings(connection(name))))
