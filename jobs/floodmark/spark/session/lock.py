"""One driver at a time: an OS lock in the rule's home. The JVM holds it, so it ends with the process that writes.

A JVM opens the lock file only once, because closing any other channel on it releases the lock.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodmark.errors import Busy, Refused
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.locking import check_opens, moved_away, named, once_in_this_process
from floodmark.spark.session.jvm import jvm_class

LOOK_EVERY = 0.5  # seconds between two attempts at a lock that another run holds


@contextmanager
def held(session: SparkSession, lock: Path, run: str) -> Iterator[None]:
    """Hold the rule's lock, or raise Busy with the holder's name. Raises Refused if there is no home to lock."""
    with once_in_this_process(lock.absolute()):
        if not lock.parent.is_dir():
            raise Refused(
                f"expected the home {lock.parent}, found none: the rule has not run yet, or was just renamed or "
                "dropped; check with `floodmark list`"
            )
        check_opens(lock)
        channel = _open(session, lock)
        try:
            if channel.tryLock() is None:
                raise Busy(holder_text(lock))
            if holder_pid(lock) is None:  # the file that the JVM has locked was moved or removed
                raise moved_away(lock)
            with named(lock, _owner(session, run)):
                yield
        finally:
            channel.close()


@contextmanager
def waited_for(
    session: SparkSession, lock: Path, run: str, seconds: float, say: Callable[[str], None]
) -> Iterator[None]:
    """The same; if another run holds the lock, wait up to `seconds` for its end before raising Busy."""
    until, holder, pause = time.monotonic() + seconds, "", threading.Event()
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(held(session, lock, run))
                break
            except Busy as fault:
                if time.monotonic() >= until:
                    raise
                if str(fault) != holder:
                    holder = str(fault)
                    say(f"waiting: {holder}")
            pause.wait(LOOK_EVERY)
        yield


def _owner(session: SparkSession, run: str) -> dict[str, object]:
    process = jvm_class(session, "java.lang.ProcessHandle").current()
    return {
        "run": run,
        "host": socket.gethostname(),
        "driver_pid": os.getpid(),
        "jvm_pid": int(process.pid()),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _open(session: SparkSession, lock: Path) -> Any:
    option = jvm_class(session, "java.nio.file.StandardOpenOption")
    gateway: Any = session.sparkContext._gateway
    options = gateway.new_array(jvm_class(session, "java.nio.file.OpenOption"), 2)
    options[0], options[1] = option.CREATE, option.WRITE
    lock_file = jvm_class(session, "java.io.File")(str(lock)).toPath()
    return jvm_class(session, "java.nio.channels.FileChannel").open(lock_file, options)
