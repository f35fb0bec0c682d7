"""Waiting for what other processes do: they are asked again and again, up to a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

LIMIT = 420.0  # seconds; Airflow, Spark and the tests share two cores
Answer = TypeVar("Answer")


def wait(
    ask: Callable[[], Answer], every: float = 0.5, limit: float = LIMIT, alive: Callable[[], None] = lambda: None
) -> Answer:
    """Its first answer that is true. A server that answers too late is asked again; `alive` raises where it is gone."""
    deadline, pause = time.monotonic() + limit, threading.Event()
    while not (answer := _answer(ask)):
        alive()
        assert time.monotonic() < deadline, f"not within {limit:g} seconds"
        pause.wait(every)
    return answer


def _answer(ask: Callable[[], Answer]) -> Answer | None:
    try:
        return ask()
    except (TimeoutError, ConnectionError):
        return None
