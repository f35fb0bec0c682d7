"""Random programs of crashes, twins and resets over the real recovery table, with ledger and tables in memory.

Drivers stop between any two steps, go on later or never, and see what others did meanwhile. What the tables hold is
compared with a model that shares no code with the engine. `FLOODMARK_SEED` plays the same programs again.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.flow import event
from support.model import Told, tell
from support.pretend import Driver, Steps, World, plain
from support.seeds import play

from floodmark.errors import Busy, Fenced, LedgerBroken, Refused, RuleChanged, Sealed

SECONDS = st.integers(0, 400) | st.sampled_from([0, 59, 60, 61, 90, 120, 180])
FILES = st.lists(
    st.builds(event, SECONDS, st.sampled_from("ab"), st.just(1.0), st.integers(0, 9)), min_size=1, max_size=4
)
STEPS = st.integers(1, 25)


@dataclass
class Live:
    """A driver that has begun and neither ended nor died."""

    steps: Steps
    name: str


class Programs(RuleBasedStateMachine):
    """`locked`: one driver at a time, as on a local disk; else as many as there are, fenced by ledger and tables."""

    steps_taken = 0

    @initialize(qos=st.sampled_from([2, 2, 1, 0]), locked=st.sampled_from([False, False, True]), files=st.lists(FILES))
    def begin(self, qos: int, locked: bool, files: list[Any]) -> None:
        self.world, self.locked = World(qos, files), locked
        self.sinks, self.files_an_epoch = 1, 2
        self.live: list[Live] = []
        self.count = 0

    # ------------------------------------------------------------------------------------ what may happen

    @rule(events=FILES)
    def append(self, events: list[Any]) -> None:
        self.world.files.append(events)

    @rule()
    def start_run(self) -> None:
        driver = self._driver()
        self._start(driver.run(), driver.name)

    @rule()
    def start_abandon(self) -> None:
        driver = self._driver()
        self._start(driver.abandon(), driver.name)

    @rule()
    def start_reset(self) -> None:
        driver = self._driver()
        self._start(driver.reset(), driver.name)

    @precondition(lambda self: not (self.locked and self.live))
    @rule()
    def reset(self) -> None:
        """From end to end, while others may stand still anywhere in an epoch of the old generation."""
        self._end_the_changing()
        self._settle(self._driver().reset())

    @precondition(lambda self: not self.locked)
    @rule(events=FILES, steps=STEPS, how=st.sampled_from(["run", "reset", "abandon"]))
    def overtake(self, events: list[Any], steps: int, how: str) -> None:
        """A run stops somewhere, another goes past it, resets the rule or takes its epoch back, and it goes on."""
        self._end_the_changing()
        self.world.files.append(events)
        driver = self._driver()
        stopped = Live(driver.run(), driver.name)
        self.live.append(stopped)
        self._advance(stopped, steps)
        if stopped.name in self.world.changing:
            return
        other = self._driver()
        self._settle({"run": other.run, "reset": other.reset, "abandon": other.abandon}[how]())
        if stopped in self.live:
            self._advance(stopped, 1_000)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 9), steps=STEPS)
    def go_on(self, which: int, steps: int) -> None:
        self._advance(self.live[which % len(self.live)], steps)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 9))
    def kill(self, which: int) -> None:
        self.live.pop(which % len(self.live)).steps.close()

    @rule(files=st.integers(1, 3))
    def change_the_epoch_size(self, files: int) -> None:
        self.files_an_epoch = files

    @precondition(lambda self: self.sinks == 1)
    @rule()
    def add_a_sink(self) -> None:
        self.sinks = 2

    @precondition(lambda self: not (self.locked and self.live))
    @rule()
    def edit_what_no_state_fits(self) -> None:
        """Refused by a run, once nothing is open; and nothing has changed."""
        self._end_the_changing()
        edited = self.world.rule(self.sinks, self.files_an_epoch, lateness="40 seconds")
        self._settle(self._driver().run())
        before = len(self.world.store)
        with pytest.raises(RuleChanged, match="changed streams"):
            list(Driver(self.world, edited, "edited").run())
        assert len(self.world.store) == before

    @rule()
    def settle(self) -> None:
        """A run to the end; drivers that stand still may go on after it, and change nothing."""
        if self.locked:
            self._kill_all()
        self._end_the_changing()
        self._settle(self._driver().run())
        self._check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self._kill_all()
            self._settle(self._driver().run())
            self._check()

    # ------------------------------------------------------------------------------------------- how

    def _driver(self) -> Driver:
        self.count += 1
        rule = self.world.rule(self.sinks, self.files_an_epoch)
        return Driver(self.world, rule, f"run {self.count}")

    def _start(self, steps: Steps, name: str) -> None:
        if self.locked and self.live:
            return  # the lock refuses it before it looks at anything
        self.live.append(Live(steps, name))

    def _advance(self, live: Live, steps: int) -> None:
        try:
            for _ in range(steps):
                next(live.steps)
                Programs.steps_taken += 1
        except (StopIteration, Busy):
            self.live.remove(live)
        except (Fenced, Sealed, LedgerBroken, RuleChanged, Refused):
            assert not self.locked, "alone, nothing stands in a driver's way"
            self.live.remove(live)

    def _settle(self, steps: Steps) -> None:
        try:
            Programs.steps_taken += len(list(steps))
        except Refused:  # a reset that knew one sink left the other as it was; one that knows both is the way out
            self._settle(self._driver().reset())
            self._settle(self._driver().run())

    def _kill_all(self) -> None:
        while self.live:
            self.live.pop().steps.close()

    def _end_the_changing(self) -> None:
        """Who makes a generation holds the rule's lock; it dies, or nobody could go on."""
        for live in list(self.live):
            if live.name in self.world.changing:
                live.steps.close()
                self.live.remove(live)

    # ------------------------------------------------------------------------------------ what must hold

    def _check(self) -> None:
        rows = [row for row in self.world.store if row.generation == self.world.store[-1].generation]
        ended = [row for row in rows if row.kind in ("commit", "lost", "abandoned")]
        intents = {row.epoch: json.loads(row.body) for row in rows if row.kind == "intent"}
        assert [row.epoch for row in ended] == list(range(len(ended))), "epochs without gaps, each ended once"
        ends = [int(json.loads(row.body)["entry"].splitlines()[-1]) for row in ended]
        assert ends == sorted(ends)
        assert ends[0] == 0
        assert ends[-1] == len(self.world.files), "all of the input is read"
        assert self.world.qos == 0 or not any(row.kind == "lost" for row in ended)
        lost = [row.kind == "lost" for row in ended[1:]]
        parts = [[one for file in self.world.files[a:b] for one in file] for a, b in itertools.pairwise(ends)]
        told = tell(zip(parts, lost, strict=True))
        for number, (one, gone) in enumerate(zip(told, lost, strict=True), 1):
            if ended[number].kind == "abandoned":  # its part of the input is empty: the next epoch has read it
                assert not [one for i in (0, 1) for one in self.world.table(f"sink{i}").commits
                            if one.version >> 20 == number and f"-{ended[0].token}/" in one.app]  # fmt: skip
                continue
            self._check_epoch(number, one, gone, len(json.loads(intents[number]["rule"])["sinks"]))
            counts = json.loads(ended[number].body)["counts"]["events"]
            assert (counts["folded"], counts["late"]) == (len(one.folded), len(one.late))

    def _check_epoch(self, epoch: int, told: Told, lost: bool, sinks: int) -> None:
        generation = self.world.store[-1].generation
        state = f"state{generation}"
        expected = {state: told.folded, "late": told.late, "sink0": told.due, "sink1": told.due if sinks > 1 else []}
        for name, rows in expected.items():
            commits = [one for one in self.world.table(name).commits if one.version >> 20 == epoch]
            if lost:
                assert len(commits) <= 1, f"{name}: a lost epoch was tried again"
            elif self.world.qos == 1 and name.startswith("sink"):
                assert len(commits) >= bool(rows), f"{name}: epoch {epoch} is missing"
            else:
                assert len(commits) == bool(rows), f"{name}: epoch {epoch} has {len(commits)} commits"
            for one in commits:
                assert Counter(map(repr, one.rows)) == Counter(repr(plain(row)) for row in rows), f"{name}: {epoch}"


