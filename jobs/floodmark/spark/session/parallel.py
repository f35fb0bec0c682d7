"""Work on several tables side by side; nothing of it goes on after the call has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def side_by_side(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """Results in the tasks' order. When all have ended, the first failure, if any, is raised."""
    waiting = list(tasks)
    with ThreadPoolExecutor(max_workers=max(1, len(waiting))) as pool:
        futures = [pool.submit(task) for task in waiting]
    return [future.result() for future in futures]
