"""Work on several tables in parallel; no task outlives the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def side_by_side(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """Results in the tasks' order. Once all tasks have finished, raises the first failure, if any."""
    waiting = list(tasks)
    with ThreadPoolExecutor(max_workers=max(1, len(waiting))) as pool:
        futures = [pool.submit(task) for task in waiting]
    return [future.result() for future in futures]
