"""The PostgreSQL kind of source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.options import WrittenPostgres
from floodmark.core.rules.kinds import SourceCan, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    if WrittenPostgres.model_validate(stream.options).by == "snapshots":
        from floodmark.connectors.sources.postgres.snapshots import SnapshotsSource

        return SnapshotsSource(name, stream, keep)
    from floodmark.connectors.sources.postgres.slot import SlotSource

    return SlotSource(name, stream, keep)


def _address(said: Any) -> str:
    return WrittenPostgres.model_validate(said).address()


SOURCE = SourceKind(
    written=WrittenPostgres,
    summary="a table of PostgreSQL, by the name of a connection",
    can=SourceCan(lands=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_rows"})),
    address=_address,
    open=_open,
)
