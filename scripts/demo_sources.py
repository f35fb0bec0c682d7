"""Where the demo's flights arrive: in a Delta table, or in a topic of a Kafka broker that the demo starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flights import Portion, arrive, portions, uneven
from local_airflow import Failed

PORTIONS = 5
# Four partitions, and two more once a run has been killed. Each gets the flights of its airports.
TOPIC, PARTITIONS, LATER = "flights", 4, 6
SHARES = (3, 1, 4, 5)
SCHEMA = "date TIMESTAMP, delay BIGINT, distance BIGINT, origin STRING, destination STRING"
LIMIT = 60.0  # seconds for the broker to take a portion


class Source(Protocol):
    """portions: all that arrives, in order.

    arrivals: up to which portion they are there before the first run, before the run that is killed, and after it.
    epochs: how many they become. env: variables that Airflow's tasks need.
    """

    portions: list[Portion]
    arrivals: tuple[int, int, int]
    epochs: int
    env: Mapping[str, str]

    def rule(self, text: dict[str, Any]) -> dict[str, Any]:
        """The example rule over this source, in as small epochs as it can."""
        ...

    def arrive(self, portion: Portion) -> None: ...

    def grow(self) -> str:
        """Called after a run was killed. Returns a message, '' if nothing changes."""
        ...

    def facts(self) -> Iterator[str]:
        """Lines for the report."""
        ...


@dataclass
class Lake:
    """A Delta table; a portion is one commit of one file, and so one epoch."""

    table: Path
    arrivals: tuple[int, int, int] = (2, 4, 5)
    epochs: int = 5
    portions: list[Portion] = field(default_factory=lambda: portions(PORTIONS))
    env: Mapping[str, str] = field(default_factory=dict)

    def rule(self, text: dict[str, Any]) -> dict[str, Any]:
        return {**text, "epoch": {"max_files": 1}}

    def arrive(self, portion: Portion) -> None:
        arrive(portion, self.table)

    def grow(self) -> str:
        return ""

    def facts(self) -> Iterator[str]:
        yield from ()


@dataclass
class Topic:
    """A topic; whatever waits becomes one epoch. A portion comes in one transaction, so no run reads a part of it."""

    broker: Any
    arrivals: tuple[int, int, int] = (2, 3, 4)
    epochs: int = 3
    portions: list[Portion] = field(default_factory=lambda: uneven(SHARES))
    held: list[str] = field(default_factory=list)

    @property
    def env(self) -> Mapping[str, str]:
        return {"FLOODMARK_CONN_DEMO_KAFKA": f"kafka://{self.broker.servers}"}

    def rule(self, text: dict[str, Any]) -> dict[str, Any]:
        stream = {name: value for name, value in text["streams"]["flights"].items() if name != "delta"}
        kafka = {"connection": "demo_kafka", "topic": TOPIC, "schema": SCHEMA}
        return {**text, "streams": {"flights": {"kafka": kafka, **stream}}}

    def arrive(self, portion: Portion) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.servers, "transactional.id": "demo", "log_level": 0})
        taken: dict[int, int] = {}

        def noted(fault: object, message: Any) -> None:
            if fault is not None:
                raise Failed(f"Kafka refused a flight: {fault}")
            taken[message.partition()] = taken.get(message.partition(), 0) + 1

        producer.init_transactions(LIMIT)
        producer.begin_transaction()
        for row in portion.table.to_pylist():
            value = json.dumps(row, default=lambda at: at.isoformat()).encode()
            while True:
                try:
                    producer.produce(TOPIC, value, key=row["origin"].encode(), on_delivery=noted)
                    break
                except BufferError:  # the queue is full
                    producer.poll(1)
            producer.poll(0)
        producer.commit_transaction(LIMIT)
        rows = ", ".join(str(taken.get(number, 0)) for number in range(max(taken) + 1))
        self.held.append(f"portion {portion.number} in {len(taken)} partitions: {rows} flights")

    def grow(self) -> str:
        self.broker.widen(TOPIC, LATER)
        return f"topic {TOPIC} gets {LATER - PARTITIONS} more partitions, while the killed epoch is open"

    def facts(self) -> Iterator[str]:
        yield f"topic {TOPIC} of Kafka, each portion in one transaction, partitions by airport:"
        yield from (f"  {line}" for line in self.held)


@contextmanager
def source(kind: str, folder: Path) -> Iterator[Source]:
    """The source of this kind; what it starts ends with the context. `folder`: the demo's."""
    if kind == "lake":
        yield Lake(folder / "lake" / "flights")
        return
    from support.kafka import served  # the broker that the tests start

    with served(folder / "kafka") as broker:
        broker.create(TOPIC, PARTITIONS)
        yield Topic(broker)
