"""The files of a target in an object store that speaks S3.

A manifest is put by a conditional request. An object cannot be renamed: it is copied, at once and within the store, and
the one with the older name is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import obstore
from obstore.exceptions import AlreadyExistsError

from floodmark.connectors.sources.files.objects import ObjectFolder, explained

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class ObjectPlace:
    """`place`: the address of the folder, which `store` begins at."""

    def __init__(self, place: str, store: ObjectStore):
        self._what, self._place, self._store = f"sink {place}", place, store
        self._folder = ObjectFolder(self._what, place, store)

    def make(self, folders: Sequence[str]) -> None:
        """Objects need no folder."""

    def names(self, folder: str) -> list[str]:
        with self._explained():
            found = obstore.list_with_delimiter(self._store, folder)["objects"]
        return [one["path"].rpartition("/")[2] for one in found]

    def foreign(self) -> str | None:
        with self._explained():
            found = (str(one["path"]) for some in obstore.list(self._store) for one in some)
            return next((path for path in found if not path.rpartition("/")[2].startswith(".")), None)

    def content(self, path: str) -> bytes:
        with self._explained(FileNotFoundError):
            return bytes(obstore.get(self._store, path).bytes())

    def put_new(self, path: str, content: bytes, sent: Callable[[], None]) -> None:
        sent()
        try:
            with self._explained(AlreadyExistsError):
                obstore.put(self._store, path, content, mode="create")
        except AlreadyExistsError:
            raise FileExistsError(path) from None

    @contextmanager
    def new(self, path: str) -> Iterator[IO[bytes]]:
        with self._explained():
            out = _Copying(obstore.open_writer(self._store, path))
            yield cast(IO[bytes], out)
            out.finish()  # until then there is no object

    def opened(self, path: str) -> BinaryIO:
        return self._folder.content(path).open()

    def has(self, path: str) -> bool:
        return bool(self._folder.present([path]))

    def rename(self, path: str, to: str) -> None:
        with self._explained(FileNotFoundError):
            obstore.rename(self._store, path, to)

    def remove(self, path: str) -> None:
        with self._explained():
            obstore.delete(self._store, path)

    def whole(self, path: str) -> str:
        return f"s3://{self._place.partition('://')[2]}/{path}"  # other programs know this scheme

    def _explained(self, *answered: type[Exception]) -> AbstractContextManager[None]:
        return explained(self._what, self._place, *answered)


class _Copying:
    """Writes copies: the client may send a buffer later, and who writes CSV fills the same one again."""

    def __init__(self, out: Any):
        self._out = out

    def write(self, content: Any) -> int:
        self._out.write(bytes(content))
        return len(content)

    def finish(self) -> None:
        self._out.close()
