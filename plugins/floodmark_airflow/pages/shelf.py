"""Facts that take a while to gather: kept until what they were read from has changed, and gathered side by side."""

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

# A file system's clock ticks in steps: a folder that changed this short a time ago may change again without a sign.
TICK_NS = 2_000_000_000
Place = tuple[int, int]  # inode and time of the last change


@dataclass(frozen=True)
class Wanted:
    """`gather` is given what it gave before, if that is kept. `on`: the tables' logs that it reads; None: elsewhere.

    `gather` returns the same as long as neither the folders `on` nor `given` change. `on` is given what was gathered.
    `away`: it asks a store that may not answer for long; what does not is gathered beside it.
    """

    key: Hashable
    gather: Callable[[Any], Any]
    on: Callable[[Any], Iterable[Path]]
    given: Any = None
    away: bool = False


@dataclass(frozen=True)
class Got:
    """`value`: None where it is not there yet. `pending`: it is being gathered (anew). `fault`: why there is none."""

    value: Any = None
    pending: bool = False
    fault: str | None = None

    @property
    def missing(self) -> bool:
        """Whether there is nothing to tell yet."""
        return self.pending and self.value is None and self.fault is None


@dataclass(frozen=True)
class _Kept:
    """`stamp`: None where what is kept may be old already."""

    stamp: tuple[Any, list[Place]] | None
    got: Got


class Shelf:
    """Keeps the `size` facts that were asked for last; `workers` threads gather, and as many what is `away`."""

    def __init__(self, size: int, workers: int, name: str):
        self._size = size
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._coming: dict[Hashable, Future[None]] = {}
        self._lock = threading.Lock()
        self._pools = {away: ThreadPoolExecutor(workers, f"floodmark-{name}") for away in (False, True)}

    def ask(self, wanted: Iterable[Wanted], seconds: float) -> list[Got]:
        """What is wanted, in its order, waiting so long for what is not there yet or not fresh any more."""
        wanted = list(wanted)
        coming = [future for one in wanted if (future := self._fetch(one)) is not None]
        wait(coming, timeout=seconds)
        return [self.peek(one) for one in wanted]

    def peek(self, wanted: Wanted) -> Got:
        """What there is, gathered or not; nothing is begun."""
        with self._lock:
            kept, pending = self._kept.get(wanted.key), wanted.key in self._coming
        return Got(kept.got.value, pending, kept.got.fault) if kept else Got(pending=pending)

    def is_fresh(self, wanted: Wanted) -> bool:
        """Whether what is kept was read from the places as they are now."""
        with self._lock:
            kept = self._kept.get(wanted.key)
        return _is_fresh(wanted, kept)

    def _fetch(self, wanted: Wanted) -> Future[None] | None:
        """The gathering of what is not fresh; None where it is."""
        with self._lock:
            kept, coming = self._kept.get(wanted.key), self._coming.get(wanted.key)
            if kept is not None:
                self._kept.move_to_end(wanted.key)
        if coming is not None or _is_fresh(wanted, kept):
            return coming
        with self._lock:
            if wanted.key not in self._coming and self._kept.get(wanted.key) is kept:  # nobody else was quicker
                self._coming[wanted.key] = self._pools[wanted.away].submit(self._gather, wanted)
            return self._coming.get(wanted.key)

    def _gather(self, wanted: Wanted) -> None:
        before, begun = self.peek(wanted).value, time.time_ns()
        got = Got()
        try:
            got = Got(wanted.gather(before))
        except (FloodmarkError, OSError) as fault:
            got = Got(fault=message(fault))
        except BaseException as fault:  # also what Rust raises; one rule's fault must not take the others' page along
            log.exception("%s cannot be gathered", wanted.key)
            got = Got(fault=redacted(f"{type(fault).__name__}: {fault}"))
        finally:
            stamp = _stamp(wanted, got.value)
            kept = _Kept(stamp if _settled(stamp[1], begun) else None, got)
            with self._lock:
                self._kept[wanted.key] = kept
                self._coming.pop(wanted.key, None)
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)


def _is_fresh(wanted: Wanted, kept: _Kept | None) -> bool:
    return kept is not None and kept.stamp is not None and kept.stamp == _stamp(wanted, kept.got.value)


def _stamp(wanted: Wanted, value: Any) -> tuple[Any, list[Place]]:
    return wanted.given, [_of_place(place) for place in wanted.on(value)]


def _settled(places: list[Place], begun: int) -> bool:
    """Whether no place has changed so late that what was gathered from `begun` on may lack it."""
    return all(begun - changed > TICK_NS for _, changed in places)


def _of_place(place: Path) -> Place:
    """Of a table's log: every commit adds a file to it. (0, 0) where there is none."""
    try:
        found = place.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
