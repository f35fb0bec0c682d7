"""Damage to one file of a rule's tables, one at a time: the next run repairs it, refuses it, or it was harmless.

Never a wrong result: a run that ends well leaves sinks, late and dead rows as the oracle has them.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.damaging import WAYS, damage, files_in
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.running import crash, reset, run

from floodmark.core.lifecycle import cleanup
from floodmark.errors import FloodmarkError, LedgerBroken, TableBroken
from floodmark.ledger.ledger import LedgerReader

pytestmark = pytest.mark.timeout(3600)
CHECKOUT = Path(__file__).parents[2]
HOME, OUT = "home/counted", "lake/counted_out"
PORTIONS = [
    [event(s, k) for s, k in ((0, "a"), (10, "b"), (50, "a"), (70, "a"), (100, "b"), (130, "a"))],
    [event(105), event(110, "b", 2.5, 4), event(200, "a", None, 9), event(250, None, 3.0, None)],
    [event(260), event(300, "b"), event(330)],
    [event(350), event(360, "b"), event(390, "a", 2.0, 3)],
    [event(400), event(410, "b"), event(500)],
]
LATE, DEAD = [event(20)], [event(None), {**event(0), "at": START.replace(year=2999)}]
FINAL = START + timedelta(seconds=470)
COLUMNS = ("start", "k", "c", "total", "top")


@dataclass(frozen=True)
class Damage:
    """`file`: below the flow's root."""

    file: str
    how: str

    def __str__(self) -> str:
        return f"{self.how} {self.file}"


def bytes_of(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


class Kept:
    """A rule's tables after three epochs and an open fourth, with more input waiting; put back for each damage.

    After the second epoch Delta has made a checkpoint of each table that Spark writes, but for the dead rows.
    """

    def __init__(self, spark: SparkSession):
        self.spark = spark
        self.flow = Flow(CHECKOUT / ".cache" / "tests" / uuid4().hex, settings={"epoch": {"max_files": 1}})
        self.flow.stream["start"] = {"version": 0}
        self.flow.settings["sinks"] = [
            {"delta": self.flow.sink(0)},
            {"delta": self.flow.sink(1), "key": ["k"], "newest": "start"},
        ]
        self.copy = self.flow.root.with_suffix(".kept")
        portions = [PORTIONS[0], PORTIONS[1] + LATE + DEAD, *PORTIONS[2:]]
        for portion in portions[:2]:
            self.flow.arrive(portion)
        run(spark, self.flow)
        self._make_checkpoints()
        for portion in portions[2:4]:
            self.flow.arrive(portion)
        assert crash(spark, self.flow, "commit.before", 2)
        self.flow.arrive(portions[4])
        shutil.copytree(self.flow.root, self.copy)

    def _make_checkpoints(self) -> None:
        jvm: Any = self.spark._jvm
        state, place = self.flow.place.path / "state/g1/events", self.flow.place
        for address in (state, place.late, self.flow.sink(0), self.flow.sink(1)):
            log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, str(address))
            log.checkpoint()

    def put_back(self) -> None:
        shutil.rmtree(self.flow.root)
        shutil.copytree(self.copy, self.flow.root)
        jvm: Any = self.spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def remove(self) -> None:
        shutil.rmtree(self.flow.root)
        shutil.rmtree(self.copy)

    def damages(self) -> list[Damage]:
        """Every file of the rule's home, and of the sinks' logs, in every way."""
        folders = (HOME, *(f"{OUT}{number}/_delta_log" for number in (0, 1)))
        files = [file for folder in folders for file in files_in(self.copy / folder)]
        return [Damage(str(file.relative_to(self.copy)), how) for file in files if file.stat().st_size for how in WAYS]

    def play(self, planned: Damage) -> str:
        """What the next run makes of it."""
        self.put_back()
        damage(self.flow.root / planned.file, planned.how)
        before = {file: file.read_bytes() for file in files_in(self.flow.root)}
        try:
            report = run(self.spark, self.flow)
        except FloodmarkError as fault:
            return self._refused(planned, fault)
        assert report.head is not None and report.head.epoch == 5
        self.check(harmed=self.flow.root / planned.file)
        again = [epoch for epoch in report.epochs if epoch.epoch == 4 and epoch.attempt > 2]
        mended = again or len(report.epochs) > 2 or self._is_mended(planned, before)
        return "repaired" if mended else "harmless"

    def _is_mended(self, planned: Damage, before: dict[Path, bytes]) -> bool:
        """Whether a log entry was put aside, or the file, one of a log, is gone or is another than `before` the run."""
        file = self.flow.root / planned.file
        aside = any(".torn-" in one.name for one in files_in(self.flow.root))
        return aside or (file.parent.name == "_delta_log" and before.get(file) != bytes_of(file))

    def _refused(self, planned: Damage, fault: FloodmarkError) -> str:
        said = str(fault)
        assert fault.exit_code == 3, f"{planned}: {type(fault).__name__}: {said}"
        assert "copy" in said or "put " in said.lower() or "floodmark reset" in said, f"{planned}: {said}"
        place = Path(planned.file)
        names = (place.name, place.name.removeprefix("."), *place.parts[2:4], str(place.parent.parent.name))
        assert any(name in said for name in names), f"{planned}: {said}"
        return "refused"

    def check(self, harmed: Path | None = None) -> None:
        """Sinks, late and dead rows are the oracle's; but for `harmed`, for nobody has read such a file yet."""
        expected = tumbling([one for portion in PORTIONS for one in portion], FINAL)
        newest = {row[1]: row for row in sorted(expected, key=lambda row: row[0])}
        assert self.sink(0) == expected
        assert self.sink(1) == ordered(newest.values())
        for place, rows in ((self.flow.place.late, LATE), (self.flow.place.dead, DEAD)):
            if harmed is None or harmed.parent != Path(place):
                assert len(rows_of(place)) == len(rows)

    def sink(self, number: int) -> list[tuple[Any, ...]]:
        return ordered(tuple(row[name] for name in COLUMNS) for row in rows_of(self.flow.sink(number)))


