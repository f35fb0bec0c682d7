"""Two real runs of one rule at once: one works, the other is refused with its name; a kill frees the rule.

That a run after the kill ends well is in `test_crash_points.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.flow import RUNNING, Flow, event, rows_of
from support.waiting import wait

from floodmark.audit.certificate import audit
from floodmark.errors import Busy
from floodmark.ledger.holder import holder_pid
from floodmark.ledger.locking import held
from floodmark.proving.play.processes import kill_all, started, wait_until

CHECKOUT = Path(__file__).parents[2]
EVENTS = [event(0), event(70), event(200)]
LIMIT = 600.0  # seconds; two JVMs start, perhaps beside other tests


def test_the_second_run_is_refused_while_the_first_works(place: Path) -> None:
    flow = Flow(place)
    flow.arrive(EVENTS)
    flow.write_rule()
    mark = place / f"{flow.name}.commit.before"
    hold = {"FLOODMARK_CRASH_AT": f"{flow.name}:commit.before", "FLOODMARK_CRASH_MARKS": str(place)}
    with _run(flow, hold, place / "first.txt") as first:
        assert wait_until(mark.exists, first, LIMIT), (place / "first.txt").read_text()
        with _run(flow, {}, place / "second.txt") as second:
            assert second.wait(LIMIT) == 1
        assert f"driver {first.pid}" in (place / "second.txt").read_text()
        assert not flow.ledger().head.epoch  # type: ignore[union-attr]
        with pytest.raises(Busy), held(flow.place.lock, "another"):
            pass
        kill_all(first.pid)
    wait(lambda: holder_pid(flow.place.lock) is None)  # the system ends a JVM some moments after the signal
    with held(flow.place.lock, "the next"):
        pass


@pytest.mark.prove  # in one process: `spark/test_deferred_corrections.py`
def test_the_second_run_goes_on_while_the_first_computes_a_correction(place: Path) -> None:
    flow = Flow(place, sql=RUNNING, stream={"on_rewrite": "correct", "lateness": None}, sinks=1)
    flow.settings |= {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["k"]}]}
    flow.write_rule()
    flow.arrive([event(at, "abc"[at % 3], n=at % 5) for at in range(60)])
    with _run(flow, {}, place / "begin.txt") as begin:
        assert begin.wait(LIMIT) == 0, (place / "begin.txt").read_text()
    DeltaTable(flow.source).delete("k = 'a' AND n = 3")
    mark = place / f"{flow.name}.backfill.computed"
    hold = {"FLOODMARK_CRASH_AT": f"{flow.name}:backfill.computed", "FLOODMARK_CRASH_MARKS": str(place)}
    with _run(flow, hold, place / "first.txt") as first:
        assert wait_until(mark.exists, first, LIMIT), (place / "first.txt").read_text()
        flow.arrive([event(100, "a", n=7), event(101, "new", n=1)])
        with _run(flow, {}, place / "second.txt") as second:
            assert second.wait(LIMIT) == 0, (place / "second.txt").read_text()
        head = flow.ledger().head
        assert head is not None and (head.epoch, head.corrections, len(head.deferred)) == (2, 0, 1)
        mark.unlink()
        assert wait_until(mark.exists, first, LIMIT), "an epoch has come between: it is computed once more"
        mark.unlink()
        assert first.wait(LIMIT) == 0, (place / "first.txt").read_text()
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.corrections, head.deferred) == (2, 1, {})
    assert {row["k"].lower(): row["c"] for row in rows_of(flow.sink())} == counted(flow)
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and found.verdict == "proven", found


def counted(flow: Flow) -> dict[str, int]:
    """How many rows of each key the source has now."""
    return dict(Counter(row["k"] for row in rows_of(flow.source)))


def _run(flow: Flow, env: dict[str, str], log: Path) -> Any:
    command = [sys.executable, "-m", "support.many", "run", str(flow.root), flow.name]
    return started(command, {"PYTHONPATH": f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}", "TZ": "UTC", **env}, log)
