"""Locks a rule for commands that work on its home without a JVM.

It is the lock that a run's JVM takes, so that they exclude each other. The system frees it as soon as this process
closes any handle on the file, so nothing else here may open it meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from floodmark.errors import Busy
from floodmark.ledger.holder import holder_text, owner_file, relay_lock, target_of
from floodmark.ledger.home import Home, unusable

_here: set[Path] = set()
_mutex = threading.Lock()


@contextmanager
def once_in_this_process(lock: Path) -> Iterator[None]:
    """Refuse a second thread: the system's lock is per process. Raises Busy."""
    with _mutex:
        if lock in _here:
            target = target_of(lock)
            does = f"runs the rule of {lock.parent}" if target is None else f"ships to target {target}"
            raise Busy(f"this process ({os.getpid()}) already {does}; wait for it to end")
        _here.add(lock)
    try:
        yield
    finally:
        with _mutex:
            _here.discard(lock)


def is_held_here(lock: Path) -> bool:
    """Whether this process holds it. To ask the system would free it."""
    return lock.absolute() in _here


@contextmanager
def held(lock: Path, run: str) -> Iterator[None]:
    """Hold the rule's lock, or raise Busy with the holder's name. The lock follows a home that is moved meanwhile.

    lock: in an existing home.
    """
    with once_in_this_process(lock.absolute()):
        handle = _opened(lock)
        try:
            _take(handle, lock)
            with named(lock, _owner(run)):
                yield
        finally:
            os.close(handle)


@contextmanager
def relays_held(home: Home, run: str) -> Iterator[None]:
    """Hold the locks of the relays of all targets, while the home moves or goes. Raises Busy with a relay's name.

    A relay at `qos: 0` that is at work would forget there what it loses.
    """
    with ExitStack() as locks:
        for outbox in home.outboxes:
            locks.enter_context(held(relay_lock(outbox), run))
        yield


def check_opens(lock: Path) -> None:
    """Raise HomeUnfit or RunFailed if this user cannot open the lock file, before a JVM that would not say why."""
    os.close(_opened(lock))


def _opened(lock: Path) -> int:
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as fault:
        raise unusable(lock.parent, fault) from fault


@contextmanager
def named(lock: Path, owner: Mapping[str, object]) -> Iterator[None]:
    """Name the holder of the lock in the file beside it."""
    try:
        try:
            owner_file(lock).write_text(json.dumps(owner))
        except OSError as fault:
            raise unusable(lock.parent, fault) from fault
        yield
    finally:
        owner_file(lock).unlink(missing_ok=True)


def _take(handle: int, lock: Path) -> None:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno not in (errno.EACCES, errno.EAGAIN):  # as without a server of locks
            raise unusable(lock.parent, fault) from fault
        raise Busy(holder_text(lock)) from None
    if not lock.exists() or lock.stat().st_ino != os.fstat(handle).st_ino:
        raise moved_away(lock)


def moved_away(lock: Path) -> Busy:
    """The error for a home that was renamed or dropped after its lock file was opened and before it was locked."""
    return Busy(f"the home {lock.parent} was just moved or removed: check with `floodmark list`")


def _owner(run: str) -> dict[str, object]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"run": run, "host": socket.gethostname(), "driver_pid": os.getpid(), "since": since}
