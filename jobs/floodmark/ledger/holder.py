"""Finds the holder of a rule's lock, without taking or freeing it and without a JVM."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

CORRECTING = "correcting"  # the lock of the run that computes a correction
RELAY = ".relay"  # how the lock of a target's relays ends
# struct flock on 64 bits: how it is packed, and its fields in order
_LINUX = ("hhqqi4x", ("type", "whence", "start", "length", "pid"))
_MACOS = ("qqihh", ("start", "length", "pid", "type", "whence"))


def flock_asking(platform: str) -> bytes:
    """A `struct flock` that asks who holds a lock on the whole file. platform: as in `sys.platform`."""
    form, names = _MACOS if platform == "darwin" else _LINUX
    asked = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET}
    return struct.pack(form, *(asked.get(name, 0) for name in names))


def holder_in(answer: bytes, platform: str) -> int | None:
    """The process that the system's answer names; None: nobody holds the lock."""
    form, names = _MACOS if platform == "darwin" else _LINUX
    found = dict(zip(names, struct.unpack(form, answer), strict=True))
    return None if found["type"] == fcntl.F_UNLCK else found["pid"]


def owner_file(lock: Path) -> Path:
    """The file beside the lock that names its holder."""
    return lock.with_name(f"{lock.name}.owner")


def relay_lock(outbox: Path) -> Path:
    """The lock of the relays of one target. `outbox`: the folder of its outbox."""
    return outbox.with_name(f"{outbox.name}{RELAY}")


def holder_pid(lock: Path) -> int | None:
    """The id of the process that holds the lock, without taking or freeing it; None if nobody does."""
    if not lock.exists():
        return None
    with lock.open("rb") as file:  # the query needs no write permission: a home may be another user's, or read-only
        return holder_in(fcntl.fcntl(file, fcntl.F_GETLK, flock_asking(sys.platform)), sys.platform)


def holder_text(lock: Path) -> str:
    """The holder of the lock and what to do, in one sentence."""
    owner = _owner(lock)
    if owner is None:
        who = "run" if target_of(lock) is None else "relay"
        return f"another {who} holds {lock} (process {holder_pid(lock)}); wait for it to end"
    jvm = owner.get("jvm_pid")  # a command without a JVM holds the lock itself
    left = f"; its driver is gone and left an orphaned JVM: `kill {jvm}` ends it"
    orphan = left if jvm and is_orphan(lock) else ""
    return (
        f"{_what(lock, owner['run'])}, since {owner['since']} on {owner['host']} (driver "
        f"{owner['driver_pid']}{f', JVM {jvm}' if jvm else ''}){orphan}; wait for it to end"
    )


def _what(lock: Path, run: str) -> str:
    """What the holder of a lock does."""
    target = target_of(lock)
    if target is not None and run == "relay":
        return f"another relay ships to target {target}"
    return f"run {run} corrects the rule" if lock.name == CORRECTING else f"run {run} holds the rule"


def target_of(lock: Path) -> str | None:
    """The target whose relays take this lock; None: it is no lock of relays."""
    return lock.stem.rpartition("-")[0] if lock.suffix == RELAY else None


def is_orphan(lock: Path) -> bool:
    """Whether the driver in the owner's file is gone, and its JVM still holds the lock.

    For another host or container the answer is no: its process ids mean nothing here. Containers may share a host name,
    so the holder has to be the process that the file names.
    """
    owner = _owner(lock)
    if owner is None or owner["host"] != socket.gethostname() or _lives(owner["driver_pid"]):
        return False
    jvm: int | None = owner.get("jvm_pid")  # a command without a JVM leaves none behind
    return jvm is not None and holder_pid(lock) == jvm


def _owner(lock: Path) -> dict[str, Any] | None:
    """The holder's own entry; None if its file is missing, or incomplete after a kill."""
    try:
        owner = json.loads(owner_file(lock).read_text())
    except (FileNotFoundError, ValueError):
        return None
    whole = (
        isinstance(owner, dict) and owner.keys() >= {"run", "since", "host"} and type(owner.get("driver_pid")) is int
    )
    return owner if whole else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
