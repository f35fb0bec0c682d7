"""Measure processor time, which other load on the machine affects less than the clock, and find all processes."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def seconds_so_far() -> float:
    """Processor seconds of this process and all its living descendants: the JVM, and Python's workers."""
    return sum(descendants().values()) / _TICKS


def descendants() -> dict[int, int]:
    """This process and all its living descendants, each with its ticks."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (found := _stat(entry.name)) is not None:
            parents[int(entry.name)] = found
    return {pid: ticks for pid, (_, ticks) in parents.items() if _is_below(pid, parents)}


def _stat(pid: str) -> tuple[int, int] | None:
    """Parent and ticks; the parent's ticks include those of children that have exited."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), sum(int(ticks) for ticks in fields[11:15])


def _is_below(pid: int, parents: dict[int, tuple[int, int]]) -> bool:
    while pid != os.getpid():
        if pid not in parents:
            return False
        pid = parents[pid][0]
    return True
