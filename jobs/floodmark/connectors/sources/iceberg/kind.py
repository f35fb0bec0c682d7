"""The Iceberg kind of source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.iceberg.options import WrittenIceberg
from floodmark.core.rules.kinds import SourceCan, SourceKind
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    try:
        from floodmark.connectors.sources.iceberg.source import IcebergSource
    except ModuleNotFoundError as fault:
        raise Refused(
            f"stream {name}: expected the packages of Iceberg, found no {fault.name}: "
            "pip install 'FLOODMARK.whl[iceberg]'"
        ) from fault
    return IcebergSource(name, stream)


def _address(said: Any) -> str:
    return WrittenIceberg.model_validate(said).address()


SOURCE = SourceKind(
    written=WrittenIceberg,
    summary="a table of an Iceberg catalogue, by the name of a connection",
    can=SourceCan(rereads=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_rows"})),
    address=_address,
    open=_open,
)