@pytest.fixture(scope="module")
def kept(spark: SparkSession) -> Iterator[Kept]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleanup, "MAX_FILES", 2)
        found = Kept(spark)
        yield found
    found.remove()


def newest(kept: Kept, table: str, what: str = "json") -> str:
    """The newest log entry of a table, or what belongs to it."""
    log = kept.copy / table / "_delta_log"
    return str(max(log.glob(f"*.{what}")).relative_to(kept.copy))


def newest_checksum(kept: Kept, table: str) -> str:
    """Delta's own, of the newest version: without it the next commit reads the whole state, from the checkpoint on."""
    return newest(kept, table, "crc")


def named(kept: Kept, table: str) -> str:
    """The newest log entry that the ledger names."""
    found = LedgerReader.load(str(kept.copy / HOME / "ledger"))
    assert found is not None and found.head is not None
    version = found.head.commits[table.removeprefix(f"{HOME}/").replace("g1/", "")]
    return f"{table}/_delta_log/{version:020}.json"


def data(kept: Kept, table: str) -> str:
    """A live file of a table."""
    [name, *_] = DeltaTable(str(kept.copy / table)).get_add_actions()["path"].to_pylist()
    return f"{table}/{name}"


def of_checkpoint(kept: Kept, place: str) -> str:
    """Of the directory that the crash has left."""
    return str(files_in(kept.copy / place)[-1].relative_to(kept.copy))


@pytest.mark.prove
def test_unharmed_the_run_ends_well(kept: Kept) -> None:
    kept.put_back()
    assert run(kept.spark, kept.flow).head.epoch == 5  # type: ignore[union-attr]
    kept.check()


