"""Reads log entries from a store of objects: by one client, with one request each, several at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from deltalake.fs import DeltaStorageHandler

T = TypeVar("T")
WAYS = 16  # entries that are read at the same time
USUAL = 1 << 20  # bytes: nearly all entries are shorter


class StoredLog:
    """The log of one table in a store. versions: those to be read.

    Each client connects anew, and may first have to ask for its credentials. delta-rs asks for the size of a file
    before it reads it, and stops all threads of Python meanwhile; so it is told a size.
    """

    def __init__(self, address: str, versions: Sequence[int]):
        self._address, self._versions = address, versions

    @cached_property
    def _client(self) -> DeltaStorageHandler:
        from deltalake.fs import DeltaStorageHandler  # imports pyarrow, which a run with nothing to do can avoid

        return DeltaStorageHandler(self._address, known_sizes=dict.fromkeys(map(stored_name, self._versions), USUAL))

    @cached_property
    def _asking(self) -> DeltaStorageHandler:
        from deltalake.fs import DeltaStorageHandler

        return DeltaStorageHandler(self._address)

    def entry(self, version: int) -> bytes:
        """One log entry. Raises FileNotFoundError if it is gone, OSError if the store fails."""
        name = stored_name(version)
        try:
            found = _content(self._client, name)
        except FileNotFoundError:
            raise
        except OSError as fault:
            if "range" not in str(fault).lower():
                raise
            return _content(self._asking, name)  # the store gives no part of a file that is shorter than asked for
        return found if len(found) < USUAL else _content(self._asking, name)

    def written_us(self, version: int) -> int | None:
        """When an entry was written; None if it is not there. Raises OSError if the store fails."""
        (found,) = self._asking.get_file_info([stored_name(version)])
        written: int | None = found.mtime_ns
        return None if written is None else written // 1000


def stored_name(version: int) -> str:
    """The path of a log entry within its table."""
    return f"_delta_log/{version:020}.json"


def _content(client: DeltaStorageHandler, name: str) -> bytes:
    return bytes(client.open_input_file(name).read())


def ahead(ask: Callable[[int], T], versions: Iterable[int]) -> Iterator[T]:
    """The answers in order. The first is asked alone, and ever more after it: many callers need no second one."""
    rest, asked, ways = iter(versions), deque[Future[T]](), 1
    with ThreadPoolExecutor(WAYS) as pool:
        while True:
            asked.extend(pool.submit(ask, version) for version in islice(rest, ways - len(asked)))
            if not asked:
                return
            yield asked.popleft().result()
            ways = min(2 * ways, WAYS)
