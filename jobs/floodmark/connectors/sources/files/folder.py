"""List the files of a folder, as they are now."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import file_digest
from pathlib import Path

from floodmark.errors import NotThereYet, Refused

_HIDDEN = ("_", ".")  # what Spark takes for metadata or unfinished
_UNREADABLE = re.compile(r"[:\x00-\x1f\x7f\ud800-\udfff]")
_NS = 1_000_000_000


@dataclass(frozen=True)
class File:
    """A file as the system describes it. `path`: below the folder; times in nanoseconds since 1970.

    A change of the content changes `changed`, which no program can set, or the inode.
    """

    path: str
    size: int
    modified: int
    changed: int
    inode: int

    def since(self) -> str:
        """Its time, for people."""
        return datetime.fromtimestamp(self.modified // _NS, UTC).isoformat()


@dataclass(frozen=True)
class Wanted:
    """Which files of a folder are its stream's. `pattern`: of names. `done`: what says that a file is complete: a
    suffix with a dot, of a file beside it, or the name of a file in its folder."""

    pattern: str = "*"
    recursive: bool = False
    done: str | None = None


def files_in(what: str, root: Path, wanted: Wanted) -> list[File]:
    """All wanted files, in no order. `what`: the stream, for messages. Raises NotThereYet and Refused."""
    if not root.is_dir():
        raise _no_folder(what, root)
    return list(_below(what, root, "", wanted))


def _below(what: str, root: Path, folder: str, wanted: Wanted) -> Iterator[File]:
    try:
        with os.scandir(root / folder) as found:
            entries = list(found)
    except FileNotFoundError:  # removed since its parent was listed
        return
    names = {one.name for one in entries}
    for one in entries:
        if one.name.startswith(_HIDDEN):
            continue
        path = f"{folder}{one.name}"
        if one.is_dir():
            if wanted.recursive:
                yield from _below(what, root, f"{path}/", wanted)
        elif fnmatchcase(one.name, wanted.pattern) and _is_complete(one.name, names, wanted.done):
            yield from _described(what, one, path)


def _is_complete(name: str, names: set[str], done: str | None) -> bool:
    if done is None:
        return True
    return done in names if not done.startswith(".") else not name.endswith(done) and f"{name}{done}" in names


def _described(what: str, entry: os.DirEntry[str], path: str) -> Iterator[File]:
    try:
        found = entry.stat()
    except FileNotFoundError:  # removed since the folder was listed
        return
    if _UNREADABLE.search(path):
        raise Refused(
            f"{what}: expected file names without colons and control characters, which Hadoop cannot read; found "
            f"{path!r}. Rename the file, or leave such files out with `glob`"
        )
    yield _file(path, found)


def _file(path: str, found: os.stat_result) -> File:
    return File(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def file_at(root: Path, path: str) -> File | None:
    """One file as it is now; None if it is gone."""
    try:
        return _file(path, (root / path).stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def sha256_of(root: Path, path: str) -> str:
    """The checksum of a file's content. Raises OSError."""
    with (root / path).open("rb") as content:
        return file_digest(content, "sha256").hexdigest()


def _no_folder(what: str, root: Path) -> NotThereYet | Refused:
    if root.exists():
        return Refused(f"{what}: expected a folder at {root}, found a file: name the folder, and the file with `glob`")
    near = root.parent.is_dir() and difflib.get_close_matches(
        root.name, [one.name for one in root.parent.iterdir() if one.is_dir()], 1
    )
    meant = f"Did you mean {root.parent / near[0]}? " if near else ""
    return NotThereYet(f"{what}: no folder at {root} yet. {meant}Create it, or fix the path; a retry checks again")
