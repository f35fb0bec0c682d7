"""How long Airflow's DAG processor takes with many rule files, and how soon it shows that one was edited. No Spark.

    python -m bench.parsing [--rules N]

Each DAG file is first parsed alone, in a process that has loaded Airflow, as those of the DAG processor have. Then a
real DAG processor starts on an empty database; it looks at a file again after 30 seconds, Airflow's own default.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.groups import CACHE, CHECKOUT, Spent, say, settle, write_rules

PARSED = 10.0  # seconds, of all DAG files together
INTERVAL = 30.0  # seconds between two checks of a file
WITHIN = 300.0  # seconds, after which the measurement fails
FILES = ("rules.py", "rules_errors.py", "upkeep.py")
PROGRAM = """
import json, sys, time
from airflow.dag_processing.dagbag import DagBag
spent = []
for file, dags in zip(sys.argv[2:], (int(sys.argv[1]), 0, 1), strict=True):
    begun, before = time.perf_counter(), time.process_time()
    bag = DagBag(dag_folder=file)
    spent.append((time.perf_counter() - begun, time.process_time() - before))
    assert len(bag.dags) == dags and not bag.import_errors, bag.import_errors
print(json.dumps(spent))
"""


def parsed(rules: int) -> list[Spent]:
    """The time that each DAG file took."""
    command = [sys.executable, "-c", PROGRAM, str(rules), *(str(CHECKOUT / "dags" / name) for name in FILES)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Spent(*one) for one in json.loads(found.stdout.splitlines()[-1])]


@contextmanager
def processor(folder: Path) -> Iterator[None]:
    """Run a DAG processor until the end of the block."""
    airflow = [sys.executable, "-m", "airflow"]
    with (folder / "processor.log").open("w") as log:
        subprocess.run([*airflow, "db", "migrate"], stdout=log, stderr=log, check=True)
        process = subprocess.Popen([*airflow, "dag-processor"], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def until(there: Callable[[], bool]) -> float:
    """Seconds until the condition holds."""
    begun = time.monotonic()
    while not there():
        assert time.monotonic() < begun + WITHIN
        time.sleep(0.1)
    return time.monotonic() - begun


def descriptions(folder: Path) -> dict[str, str]:
    """The description of each DAG in Airflow's database."""
    with closing(sqlite3.connect(folder / "airflow" / "airflow.db", timeout=60)) as database:
        return dict(database.execute("SELECT dag_id, description FROM dag").fetchall())


def edited(folder: Path, names: list[str]) -> tuple[float, float]:
    """Seconds from the start until all DAGs are in the database, and from an edit until it is."""
    with processor(folder):
        first = until(lambda: {f"rule.{one}" for one in names} <= descriptions(folder).keys())
        file = folder / "rules" / f"{names[0]}.yaml"
        file.write_text(f"{file.read_text()}description: edited\n")
        return first, until(lambda: descriptions(folder)[f"rule.{names[0]}"] == "edited")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rules", type=int, default=200)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        names = write_rules(folder / "rules", given.rules, group=None)
        settle(folder)
        alone = parsed(given.rules)
        first, seen = edited(folder, names)
    whole = Spent(sum(one.clock for one in alone), sum(one.busy for one in alone))
    print(f"{given.rules} rule files, {os.cpu_count()} cores")
    say("all DAG files parsed", whole, PARSED)
    for file, spent in zip(FILES, alone, strict=True):
        say(f"  {file}", spent)
    print(f"  a DAG processor starts, until all DAGs are in its database   {first:5.1f} s")
    print(f"  an edit, until it is there; it looks every {INTERVAL:.0f} s              {seen:5.1f} s")


if __name__ == "__main__":
    main()
