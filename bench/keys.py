"""Measure how many keys fit: seconds of an epoch, bytes on disk for each key, and the memory of all processes.

    python -m bench.keys [--keys 1000000,10000000] [--forms totals,windows,class] [--driver-memory 3g]

A key is a text of 16 characters. A first epoch touches every key once, a second one every hundredth key, a third one
closes the windows. The class gets rows once the watermark has passed them, so one epoch later. Each form and number of
keys runs alone, in a process with a JVM of its own, whose memory is sampled: the sum of its proportional set sizes,
workers included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench.contenders import PARTITIONS
from bench.events import BEGIN_MS
from bench.processor import descendants
from floodmark.cli.shared import output
from floodmark.core.rules.rule import load_rule
from floodmark.spark.rule.epochs.reports import EpochReport
from floodmark.spark.rule.landing import LandedReport
from floodmark.spark.rule.run import RuleRun
from floodmark.spark.session.session import root_session

RULE = "bench"
APART = 100  # keys of the second epoch
COMMITS = ((1, 1), (APART, 2), (None, 7200))  # the distance of keys (None: a single key), and seconds of event time
SAMPLE = 0.5  # seconds
FORMS: dict[str, dict[str, Any]] = {
    "totals": {"sql": "SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k", "unbounded": True},
    "windows": {
        "sql": "SELECT window.start AS hour, k, count(*) AS n, sum(v) AS total"
        " FROM events GROUP BY window(ts, '1 hour'), k"
    },
    "class": {"process": "bench.highest:HighestOfText", "key": ["k"]},
}


class Memory:
    """The most memory, in bytes, that this process and its descendants held in any sample."""

    def __init__(self) -> None:
        self.most = 0

    @contextmanager
    def sampled(self) -> Iterator[None]:
        ended = Event()
        sampling = Thread(target=self._sample, args=(ended,))
        sampling.start()
        try:
            yield
        finally:
            ended.set()
            sampling.join()

    def _sample(self, ended: Event) -> None:
        while not ended.wait(SAMPLE):
            self.most = max(self.most, sum(map(_bytes_of, descendants())))


def _bytes_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def measure(form: str, keys: int, driver_memory: str, work: Path) -> dict[str, Any]:
    """Run three epochs of one form. Bytes are of the files that the newest versions of the tables have."""
    rule = load_rule(_rule_file(work, form, driver_memory), os.environ)
    done: list[EpochReport] = []
    state: list[int] = []
    memory = Memory()

    def note(epoch: EpochReport | LandedReport) -> None:
        assert isinstance(epoch, EpochReport)
        done.append(epoch)
        state.append(_size(work / "home" / RULE / "state"))

    spark = root_session("local[*]", [rule])
    _write_values(spark, work / "events", keys)
    with memory.sampled():
        RuleRun(spark, rule, work / "home", "bench", note).run()
    first, second, third = (epoch.seconds for epoch in done)
    sizes = {"state": max(state) / keys, "sink": _size(work / "sink") / keys}
    return {"first": first, "second": second, "third": third, **sizes, "memory": memory.most}


def _write_values(spark: SparkSession, table: Path, keys: int) -> None:
    """Write a commit for each epoch; version 0 is empty."""
    for apart, second in ((keys, 0), *COMMITS):
        values = spark.range(0, 1 if apart is None else keys * bool(second), apart or 1, 8).selectExpr(
            f"timestamp_millis({BEGIN_MS} - {BEGIN_MS} % 3600000 + {second} * 1000) AS ts",
            "lower(hex(xxhash64(id))) AS k",
            f"pmod(xxhash64(id, {second}), 100000) / 100.0D AS v",
        )
        values.write.format("delta").mode("append").save(str(table))


def _rule_file(work: Path, form: str, driver_memory: str) -> Path:
    stream: dict[str, Any] = {"delta": str(work / "events"), "start": {"version": 1}}
    rule = {
        "rule": RULE,
        "streams": {"events": stream if form == "totals" else {**stream, "event_time": "ts", "lateness": "0 seconds"}},
        **FORMS[form],
        "epoch": {"max_files": 8},
        "sinks": [{"delta": str(work / "sink"), **({"key": ["k"]} if form == "totals" else {})}],
        "spark": {"driver_memory": driver_memory, "shuffle_partitions": PARTITIONS},
    }
    path = work / "rules" / f"{RULE}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(rule))
    return path


def _size(folder: Path) -> int:
    """Bytes of the files of all tables below a folder."""
    logs = [log for log in folder.rglob("_delta_log") if log.is_dir()]
    return sum(size for log in logs for size in _sizes(DeltaTable(str(log.parent))))


def _sizes(table: DeltaTable) -> list[int]:
    return list(table.get_add_actions(flatten=True)["size_bytes"].to_pylist())


def main() -> None:
    given = _arguments()
    if given.one:
        form, keys = given.one.split(":")
        print(json.dumps(measure(form, int(keys), given.driver_memory, given.work)))
        return
    rows = [_row(form, keys, given) for form in given.forms.split(",") for keys in map(int, given.keys.split(","))]
    columns = (
        "form",
        "keys",
        "epoch 1",
        "epoch 2",
        "epoch 3",
        "state/key",
        "sink/key",
        "most memory",
    )
    print(f"\ndriver memory {given.driver_memory}, {os.cpu_count()} cores\n", flush=True)
    output.table(columns, rows)


def _row(form: str, keys: int, given: argparse.Namespace) -> tuple[str, ...]:
    shutil.rmtree(given.work, ignore_errors=True)
    alone = [sys.executable, "-m", "bench.keys", "--one", f"{form}:{keys}", "--driver-memory", given.driver_memory]
    said = subprocess.run(alone, stdout=subprocess.PIPE, text=True)
    shutil.rmtree(given.work, ignore_errors=True)
    if said.returncode != 0:
        return (form, f"{keys:,}", "failed", "", "", "", "", "")
    found = json.loads(said.stdout.splitlines()[-1])
    print("measured:", form, keys, found, file=sys.stderr, flush=True)
    seconds = (f"{found[one]:.1f} s" for one in ("first", "second", "third"))
    sizes = (f"{found[one]:.1f} B" for one in ("state", "sink"))
    return (form, f"{keys:,}", *seconds, *sizes, f"{found['memory'] / 1e9:.1f} GB")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="1000000,10000000", help="numbers of keys (default: %(default)s)")
    parser.add_argument("--forms", default=",".join(FORMS), help="of the rule (default: %(default)s)")
    parser.add_argument("--driver-memory", default="3g", help="of each JVM (default: %(default)s)")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # FORM:KEYS, measured in this process
    parser.set_defaults(work=Path(__file__).parents[1] / ".cache" / "bench" / "keys")
    return parser.parse_args()


if __name__ == "__main__":
    main()
