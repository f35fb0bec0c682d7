"""On Ctrl-C or SIGTERM, a run cancels Spark's jobs and reports the signal in its exit code.

The next run finishes what was in progress, so nothing has to be saved here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from floodmark.errors import RunFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRACE = 20.0  # seconds for the rules to stop; Airflow kills after 60
AGAIN = 0.5  # seconds between two cancellations: a rule may start another Spark job while the first is cancelled
STOPPED = "stopped on request; the next run finishes what is open"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """A context in which the first signal cancels Spark's jobs until the rules have ended; a second exits at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._session: SparkSession | None = None
        self._ended = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def application(self, session: SparkSession) -> None:
        """The application whose jobs a signal cancels."""
        self._session = session
        for number in self._before:  # Spark installs a handler of its own when it starts
            signal.signal(number, self._on_signal)

    def check(self) -> None:
        """Raise RunFailed if a signal arrived; called between epochs."""
        if self.signal is not None:
            raise RunFailed(STOPPED)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None or self._session is None:
            os._exit(128 + number)
        self.signal = number
        threading.Thread(target=self._cancel, daemon=True).start()

    def _cancel(self) -> None:
        with contextlib.suppress(Exception):  # from here on, Spark logs only traces of the jobs that are cancelled
            assert self._session is not None
            self._session.sparkContext.setLogLevel("OFF")
        waited = 0.0
        while waited < GRACE:
            with contextlib.suppress(Exception):  # Spark may have stopped already, which is the goal
                assert self._session is not None
                self._session.sparkContext.cancelAllJobs()
            if self._ended.wait(AGAIN):
                return
            waited += AGAIN
        os._exit(128 + (self.signal or 0))
