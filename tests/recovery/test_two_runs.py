"""Two real runs of one rule at once: one works, the other is refused and told by whom; a kill frees the rule.

That a run after the kill ends well is in `test_crash_points.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow, event
from support.waiting import wait

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


def _run(flow: Flow, env: dict[str, str], log: Path) -> Any:
    command = [sys.executable, "-m", "support.many", "run", str(flow.root), flow.name]
    return started(command, {"PYTHONPATH": f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}", "TZ": "UTC", **env}, log)
