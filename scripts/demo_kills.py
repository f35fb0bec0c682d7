"""Find and kill the processes of one run of the demo, and nothing of Airflow's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from floodmark_airflow.tasks.processtree import kill_tree

ENDED = "ended"


@dataclass
class Kill:
    """One kill: the run as the ledger names it, the open epoch, and the killed processes by id and name."""

    run: str
    epoch: int
    victims: list[str]


def kill_run(processes: list[psutil.Process], run: str) -> list[str]:
    """Kill the spark-submit tree of one run, and nothing of Airflow's. Returns names and ids, parents first."""
    ours = {process.pid: process for process in processes if names_run(process, run)}
    roots = [process for process in ours.values() if parent_of(process) not in ours]
    named = {one.pid: kind(one) for root in roots for one in tree(root)}
    killed = [pid for root in roots for pid in kill_tree(root.pid)]
    return [f"{named.get(pid, 'process')} {pid}" for pid in killed if named.get(pid) != ENDED]


def names_run(process: psutil.Process, run: str) -> bool:
    """Whether it was started by spark-submit for this run."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return run in words and any(word.endswith("run_rule.py") for word in words)


def parent_of(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def kind(process: psutil.Process) -> str:
    """The kind of a run's process; ENDED for one that only waits to be reaped, as spark-submit's own shell does."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ENDED
    if not words:  # it is ending: its memory is gone, and it cannot be reaped yet
        return ENDED
    if Path(words[0]).name == "java":
        return "JVM"
    return "Python worker" if "pyspark.daemon" in words else "driver's Python"
