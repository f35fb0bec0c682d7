"""A producer of transactions: how long it waits for a slow broker, and what the broker's errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from floodmark.connectors.targets.kafka import producing
from floodmark.connectors.targets.kafka.messages import ROW, Record
from floodmark.connectors.targets.kafka.producing import ANSWER, Transactions
from floodmark.errors import Fenced, RunFailed

RECORD = Record(b"k", b"v", [(ROW, b"1/0")])


class Clock:
    """Each look at a queue takes `step` seconds."""

    now, step = 1000.0, 20.0

    def passed(self) -> None:
        self.now += self.step


class Broker:
    """A producer whose broker leaves these numbers of records in the queue, one after the other; then the last again.

    A step that is an error is raised.
    """

    def __init__(self, clock: Clock, left: Sequence[int | Exception], limit: float = 0.0, allowed: float = 0.0):
        self._clock, self._left = clock, iter(left)
        self._last: int | Exception = 0
        self._allows = limit <= allowed

    def init_transactions(self, _: float) -> None:
        if not self._allows:
            raise failed(KafkaError.INVALID_TRANSACTION_TIMEOUT)

    def flush(self, _: float) -> int:
        self._clock.passed()
        self._last = next(self._left, self._last)
        if isinstance(self._last, Exception):
            raise self._last
        return self._last

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    return found


def failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def transactions(
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    left: Sequence[int | Exception] = (),
    allowed: float = 900.0,
    longest: float | None = None,
) -> tuple[Transactions, list[float]]:
    """Of a broker that allows transactions of so many seconds; and the limits that it was asked for."""
    asked = list[float]()

    def made(settings: dict[str, Any]) -> Broker:
        asked.append(settings["transaction.timeout.ms"] / 1000)
        return Broker(clock, left, asked[-1], allowed)

    monkeypatch.setattr(producing, "Producer", made)
    return Transactions("kafka://shop/rows", {}, "rows", 1_000_000, longest), asked


def test_a_slow_broker_may_take_its_time(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """A record in 40 s is enough."""
    begun = clock.now
    writer, _ = transactions(monkeypatch, clock, [4, 4, 3, 3, 2, 2, 1, 1, 0])
    writer.send("rows", [RECORD], None)
    assert clock.now - begun > 2 * ANSWER


def test_a_broker_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    begun = clock.now
    writer, _ = transactions(monkeypatch, clock, [4, 3])
    with pytest.raises(RunFailed, match="the broker takes no records; what is committed stays in the outbox"):
        writer.send("rows", [RECORD], None)
    assert clock.now - begun < 3 * ANSWER


@pytest.mark.parametrize(
    ("allowed", "longest", "asked"),
    [
        (900.0, 900.0, [900.0]),
        (7200.0, 7200.0, [3600.0]),  # consumers do not read past a transaction that a killed relay leaves
        (60.0, 60.0, [60.0]),
        (900.0, None, [900.0]),
        (600.0, None, [900.0, 300.0]),
    ],
)
def test_a_transaction_may_be_open_for_as_long_as_the_broker_allows(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, allowed: float, longest: float | None, asked: list[float]
) -> None:
    assert transactions(monkeypatch, clock, (), allowed, longest)[1] == asked


def test_a_broker_that_allows_only_short_transactions_is_named(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    with pytest.raises(RunFailed, match="its transaction failed: "):
        transactions(monkeypatch, clock, (), 100.0)


@pytest.mark.parametrize("code", [KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._MSG_TIMED_OUT])
def test_a_transaction_that_the_broker_took_back_is_named(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, code: int
) -> None:
    """It fences the producer as another relay does, which is told apart by the time that has passed."""
    writer, _ = transactions(monkeypatch, clock, [*range(60, 10, -1), failed(code)])
    with pytest.raises(RunFailed, match=r"expected a transaction of at most 900 s, .* found one of 1020 s: nothing of"):
        writer.send("rows", [RECORD], None)


def test_a_relay_that_another_has_ended_says_so(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Also one whose earlier transaction was long ago."""
    writer, _ = transactions(monkeypatch, clock, [2, 1, failed(KafkaError._FENCED)])
    clock.now += 2000
    with pytest.raises(Fenced, match="another relay took it over"):
        writer.send("rows", [RECORD], None)
