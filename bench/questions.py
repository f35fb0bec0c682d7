"""Answer Nexmark's questions by Floodmark and, where it supports them, by Spark's own structured streaming, in turn.

Both read the same tables in the same number of epochs, each question once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from bench.contenders import PARTITIONS, rows_in
from bench.nexmark import streaming
from bench.nexmark.generator import write_tables
from bench.nexmark.rules import NAMES, rule_of
from bench.table import Line, Measured, differing
from floodmark.spark.rule.run import RuleRun

EPOCHS = 2  # commits of the tables, of two files each
WARM_EVENTS = 20_000
WARM_UP = ("q4", "q12", "q17")  # a join, a window, a merge
SETTINGS = {
    "epoch": {"max_files": 2},
    "spark": {"driver_memory": "3g", "shuffle_partitions": PARTITIONS},
}


class Questions:
    """Both sides. `stateful`: the session of Spark's own streaming; `work`: gives a fresh folder."""

    def __init__(self, spark: SparkSession, stateful: SparkSession, work: Callable[[], Path]):
        self._spark, self._stateful, self._work = spark, stateful, work
        self._both: list[tuple[float, float]] = []

    def answered(self, folder: Path, events: int) -> Iterator[list[Line]]:
        """Lines of each question, then of all that both sides answer. `folder`: the events; written if missing."""
        for name in WARM_UP:
            self._question(name, self._tables(folder, WARM_EVENTS))
        self._both = []
        for name in NAMES:
            yield self._question(name, self._tables(folder, events))
        ours, theirs = (Measured([sum(seconds)]) for seconds in zip(*self._both, strict=True))
        yield [
            Line.of(f"Floodmark, the {len(self._both)} questions that both answer", ours),
            Line.of("  Spark's own streaming", theirs).against(ours),
        ]

    def _tables(self, folder: Path, events: int) -> Path:
        tables = folder / f"nexmark-{events}"
        if not tables.exists():
            write_tables(self._spark, tables, events, commits=EPOCHS)
        return tables

    def _question(self, name: str, tables: Path) -> list[Line]:
        ours, rows = self._ours(name, tables)
        line = Line.of(f"Floodmark, {name}", Measured([ours]))
        try:
            theirs, found = self._theirs(name, tables)
        except streaming.Refused as refused:
            return [line, Line("  Spark's own streaming", "refused", note=str(refused))]
        self._both.append((ours, theirs))
        other = Line.of("  Spark's own streaming", Measured([theirs]), note=differing(found, rows))
        return [line, other.against(Measured([ours]))]

    def _ours(self, name: str, tables: Path) -> tuple[float, int]:
        """Seconds, and rows of the sink."""
        work = self._work()
        rule = rule_of(name, work, tables, **SETTINGS)
        begun = time.monotonic()
        RuleRun(self._spark, rule, work / "home", "bench", lambda _: None).run()
        return time.monotonic() - begun, rows_in(self._spark, work / "out" / name)

    def _theirs(self, name: str, tables: Path) -> tuple[float, int]:
        work = self._work()
        rule = rule_of(name, work, tables, **SETTINGS)
        begun = time.monotonic()
        streaming.drain(self._stateful, rule, work / "checkpoint", SETTINGS["epoch"]["max_files"])
        return time.monotonic() - begun, rows_in(self._spark, work / "out" / name)
