"""Decides which files of a listing are to be read, and how the list of files goes on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from floodmark.connectors.sources.files.folder import File, Listing, Twins
from floodmark.connectors.sources.files.journal import Listed
from floodmark.core.rules.rule import EpochLimits

LONG = 3_600 * 1_000_000_000  # nanoseconds


def is_settled(file: File, now: int, settle: int) -> bool:
    """Whether nobody is likely to be writing the file: it was modified at least `settle` nanoseconds ago.

    A file that comes from the future, by a clock or by a copy that keeps times, is judged by when it was changed.
    """
    at = file.modified if file.modified <= now else file.changed
    return now - at >= settle


def once(found: Listing, read: Sequence[Listed]) -> list[File]:
    """The files of a listing, each by one path, though links lead to it by others."""
    if not found.twins:
        return found.files
    now = {one.path: one for one in found.files}
    before = {one.file.path: one.file for one in read}
    known, there = {_apart(one.file) for one in read}, {_apart(one) for one in found.files}
    moved = {path for path, one in before.items() if _apart(one) in there}
    left: set[str] = set()
    for twins in found.twins:
        left.update(twins.paths)
        if _apart(now[twins.paths[0]]) in known:  # it was read, by whatever path
            left.difference_update(path for path in twins.paths if before.get(path) == now[path])
        else:
            left.difference_update(_kept(twins, before, moved))
    return [one for one in found.files if one.path not in left]


def _kept(twins: Twins, before: Collection[str], moved: Collection[str]) -> Sequence[str]:
    """By which paths a file counts that was not read as it is now.

    moved: paths of files that were read, and that are there as they were: so a link among them leads elsewhere now.
    One that was read and has not moved is kept, and its content is compared.
    """
    if twins.is_own:
        return twins.paths[:1]
    rest = [path for path in twins.paths if path not in moved]
    return [path for path in rest if path in before] or rest[:1] or twins.paths


def _apart(file: File) -> tuple[int, int, int, int | str]:
    """What tells a file from others, whatever path leads to it."""
    return file.size, file.modified, file.changed, file.id


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


def unmarked(listing: Iterable[File], read: Sequence[Listed]) -> list[File]:
    """The files that wait for a marker, but for those that were read: they had one, and are older than a newer one."""
    known = {one.file.path for one in read}
    return [one for one in listing if one.path not in known]


def long_waiting(listing: Iterable[File], now: int) -> list[File]:
    """The files that wait for longer than a job is likely to need between a file and its marker, the oldest first."""
    found = (one for one in listing if now - max(one.modified, one.changed) >= LONG)
    return sorted(found, key=lambda one: (one.modified, one.path))


def late_text(files: Sequence[File], marker: str | None) -> str:
    """For people: files that wait for their marker, the oldest first."""
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return (
        f"{files[0].path} of {files[0].since()}{more} waited for more than an hour for {marker}, and no run reads what "
        "waits. Complete files need a marker beside them, or one above that is no older: write or `touch` it"
    )


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
