"""Folders of their own beside a target of files, for copies of its rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.target import ScratchPlaces

if TYPE_CHECKING:
    from floodmark.connectors.targets.files.options import WrittenFolder


class ScratchFolder(ScratchPlaces):
    """A folder in `folder` for each copy."""

    def __init__(self, written: WrittenFolder, folder: Path):
        self._written, self._folder = written, folder
        self.place = f"folders in {folder}"

    def options(self, copy: str) -> dict[str, Any]:
        return self._written.model_dump() | {"path": str(self._folder / copy)}

    def make(self) -> None:
        """The relays make the folders."""

    def remove(self) -> None:
        """They go with the folder that they are in."""
