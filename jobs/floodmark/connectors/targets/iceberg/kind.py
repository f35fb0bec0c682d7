"""The Iceberg kind of sink: a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.sources.iceberg.options import WrittenIceberg
from floodmark.core.rules.kinds import SinkCan, SinkKind
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.target import Target
    from floodmark.connectors.relay.outbox import OutboxSink
    from floodmark.core.rules.model import Sink


def _open(sink: Sink, outbox: Path | None) -> OutboxSink:
    from floodmark.connectors.relay.outbox import OutboxSink

    return OutboxSink(sink, outbox)


def _target(sink: Sink, outbox: Path | None) -> Target:
    try:
        from floodmark.connectors.targets.iceberg.target import IcebergTarget
    except ModuleNotFoundError as fault:
        raise Refused(
            f"sink {sink.label}: expected the packages of Iceberg, found no {fault.name}: "
            "pip install 'FLOODMARK.whl[iceberg]'"
        ) from fault
    return IcebergTarget(str(sink.address), WrittenIceberg.model_validate(sink.options))


SINK = SinkKind(
    written=WrittenIceberg,
    summary="a table of an Iceberg catalogue, by the name of a connection",
    can=SinkCan(qos=2, merges=True, replaces=True, compares=True, target=True),
    address=WrittenIceberg.address,
    open=_open,
    target=_target,
)