@pytest.mark.parametrize(
    ("which", "table", "how", "expected"),
    [
        (newest, f"{HOME}/ledger", "emptied", "refused"),
        (named, f"{HOME}/state/g1/events", "flipped", "refused"),
        pytest.param(newest, f"{HOME}/state/g1/events", "flipped", "repaired", marks=pytest.mark.prove),
        (data, f"{HOME}/state/g1/events", "flipped", "refused"),
        (data, f"{HOME}/late", "deleted", "refused"),
        (named, f"{HOME}/dead", "truncated", "refused"),
        pytest.param(newest, f"{OUT}0", "truncated", "repaired", marks=pytest.mark.prove),
        (newest, f"{OUT}0", "deleted", "repaired"),
        pytest.param(newest_checksum, f"{OUT}0", "deleted", "harmless", marks=pytest.mark.prove),
        pytest.param(of_checkpoint, f"{HOME}/checkpoint", "emptied", "harmless", marks=pytest.mark.prove),
    ],
)
def test_damage(kept: Kept, which: Callable[[Kept, str], str], table: str, how: str, expected: str) -> None:
    assert kept.play(Damage(which(kept, table), how)) == expected


@pytest.mark.prove
def test_a_checksum_of_a_lost_commit_does_not_speak_for_the_next(kept: Kept) -> None:
    """The log entry of an upsert is lost, Delta's own checksum of it stays; the epoch writes that version again."""
    kept.put_back()
    entry = kept.flow.root / newest(kept, f"{OUT}1")
    stale = entry.with_suffix(".crc").read_bytes()
    entry.unlink()
    run(kept.spark, kept.flow)
    assert entry.with_suffix(".crc").read_bytes() != stale
    kept.check()


@pytest.mark.prove
def test_broken_state_is_left_behind_by_a_reset(kept: Kept) -> None:
    kept.put_back()
    damage(kept.flow.root / named(kept, f"{HOME}/state/g1/events"), "truncated")
    with pytest.raises(TableBroken, match="floodmark reset"):
        run(kept.spark, kept.flow)
    reset(kept.spark, kept.flow)
    run(kept.spark, kept.flow)
    kept.check()


def test_a_ledger_that_is_gone_is_not_begun_anew(kept: Kept) -> None:
    kept.put_back()
    for folder in (kept.flow.place.ledger, kept.flow.sink(0), kept.flow.sink(1)):
        shutil.rmtree(folder)
    with pytest.raises(LedgerBroken, match="is gone, but the rule's other tables exist"):
        run(kept.spark, kept.flow)


def test_state_that_was_rewritten_for_an_epoch_the_ledger_lost_is_refused(kept: Kept) -> None:
    """The open epoch's intent and the commit before it are gone: that commit's epoch folded what is rewritten now."""
    kept.put_back()
    for _ in range(2):
        max((kept.flow.root / HOME / "ledger" / "_delta_log").glob("*.json")).unlink()
    with pytest.raises(LedgerBroken, match=r"rewritten after epoch 3, the ledger ends at epoch 2|ahead of the ledger"):
        run(kept.spark, kept.flow)


@pytest.mark.prove
def test_a_commit_row_that_was_lost_is_written_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "MAX_FILES", 99)  # what it read is not rewritten since
    kept.put_back()
    run(kept.spark, kept.flow)
    max((kept.flow.root / HOME / "ledger" / "_delta_log").glob("*.json")).unlink()
    [again] = run(kept.spark, kept.flow).epochs
    assert (again.epoch, again.attempt) == (5, 2)
    kept.check()


@pytest.mark.prove
def test_damage_to_every_file(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    planned = kept.damages()[int(os.environ.get("FLOODMARK_FROM", "0")) :: int(os.environ.get("FLOODMARK_EVERY", "1"))]
    wrong = []
    for one in planned:
        try:
            counts[one.how, kept.play(one)] += 1
        except Exception as fault:
            wrong.append(f"{one}: {type(fault).__name__}: {str(fault)[:400]}")
            with capsys.disabled():
                print(f"\n{wrong[-1]}", flush=True)
    with capsys.disabled():
        print(f"\n{len(planned)} damages: {dict(sorted(counts.items()))}")
    assert not wrong, "\n".join(wrong)
    assert counts.total() == len(planned)
