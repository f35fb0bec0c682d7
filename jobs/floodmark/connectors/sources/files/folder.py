"""The files of a folder as they are now, and their content."""

from __future__ import annotations

import difflib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import file_digest
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Protocol

from floodmark.errors import NotThereYet, Refused

_HIDDEN = ("_", ".")  # what Spark takes for metadata or unfinished
_UNREADABLE = re.compile(r"[:\x00-\x1f\x7f\ud800-\udfff]")
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class File:
    """A file as the system describes it. `path`: below the folder; times in nanoseconds since 1970.

    A change of the content changes `changed`, which no program can set, or `id`: the inode, or an object's ETag.
    """

    path: str
    size: int
    modified: int
    changed: int
    id: int | str

    def since(self) -> str:
        """Its time, for people."""
        return datetime.fromtimestamp(self.modified // _NS, UTC).isoformat()


@dataclass(frozen=True)
class Content:
    """The content of a file. `name`: for messages; `open` raises OSError."""

    name: str
    open: Callable[[], BinaryIO]


@dataclass(frozen=True)
class Wanted:
    """Which files of a folder are its stream's. `pattern`: of names. `done`: what says that a file is complete: a
    suffix with a dot, of a file beside it, or the name of a file in its folder or in one above.
    """

    pattern: str = "*"
    recursive: bool = False
    done: str | None = None

    def is_wanted(self, name: str) -> bool:
        """Whether a file is the stream's, once it is complete."""
        return fnmatchcase(name, self.pattern) and not self._is_marker(name)

    def _is_marker(self, name: str) -> bool:
        done = self.done
        return done is not None and (name.endswith(done) if done.startswith(".") else name == done)

    def is_complete(self, name: str, names: Container[str], modified: int, above: int) -> bool:
        """`names`: of all files in its folder. `above`: when the newest marker in a folder above was modified.

        That may be of an earlier job than the file, which is then the newer one: Spark writes its marker last.
        """
        done = self.done
        if done is None:
            return True
        return f"{name}{done}" in names if done.startswith(".") else done in names or modified <= above


UNMARKED = -1  # when a marker was modified that is not there


@dataclass(frozen=True)
class Twins:
    """The paths of one file to which links lead, the plainest first. `is_own`: that one has no link in it."""

    paths: tuple[str, ...]
    is_own: bool


@dataclass(frozen=True)
class Listing:
    """The complete files of a folder, in no order. `waiting`: others, which wait for their marker."""

    files: list[File]
    waiting: list[File]
    twins: tuple[Twins, ...] = ()


class Folder(Protocol):
    """Where a stream's files lie. `address`: without a slash at its end. `checksum`: what kind `sum_of` returns."""

    address: str
    checksum: str

    def files(self, wanted: Wanted) -> Listing:
        """All wanted files. Raises NotThereYet, Refused and RunFailed."""
        ...

    def present(self, paths: Iterable[str]) -> dict[str, File]:
        """Those of these files that are there now."""
        ...

    def sum_of(self, file: File) -> str:
        """The checksum of a file's content. Raises FileNotFoundError."""
        ...

    def is_as_listed(self, file: File) -> bool:
        """Whether the checksum is surely of the content that the description is of, and not of a later one."""
        ...

    def content(self, path: str) -> Content: ...


@dataclass(frozen=True)
class _Found:
    """A file, and where it lies. `is_own`: without a link in its path; `is_link`: it is one itself."""

    file: File
    is_complete: bool
    place: str
    is_own: bool
    is_link: bool


class LocalFolder:
    """A folder of this machine's file system. `what`: the stream, for messages."""

    checksum = "SHA-256"

    def __init__(self, what: str, address: str):
        self._what, self.address, self._root = what, address, Path(address)

    @cached_property
    def _real(self) -> str:
        return os.path.realpath(self._root)

    def files(self, wanted: Wanted) -> Listing:
        """A link does not make a file complete that lies in the folder itself."""
        if not self._root.is_dir():
            raise _no_folder(self._what, self._root)
        places: dict[str, list[_Found]] = defaultdict(list)
        for one in self._below("", self._real, wanted):
            places[one.place].append(one)
        groups = [sorted(group, key=_plainest) for group in places.values()]
        found = [(group, _complete(group)) for group in groups]
        complete = [ready for _, ready in found if ready]
        for group in complete:
            for one in group[:1] if group[0].is_own else group:
                check_name(self._what, one.file.path)
        twins = (
            Twins(tuple(one.file.path for one in group), group[0].is_own) for group in complete if _is_linked(group)
        )
        waiting = [group[0].file for group, ready in found if not ready]
        return Listing([one.file for group in complete for one in group], waiting, tuple(twins))

    def _below(self, folder: str, real: str, wanted: Wanted, above: int = UNMARKED) -> Iterator[_Found]:
        """`real`: the place of the folder. `above`: see `Wanted.is_complete`."""
        try:
            with os.scandir(self._root / folder) as found:
                entries = list(found)
        except FileNotFoundError:  # removed since its parent was listed
            return
        names = {one.name: one for one in entries}
        marked = above
        if wanted.done in names:
            marked = max(above, _modified(names[wanted.done]))
        for one in entries:
            if is_hidden(one.name):
                continue
            path = f"{folder}{one.name}"
            if one.is_dir():
                if wanted.recursive and not self._is_listed(one):
                    place = os.path.realpath(one.path) if one.is_symlink() else f"{real}/{one.name}"
                    yield from self._below(f"{path}/", place, wanted, marked)
            elif one.is_file() and wanted.is_wanted(one.name):
                for file in _described(one, path):
                    is_complete = wanted.is_complete(one.name, names, file.modified, above)
                    is_link, here = one.is_symlink(), f"{real}/{one.name}"
                    is_own = not is_link and here == f"{self._real}/{path}"
                    yield _Found(file, is_complete, os.path.realpath(one.path) if is_link else here, is_own, is_link)

    def _is_listed(self, folder: os.DirEntry[str]) -> bool:
        """Whether it is a link to a folder that is listed without it, or that holds this one."""
        if not folder.is_symlink():
            return False
        path = Path(folder.path)
        place = path.resolve()
        return place.is_relative_to(self._root.resolve()) or path.parent.resolve().is_relative_to(place)

    def present(self, paths: Iterable[str]) -> dict[str, File]:
        found = ((path, self._at(path)) for path in paths)
        return {path: file for path, file in found if file is not None}

    def _at(self, path: str) -> File | None:
        try:
            return _file(path, (self._root / path).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def sum_of(self, file: File) -> str:
        with (self._root / file.path).open("rb") as content:
            return file_digest(content, "sha256").hexdigest()

    def is_as_listed(self, file: File) -> bool:
        """Whatever the inode says: some file systems give a file another number at each look."""
        now = self._at(file.path)
        return now is not None and replace(now, id=file.id) == file

    def content(self, path: str) -> Content:
        file = self._root / path
        return Content(str(file), lambda: file.open("rb"))


def is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN)


def check_name(what: str, path: str) -> None:
    """Raise Refused for a path that Hadoop cannot read."""
    if _UNREADABLE.search(path):
        raise Refused(
            f"{what}: expected file names without colons and control characters, which Hadoop cannot read; found "
            f"{path!r}. Rename the file, or leave such files out with `glob`"
        )


def _complete(group: list[_Found]) -> list[_Found]:
    """Those paths of a file that may be read. `group`: all of them, the plainest first."""
    return [one for one in group if one.is_complete] if group[0].is_complete or not group[0].is_own else []


def _plainest(one: _Found) -> tuple[bool, bool, int, str]:
    """A path whose names are those of the place lasts, while a link such as `latest` will lead elsewhere."""
    names = zip(reversed(one.file.path.split("/")), reversed(one.place.split("/")), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], names))
    return not one.is_own, one.is_link, -same, one.file.path


def _is_linked(group: list[_Found]) -> bool:
    return len(group) > 1 or not group[0].is_own


def _described(entry: os.DirEntry[str], path: str) -> Iterator[File]:
    try:
        yield _file(path, entry.stat())
    except FileNotFoundError:  # removed since the folder was listed
        return


def _modified(marker: os.DirEntry[str]) -> int:
    return next((one.modified for one in _described(marker, marker.name)), UNMARKED)


def _file(path: str, found: os.stat_result) -> File:
    return File(path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def _no_folder(what: str, root: Path) -> NotThereYet | Refused:
    if root.exists():
        return Refused(f"{what}: expected a folder at {root}, found a file: name the folder, and the file with `glob`")
    near = root.parent.is_dir() and difflib.get_close_matches(
        root.name, [one.name for one in root.parent.iterdir() if one.is_dir()], 1
    )
    meant = f"Did you mean {root.parent / near[0]}? " if near else ""
    return NotThereYet(f"{what}: no folder at {root} yet. {meant}Create it, or fix the path; a retry checks again")
