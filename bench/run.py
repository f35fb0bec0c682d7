"""`make bench`: one table from one run. Both sides of every ratio are measured here, in turn, on the same input.

    python -m bench.run [--rows N] [--nexmark-events N] [--keys N] [--repeats N] [--only PART,...]

The contenders share one JVM (driver memory 3 g), each warmed up on a smaller input; cells are medians, with the
smallest and largest of the repeats beside them. Beside the cells of throughput stands the processor time and its ratio,
which other work on the machine swings less. Nexmark's questions and the process class, which take long, run once.
Short of an aim, the table says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from bench import contenders, corrections, digests, files, processes, small, state, targets, windows
from bench.events import write_events
from bench.questions import Questions
from bench.table import Line, Measured, show
from floodmark.core.rules.rule import load_rule
from floodmark.spark.session.session import root_session

KEYS = {"1 k": 1_000, "1 M": 1_000_000}
EPOCHS = (1, 10)
A_DAY = 1_000_000  # rows, of a year that is corrected
OF_SESSIONS = 50_000  # rows of such a day, in sessions
OF_KEYS = 20_000_000  # rows, of which some keys are deleted
SHIPPED = 200_000  # rows of an epoch that relays ship
WARM_ROWS = 200_000
PARTS = ("throughput", "digests", "windows", "corrections", "files", "targets", "small", "state", "nexmark",
         "processes", "cold")  # fmt: skip


class Bench:
    """The folder of all measurements, and the session that the contenders share."""

    def __init__(self, folder: Path, rows: int, repeats: int):
        self.folder, self.rows, self.repeats = folder, rows, repeats
        rule = load_rule(contenders.rule_file(self.work() / "rules", Path("events"), Path("sink")), os.environ)
        self.spark = root_session("local[*]", [rule])
        self.spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.stateful = self.spark.newSession()
        for key, value in {"spark.sql.session.timeZone": "UTC", **contenders.STATEFUL_CONF}.items():
            self.stateful.conf.set(key, value)

    def work(self) -> Path:
        """A new folder; the one before is removed, so that it does not fill the page cache."""
        self.clear()
        place = self.folder / "work" / uuid4().hex
        place.mkdir(parents=True)
        return place

    def events(self, rows: int, keys: int) -> Path:
        table = self.folder / f"events-{rows}-{keys}"
        if not table.exists():
            write_events(self.spark, table, rows, keys)
        return table

    def throughput(self) -> list[Line]:
        self.warm_up()
        lines: list[Line] = []
        for name, keys in KEYS.items():
            table, batch = self.events(self.rows, keys), Measured()
            for epochs in EPOCHS:
                lines += self._cell(f"{name} keys, {epochs} epoch{'s' if epochs > 1 else ''}", table, epochs, batch)
        return lines + self._by_qos(self.events(self.rows, KEYS["1 k"]))

    def digests(self) -> list[Line]:
        self.warm_up()
        tables = {f"{name} keys, 1 epoch": self.events(self.rows, keys) for name, keys in KEYS.items()}
        pairs = digests.cost(self.spark, tables, self.work, self.rows, self.repeats)
        return [line for pair in pairs for line in told(*pair)]

    def clear(self) -> None:
        shutil.rmtree(self.folder / "work", ignore_errors=True)

    def warm_up(self) -> None:
        table = self.events(WARM_ROWS, KEYS["1 k"])
        for _ in range(2):
            contenders.floodmark(self.spark, table, self.work(), 10)
            contenders.batch(self.spark, table, self.work())
            contenders.stateful(self.stateful, table, self.work(), 2)

    def _cell(self, name: str, table: Path, epochs: int, batch: Measured) -> list[Line]:
        ours, theirs = Measured(), Measured()
        for _ in range(self.repeats):
            ours.take(lambda: contenders.floodmark(self.spark, table, self.work(), epochs)[0])
            if epochs == 1:
                batch.take(lambda: contenders.batch(self.spark, table, self.work()))
            theirs.take(lambda: contenders.stateful(self.stateful, table, self.work(), epochs))
        own_aim = 2.5 if "1 M" in name else 1.0
        return told(
            Line.rate_of(f"Floodmark, {name}", ours, self.rows),
            Line.rate_of(f"  plain Spark batch, {name.split(',')[0]}", batch, self.rows).against(
                ours, 0.75 if epochs == 1 else None
            ),
            Line.rate_of(f"  Spark's own stateful, {name}", theirs, self.rows).against(ours, own_aim),
        )

    def _by_qos(self, table: Path) -> list[Line]:
        found = {qos: Measured() for qos in (2, 1, 0)}
        for _ in range(self.repeats):
            for qos, times in found.items():
                times.take(lambda q=qos: contenders.floodmark(self.spark, table, self.work(), 10, q)[0])
        exact = found.pop(2)
        lines = [Line.rate_of("Floodmark, 1 k keys, 10 epochs, qos 2", exact, self.rows)]
        return lines + [
            Line.rate_of(f"  the same at qos {q}", times, self.rows).against(exact) for q, times in found.items()
        ]


def told(*lines: Line) -> list[Line]:
    """Print the lines as soon as they are known, because the whole run takes long. Returns them."""
    for line in lines:
        print("measured:", line.what.strip(), line.time, line.ratio, line.aim, line.note, file=sys.stderr, flush=True)
    return list(lines)


def main() -> None:
    given = _arguments()
    checkout = Path(__file__).parents[1]
    if "targets" in given.only:
        targets.prepare()
    bench = Bench(checkout / ".cache" / "bench", given.rows, given.repeats)
    lines: list[Line] = []
    if "throughput" in given.only:
        lines += bench.throughput()
    if "digests" in given.only:
        lines += bench.digests()
    if "windows" in given.only:
        every, tenth = (bench.events(rows, KEYS["1 k"]) for rows in (given.rows, given.rows // 10))
        lines += told(*windows.hopping(bench.spark, every, tenth, bench.work, given.repeats))
    if "corrections" in given.only:
        lines += told(*corrections.one_day(bench.spark, bench.work(), A_DAY, given.repeats))
        sessions = "one day of a year, in sessions"
        of_day = (OF_SESSIONS, given.repeats, corrections.SESSIONS, sessions)
        lines += told(*corrections.one_day(bench.spark, bench.work(), *of_day))
        lines += told(*corrections.some_keys(bench.spark, bench.work(), OF_KEYS, KEYS["1 M"], given.repeats))
    if "files" in given.only:
        lines += told(*files.new_files(bench.spark, bench.work(), given.repeats))
        lines += told(*files.look_at_many(bench.spark, bench.work(), given.repeats))
    if "targets" in given.only:
        lines += told(*targets.measured(bench.spark, bench.work(), SHIPPED, given.repeats))
    if "small" in given.only:
        lines += small.warm_epoch(bench.spark, bench.work()) + small.ledger_rows(bench.work())
    if "state" in given.only:
        lines += told(*state.touched_keys(bench.spark, bench.work(), given.repeats))
        lines += told(*state.small_epochs(bench.spark, bench.work()))
    if "nexmark" in given.only:
        questions = Questions(bench.spark, bench.stateful, bench.work)
        for pair in questions.answered(bench.folder, given.nexmark_events):
            lines += told(*pair)
    if "processes" in given.only:
        lines += told(*processes.keyed_state(bench.spark, bench.stateful, bench.work, given.keys))
    stop(bench.spark)
    if "cold" in given.only:  # with no other JVM beside it
        lines += small.idle_run(bench.work(), 5) + small.cold_start(bench.work(), given.repeats)
    bench.clear()
    show(lines, f"{given.rows:,} events, {given.repeats} repeats, {os.cpu_count()} cores, driver memory 3 g")


def stop(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="events for the throughput cells")
    parser.add_argument("--nexmark-events", type=int, default=1_000_000, help="events for Nexmark's questions")
    parser.add_argument("--keys", type=int, default=200_000, help="keys for the process class")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
