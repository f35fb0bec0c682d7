"""Measure Floodmark beside its peers: the same events, two cores, one run.

    python -m bench.peers [--rows N] [--keys N,...] [--repeats N] [--only NAME,...]

Flink and Pathway get an environment of their own under `.cache/peers`, with packages from PyPI; Flink's Parquet format
comes by Maven. Floodmark, plain Spark and Spark's own streaming share one warm JVM; Flink's is warm, too. Turning
events into CSV for Pathway is not counted. The answers of DuckDB, Flink and Pathway are checked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from venv import EnvBuilder

import duckdb
import pyspark
from deltalake import DeltaTable

from bench import contenders
from bench.run import Bench, stop, told
from bench.table import Line, Measured, differing, show

PROGRAMS = Path(__file__).parent
PACKAGES = {"flink": ["apache-flink==2.3.0", "setuptools<81"], "pathway": ["pathway==0.33.0"]}
PARQUET = "org.apache.flink:flink-sql-parquet:2.3.0"
HADOOP = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar")  # Spark's: Flink's Parquet needs Hadoop's classes
EPOCHS = 10
OF_SPARK = ("plain Spark batch", "Spark's own streaming, 1 epoch", f"Spark's own streaming, {EPOCHS} epochs")
Peer = tuple[str, Measured, str, int]  # what, its times, a note, and the epochs of ours to compare it with
AS_CSV = """
SET TimeZone = 'UTC';
COPY (SELECT strftime(ts, '%Y-%m-%d %H:%M:%S.%f') AS ts, k, v FROM read_parquet('{}/*.parquet')) TO '{}'"""
COUNTED = "SELECT count(*), sum(n) FROM {}"
WINDOWS = """
SELECT count(*) FROM (SELECT DISTINCT time_bucket(INTERVAL 1 MINUTE, ts), k FROM read_parquet('{}/*.parquet'))"""


class Peers:
    """Each peer outside of the JVM is a method that returns its lines for a table of events."""

    def __init__(self, folder: Path, rows: int, repeats: int):
        self._folder, self._rows, self._repeats = folder, rows, repeats
        self._bench = Bench(folder / "bench", rows, repeats)

    def lines(self, keys: int, only: list[str]) -> Iterator[Line]:
        """Those that share a JVM take turns, since it becomes faster with each."""
        self._bench.warm_up()
        table = self._bench.events(self._rows, keys)
        ours, spark = {1: Measured(), EPOCHS: Measured()}, [Measured() for _ in range(3)]
        for _ in range(self._repeats):
            for epochs, times in ours.items():
                times.take(partial(self._floodmark, table, epochs))
            spark[0].take(partial(self._batch, table))
            spark[1].take(partial(self._stateful, table, 1))
            spark[2].take(partial(self._stateful, table, EPOCHS))
        yield self._line(f"Floodmark, {keys:,} keys", ours[1])
        yield self._line(f"Floodmark, {keys:,} keys, {EPOCHS} epochs", ours[EPOCHS])
        for what, times, epochs in zip(OF_SPARK, spark, (1, 1, EPOCHS), strict=True):
            yield self._line(f"  {what}", times).against(ours[epochs])
        for name in only:
            for what, times, note, epochs in getattr(self, name)(table):
                yield self._line(f"  {what}", times, note).against(ours[epochs])

    def _line(self, what: str, times: Measured, note: str = "") -> Line:
        return Line.rate_of(what, times, self._rows, note)

    def _floodmark(self, table: Path, epochs: int) -> float:
        return contenders.floodmark(self._bench.spark, table, self._bench.work(), epochs)[0]

    def _batch(self, table: Path) -> float:
        return contenders.batch(self._bench.spark, table, self._bench.work())

    def _stateful(self, table: Path, epochs: int) -> float:
        return contenders.stateful(self._bench.stateful, table, self._bench.work(), epochs)

    def end(self) -> None:
        stop(self._bench.spark)
        self._bench.clear()

    def duckdb(self, table: Path) -> Iterator[Peer]:
        for epochs in (1, EPOCHS):
            out = self._bench.work() / "out"
            times = self._run(sys.executable, "duckdb", table, out, epochs, self._repeats)
            note = self._compared(table, *_merged(out))
            yield f"DuckDB and delta-rs, {epochs} epoch{'s' if epochs > 1 else ''}", times, note, epochs

    def flink(self, table: Path) -> Iterator[Peer]:
        python, warm = self._environment("flink"), self._bench.events(200_000, 1_000)
        for mode in ("stream", "batch"):
            out = self._bench.work() / "out"
            times = self._run(python, "flink", warm, table, out, mode, self._repeats, self._jars())
            found = _answer(f"read_parquet('{out}-0/**')")
            yield f"Flink's SQL, as a {mode}", times, self._compared(table, *found), 1

    def pathway(self, table: Path) -> Iterator[Peer]:
        python, work = self._environment("pathway"), self._bench.work()
        events, out, times = work / "events.csv", work / "out.csv", Measured()
        duckdb.sql(AS_CSV.format(table, events))
        for _ in range(self._repeats):
            times.seconds += self._run(python, "pathway", events, out).seconds
        yield "Pathway, CSV", times, self._compared(table, *_answer(f"read_csv('{out}')")), 1

    def _compared(self, table: Path, windows: int, rows: int) -> str:
        """A note if a peer's answer is another than that of DuckDB over all events."""
        wanted = duckdb.sql(WINDOWS.format(table)).fetchall()[0][0]
        return differing(windows, wanted) or differing(rows, self._rows)

    def _run(self, python: str, name: str, *given: object) -> Measured:
        command = [python, str(PROGRAMS / f"with_{name}.py"), *map(str, given)]
        env = {**os.environ, "PATHWAY_THREADS": "2", "TZ": "UTC"}
        done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, check=True)
        return Measured([float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds ")])

    def _environment(self, name: str) -> str:
        place = self._folder / "peers" / name
        python = place / "bin" / "python"
        if not python.exists():
            EnvBuilder(with_pip=True).create(place)
            subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES[name]], check=True)
        return str(python)

    def _jars(self) -> str:
        """Flink's Parquet format, and the jars that it needs, as Flink wants them named."""
        place = self._folder / "peers" / "jars"
        if not list(place.glob("*.jar")):
            copied = ["mvn", "-q", "dependency:copy", f"-Dartifact={PARQUET}", f"-DoutputDirectory={place}"]
            subprocess.run(copied, check=True)
        jars = Path(pyspark.__file__).parent / "jars"
        found = [*place.glob("*.jar"), *(jar for name in HADOOP for jar in jars.glob(name))]
        return ";".join(f"file://{jar}" for jar in found)


def _answer(source: str) -> tuple[int, int]:
    """How many windows, and rows in them."""
    windows, rows = duckdb.sql(COUNTED.format(source)).fetchall()[0]
    return int(windows), int(rows)


def _merged(out: Path) -> tuple[int, int]:
    counts = DeltaTable(f"{out}-0").to_pyarrow_table(columns=["n"])["n"].to_numpy()
    return len(counts), int(counts.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=lambda text: [int(one) for one in text.split(",")], default=[1_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    names = ["duckdb", "flink", "pathway"]
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=", ".join(names))
    given = parser.parse_args()
    peers = Peers(Path(__file__).parents[2] / ".cache", given.rows, given.repeats)
    lines = [line for keys in given.keys for found in peers.lines(keys, given.only) for line in told(found)]
    peers.end()
    show(lines, f"{given.rows:,} events, windows of one minute by key")


if __name__ == "__main__":
    main()
