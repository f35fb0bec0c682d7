"""Random programs of input, runs, crashes, resets, edits and second drivers, on real tables by real Spark.

What must come of them is foretold by a model that shares no code with the engine and looks at nothing that it wrote.
`FLOODMARK_SEED` plays the same programs again.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyspark.sql import SparkSession
from support import running
from support.compared import CACHE, same
from support.crash import Crash, crash_at
from support.flow import Flow, event, rows_of
from support.model import Event, due, tell
from support.seeds import WITHOUT_SHRINKING, play

from floodmark.core.protocol.records.rows import Intent
from floodmark.errors import Busy, Fenced, RuleChanged
from floodmark.ledger.ledger import Ledger
from floodmark.spark.session import lock

FILES = st.lists(
    st.builds(
        event,
        st.none() | st.sampled_from([0, 59, 60, 61, 90, 120, 180]) | st.integers(0, 400),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([1.0, 2.5, None]),
        st.none() | st.integers(0, 9),
    ),
    min_size=1,
    max_size=5,
)
BEFORE_INTENT = ("offsets.before", "offsets.after", "intent.before")
OPEN = ("intent.after", "state.before", "state.after", "late.after", "dead.after", "sink0.before", "sink0.after",
        "commit.before")  # fmt: skip
COMMITTED = ("commit.after", "sparkcommit.before")
RESETTING = ("reset.seal.after", "reset.tables.before", "reset.tables.after", "reset.empty.before",
             "reset.empty.after", "reset.commit.before")  # fmt: skip


@dataclass
class Foretold:
    """What a rule with `limit` files an epoch has done: epochs as numbers of files, and an open one, or None."""

    limit: int = 2
    files: list[list[Event]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    open: int | None = None
    sinks: int = 1  # of the text that holds
    since: list[datetime | None] = field(default_factory=lambda: [None])  # what each sink has been given from there on

    @property
    def done(self) -> int:
        return sum(self.epochs)

    @property
    def watermark(self) -> datetime | None:
        told = self.told()
        return told[-1].watermark if told else None

    def told(self) -> list[Any]:
        ends = [0]
        for size in self.epochs:
            ends.append(ends[-1] + size)
        parts = [[one for file in self.files[a:b] for one in file] for a, b in itertools.pairwise(ends)]
        return tell((part, False) for part in parts)

    def plan(self) -> int | None:
        """How many files the next epoch takes; None: there is nothing to do."""
        waiting = len(self.files) - self.done
        return min(self.limit, waiting) if waiting else None

    def finish(self) -> None:
        if self.open is not None:
            self.epochs.append(self.open)
            self.open = None

    def welcome_sinks(self) -> None:
        """Sinks that were added get what is planned from here on."""
        self.since += [self.watermark] * (self.sinks - len(self.since))

    def run(self) -> None:
        self.finish()
        self.welcome_sinks()
        while (size := self.plan()) is not None:
            self.epochs.append(size)

    def crash(self, point: str) -> bool:
        """A run that stops where it first comes to `point`; whether it does."""
        if self.open is None:  # else its own text finishes it, before sinks are looked at
            self.welcome_sinks()
        size = self.open if self.open is not None else self.plan()
        if size is None:
            return False
        if point in OPEN:
            self.open = size
        elif point in COMMITTED:
            self.open = size
            self.finish()
        return True

    def begin_anew(self) -> None:
        self.epochs, self.open, self.since = [], None, [None] * self.sinks


class Programs(RuleBasedStateMachine):
    spark: SparkSession

    @initialize(files=st.lists(FILES, min_size=1, max_size=3))
    def begin(self, files: list[Any]) -> None:
        self.root = CACHE / uuid4().hex
        self.root.mkdir(parents=True)
        self.flow = Flow(self.root, sinks=1, stream={"start": {"version": 1}}, settings={"epoch": {"max_files": 2}})
        self.flow.arrive([])  # so that no file is of a first snapshot, in which the watermark would stand still
        self.model = Foretold()
        for events in files:
            self.append(events)

    @rule(events=FILES)
    def append(self, events: list[Any]) -> None:
        self.flow.arrive(events)
        self.model.files.append(events)

    @rule()
    def run(self) -> None:
        running.run(self.spark, self.flow)
        self.model.run()
        self._check()

    @rule(point=st.sampled_from(BEFORE_INTENT + OPEN + COMMITTED))
    def crash(self, point: str) -> None:
        expected = self.model.crash(point)
        fired = running.crash(self.spark, self.flow, point)
        note(f"{point}: {fired}")
        assert fired or not expected, f"the crash at {point} did not fire"

    @precondition(lambda self: self.model.epochs)
    @rule()
    def reset(self) -> None:
        running.reset(self.spark, self.flow)
        self.model.begin_anew()

    @precondition(lambda self: self.model.epochs)
    @rule(point=st.sampled_from(RESETTING))
    def crash_in_a_reset(self, point: str) -> None:
        with crash_at(point), pytest.raises(Crash):
            running.reset(self.spark, self.flow)
        self.model.begin_anew()

    @rule(files=st.integers(1, 3))
    def change_the_epoch_size(self, files: int) -> None:
        self.flow.settings["epoch"] = {"max_files": files}
        self.model.limit = files

    @rule(schedule=st.sampled_from([None, "@hourly", "@daily"]))
    def change_the_schedule(self, schedule: str | None) -> None:
        self.flow.settings["schedule"] = schedule

    @precondition(lambda self: self.model.sinks < 3)
    @rule()
    def add_a_sink(self) -> None:
        self.flow.sinks += 1
        self.model.sinks += 1

    @precondition(lambda self: self.model.epochs)
    @rule()
    def edit_what_no_state_fits(self) -> None:
        """It finishes what is open with the text of before, is refused, and changes nothing more."""
        self.flow.stream["lateness"] = "40 seconds"
        with pytest.raises(RuleChanged, match="changed streams"):
            running.run(self.spark, self.flow)
        self.flow.stream.pop("lateness")
        self.model.finish()

    @precondition(lambda self: self.model.epochs)
    @rule()
    def second_driver(self) -> None:
        """One that comes while another holds the rule is refused; one that held the ledger before is fenced."""
        before = len(self.flow.ledger().rows)
        with lock.held(self.spark, self.flow.place.lock, "another"), pytest.raises(Busy):
            running.run(self.spark, self.flow)
        assert len(self.flow.ledger().rows) == before
        stopped = Ledger.open(self.flow.place.ledger, "stopped")
        self.append([event(200, "c")])
        self.run()
        intents = [row.body for row in stopped.rows if row.kind == "intent"]
        if stopped.head is not None and stopped.head.seal is None and intents:
            with pytest.raises(Fenced):
                stopped.intend(stopped.head.open or Intent.model_validate_json(intents[-1]))
            self._check()

    def teardown(self) -> None:
        if hasattr(self, "flow"):
            try:
                self.run()
            finally:
                shutil.rmtree(self.root, ignore_errors=True)

    def _check(self) -> None:
        """Nothing is open: every table holds what was foretold, and no more."""
        told = self.model.told()
        parts = {name: [one for epoch in told for one in getattr(epoch, name)] for name in ("folded", "late", "dead")}
        counts = self.flow.counts()
        assert {name: counts.get(name, 0) for name in parts} == {name: len(rows) for name, rows in parts.items()}
        assert counts.get("read", 0) == len([one for file in self.model.files for one in file])
        for name in ("late", "dead"):
            found = rows_of(getattr(self.flow.place, name))
            assert Counter(map(_plain, found)) == Counter(map(_plain, parts[name])), name
        for number, since in enumerate(self.model.since):
            found = [tuple(row.values()) for row in rows_of(self.flow.sink(number))]
            same(found, due(parts["folded"], since, self.model.watermark))


def _plain(row: Event) -> str:
    at = row["at"]
    return repr((at and at.timestamp(), row["k"], row["v"], row["n"]))


def test_random_programs_by_spark(spark: SparkSession) -> None:
    Programs.spark = spark
    play(Programs, examples=2, steps=10, phases=WITHOUT_SHRINKING)


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_random_programs_by_spark_many_times(spark: SparkSession) -> None:
    Programs.spark = spark
    play(Programs, examples=40, steps=15)
