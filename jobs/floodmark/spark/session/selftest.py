"""Write and read a Delta table where a rule's would be, for `floodmark doctor --spark`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from floodmark.errors import RunFailed
from floodmark.ledger.delta.tables import open_table
from floodmark.spark.session.session import root_session

if TYPE_CHECKING:
    import pandas as pd

ROWS, FILES = 1000, 4


def written_and_read(master: str, place: Path, seconds: float) -> str:
    """Returns what was done, in words.

    Raises Spark's errors, and RunFailed if rows are missing or it takes longer than `seconds`: a master that has no
    room for an executor would wait forever.
    """
    session = root_session(master, [], backlog=0)
    try:
        with _within(session, seconds):
            rows = session.range(0, ROWS, 1, FILES).mapInPandas(_with_version, "id BIGINT, python STRING")
            rows.write.format("delta").save(str(place))
            read = session.read.format("delta").load(str(place))
            found, pythons = read.count(), sorted(row.python for row in read.select("python").distinct().collect())
        version = session.version
    finally:
        session.stop()
    if found != ROWS or open_table(str(place)) is None:
        raise RunFailed(f"expected {ROWS} rows at {place}, found {found}: do Spark's workers see the same folder?")
    return f"Spark {version} on {master}: {ROWS} rows written and read, Python {', '.join(pythons)} in its workers"


def _with_version(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(python=platform.python_version())


@contextmanager
def _within(session: SparkSession, seconds: float) -> Iterator[None]:
    """Cancel Spark's jobs after `seconds`, and raise RunFailed."""
    over, called_off = Event(), Event()

    def call_off() -> None:
        if not over.wait(seconds):
            called_off.set()
        while not over.wait(1):  # also jobs that start after the first call
            session.sparkContext.cancelAllJobs()

    Thread(target=call_off, daemon=True).start()
    try:
        yield
    except Exception as fault:  # a cancelled job may raise any error
        if called_off.is_set():
            raise RunFailed(
                f"not done after {seconds:g} s, so it was stopped: are workers registered, with free cores and "
                "memory? --timeout allows more time"
            ) from fault
        raise
    finally:
        over.set()
