"""Decides from a Delta log whether the rows that a commit added are still in the table. Pure.

A commit's rows are in the files that it added. OPTIMIZE and the like (`dataChange` false) move the same rows into other
files; DELETE, UPDATE, RESTORE and the like change the rows. RESTORE can also bring files back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FileId = tuple[str, str]  # path as the log spells it, and the deletion vector: another one means other rows


@dataclass(frozen=True)
class Moves:
    """The files that one log entry adds and removes, and those of them that only rearrange the same rows."""

    version: int
    operation: str
    added: frozenset[FileId]
    removed: frozenset[FileId]
    rearranged: frozenset[FileId]


@dataclass(frozen=True)
class Presence:
    """Where a commit's rows are now.

    files: files that hold all of them, perhaps with others; None if some are gone. taken: version and operation of the
    entry after which they were gone. joined: other files hold them now.
    """

    files: frozenset[FileId] | None
    joined: bool = False
    removed_by: tuple[int, str] | None = None


def moves_of(version: int, actions: Iterable[Mapping[str, Any]]) -> Moves:
    """The files that the actions of log entry `version` add, remove and rearrange."""
    actions = list(actions)
    info: Mapping[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
    files = {kind: [one[kind] for one in actions if kind in one] for kind in ("add", "remove")}
    same = (file for kind in files.values() for file in kind if not file.get("dataChange", True))
    return Moves(
        version,
        str(info.get("operation", "a commit without a name")),
        frozenset(map(file_id, files["add"])),
        frozenset(map(file_id, files["remove"])),
        frozenset(map(file_id, same)),
    )


def file_id(file: Mapping[str, Any]) -> FileId:
    """The id of a file that a log entry adds or removes."""
    return str(file["path"]), vector_id(file.get("deletionVector"))


def vector_id(descriptor: Mapping[str, Any] | None) -> str:
    """The unique id of a file's deletion vector, as Delta's protocol defines it; '' without one."""
    if not descriptor:
        return ""
    offset = descriptor.get("offset")
    found = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    return found if offset is None else f"{found}@{offset}"


def presence(commit: Moves, later: Iterable[Moves]) -> Presence:
    """Where the rows of `commit` are after the entries `later`, the oldest first.

    `covers`: sets of files, each of which holds all of the commit's rows. If a file that the commit removed is back, it
    holds rows that the commit removed.
    """
    live, gone, covers = set(commit.added), commit.removed - commit.added, [commit.added]
    taken: tuple[int, str] | None = None
    for entry in later:
        covers += [
            (cover - entry.removed) | (entry.added & entry.rearranged)
            for cover in covers
            if cover <= live and cover & entry.removed and cover & entry.removed <= entry.rearranged
        ]
        live = (live - entry.removed) | entry.added
        held = any(cover <= live for cover in covers) and not gone & live
        taken = None if held else taken or (entry.version, entry.operation)
    if taken is not None:
        return Presence(None, removed_by=taken)
    files = next(cover for cover in covers if cover <= live)
    return Presence(files, joined=files != commit.added)
