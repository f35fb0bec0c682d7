"""Create the class-data archive: after a small run of a rule, the JVM records the classes that it loaded.

The archive fits one JVM and one class path; set-up recreates it when either changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from floodmark.core.application.sparkconf import JAVA_OPTIONS, archive

SQL = "SELECT window.start AS start, k, count(*) AS n FROM events GROUP BY window(at, '1 minute'), k"


def main(work: Path) -> None:
    """Train in `work`, which the caller removes afterwards; then move the archive to its place."""
    fresh = work / "floodmark.jsa"
    write_rule(work, {JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={fresh}"})
    for minute in (0, 10):  # with two runs' worth of input: state is written, then read
        arrive(work, minute)
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "run", "training"]
    places = {"FLOODMARK_RULES": str(work / "rules"), "FLOODMARK_HOME": str(work / "home"), "FLOODMARK_FAST_START": "0"}
    environment = {**os.environ, **places, "FLOODMARK_MASTER": "local[*]"}
    # The JVM outlives the command, because it writes the archive as it exits; its end of the pipe closes then.
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    sys.stdout.buffer.write(done.stdout)
    done.check_returncode()
    archive().parent.mkdir(parents=True, exist_ok=True)
    shutil.move(fresh, archive())


def write_rule(work: Path, conf: dict[str, str]) -> None:
    rule = {
        "rule": "training",
        "streams": {"events": {"delta": str(work / "events"), "event_time": "at", "lateness": "1 minute"}},
        "sql": SQL,
        "epoch": {"max_files": 1},
        "sinks": [{"delta": str(work / "sink")}],
        "spark": {"conf": conf},
    }
    (work / "rules").mkdir(parents=True)
    (work / "rules" / "training.yaml").write_text(yaml.safe_dump(rule))


def arrive(work: Path, minute: int) -> None:
    times = [datetime(2001, 1, 1, tzinfo=UTC) + timedelta(minutes=minute, seconds=i) for i in range(300)]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", tz="UTC")), "k": [str(i % 9) for i in range(300)]})
    write_deltalake(str(work / "events"), rows, mode="append")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
