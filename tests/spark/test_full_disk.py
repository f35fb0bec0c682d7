"""A disk that is full, and a lake that is read-only, at each commit point: a clear failure, then a clean retry."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.crash import put_reach
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.running import run

from floodmark.errors import RunFailed
from floodmark.ledger import home

pytestmark = pytest.mark.prove  # mounts file systems, so it needs root
EVENTS = [[event(0), event(10, "b"), event(70)], [event(100), event(130, "b"), event(250)]]
FINAL = START + timedelta(seconds=220)
COLUMNS = ("start", "k", "c", "total", "top")
# Where the fault strikes: the crash point at which it begins, the folder that it hits, and what the error names.
POINTS = {
    "intent": ("intent.before", "home/counted/ledger", "ledger"),
    "state": ("state.before", "home/counted/state/g1/events", "state events"),
    "late": ("late.before", "home/counted/late", "late"),
    "sink": ("sink0.before", "lake/counted_out0", "sink counted_out0"),
    "commit": ("commit.before", "home/counted/ledger", "ledger"),
}


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def mounted(place: Path, *arguments: str) -> Iterator[None]:
    mount(*arguments, str(place))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def flow(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    """A rule with its first epoch done, and input for the second, which has a late row; on a small disk of its own."""
    monkeypatch.setattr(home, "FORGETFUL", ())
    flow = Flow(place / "disk", settings={"epoch": {"max_files": 1}}, sinks=1)
    flow.root.mkdir()
    with mounted(flow.root, "-t", "tmpfs", "-o", "size=32m", "tmpfs"):
        yield flow


def fill(folder: Path) -> Callable[[], None]:
    """Take all room that is left; returns what gives it back."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler.unlink


def forbid(folder: Path) -> Callable[[], None]:
    """Make a folder read-only, whoever asks; returns what ends that."""
    mount("--bind", str(folder), str(folder))
    mount("-o", "remount,bind,ro", str(folder))
    return lambda: subprocess.run(["umount", "--lazy", str(folder)], check=True) and None


FAULTS = {"the disk is full": lambda flow, _: fill(flow.root), "the file system is read-only": lambda _, at: forbid(at)}


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("point", POINTS)
def test_the_run_fails_clearly_and_its_retry_is_clean(
    spark: SparkSession, flow: Flow, what: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.arrive(EVENTS[0])
    run(spark, flow)
    flow.arrive([*EVENTS[1], event(5)])
    at, folder, named = POINTS[point]
    struck: list[Callable[[], None]] = []

    def reach(rule: str, reached: str, number: int | None = None) -> None:
        if reached == at and not struck:
            struck.append(FAULTS[what](flow, flow.root / folder))

    put_reach(monkeypatch, reach)
    with pytest.raises(RunFailed, match=what) as fault:
        run(spark, flow)
    assert struck, "the fault struck"
    if what != "the disk is full" or point in ("intent", "commit"):  # tables are written side by side on one disk
        assert named in str(fault.value)
    with pytest.raises(RunFailed, match=what) if what == "the disk is full" else pytest.raises(RunFailed):
        run(spark, flow)
    struck[0]()
    run(spark, flow)
    assert ordered(tuple(row[c] for c in COLUMNS) for row in rows_of(flow.sink())) == tumbling(
        [*EVENTS[0], *EVENTS[1]], FINAL
    )
    assert len(rows_of(flow.place.late)) == 1
    assert flow.ledger().head.epoch == 2  # type: ignore[union-attr]
