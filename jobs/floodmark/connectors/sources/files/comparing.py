"""Compares files with what was read of them: by size, times and inode, and by content where one of these differs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from floodmark.connectors.ports.source import Moved
from floodmark.connectors.sources.files.folder import File, Folder
from floodmark.connectors.sources.files.journal import Listed
from floodmark.errors import HistoryGone

_LOG = logging.getLogger(__name__)


class Comparison:
    """Of the files of one folder. `what`: the stream, for messages.

    proven: files that have other times than were listed, and whose content was found to be the same.
    left: paths of files that were changed or removed since they were listed, which the next run may read.
    """

    def __init__(self, what: str, folder: Folder):
        self._what, self._folder = what, folder
        self.proven: dict[File, str] = {}
        self.left: list[str] = []

    def first_changed(self, pairs: Iterable[tuple[Listed, File]]) -> tuple[Listed, File] | None:
        """The first file with another content than was listed."""
        return next((pair for pair in pairs if not self._is_same(*pair)), None)

    def _is_same(self, read: Listed, now: File) -> bool:
        if now.size != read.file.size:
            return False
        try:
            found = self.proven.get(now) or self._folder.sum_of(now)
        except FileNotFoundError:  # removed meanwhile, which is no change
            return True
        if found == read.sum:
            self.proven[now] = found
        return found == read.sum

    def listed(self, file: File) -> Listed | None:
        """With its checksum; None of a file that was changed or removed since it was listed, so maybe still written."""
        try:
            found = self._folder.sum_of(file)
            if self._folder.is_as_listed(file):
                return Listed(file, found)
        except FileNotFoundError:
            pass
        self.left.append(file.path)
        return None

    def tell_left(self) -> None:
        """Warn of the files that are left to the next run."""
        if self.left:
            count, first = len(self.left), self.left[0]
            more = f" and {count - 1:,} more" if count > 1 else ""
            _LOG.warning(f"{self._what}: {first}{more} left to the next run: changed or removed since listed")
            self.left.clear()

    def check(self, files: Sequence[Listed]) -> None:
        """Raise Moved unless each file is there with the content that was listed."""
        there = self._folder.present([one.file.path for one in files])
        missing = [one.file.path for one in files if one.file.path not in there]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise self._gone(missing[0] + more)
        found = ((one, there[one.file.path]) for one in files)
        other = self.first_changed((one, now) for one, now in found if now != one.file)
        if other is not None:
            raise Moved(self._difference("listed", *other), self._remedy)

    def changed(self, read: Listed, now: File) -> HistoryGone:
        return HistoryGone(f"{self._difference('read', read, now)}. {self._remedy}")

    def _difference(self, how: str, before: Listed, now: File) -> str:
        return (
            f"{self._what}: file {now.path} was changed after it was {how}. {how.capitalize()} were "
            f"{_version(before.file)} with {self._folder.checksum} {before.sum}; now it has {_version(now)}"
        )

    @property
    def _remedy(self) -> str:
        return (
            "Restore it and write new rows to a new file, or start over with `floodmark reset`. With `overwritten: "
            f"skip`, runs pass such changes over. Folder: {self._folder.address}"
        )

    def _gone(self, path: str) -> Moved:
        return Moved(
            f"{self._what}: expected file {path}, which is to be read, found none",
            f"Restore it, or start over with `floodmark reset`. Folder: {self._folder.address}",
        )


def _version(file: File) -> str:
    at = datetime.fromtimestamp(file.modified / 1e9, UTC).isoformat(timespec="seconds")
    return f"{file.size:,} bytes of {at}"
