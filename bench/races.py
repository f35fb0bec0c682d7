"""Race two JVMs that commit to one Delta table on a local disk: how often do both report the same version as theirs?

    python -m bench.races [--commits N] [--folder DIR]

Runs once with each of Delta's log stores that work on local files. No lock is held: this shows why a rule has a lock,
and why a run checks its own commit right after it. A JVM that can no longer read the log stops.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from floodmark.core.application.sparkconf import application_conf
from floodmark.ledger.delta import tablelog, tables
from floodmark.spark.write.appending import Appending

STORES = {"Delta's own choice": None, "LocalLogStore": "io.delta.storage.LocalLogStore",
          "HDFSLogStore": "io.delta.storage.HDFSLogStore"}  # fmt: skip
COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def session_with(store: str | None) -> SparkSession:
    conf = application_conf("1g", 2, {"spark.delta.logStore.file.impl": store} if store else {}, 0)
    builder = SparkSession.builder.master("local[1]").appName("race")
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def racer(table: str, app: str, commits: int, store: str | None) -> None:
    """Print, for each commit, the version that Delta reports and whether the log has it as ours right after."""
    session = session_with(store)
    Appending(session, table, app).commit(0, "{}")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(1, commits + 1):
        version = Appending(session, table, app).commit(number, "{}")
        ours = version is not None and tablelog.commit_at(table, version, app, number) is not None
        print(json.dumps([version, ours, number]), flush=True)
    session.stop()


def race(folder: Path, commits: int, store: str | None) -> dict[str, float]:
    table = str(folder / uuid4().hex)
    tables.create(table, COLUMNS, {})
    names = ("one", "other")
    command = [sys.executable, "-m", "bench.races", "--table", table, "--commits", str(commits // 2)]
    command += ["--store", store] if store else []
    racers = [
        subprocess.Popen([*command, "--app", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    for one in racers:
        assert one.stdout and one.stdout.readline() == "ready\n"
    begun = time.monotonic()
    for one in racers:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [[json.loads(line) for line in one.communicate()[0].splitlines()] for one in racers]
    ended = {"stopped": sum(one.returncode != 0 for one in racers), "seconds": time.monotonic() - begun}
    return {**told(table, dict(zip(names, said, strict=True))), **ended}


def told(table: str, said: dict[str, list[tuple[int, bool, int]]]) -> dict[str, float]:
    """Counts of commits: won twice; lost (the log has another's in their place); of these, lost after the check."""
    versions = [version for commits in said.values() for version, _, _ in commits]
    gone = [(app, ours) for app, commits in said.items() for version, ours, number in commits
            if tablelog.commit_at(table, version, app, number) is None]  # fmt: skip
    twice = len(versions) - len(set(versions))
    return {
        "commits": len(versions),
        "won twice": twice,
        "lost": len(gone),
        "lost after the look": sum(o for _, o in gone),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path(".cache/races"))
    parser.add_argument("--only", choices=STORES)
    for name in ("--table", "--app", "--store"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.table:
        racer(asked.table, asked.app, asked.commits, asked.store)
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, store in STORES.items():
        if asked.only in (None, name):
            print(f"{name}: {race(asked.folder.absolute(), asked.commits, store)}", flush=True)
    shutil.rmtree(asked.folder)


if __name__ == "__main__":
    main()
