"""What a Delta table is as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.core.rules.file.fields import Address
from floodmark.core.rules.kinds import SourceCan, SourceKind

if TYPE_CHECKING:
    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream


def _open(name: str, stream: Stream) -> Source:
    from floodmark.connectors.delta.source import DeltaSource

    return DeltaSource(name, stream)


SOURCE = SourceKind(
    written=Address,
    says="address of a Delta table that others append to",
    can=SourceCan(
        rereads=True,
        starts=frozenset({"earliest", "latest", "version", "timestamp"}),
        limits=frozenset({"max_files", "max_bytes", "max_seconds"}),
        planned=True,
        table=True,
    ),
    address=str,
    open=_open,
)
