"""The kind of sink that is a folder of files: a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.targets.files.options import WrittenFolder
from floodmark.core.rules.kinds import SinkCan, SinkKind

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.target import ScratchPlaces, Target
    from floodmark.connectors.relay.outbox import OutboxSink
    from floodmark.core.rules.model import Sink


def _open(sink: Sink, outbox: Path | None) -> OutboxSink:
    from floodmark.connectors.relay.outbox import OutboxSink

    return OutboxSink(sink, outbox)


def _target(sink: Sink, outbox: Path | None) -> Target:
    from floodmark.connectors.targets.files.target import FilesTarget

    return FilesTarget(str(sink.address), WrittenFolder.model_validate(sink.options))


def _scratch(sink: Sink, folder: Path, _: str) -> ScratchPlaces:
    from floodmark.connectors.targets.files.scratch import ScratchFolder

    return ScratchFolder(WrittenFolder.model_validate(sink.options), folder)


SINK = SinkKind(
    written=WrittenFolder,
    summary="a folder of Parquet, JSON or CSV files, with manifests that say which files count",
    can=SinkCan(qos=2, target=True),
    address=WrittenFolder.address,
    open=_open,
    target=_target,
    scratch=_scratch,
)
