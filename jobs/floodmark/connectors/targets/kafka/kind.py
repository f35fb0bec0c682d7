"""The Kafka kind of sink: a target."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.kafka.options import WrittenTopic
from floodmark.core.rules.kinds import SinkCan, SinkKind
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.target import ScratchPlaces, Target
    from floodmark.connectors.relay.outbox import OutboxSink
    from floodmark.core.rules.model import Sink
    from floodmark.core.text.ddl import Column


def _open(sink: Sink, outbox: Path | None) -> OutboxSink:
    from floodmark.connectors.relay.outbox import OutboxSink

    return OutboxSink(sink, outbox)


def _target(sink: Sink, outbox: Path | None) -> Target:
    from floodmark.connectors.targets.kafka.target import KafkaTarget

    options = WrittenTopic.model_validate(sink.options)
    if options.format == "avro" and find_spec("fastavro") is None:
        raise Refused(
            f"sink {sink.label}: expected the package fastavro, found none: pip install 'FLOODMARK.whl[avro]'"
        )
    return KafkaTarget(str(sink.address), options)


def _scratch(sink: Sink, _: Path, mark: str) -> ScratchPlaces:
    from floodmark.connectors.targets.kafka.scratch import ScratchTopics

    return ScratchTopics(str(sink.address), WrittenTopic.model_validate(sink.options), mark)


def _can(sink: Sink) -> SinkCan:
    """With a key, the newest record of each counts, and a record without a value takes the key's row away."""
    return replace(SINK.can, replaces=True, empties=True) if sink.key else SINK.can


def _values(sink: Sink, columns: tuple[Column, ...]) -> dict[str, Any] | None:
    from floodmark.connectors.avro.schemas import schema_of

    return schema_of(columns) if sink.options.get("format") == "avro" else None


SINK = SinkKind(
    written=WrittenTopic,
    summary="a topic of Kafka, by the name of a connection",
    can=SinkCan(qos=2, merges=True, empties=False, target=True),
    address=WrittenTopic.address,
    open=_open,
    target=_target,
    refine=_can,
    lacks=dict.fromkeys(("replaces", "empties"), "a `key` at the sink"),
    scratch=_scratch,
    values=_values,
)
