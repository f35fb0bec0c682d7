"""Compare keyed state of a Python class with `transformWithStateInPandas`: count and highest value of many keys.

Ten epochs: the first touches every key, each of the others a random tenth of them. A key has one row in an epoch that
touches it, and gives one. Spark's class takes rows as they come (time mode `None`), Floodmark's in the order of event
time once the watermark has passed them. The lateness is zero, so that only the last row of an epoch waits for the next.
Spark's side is stopped once it has taken `GIVE_UP` times as long as ours; its full time is then unknown.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.contenders import PARTITIONS, rows_in
from bench.events import BEGIN_MS
from bench.highest import Highest
from bench.table import Line, Measured, differing
from floodmark.core.rules.rule import load_rule
from floodmark.spark.rule.epochs.reports import EpochReport
from floodmark.spark.rule.run import RuleRun

EPOCHS = 10
FILES = 2  # of a commit, and so of an epoch
WARM_KEYS = 10_000
GIVE_UP = 4


class HighestOfSpark(StatefulProcessor):
    """The same as `highest.Highest`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", Highest.state["seen"])

    def handleInputRows(  # noqa: N802 - Spark's name
        self, key: tuple[Any, ...], rows: Iterator[pd.DataFrame], timer_values: Any
    ) -> Iterator[pd.DataFrame]:
        n, most = self._seen.get() or (0, float("-inf"))
        for frame in rows:
            n, most = n + len(frame), max(most, float(frame["v"].max()))
        self._seen.update((n, most))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "most": [most]})

    def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True)
class Drained:
    """Seconds of a whole run and of each epoch that ended, and rows of its sink."""

    seconds: float
    epochs: list[float]
    rows: int
    unfinished: bool = False

    @property
    def whole(self) -> Measured:
        return Measured([self.seconds])

    @property
    def first(self) -> Measured:
        return Measured(self.epochs[:1] or [self.seconds])

    @property
    def later(self) -> Measured:
        return Measured(self.epochs[1:] or [self.seconds - sum(self.epochs)])

    def note(self, ours: int) -> str:
        if self.unfinished:
            return f"stopped, unfinished, after {len(self.epochs)} of {EPOCHS} epochs"
        return differing(self.rows, ours)


def keyed_state(spark: SparkSession, stateful: SparkSession, work: Callable[[], Path], keys: int) -> list[Line]:
    """Run each side once, after both are warmed up. `stateful`: the session of Spark's own streaming."""
    for many in (WARM_KEYS, keys):
        place = work()
        _write_values(spark, place / "values", many)
        ours = _ours(spark, place)
        theirs = _theirs(stateful, place, ours.seconds * GIVE_UP if many == keys else None)
    rows, note = rows_in(spark, place / "values"), theirs.note(ours.rows)
    spark_s = "  transformWithStateInPandas"
    return [
        Line.rate_of(f"Floodmark, a class over {keys:,} keys, {EPOCHS} epochs", ours.whole, rows),
        Line.rate_of(spark_s, theirs.whole, rows, note).against(ours.whole, 0.5),
        Line.rate_of("Floodmark, of it the epoch that touches all keys", ours.first, keys),
        Line.rate_of(spark_s, theirs.first, keys, "" if theirs.epochs else note).against(ours.first),
        Line.rate_of("Floodmark, of it an epoch that touches a tenth", ours.later, keys // 10),
        *([] if not theirs.epochs else [Line.rate_of(spark_s, theirs.later, keys // 10).against(ours.later)]),
    ]


def _write_values(spark: SparkSession, table: Path, keys: int) -> None:
    """Write a commit for each epoch, each a minute later than the one before; version 0 is empty."""
    for epoch in range(EPOCHS):
        ids = spark.range(0, keys, 1, FILES).where("true" if epoch == 0 else f"pmod(xxhash64(id, {epoch}), 10) = 0")
        values = ids.selectExpr(
            f"timestamp_micros({BEGIN_MS}000 + {epoch} * 60000000 + id * 60000000 DIV {keys}) AS ts",
            "id AS k",
            f"pmod(xxhash64(id, {epoch}, 'v'), 100000) / 100.0D AS v",
        )
        if epoch == 0:
            values.limit(0).write.format("delta").save(str(table))
        values.write.format("delta").mode("append").save(str(table))


def _ours(spark: SparkSession, place: Path) -> Drained:
    rule = load_rule(_rule_file(place), os.environ)
    done: list[EpochReport] = []
    begun = time.monotonic()
    RuleRun(spark, rule, place / "home", "bench", done.append).run()
    seconds = time.monotonic() - begun
    return Drained(seconds, [epoch.seconds for epoch in done], rows_in(spark, place / "ours"))


def _rule_file(place: Path) -> Path:
    values = {
        "delta": str(place / "values"),
        "event_time": "ts",
        "lateness": "0 seconds",
        "start": {"version": 1},
    }
    rule = {
        "rule": "highest",
        "streams": {"events": values},
        "process": "bench.highest:Highest",
        "key": ["k"],
        "epoch": {"max_files": FILES},
        "sinks": [{"delta": str(place / "ours")}],
        "spark": {"driver_memory": "3g", "shuffle_partitions": PARTITIONS},
    }
    path = place / "rules" / "highest.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(rule))
    return path


def _theirs(stateful: SparkSession, place: Path, limit: float | None) -> Drained:
    """`limit`: seconds after which it is stopped."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need no path to this folder
    begun = time.monotonic()
    reader = stateful.readStream.format("delta").option("startingVersion", "1").option("maxFilesPerTrigger", FILES)
    results = reader.load(str(place / "values")).groupBy("k").transformWithStateInPandas(
        HighestOfSpark(), Highest.output, "Append", "None"
    )  # fmt: skip
    query = (
        results.writeStream.format("delta")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(place / "checkpoint"))
        .start(str(place / "theirs"))
    )
    finished = query.awaitTermination(limit)
    seconds = time.monotonic() - begun
    query.stop()
    epochs = [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress if one["numInputRows"]]
    rows = rows_in(stateful, place / "theirs") if epochs else 0
    return Drained(seconds, epochs, rows, unfinished=finished is False)
