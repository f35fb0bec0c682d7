"""Power lost at any sync, with FLOODMARK_SYNC=1: what was not synced is left out, empty or cut off; nothing is wrong.

A model of a disk: what was synced stays, and of everything else a seed decides. Real disks may do no worse to files
that are written once.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from support.crash import Crash
from support.damaging import files_in
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.running import run

from floodmark.core.lifecycle import cleanup
from floodmark.errors import LedgerBroken
from floodmark.ledger.delta import syncing

pytestmark = pytest.mark.timeout(3600)
CHECKOUT = Path(__file__).parents[2]
EVENTS = [
    [event(0), event(10, "b"), event(70)],
    [event(100), event(130, "b"), event(250)],
    [event(260), event(300, "b"), event(390)],
]
LATE = event(5)
FINAL = START + timedelta(seconds=360)
COLUMNS = ("start", "k", "c", "total", "top")


def names_in(folder: Path) -> set[str]:
    return {place.name for place in folder.iterdir()}


class Disk:
    """Remembers what was synced, and loses power at the `last` sync. `before`: all files as they lay there at first."""

    def __init__(self, root: Path, last: int | None):
        self.root, self.last, self.syncs = root, last, 0
        self.before = {file: file.read_bytes() for file in files_in(root)}
        self.folders = {folder: names_in(folder) for folder in (root, *root.rglob("*")) if folder.is_dir()}
        self.files: dict[Path, bytes] = {}

    def sync(self, place: Path) -> None:
        self.syncs += 1
        if self.last is not None and self.syncs >= self.last:
            raise Crash(f"power lost at sync {self.syncs}")
        if place.is_dir():
            self.folders[place] = names_in(place)
        elif place.exists():
            self.files[place] = place.read_bytes()

    def lose_power(self, seed: int) -> None:
        chance = random.Random(seed)
        for file in files_in(self.root):
            if not self._stays(file):
                how = chance.choice(("stays", "gone", "empty", "half"))
                data = file.read_bytes()
                if how == "gone":
                    file.unlink()
                elif how != "stays":
                    file.write_bytes(b"" if how == "empty" else data[: len(data) // 2])

    def _stays(self, file: Path) -> bool:
        if self.before.get(file) == file.read_bytes():
            return True
        parents = [file, *file.parents][: len(file.relative_to(self.root).parts)]
        named = all(place.name in self.folders.get(place.parent, ()) for place in parents)
        return named and self.files.get(file) == file.read_bytes()


class Powered:
    """A rule with one epoch done and two that wait, the first of them with a late row; put back for each loss."""

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self.flow = Flow(CHECKOUT / ".cache" / "tests" / uuid4().hex, settings={"epoch": {"max_files": 1}})
        self.flow.stream["start"] = {"version": 0}
        self.copy = self.flow.root.with_suffix(".kept")
        self.flow.arrive(EVENTS[0])
        run(spark, self.flow)
        self.flow.arrive([*EVENTS[1], LATE])
        self.flow.arrive(EVENTS[2])
        shutil.copytree(self.flow.root, self.copy)

    def put_back(self) -> None:
        shutil.rmtree(self.flow.root)
        shutil.copytree(self.copy, self.flow.root)
        self.forget()

    def forget(self) -> None:
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def play(self, last: int | None, seed: int) -> Disk:
        """A run until its `last` sync, the loss of power, and the next run."""
        self.put_back()
        disk = Disk(self.flow.root, last)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(syncing, "_sync", disk.sync)
            try:
                run(self.spark, self.flow)
            except Crash:
                assert last is not None
        disk.lose_power(seed)
        self.forget()
        self._run_again()
        return disk

    def _run_again(self) -> None:
        """A ledger whose newest row was not written whole is to be mended as its error says."""
        try:
            run(self.spark, self.flow)
        except LedgerBroken as fault:
            said = str(fault)
            assert "move " in said and " away, and the ledger ends one row earlier" in said, said
            entry = Path(said.split("move ", 1)[1].split(" away", 1)[0])
            entry.rename(self.flow.root / entry.name)
            run(self.spark, self.flow)

    def check(self) -> None:
        for number in (0, 1):
            found = ordered(tuple(row[name] for name in COLUMNS) for row in rows_of(self.flow.sink(number)))
            assert found == tumbling([one for portion in EVENTS for one in portion], FINAL)
        assert len(rows_of(self.flow.place.late)) == 1
        assert self.flow.ledger().head.epoch == 3  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def powered(spark: SparkSession) -> Iterator[Powered]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOODMARK_SYNC", "1")
        patch.setattr(cleanup, "MAX_FILES", 2)
        found = Powered(spark)
        yield found
    for root in (found.flow.root, found.copy):
        shutil.rmtree(root)


def test_after_a_run_everything_that_counts_is_synced(powered: Powered) -> None:
    disk = powered.play(None, 1)
    powered.check()
    assert disk.syncs > 50


@pytest.mark.parametrize("last", [12, *(pytest.param(last, marks=pytest.mark.prove) for last in (3, 25, 40))])
def test_power_lost_in_the_middle(powered: Powered, last: int) -> None:
    powered.play(last, last)
    powered.check()


@pytest.mark.prove
def test_power_lost_at_every_sync(powered: Powered, capsys: pytest.CaptureFixture[str]) -> None:
    count = powered.play(None, 0).syncs
    lost = range(int(os.environ.get("FLOODMARK_FROM", "1")), count + 1, int(os.environ.get("FLOODMARK_EVERY", "1")))
    for last in lost:
        powered.play(last, 1000 + last)
        powered.check()
    with capsys.disabled():
        print(f"\npower lost at {len(lost)} of {count} syncs")


@pytest.mark.prove
def test_without_the_setting_nothing_is_synced(powered: Powered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOODMARK_SYNC")
    powered.put_back()
    disk = Disk(powered.flow.root, None)
    monkeypatch.setattr(syncing, "_sync", disk.sync)
    run(powered.spark, powered.flow)
    assert disk.syncs == 0
