"""Where the files of a target lie: a folder of this machine's file system, or one of an object store.

Paths are below it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Protocol
from uuid import uuid4

from floodmark.connectors.targets.homeposition import sync
from floodmark.core.text.addresses import is_object
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Refused


class Place(Protocol):
    """Each change is durable once its method returns."""

    def make(self, folders: Sequence[str]) -> None: ...

    def names(self, folder: str) -> list[str]:
        """Of the files in a folder; none if there is no such folder."""
        ...

    def foreign(self) -> str | None:
        """A file that does not begin with a dot, if there is one."""
        ...

    def content(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def put_new(self, path: str, content: bytes, sent: Callable[[], None]) -> None:
        """Put a whole file where none is yet. Raises FileExistsError. `sent`: called just before."""
        ...

    def new(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write, of which nothing is there if that fails, or a part under its name with a dot."""
        ...

    def opened(self, path: str) -> BinaryIO: ...

    def has(self, path: str) -> bool: ...

    def rename(self, path: str, to: str) -> None:
        """Raises FileNotFoundError."""
        ...

    def remove(self, path: str) -> None:
        """Raises FileNotFoundError, if the place can tell."""
        ...

    def whole(self, path: str) -> Path | str:
        """For other programs."""
        ...


def place_at(address: str, place: str) -> Place:
    """`address`: the target's, for messages. `place`: that of its folder."""
    if not is_object(place):
        return LocalPlace(address, Path(place))
    from floodmark.connectors.sources.files.objects import store_at
    from floodmark.connectors.targets.files.objects import ObjectPlace

    return ObjectPlace(place, store_at(f"sink {place}", place))


class LocalPlace:
    def __init__(self, address: str, root: Path):
        self._address, self._root = address, root

    def make(self, folders: Sequence[str]) -> None:
        for one in folders:
            (self._root / one).mkdir(parents=True, exist_ok=True)
        sync(self._root)

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._root / folder) as found:
                return [one.name for one in found if one.is_file()]
        except FileNotFoundError:
            return []

    def foreign(self) -> str | None:
        left = (file for file in self._root.rglob("*") if not file.is_dir() and not file.name.startswith("."))
        found = next(left, None)
        return None if found is None else str(found.relative_to(self._root))

    def content(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def put_new(self, path: str, content: bytes, sent: Callable[[], None]) -> None:
        file = self._root / path
        staged = file.with_name(f".{file.name}-{uuid4().hex}")  # ids of processes recur in containers
        with staged.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        try:
            sent()
            os.link(staged, file)
        except OSError as fault:
            if fault.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            problem = f"expected a file system with hard links, by which a manifest is put once: {fault}"
            raise Refused(about_sink(self._address, problem)) from None
        finally:
            staged.unlink(missing_ok=True)
        sync(file.parent)

    @contextmanager
    def new(self, path: str) -> Iterator[IO[bytes]]:
        file = self._root / path
        with file.open("xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        sync(file.parent)

    def opened(self, path: str) -> BinaryIO:
        return (self._root / path).open("rb")

    def has(self, path: str) -> bool:
        return (self._root / path).exists()

    def rename(self, path: str, to: str) -> None:
        (self._root / path).replace(self._root / to)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()

    def whole(self, path: str) -> Path:
        return self._root / path
