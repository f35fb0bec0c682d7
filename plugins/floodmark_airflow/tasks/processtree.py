"""Kills a process with all its descendants."""

from __future__ import annotations

import contextlib

import psutil  # type: ignore[import-untyped]


def kill_tree(pid: int) -> list[int]:
    """SIGKILL a process and all its descendants, whatever group or session they moved to; return their ids.

    PySpark's worker daemon leaves its parent's process group, so a group kill would miss it. All processes are stopped
    before the first is killed: a dead parent would hide its children, and a running one could start more.
    """
    try:
        root = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return []
    victims = _stopped_tree(root)
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    return [victim.pid for victim in victims]


def _stopped_tree(root: psutil.Process) -> list[psutil.Process]:
    stopped: list[psutil.Process] = []
    while fresh := [found for found in _tree(root) if found not in stopped]:
        for process in fresh:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
            stopped.append(process)
    return stopped


def _tree(root: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [root, *root.children(recursive=True)]
    return []
