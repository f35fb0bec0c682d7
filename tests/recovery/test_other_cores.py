"""A driver on four cores is killed behind its sinks' commits; one on a single core finishes what it began."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.adding import SQL, WRITTEN, summed, written
from support.flow import Flow

from floodmark.proving.play.processes import kill_all, started, wait_until

CHECKOUT = Path(__file__).parents[2]
LIMIT = 600.0  # seconds; two JVMs start, perhaps beside other tests


@pytest.mark.prove
def test_killed_on_four_cores_and_finished_on_one(place: Path) -> None:
    flows = [summed(place, sql) for sql in SQL]
    for flow in flows:
        flow.write_rule()
    marks = [place / f"{flow.name}.sink0.after" for flow in flows]
    points = ",".join(f"{flow.name}:sink0.after" for flow in flows)
    held = {"FLOODMARK_CRASH_AT": points, "FLOODMARK_CRASH_MARKS": str(place)}
    with _run(flows, "local[4]", held, place / "first.txt") as first:
        assert wait_until(lambda: all(mark.exists() for mark in marks), first, LIMIT), (place / "first.txt").read_text()
        kill_all(first.pid)
    with _run(flows, "local[1]", {}, place / "second.txt") as second:
        assert second.wait(LIMIT) == 0, (place / "second.txt").read_text()
    for sql, flow in zip(SQL, flows, strict=True):
        assert written(flow) == WRITTEN[sql][4], sql
        assert flow.ledger().head.epoch == 1  # type: ignore[union-attr]


def _run(flows: list[Flow], master: str, env: dict[str, str], log: Path) -> Any:
    command = [sys.executable, "-m", "support.many", "run", str(flows[0].root), *(flow.name for flow in flows)]
    paths = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
    return started(command, {"PYTHONPATH": paths, "TZ": "UTC", "SUPPORT_MASTER": master, **env}, log)
