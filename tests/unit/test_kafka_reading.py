"""The end of a topic: what a reader waits for, and what it cannot read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.sources.kafka.offsets import Ends, Topic
from floodmark.connectors.targets.kafka import reading
from floodmark.connectors.targets.kafka.markers import Cluster
from floodmark.connectors.targets.kafka.options import WrittenTopic
from floodmark.connectors.targets.kafka.reading import Blocked, CommittedReader
from floodmark.connectors.targets.kafka.target import KafkaTarget
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Refused

RECORD = SimpleNamespace(error=lambda: None)


def _failed(code: int) -> Any:
    return SimpleNamespace(error=lambda: KafkaError(code), partition=lambda: 0, offset=lambda: 2)


END = _failed(KafkaError._PARTITION_EOF)


def reader_of(answers: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> CommittedReader:
    """Of a topic with one partition, two records, and these answers, one a second."""
    now, left = [0.0], list(answers)

    def poll(_: float) -> Any:
        now[0] += 1
        return left.pop(0)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(reading, "Consumer", lambda _: SimpleNamespace(assign=lambda _: None, poll=poll))
    topics = SimpleNamespace(topics={"rows": Topic("a", {0: Ends(0, 2)})})
    brokers: Any = SimpleNamespace(topics=lambda *_, **__: topics)
    return CommittedReader({}, brokers, "rows", [0])


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([RECORD, RECORD, END], 2),
        ([RECORD, None, RECORD, None, END], 2),
        ([None, END], 0),
        ([RECORD, None, None], None),
    ],
)
def test_a_reader_is_patient_from_the_last_record_on(
    answers: Sequence[Any], found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a second and a half."""
    reader = reader_of(answers, monkeypatch)
    if found is not None:
        assert len(list(reader.to_end(1.5))) == found
        return
    with pytest.raises(Blocked):
        list(reader.to_end(1.5))


def test_a_login_that_may_not_read_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of([_failed(KafkaError.TOPIC_AUTHORIZATION_FAILED)], monkeypatch)
    with pytest.raises(Refused, match="topic rows: the login may not read it"):
        list(reader.to_end(1.5))


@pytest.mark.parametrize(("key", "gone"), [((), 5), (("k",), 0)])
def test_records_before_the_first_ones_have_expired(
    key: tuple[str, ...], gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of a topic with a key, which keeps the newest of each."""
    monkeypatch.setattr(Cluster, "topic", lambda *_: Topic("a", {0: Ends(2, 9), 1: Ends(3, 3), 2: Ends(0, 4)}))
    target = KafkaTarget("kafka://shop/rows", WrittenTopic(connection="shop", topic="rows"))
    assert target.expired(Layout(columns_of("k STRING"), key)) == gone
