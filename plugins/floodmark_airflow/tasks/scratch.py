"""A folder for the temporary files of one Spark application, removed once it has ended, however it ends.

Spark removes its own files (`spark-*`, `blockmgr-*`) as it exits. A killed JVM can't.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = "SPARK_SUBMIT_OPTS"  # options of the JVM that spark-submit starts, which is the driver's in client mode
PREFIX = "floodmark-"


@contextmanager
def scratch() -> Iterator[dict[str, str]]:
    """The environment variables with which spark-submit uses a new folder. Removes folders of killed tasks, too.

    The folder is Java's temporary directory. A place that `spark.local.dir` or SPARK_LOCAL_DIRS names stays in use.
    """
    sweep(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{socket.gethostname()}-{os.getpid()}-")
    try:
        yield {OPTIONS: f"{os.environ.get(OPTIONS, '')} -Djava.io.tmpdir={folder}".strip()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove the folders of this machine whose task has ended and whose Spark application has, too.

    If a task's own process is killed, its application may go on, and needs its files.
    """
    found = list(root.glob(f"{PREFIX}{socket.gethostname()}-*-*"))
    left = [folder for folder in found if not psutil.pid_exists(_task(folder))]
    used = "\n".join(_options_in_use()) if left else ""
    for folder in left:
        if str(folder) not in used:
            shutil.rmtree(folder, ignore_errors=True)  # it may be another user's, who removes it


def _task(folder: Path) -> int:
    number = folder.name.rsplit("-", 2)[1]
    return int(number) if number.isdecimal() else 0


def _options_in_use() -> Iterator[str]:
    for process in psutil.process_iter():
        try:
            yield process.environ().get(OPTIONS, "")
        except (psutil.Error, OSError):  # it has ended, or is another user's, as is then its folder
            continue
