"""The Delta kind of source and of sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from floodmark.core.rules.file.fields import TableAddress
from floodmark.core.rules.kinds import SinkCan, SinkKind, SourceCan, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.delta.sink import DeltaSink
    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Sink, Stream


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    if stream.changes:
        from floodmark.connectors.delta.changes import ChangesSource

        return ChangesSource(name, stream)
    from floodmark.connectors.delta.source import DeltaSource

    return DeltaSource(name, stream)


SOURCE = SourceKind(
    written=TableAddress,
    summary="address of a Delta table that others append to",
    can=SourceCan(
        rereads=True,
        starts=frozenset({"earliest", "latest", "version", "timestamp"}),
        limits=frozenset({"max_files", "max_bytes", "max_seconds"}),
        planned=True,
        table=True,
        rewrites=True,
    ),
    address=str,
    open=_open,
)


def _open_sink(sink: Sink, outbox: Path | None = None) -> DeltaSink:
    from floodmark.connectors.delta.sink import DeltaSink

    return DeltaSink(str(sink.address))


def _given(value: object) -> object:
    if value is None:
        raise ValueError("expected an address, such as `delta: /lake/out`")
    return value


SINK = SinkKind(
    written=Annotated[TableAddress, BeforeValidator(_given)],
    summary="address of the table; the first run creates it",
    can=SinkCan(qos=2, merges=True, compares=True, replaces=True, table=True),
    address=str,
    open=_open_sink,
)
