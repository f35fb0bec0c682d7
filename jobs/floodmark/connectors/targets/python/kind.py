"""The kind of target that an author's class is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.python.options import WrittenOwn, capabilities, code_of
from floodmark.core.rules.kinds import SinkCan, SinkKind

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.target import Target
    from floodmark.connectors.relay.outbox import OutboxSink
    from floodmark.core.rules.model import Sink


def _open(sink: Sink, outbox: Path | None) -> OutboxSink:
    from floodmark.connectors.relay.outbox import OutboxSink

    return OutboxSink(sink, outbox)


def _target(sink: Sink, outbox: Path | None) -> Target:
    from floodmark.connectors.targets.python.target import target_of

    return target_of(sink, outbox)


def _can(sink: Sink) -> SinkCan:
    return capabilities(sink.options)


def _address(said: Any) -> str:
    return WrittenOwn.model_validate(said).address()


SINK = SinkKind(
    written=WrittenOwn,
    summary="a class of one's own, in the rules folder or on the Python path",
    can=SinkCan(qos=2, merges=True, target=True),
    address=_address,
    open=_open,
    target=_target,
    code=code_of,
    refine=_can,
    lacks={"replaces": "a method `remove_between` in its class", "empties": "a method `empty` in its class"},
)
