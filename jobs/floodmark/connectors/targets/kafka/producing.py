"""A producer of transactions, and what its faults mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from floodmark.connectors.targets.kafka.messages import Marker, Record
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, FloodmarkError, InputFault, Refused, RunFailed

# Seconds after which the broker takes an open transaction back: as many as it allows, but not more than MOST. Brokers
# allow OPEN by default. LEAST: where nobody may ask for its settings, and it allows less.
MOST, OPEN, LEAST = 3600.0, 900.0, 300.0
ANSWER = 60.0  # seconds for an answer of the broker
TURN = 0.2  # seconds between looks at what was lost
_HEADERS = 1000  # bytes of a batch's and a record's headers, which are less
_FENCED = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING")
_REFUSED = ("TOPIC_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
            "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "TRANSACTIONAL_ID_NOT_FOUND")  # fmt: skip
# Of records that librdkafka gave up because another one was lost.
_PURGED = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
_LATE = (*_FENCED, "_MSG_TIMED_OUT")  # of a transaction that was open for too long
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE")


class Transactions:
    """The producer of one target. To make one fences all earlier ones, and takes their open transaction back.

    `largest`: bytes of the largest batch of records that the topic takes; longest: seconds for which the broker allows
    a transaction to be open, None if that is unknown.
    """

    def __init__(
        self, address: str, settings: Mapping[str, Any], name: str, largest: int, longest: float | None = None
    ):
        self._address, self._since = address, time.monotonic()
        self._largest = largest
        self._lost: list[tuple[KafkaError, str | None]] = []  # of each record that no broker took; its row, if known
        ours = {
            "transactional.id": name,
            "message.max.bytes": max(1000, largest),
            "batch.size": min(1_000_000, largest),
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # as Java's producers
            "delivery.report.only.error": True,
            "on_delivery": partial(self._lose, None),
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
            "logger": _SILENT,
            "error_cb": lambda error: None,
        }
        self._begin({**settings, **ours}, [min(longest, MOST)] if longest else [OPEN, LEAST])

    def _begin(self, settings: Mapping[str, Any], limits: Sequence[float]) -> None:
        """With the first of these limits that the broker allows."""
        self._limit, *others = limits
        self._producer = Producer({**settings, "transaction.timeout.ms": int(self._limit * 1000)})
        try:
            self._producer.init_transactions(ANSWER)
        except KafkaException as fault:
            if not others or fault.args[0].name() != "INVALID_TRANSACTION_TIMEOUT":
                raise self._fault(fault.args[0]) from None
            self._begin(settings, others)

    def send(self, topic: str, records: Iterable[Record], marker: Marker | None) -> None:
        """Send the records, then the marker, in a transaction that stays open.

        Raises InputFault for a record that is too large.
        """
        self._since = time.monotonic()
        self._asked(self._producer.begin_transaction)
        try:
            for one in records:
                self._produce(topic, one)
            self._flush()
            if marker is not None:
                place, partition, key, value, headers = marker
                self._asked(lambda: self._producer.produce(place, value, key, partition, headers=headers))
                self._flush()
        except BaseException:
            self._take_back()
            raise

    def rehearse(self, topic: str, one: Record) -> None:
        """Send a record in a transaction that is taken back. Raises as `send`."""
        self.send(topic, (one,), None)
        self._take_back()

    def commit(self) -> None:
        self._asked(lambda: self._producer.commit_transaction(ANSWER))

    def _produce(self, topic: str, one: Record) -> None:
        while True:
            try:
                headers: Any = one.headers
                self._producer.produce(topic, one.value, one.key, headers=headers, on_delivery=self._told(one))
                return
            except BufferError:
                self._asked(lambda: self._producer.poll(0.1))
                self._check_lost()
            except KafkaException as fault:
                self._flush()  # raises for a record that was lost before this one
                raise self._fault(fault.args[0], one.row) from None

    def _told(self, one: Record) -> Callable[[KafkaError | None, object], None] | None:
        """A callback that names the row of a record that may be too large. One for each would double the time."""
        return partial(self._lose, one.row) if one.least + _HEADERS > self._largest else None

    def _flush(self) -> None:
        """Wait until the broker has all. A slow one may take its time, as long as it takes records.

        Ends as soon as a record is lost: librdkafka holds others of its batch back until the transaction ends.
        """
        until, least = 0.0, None
        while left := self._asked(lambda: self._producer.flush(TURN)):
            self._check_lost()
            if least is None or left < least:
                until, least = time.monotonic() + ANSWER, left
            if time.monotonic() > until:
                break
        self._check_lost()
        if left or self._lost:
            raise RunFailed(about_sink(self._address, f"the broker takes no records; {_AGAIN}"))

    def _lose(self, row: str | None, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._lost.append((error, row))

    def _check_lost(self) -> None:
        """The reports of records that were given up may come before that of the cause."""
        for error, row in self._lost:
            if error.name() not in _PURGED:
                raise self._fault(error, row)

    def _take_back(self) -> None:
        try:
            self._producer.abort_transaction(ANSWER)
        except KafkaException:
            """The next producer takes it back, or the broker after a while."""

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except KafkaException as fault:
            raise self._fault(fault.args[0]) from None

    def _fault(self, error: KafkaError, row: str | None = None) -> FloodmarkError:
        name, said = error.name(), error.str()
        if name in _TOO_LARGE:
            problem = f"expected a record that the topic takes, found a larger one: {said}. Raise the topic's"
            problem = f"{f'row {row}: ' if row else ''}{problem} max.message.bytes, or send less of the row"
            return InputFault(about_sink(self._address, problem))
        passed = time.monotonic() - self._since
        if name in _LATE and passed > self._limit:
            return RunFailed(about_sink(self._address, self._late(passed)))
        if name in _FENCED:
            return Fenced(about_sink(self._address, f"another relay took it over ({said}); this one had no effect"))
        if name in _REFUSED:
            return Refused(about_sink(self._address, f"the broker refuses: {said}. Give the login the right to it"))
        return RunFailed(about_sink(self._address, f"its transaction failed: {said}; {_AGAIN}"))

    def _late(self, passed: float) -> str:
        return (
            f"expected a transaction of at most {self._limit:.0f} s, after which the broker takes it back, found one "
            f"of {passed:.0f} s: nothing of it counts. What is committed stays in the outbox, and a retry ships it "
            "if the broker is faster then. Else raise the brokers' transaction.max.timeout.ms (a relay uses up to "
            f"{MOST:.0f} s). `epoch: {{max_rows: ...}}` keeps later epochs small"
        )


_AGAIN = "what is committed stays in the outbox, and a retry ships it"
_SILENT = logging.getLogger("floodmark.kafka")  # librdkafka would write fatal errors, which we raise, to standard error
_SILENT.disabled = True
