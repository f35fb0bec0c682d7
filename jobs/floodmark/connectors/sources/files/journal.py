"""The list of the files that a stream has read: append-only, one JSON line for each change, in the rule's home.

Only the holder of the rule's lock writes it. A line says how many files were listed before it, so that a line of a
driver that no longer holds the lock has no effect after a line of another. A line that a kill has cut off has none
either.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.connectors.sources.files.folder import File
from floodmark.errors import Fenced, TableBroken

if TYPE_CHECKING:
    from hashlib import _Hash

_MOST = 200_000  # files of lists that are remembered beside the longest one, of some 500 bytes each


@dataclass(frozen=True, slots=True)
class Listed:
    """A file and the checksum of its content, as they were listed."""

    file: File
    sum: str


@dataclass(frozen=True)
class Offset:
    """A position in the list: `files` of it are read, those before `first` by earlier generations.

    sum: identifies the list up to there; empty for an offset beyond the list, which only looks use.
    """

    first: int
    files: int
    sum: str

    @classmethod
    def parse(cls, line: str) -> Offset:
        return cls(**json.loads(line))

    def line(self) -> str:
        return json.dumps(asdict(self))

    @property
    def count(self) -> int:
        return self.files - self.first


@dataclass
class Journal:
    """The listed files. `first`: where the newest generation's begin. `sums`: of the list before each file, and of all.

    lines: the whole lines of the file; valid: its bytes up to the last of them.
    """

    path: Path | None
    files: list[Listed] = field(default_factory=list)
    sums: list[str] = field(default_factory=lambda: [""])
    first: int = 0
    lines: int = 0
    valid: int = 0

    @classmethod
    def load(cls, path: Path | None) -> Journal:
        """Raises TableBroken for a line that nobody has written. `path`: None for a look without a home."""
        return cls(None) if path is None else _READ.load(path)

    def copy(self) -> Journal:
        return replace(self, files=list(self.files), sums=list(self.sums))

    def follow(self, text: bytes) -> None:
        """Take lines that stand behind those that were read; a last one without its end was cut off."""
        for line in text.split(b"\n")[:-1]:
            self.lines += 1
            try:
                self._follow(json.loads(line))
            except (ValueError, KeyError, TypeError) as fault:
                raise TableBroken(
                    f"expected a list of files at {self.path}, found no entry in line {self.lines}: the file is "
                    "damaged. Restore it, or start over with `floodmark reset` after removing it"
                ) from fault
            self.valid += len(line) + 1

    def _follow(self, line: dict[str, object]) -> None:
        keep, added, first = line["keep"], line["files"], line["first"]
        if line["at"] != len(self.files):
            return
        assert isinstance(keep, int) and isinstance(first, int) and isinstance(added, list)
        del self.files[keep:], self.sums[keep + 1 :]
        self.first = first
        for *file, content in added:
            self._add(Listed(File(*file), content))

    def _add(self, listed: Listed) -> None:
        self.files.append(listed)
        entry = f"{self.sums[-1]}\n{listed.file.size}\n{listed.sum}\n{listed.file.path}"
        self.sums.append(sha256(entry.encode()).hexdigest()[:16])

    def offset(self, files: int, first: int) -> Offset:
        return Offset(first, files, self.sums[files])

    def has(self, offset: Offset) -> bool:
        """Whether the offset is one of this list."""
        return offset.files <= len(self.files) and self.sums[offset.files] == offset.sum

    def write(self, keep: int, first: int, added: Sequence[Listed]) -> None:
        """Keep `keep` files, and add others. Durable once it returns. Raises Fenced."""
        assert self.path is not None, "a look writes nothing"
        files = [[*astuple(one.file), one.sum] for one in added]
        line = {"at": len(self.files), "keep": keep, "first": first, "files": files}
        written = f"{json.dumps(line)}\n".encode()
        _append(self.path, self.valid, written)
        self._follow(line)
        self.lines += 1
        self.valid += len(written)


class _Read:
    """The lists that this process has read. A run loads each of them several times, and a list only grows."""

    def __init__(self) -> None:
        self._lists: OrderedDict[Path, tuple[Journal, bytes]] = OrderedDict()  # with a checksum of the valid bytes
        self._lock = threading.Lock()

    def load(self, path: Path) -> Journal:
        """Parses only what has been added. Raises TableBroken."""
        if not path.exists():
            return Journal(path)
        text = memoryview(path.read_bytes())
        found, content = self._begun(path, text)
        read = found.valid
        found.follow(bytes(text[read:]))
        content.update(text[read : found.valid])
        self._remember(path, found, content.digest())
        return found.copy()

    def _begun(self, path: Path, text: memoryview) -> tuple[Journal, _Hash]:
        """The list as it was read, if the file still begins with it: somebody may have restored or removed it."""
        with self._lock:
            known = self._lists.get(path)
        if known is not None:
            content = sha256(text[: known[0].valid])
            if content.digest() == known[1]:
                return known[0].copy(), content
        return Journal(path), sha256()

    def _remember(self, path: Path, found: Journal, content: bytes) -> None:
        """`found` must not change any more."""
        with self._lock:
            self._lists[path] = found, content
            self._lists.move_to_end(path)
            longest = max(self._lists, key=self._length)
            others = [one for one in self._lists if one != longest]
            while sum(map(self._length, others)) > _MOST:
                del self._lists[others.pop(0)]

    def _length(self, path: Path) -> int:
        return len(self._lists[path][0].files)


_READ = _Read()


def _append(path: Path, valid: int, written: bytes) -> None:
    """Write after the valid part of a file, and sync both it and its folder. Raises Fenced if another driver has
    written a line since it was read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.lseek(handle, valid, os.SEEK_SET)
        if b"\n" in os.read(handle, os.fstat(handle).st_size):
            raise Fenced(f"another run has listed files meanwhile ({path}): run again")
        os.ftruncate(handle, valid)
        os.lseek(handle, valid, os.SEEK_SET)
        while written:
            written = written[os.write(handle, written) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
