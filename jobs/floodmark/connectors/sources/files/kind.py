"""The kind of source that reads files of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.files.options import WrittenFiles
from floodmark.core.rules.kinds import SourceCan, SourceKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream
    from floodmark.core.text.ddl import Column


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    from floodmark.connectors.sources.files.source import FilesSource

    return FilesSource(name, stream, keep)


def _columns(options: Mapping[str, Any]) -> tuple[Column, ...] | None:
    said = WrittenFiles.model_validate(options)
    return (*said.columns, *said.folders) if said.columns else None


SOURCE = SourceKind(
    written=WrittenFiles,
    summary="files that somebody drops into a folder",
    can=SourceCan(rereads=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_files", "max_bytes"})),
    address=lambda said: str(said.path),
    open=_open,
    columns=_columns,
)
