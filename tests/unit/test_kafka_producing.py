"""A producer of transactions: how long it waits for a slow broker, and what the broker's errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from floodmark.connectors.targets.kafka import producing
from floodmark.connectors.targets.kafka.messages import ROW, Record
from floodmark.connectors.targets.kafka.producing import ANSWER, Transactions
from floodmark.errors import RunFailed

RECORD = Record(b"k", b"v", [(ROW, b"1/0")])
Step = Callable[[], Any]


class Clock:
    """Each look at a queue takes `step` seconds."""

    now, step = 1000.0, 20.0

    def passed(self) -> None:
        self.now += self.step


class Broker:
    """A producer whose broker leaves these numbers of records in the queue, one after the other; then the last again.

    A step that is an error is raised.
    """

    def __init__(self, clock: Clock, left: Sequence[int | Exception]):
        self._clock, self._left = clock, iter(left)
        self._last: int | Exception = 0

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


def transactions(monkeypatch: pytest.MonkeyPatch, clock: Clock, left: Sequence[int | Exception]) -> Transactions:
    monkeypatch.setattr(producing, "Producer", lambda _: Broker(clock, left))
    return Transactions("kafka://shop/rows", {}, "rows", 1_000_000)


def test_a_slow_broker_may_take_its_time(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """A record in 40 s is enough."""
    begun = clock.now
    transactions(monkeypatch, clock, [4, 4, 3, 3, 2, 2, 1, 1, 0]).send("rows", [RECORD], None)
    assert clock.now - begun > 2 * ANSWER


def test_a_broker_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    begun = clock.now
    with pytest.raises(RunFailed, match="the broker takes no records; what is committed stays in the outbox"):
        transactions(monkeypatch, clock, [4, 3]).send("rows", [RECORD], None)
    assert clock.now - begun < 3 * ANSWER