def test_random_programs() -> None:
    Programs.steps_taken = 0
    play(Programs, examples=40, steps=40)
    print(f"{Programs.steps_taken} steps")
    assert Programs.steps_taken > 1_000


@pytest.mark.parametrize("qos", [0, 2])
def test_a_reset_seals_a_sink_that_only_an_intent_tells_of(qos: int) -> None:
    """At qos 0 the epoch is lost before the reset comes, at qos 2 it is open."""
    world = World(qos, [[event(0, "a", 1.0, 0), event(100, "a", 1.0, 0)]])
    list(Driver(world, world.rule(1, 2), "first").run())
    world.files.append([event(300, "a", 1.0, 0)])
    stopped = Driver(world, world.rule(2, 2), "stopped").run()
    assert list(itertools.takewhile(lambda step: step != "sink1.before", stopped))[-1] == "sink0.written"
    if qos == 0:
        assert "LOSE_EPOCH" in list(Driver(world, world.rule(1, 2), "loses").run())
    list(Driver(world, world.rule(2, 2), "other").reset())
    with pytest.raises((Sealed, Fenced)):
        list(stopped)
    assert {one.intent for one in world.table("sink1").commits} == set()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("until", ["sink1.before", "sink1.begun", "sink1.written", "commit.before"])
def test_a_driver_that_wakes_after_its_epoch_was_taken_back_writes_nothing(qos: int, until: str) -> None:
    world = World(qos, [[event(0, "a", 1.0, 0), event(100, "a", 1.0, 0)]])
    list(Driver(world, world.rule(2, 2), "first").run())
    world.files.append([event(300, "a", 1.0, 0)])
    stopped = Driver(world, world.rule(2, 2), "stopped").run()
    assert list(itertools.takewhile(lambda step: step != until, stopped))[-1]
    epochs = [one.version >> 20 for one in world.table("sink0").commits]
    assert epochs == [1, 2]
    list(Driver(world, world.rule(2, 2), "other").abandon())
    with pytest.raises((Fenced, LedgerBroken)):
        list(stopped)
    for sink in ("sink0", "sink1"):
        assert [one.version >> 20 for one in world.table(sink).commits] == [1], sink
    list(Driver(world, world.rule(2, 2), "last").run())
    for sink in ("sink0", "sink1"):
        assert [one.version >> 20 for one in world.table(sink).commits] == [1, 3], sink


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_random_programs_many_times() -> None:
    play(Programs, examples=2_000, steps=60)
