"""Random lives of rules that correct: rows arrive and are rewritten, runs are killed, intervals are backfilled."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.corrected import ANSWERED, FORMS, KEYED, Rows, flow_of, in_batch, proven, sink
from support.crash import Crash, crash_at
from support.flow import START, event
from support.running import backfill, backfill_all, run

from floodmark.core.lifecycle.backfills import windows_of
from floodmark.core.protocol.crashpoints import CORRECTION_POINTS, EPOCH_POINTS
from floodmark.core.rules.checks.recomputing import Scope, scope_of
from floodmark.errors import Refused
from floodmark.ledger.ledger import LedgerReader

SECOND = 1_000_000  # microseconds
LATENESS = 30  # seconds, of the flow
POINTS = (*CORRECTION_POINTS, *(point for point in EPOCH_POINTS if not point.startswith("sink1")))
KEYS = "abc"


class Life:
    """One rule and its source. Rows arrive in time, so that each belongs to what batch gives; `late`: some do not."""

    def __init__(self, spark: SparkSession, place: Path, form: str, seed: int, late: bool):
        self.spark, self.rng, self.late = spark, Random(f"{form} {seed} {late}"), late
        self.flow = flow_of(place, form, sinks=1)
        self.flow.settings = {**self.flow.settings, **self.rng.choice([{}, {"epoch": {"max_files": 1}}])}
        self.least = -2 if form in ANSWERED else 0  # of n: with a negative one a window of rows begins
        self.newest = 0.0  # seconds: of all rows that were ever in the source
        self.killed = self.rewritten = self.filled = 0

    @property
    def table(self) -> str:
        return f"delta.`{self.flow.source}`"

    def live(self, steps: int) -> None:
        self.arrive()
        if self.rng.random() < 0.5:
            self.spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        for _ in range(steps):
            self.rng.choices([self.arrive, self.rewrite, self.run, self.kill, self.backfill], [4, 4, 3, 2, 1])[0]()
        if not self.rewritten:
            self.rewrite()
        self.run()

    def arrive(self) -> None:
        first = -200 if self.late and self.newest > 200 and self.rng.random() < 0.3 else 5 - LATENESS
        rows = [self._row(self.newest + self.rng.randrange(first, 60)) for _ in range(self.rng.randrange(1, 6))]
        self.flow.arrive(rows)

    def _row(self, seconds: float) -> dict[str, Any]:
        self.newest = max(self.newest, seconds)
        return event(
            max(0, seconds), self.rng.choice(KEYS), float(self.rng.randrange(8)), self.rng.randrange(self.least, 9)
        )

    def rewrite(self) -> None:
        self.rewritten += 1
        n, k = self.rng.randrange(9), self.rng.choice(KEYS)
        self.rng.choice([
            lambda: self.spark.sql(f"DELETE FROM {self.table} WHERE n = {n}"),
            lambda: self.spark.sql(f"UPDATE {self.table} SET v = v + 1, k = '{k}' WHERE n = {n}"),
            lambda: self._move(n),
            lambda: self._merge(n),
            lambda: self._overwrite(),
            lambda: self.spark.sql(f"RESTORE TABLE {self.table} TO VERSION AS OF {self._version()}"),
        ])()  # fmt: skip

    def _move(self, n: int) -> None:
        by = self.rng.choice([-70, 10, 65])
        moved = f"greatest(at + INTERVAL {by} SECONDS, TIMESTAMP'2001-01-01T00:00:00Z')"
        self.spark.sql(f"UPDATE {self.table} SET at = {moved} WHERE n = {n}")
        self.newest += max(0, by)

    def _merge(self, n: int) -> None:
        self._frame([self._row(self.newest + self.rng.randrange(40))]).createOrReplaceTempView("changes")
        self.spark.sql(f"MERGE INTO {self.table} t USING changes c ON t.n = {n} AND t.k = c.k "
                       "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *")  # fmt: skip

    def _overwrite(self) -> None:
        """A minute is replaced by other rows."""
        minute = self.rng.randrange(int(self.newest) // 60 + 1)
        rows = self._frame([event(minute * 60 + self.rng.randrange(60), self.rng.choice(KEYS), 3.0, 1)])
        low, high = (START + timedelta(minutes=one) for one in (minute, minute + 1))
        writer = rows.write.format("delta").mode("overwrite")
        writer.option("replaceWhere", f"at >= '{low.isoformat()}' AND at < '{high.isoformat()}'").save(self.flow.source)

    def _frame(self, rows: list[dict[str, Any]]) -> DataFrame:
        return self.spark.createDataFrame(rows, "at timestamp, k string, v double, n bigint").coalesce(1)

    def _version(self) -> int:
        newest = self.spark.sql(f"DESCRIBE HISTORY {self.table} LIMIT 1").head()
        assert newest is not None
        return max(0, int(newest["version"]) - self.rng.randrange(1, 4))

    def run(self) -> None:
        run(self.spark, self.flow)

    def kill(self) -> None:
        """Killed by chance where the run comes past the point at all."""
        with crash_at(self.rng.choice(POINTS), self.rng.randrange(1, 3)) as planned:
            try:
                self.run()
            except Crash:
                assert planned.fired
                self.killed += 1

    def backfill(self) -> None:
        """Some of the last windows that are final; of a stateless rule some of the last rows; else everything."""
        if self.scope is Scope.ALL:
            return self._backfill_all()
        if self.has_sessions:
            return self._backfill_sessions()
        bounds = self._final()
        if bounds is not None:
            low, high = bounds
            self._backfill(max(low, high - self.rng.randrange(1, 4) * 60 * SECOND), high)
            self.filled += 1
        return None

    def _backfill_sessions(self) -> None:
        """Some minutes of them; everything where some of these are not final."""
        low = round(START.timestamp() + self.rng.random() * self.newest) * SECOND
        try:
            self._backfill(low, low + self.rng.randrange(1, 4) * 60 * SECOND)
        except Refused as fault:
            if "not final" not in str(fault) and "has not run" not in str(fault):
                raise
            return self._backfill_all()
        self.filled += 1
        return None

    @property
    def has_sessions(self) -> bool:
        return self.flow.rule().query.lone_sessions is not None

    @property
    def scope(self) -> Scope:
        return scope_of(self.flow.rule())

    def _backfill_all(self) -> None:
        known = LedgerReader.load(self.flow.place.ledger)
        if known is not None and known.head is not None and known.head.epoch > 0:
            _ = backfill_all(self.spark, self.flow)
            self.filled += 1

    def _backfill(self, low: int, high: int) -> None:
        if low < high:
            backfill(self.spark, self.flow, low, high)

    def _final(self) -> tuple[int, int] | None:
        """The interval of all windows that are final, in microseconds; of a stateless rule of all rows."""
        if self.scope is not Scope.INTERVAL:
            return None
        known = LedgerReader.load(self.flow.place.ledger)
        if known is None or known.head is None or known.head.watermark is None or known.head.epoch == 0:
            return None
        first, windows = round(START.timestamp()) * SECOND, windows_of(self.flow.rule())
        if windows is None:
            return first, first + round(self.newest + 1) * SECOND
        return windows.around(first, first)[0], windows.live_from(known.head.watermark)

    def check(self) -> None:
        """What is final is what batch gives; late rows count once their interval has been computed again."""
        if self.late and (self.scope is Scope.ALL or self.has_sessions):
            self._backfill_all()
        bounds = None if self.has_sessions else self._final()
        if self.late and bounds is not None:
            self._backfill(*bounds)
        found, expected = sink(self.flow), in_batch(self.spark, self.flow)
        assert found == expected, f"lacking: {_less(expected, found)}, not in batch: {_less(found, expected)}"
        proven(self.flow)


def _less(one: Rows, other: Rows) -> list[str]:
    return sorted({*map(str, one)} - {*map(str, other)})


# Of `distinct` rows with one time, which one counts is not said: rows here may differ in their value alone.
LIVED = [form for form in (*FORMS, *KEYED, *ANSWERED) if form != "distinct rows"]
LIVES = [(form, seed) for form in LIVED for seed in range(1, 11)]
STEPS_IN_CI = 2
# Twenty in each commit. `test_corrections.py` has the first two, and hopping windows are kept as slices, too.
# `test_corrections_by_key.py` has the last, and totals live with a lateness, and without.
ELSEWHERE = ("rows", "slices", "hopping", "totals of expressions", "totals that delete")
IN_CI = {(form, 1) for form in LIVED if form not in ELSEWHERE}


@pytest.mark.parametrize(
    ("form", "seed"), [one if one in IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in LIVES]
)
def test_a_life_ends_with_what_batch_gives(spark: SparkSession, place: Path, form: str, seed: int) -> None:
    life = Life(spark, place, form, seed, late=seed % 3 == 0)
    life.live(steps=8 if seed > 1 else STEPS_IN_CI)
    life.check()
    life.newest += 300  # so that all windows become final
    life.arrive()
    life.run()
    life.check()
