"""A cache of facts that are slow to gather: valid until their source folders change, gathered in parallel."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.errors import FloodmarkError, message
from floodmark.redaction import redacted

log = logging.getLogger(__name__)

# A file system's clock ticks in steps: a folder may change again within this time and keep its timestamp.
TICK_NS = 2_000_000_000
Place = tuple[int, int]  # inode and time of the last modification


@dataclass(frozen=True)
class Request:
    """A request for a fact. `gather` gets its last result, if that is cached, and returns the fact.

    The fact stays valid while neither `given` nor the folders that `on` returns change: the tables' logs that `gather`
    reads. `on` gets the gathered fact. `away`: `gather` reads a store that may be slow, so it runs in a separate pool.
    """

    key: Hashable
    gather: Callable[[Any], Any]
    on: Callable[[Any], Iterable[Path]]
    given: Any = None
    away: bool = False


@dataclass(frozen=True)
class Answer:
    """`value`: None if there is none yet. `pending`: it is being gathered (again). `fault`: why there is none."""

    value: Any = None
    pending: bool = False
    fault: str | None = None

    @property
    def missing(self) -> bool:
        """Whether there is neither a value nor a fault yet."""
        return self.pending and self.value is None and self.fault is None


@dataclass(frozen=True)
class _Cached:
    """A cached fact. `stamp`: None if it may be outdated already."""

    stamp: tuple[Any, list[Place]] | None
    got: Answer


class Cache:
    """Caches the `size` facts requested last; `workers` threads gather, and as many again those that are `away`."""

    def __init__(self, size: int, workers: int, name: str):
        self._size = size
        self._kept: OrderedDict[Hashable, _Cached] = OrderedDict()
        self._coming: dict[Hashable, Future[None]] = {}
        self._lock = threading.Lock()
        self._pools = {away: ThreadPoolExecutor(workers, f"floodmark-{name}") for away in (False, True)}

    def get(self, wanted: Iterable[Request], seconds: float) -> list[Answer]:
        """The requested facts, in order; waits up to `seconds` for missing and outdated ones."""
        wanted = list(wanted)
        coming = [future for one in wanted if (future := self._fetch(one)) is not None]
        wait(coming, timeout=seconds)
        return [self.peek(one) for one in wanted]

    def peek(self, wanted: Request) -> Answer:
        """The cached fact, without starting to gather it."""
        with self._lock:
            cached, pending = self._kept.get(wanted.key), wanted.key in self._coming
        return Answer(cached.got.value, pending, cached.got.fault) if cached else Answer(pending=pending)

    def is_fresh(self, wanted: Request) -> bool:
        """Whether the cached fact is still valid."""
        with self._lock:
            cached = self._kept.get(wanted.key)
        return _is_fresh(wanted, cached)

    def _fetch(self, wanted: Request) -> Future[None] | None:
        """Start to gather a fact, or join in; None if the cached one is valid."""
        with self._lock:
            cached, coming = self._kept.get(wanted.key), self._coming.get(wanted.key)
            if cached is not None:
                self._kept.move_to_end(wanted.key)
        if coming is not None or _is_fresh(wanted, cached):
            return coming
        with self._lock:
            if wanted.key not in self._coming and self._kept.get(wanted.key) is cached:  # no other thread was faster
                self._coming[wanted.key] = self._pools[wanted.away].submit(self._gather, wanted)
            return self._coming.get(wanted.key)

    def _gather(self, wanted: Request) -> None:
        before, begun = self.peek(wanted).value, time.time_ns()
        got = Answer()
        try:
            got = Answer(wanted.gather(before))
        except (FloodmarkError, OSError) as fault:
            got = Answer(fault=message(fault))
        except BaseException as fault:  # also Rust's panics; an error of one rule must not break the page of others
            log.exception("%s cannot be gathered", wanted.key)
            got = Answer(fault=redacted(f"{type(fault).__name__}: {fault}"))
        finally:
            stamp = _stamp(wanted, got.value)
            cached = _Cached(stamp if _settled(stamp[1], begun) else None, got)
            with self._lock:
                self._kept[wanted.key] = cached
                self._coming.pop(wanted.key, None)
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)


def _is_fresh(wanted: Request, cached: _Cached | None) -> bool:
    return cached is not None and cached.stamp is not None and cached.stamp == _stamp(wanted, cached.got.value)


def _stamp(wanted: Request, value: Any) -> tuple[Any, list[Place]]:
    return wanted.given, [_of_place(place) for place in wanted.on(value)]


def _settled(places: list[Place], begun: int) -> bool:
    """Whether no folder changed so shortly before `begun` that the gathered fact may miss a change."""
    return all(begun - changed > TICK_NS for _, changed in places)


def _of_place(place: Path) -> Place:
    """The Place of a table's log, which every commit changes by adding a file. (0, 0) if there is no log."""
    try:
        found = place.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
