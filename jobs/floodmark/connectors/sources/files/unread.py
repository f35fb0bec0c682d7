"""Decides which files of a listing are to be read, and how the list of files goes on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.connectors.sources.files.folder import File
from floodmark.connectors.sources.files.journal import Listed
from floodmark.core.rules.rule import EpochLimits


def is_settled(file: File, now: int, settle: int) -> bool:
    """Whether nobody is likely to be writing the file: it was modified at least `settle` nanoseconds ago.

    A file that comes from the future, by a clock or by a copy that keeps times, is judged by when it was changed.
    """
    at = file.modified if file.modified <= now else file.changed
    return now - at >= settle


def unread(listing: Iterable[File], read: Sequence[Listed], now: int, settle: int) -> list[File]:
    """The settled files of a listing that were not read, whatever their times, the oldest first."""
    known = {one.file.path for one in read}
    found = (one for one in listing if one.path not in known and is_settled(one, now, settle))
    return sorted(found, key=lambda one: (one.modified, one.path))


def changed(listing: Iterable[File], read: Sequence[Listed]) -> list[tuple[Listed, File]]:
    """The files that were read and may have another content now. A file that is gone has not changed."""
    now = {one.path: one for one in listing}
    pairs = ((one, now[one.file.path]) for one in read if one.file.path in now)
    return [(one, file) for one, file in pairs if file != one.file]


def renewed(files: Sequence[Listed], proven: Mapping[File, str]) -> tuple[int, tuple[Listed, ...]]:
    """The listed files from the first one on that has other times by now; with how many stay before it.

    proven: files as they are now, with the checksum that they have. A position in the list stays the same.
    """
    now = {(one.path, found): one for one, found in proven.items()}
    found = [replace(one, file=now.get((one.file.path, one.sum), one.file)) for one in files]
    kept = next((i for i, one in enumerate(files) if found[i] != one), len(files))
    return kept, tuple(found[kept:])


@dataclass(frozen=True)
class Extension:
    """How the list goes on: after `kept` files of its tail come `added` ones."""

    kept: int
    added: tuple[Listed, ...]


def extended(tail: Sequence[Listed], fresh: Sequence[File], listed: Callable[[File], Listed | None]) -> Extension:
    """`tail`: files that were listed, and that no epoch has read; `fresh`: all files that none has read.
    `listed`: None for a file that a later run lists.

    Those of the tail that are as they were stay where they are; what comes after the first that is not is listed anew.
    """
    now = {one.path: one for one in fresh}
    kept = next((i for i, one in enumerate(tail) if now.get(one.file.path) != one.file), len(tail))
    before = {one.file.path for one in tail[:kept]}
    added = (listed(one) for one in fresh if one.path not in before)
    return Extension(kept, tuple(one for one in added if one is not None))


def within(files: Sequence[Listed], limits: EpochLimits) -> int:
    """How many of the files an epoch reads, within its limits, and at least one."""
    size = 0
    for count, one in enumerate(files):
        size += one.file.size
        full = limits.max_bytes is not None and size > limits.max_bytes
        if count and (full or count == limits.max_files):
            return count
    return len(files)
