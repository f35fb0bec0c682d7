"""A class that follows the order of a set, in real processes that are told to draw another seed of hashes each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow, event, rows_of
from support.killing import CHECKOUT

from floodmark.proving.play.processes import kill_all, started, wait_until

LIMIT = 600.0
ARRIVED = [event(second, k, n=second) for second, k in ((0, "a"), (10, "b"), (50, "a"), (200, "b"))]


def driver(flow: Flow, **env: str) -> Any:
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "run", flow.name]
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    more = {"FLOODMARK_MASTER": "local[2]", "PYTHONPATH": str(CHECKOUT / "jobs"), "PYTHONHASHSEED": "random"}
    return started(command, {**places, **more, **env}, flow.root / "log.txt")


@pytest.mark.prove
def test_a_retry_gives_the_rows_of_a_set_in_the_same_order(place: Path) -> None:
    flow = Flow(place, process="sets:Sets", stream={"start": {"version": 0}}, sinks=1)
    flow.arrive(ARRIVED)
    flow.write_rule()
    mark = flow.root / f"{flow.name}.sink0.after"
    env = {"FLOODMARK_CRASH_AT": f"{flow.name}:sink0.after", "FLOODMARK_CRASH_MARKS": str(flow.root)}
    with driver(flow, **env) as held:
        assert wait_until(mark.exists, held, LIMIT), (flow.root / "log.txt").read_text()
        kill_all(held.pid)
        held.wait(LIMIT)
    assert flow.ledger().head.open is not None  # type: ignore[union-attr]
    written = rows_of(flow.sink())
    with driver(flow) as retry:
        assert retry.wait(LIMIT) == 0, (flow.root / "log.txt").read_text()
    assert rows_of(flow.sink()) == written and len(written) == 3
