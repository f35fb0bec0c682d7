"""Defines named points of the protocol at which a crash test can stop a run for good. Off by default.

`FLOODMARK_CRASH_AT` holds `RULE:POINT` or `RULE:POINT@EPOCH`, several separated by commas, and `FLOODMARK_CRASH_MARKS`
a directory. A run that reaches a named point creates the file `RULE.POINT` there and waits to be killed. It neither
raises an error nor kills itself, because a process that exits by itself has not crashed. If the test deletes the file,
the run continues as if nothing had happened, like a driver that was suspended and resumed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path

EPOCH_POINTS = (
    "offsets.before",
    "offsets.after",
    "intent.before",
    "intent.after",
    "state.before",
    "state.after",
    "late.before",
    "late.after",
    "dead.before",
    "dead.after",
    "sink0.before",
    "sink0.after",
    "sink1.before",
    "sink1.after",
    "commit.before",
    "commit.after",
    "sparkcommit.before",
    "sparkcommit.after",
)
BEGIN_POINTS = ("begin.ledger.before", "begin.ledger.after", "begin.tables.after", "begin.commit.after")
RESET_POINTS = (
    "reset.seal.before",
    "reset.seal.after",
    "reset.tables.before",
    "reset.tables.after",
    "reset.empty.before",
    "reset.empty.after",
    "reset.commit.before",
    "reset.commit.after",
)
LOST_POINTS = ("lost.before", "lost.after")
ABANDON_POINTS = (
    "abandon.before",
    "abandon.announced",
    "abandon.sink.before",
    "abandon.sink.after",
    "abandon.commit.before",
    "abandon.commit.after",
)
BACKFILL_POINTS = (
    "backfill.computed",
    "backfill.intent.before",
    "backfill.intent.after",
    "backfill.sink.before",
    "backfill.sink.after",
    "backfill.commit.before",
    "backfill.commit.after",
)
DEFER_POINTS = ("defer.before", "defer.after")  # of rewrites that a correction is to follow
CORRECTION_POINTS = (
    *DEFER_POINTS,
    *BACKFILL_POINTS[:-2],
    "backfill.state.before",
    "backfill.state.after",
    *BACKFILL_POINTS[-2:],
)
LIFE_POINTS = (
    "recheck.before",
    "recheck.after",
    "retire.before",
    "retire.after",
    "rename.intent.before",
    "rename.intent.after",
    "rename.moved",
    "drop.intent.before",
    "drop.intent.after",
    "drop.table.moved",
    "drop.table.after",
    "drop.commit.before",
    "drop.commit.after",
    "drop.home.before",
    "drop.home.moved",
    "adopt.before",
    "adopt.after",
)
UPKEEP_POINTS = (
    "maintain.before",
    "maintain.compacted",
    "maintain.vacuum.during",
    "maintain.checkpoint.after",
    "maintain.trim.during",
    "maintain.ledger.before",
    "maintain.commit.before",
    "maintain.commit.after",
)
FORGET_POINTS = (
    "forget.before",
    "forget.announced",
    "forget.rewritten",
    "forget.marked",
    "forget.checkpoint.during",
    "forget.checkpoint.after",
    "forget.files.during",
    "forget.log.during",
    "forget.state.removed",
    "forget.copy.before",
    "forget.copy.after",
    "forget.commit.before",
    "forget.commit.after",
)
# refused: rows that the target refused are in their table; between: at qos 0 and 1
RELAY_POINTS = ("relay.before", "relay.refused", "relay.sent", "relay.between", "relay.after")
LANDING_POINTS = ("landing.before", "landing.after")  # of each copy: not committed yet; committed, source not told
CUT_POINTS = ("maintain.landing.before", "maintain.landing.after")  # of upkeep that removes old landed rows
COMPACT_POINTS = ("compact.before", "compact.after")
LOOK_EVERY = 0.05  # seconds between two checks of the file


def reach(rule: str, point: str, *epochs: int | None) -> None:
    """Mark `point` and wait to be killed if the environment names it; otherwise return at once.

    `epochs`: which it is in; the environment may name one of them.
    """
    wanted = os.environ.get("FLOODMARK_CRASH_AT")
    if wanted and _named(wanted, rule, point, epochs):
        _wait_for_the_kill(Path(os.environ["FLOODMARK_CRASH_MARKS"]) / f"{rule}.{point}")


def _named(wanted: str, rule: str, point: str, epochs: Collection[int | None]) -> bool:
    return bool({f"{rule}:{point}", *(f"{rule}:{point}@{epoch}" for epoch in epochs)} & set(wanted.split(",")))


def _wait_for_the_kill(mark: Path) -> None:
    mark.touch()
    pause = threading.Event()
    while mark.exists():
        pause.wait(LOOK_EVERY)
