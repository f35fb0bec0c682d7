"""A driver without Spark: each copy goes through crash points, under a lock of its own. For tests of the play alone.

Usage: python -m support.puppet ORDERS, as the real worker. A copy named in PUPPET_SKIPS never comes to its points; the
correction without a fault fails with the error named in PUPPET_FAILS.
"""

from __future__ import annotations

import fcntl
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from floodmark.core.protocol.crashpoints import BEGIN_POINTS, CORRECTION_POINTS, EPOCH_POINTS, RESET_POINTS, reach
from floodmark.proving.faultplan import CORRECTED, undisturbed
from floodmark.proving.play.orders import REWRITES, SAMPLE, STARTED, Orders
from floodmark.proving.scratch import Scratch

EPOCHS = 3
ROWS = 8
TABLES = 2  # of state: each comes to the points of state in its own time


def main(orders: Orders) -> None:
    scratch = Scratch(Path(orders.scratch))
    scratch.write_outcome(orders.name, STARTED, {"seconds": 0.0, "spark": "none", "java": "none"})
    cases = list(orders.cases)
    if orders.sampled:
        stream = {"stream": "events", "table": "here", "version": 1, "rows": ROWS, "commits": 6, "note": None}
        scratch.write_outcome(orders.name, SAMPLE, {"code": 0, "streams": [stream]})
        cases = [*undisturbed(ROWS, orders.replays), *orders.corrections]
    if CORRECTED in orders.corrections:
        scratch.fresh("events").mkdir(parents=True)
        stream = {"stream": "events", "rows": ROWS - 1, "left": 2, "came": 1}
        scratch.write_outcome(orders.name, REWRITES, {"code": 0, "streams": [stream]})
    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(lambda case: one(scratch, orders, case), cases))


def one(scratch: Scratch, orders: Orders, case: str) -> None:
    with (scratch.root / f"{case}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            scratch.write_outcome(orders.name, case, {"code": 1, "type": "Busy", "error": "another run holds it"})
            return
        if case not in os.environ.get("PUPPET_SKIPS", "").split(","):
            walk(scratch, case, case in orders.resets)
            correct(scratch, case, case in orders.corrections)
    failed = os.environ.get("PUPPET_FAILS") if case == CORRECTED else None
    end = {"code": 3, "type": failed, "error": "as wanted"} if failed else {"code": 0, "epochs": EPOCHS, "batch": None}
    scratch.write_outcome(orders.name, case, {**end, "seconds": 0.0})


def walk(scratch: Scratch, case: str, reset: bool) -> None:
    """Through every point; epochs that are done stay done."""
    done = scratch.root / f"{case}.epochs"
    for point in () if done.exists() else BEGIN_POINTS:
        reach(case, point)
    first = len(done.read_text()) + 1 if done.exists() else 1
    reach(case, "offsets.before", first)
    for epoch in range(first, EPOCHS + 1):
        for point in EPOCH_POINTS[1:]:
            if point == "commit.after":
                done.write_text("x" * epoch)
            for _ in range(TABLES if point.startswith("state.") else 1):
                reach(case, point, epoch)
    for point in RESET_POINTS if reset else ():
        reach(case, point)


def correct(scratch: Scratch, case: str, rewritten: bool) -> None:
    """Through every point of a correction, once the input was rewritten, until it is done."""
    begun, done = scratch.root / f"{case}.rewritten", scratch.root / f"{case}.corrected"
    if rewritten:
        begun.touch()
    deferred = scratch.root / f"{case}.deferred"
    for point in CORRECTION_POINTS if begun.exists() and not done.exists() else ():
        if point.startswith("defer.") and deferred.exists():
            continue
        if point == "defer.after":
            deferred.touch()
        if point == "backfill.commit.after":
            done.touch()
        reach(case, point)


if __name__ == "__main__":
    main(Orders.read(Path(sys.argv[1])))
