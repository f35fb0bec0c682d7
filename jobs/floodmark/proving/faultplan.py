"""Choose the faults that test a rule: every crash point that it can reach, and why others are left out. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.core.protocol.crashpoints import (
    BEGIN_POINTS,
    COMPACT_POINTS,
    CORRECTION_POINTS,
    EPOCH_POINTS,
    LOST_POINTS,
    RELAY_POINTS,
    RESET_POINTS,
)
from floodmark.errors import Refused

Fault = Literal["killed", "twice", "stopped"]
FAULTS: tuple[Fault, ...] = ("killed", "twice", "stopped")
REPLAYS = "replayed"
KINDS = (*FAULTS, REPLAYS)
TITLES = {
    "killed": "killed",
    "twice": "killed twice in a row",
    "stopped": "stopped, retried, resumed",
    REPLAYS: "replayed",
}
LEAST_EPOCHS = 3  # one before the fault, the one that it hits, and one that the next run plans
NOT_AGAIN = "the run after a kill there does not reach this point again"
BEHIND = "the relay after a kill there goes on behind it"
EPOCHS_ONLY = "planned at the points of an epoch"
NOT_ASKED = "not requested"
ONCE_POINTS = ("begin.commit.after", "defer.after", "backfill.commit.after")  # each ends what it is a point of
How = Literal["run", "reset", "correct"]


@dataclass(frozen=True)
class Case:
    """One copy of the rule and the fault that hits it.

    kills: the points at which it is stopped, one for each run, in the format of FLOODMARK_CRASH_AT. how: `run`, or
    else a complete run comes first. `reset`: the fault hits the reset after it. `correct`: the copy's input is
    rewritten, and the fault hits the run that corrects its results.
    """

    point: str
    fault: Fault
    kills: tuple[str, ...]
    how: How = "run"

    @property
    def name(self) -> str:
        """The copy's name; its capital letter sets it apart from names of users' rules, which have none."""
        return f"{self.fault.capitalize()}_{self.point.replace('.', '_')}"


@dataclass(frozen=True)
class Skipped:
    """A fault that is not tried, and why."""

    point: str
    fault: Fault
    why: str


@dataclass(frozen=True)
class Baseline:
    """Facts from the undisturbed run: the rule's qos, its sinks with a table (of a target, its outbox), whether it
    keeps state, its epochs.

    `target`: the epoch that the faults hit. `relays`: the qos of each sink that a relay ships to. `shipped`: the epoch
    in whose portion faults hit relays; None: the first that there is. `unreset`: a target for which the rule cannot be
    reset; None if it can. `uncorrected`: why no correction is hit; None if one is. `corrects_state`: whether that
    replaces rows of the state.
    """

    qos: int
    sinks: int
    state: bool
    epochs: int
    target: int
    relays: tuple[int, ...] = ()
    shipped: int | None = None
    unreset: str | None = None
    uncorrected: str | None = None
    corrects_state: bool = False


def target(effects: Sequence[int]) -> int:
    """The epoch that faults hit: of those in the middle, the one that wrote most tables. `effects`: tables by epoch.

    Raises Refused for fewer epochs than a fault needs around it.
    """
    if len(effects) < LEAST_EPOCHS:
        raise Refused(f"expected a sample of at least {LEAST_EPOCHS} epochs, found {len(effects)}: give more --rows")
    middle = range(2, len(effects))
    return max(middle, key=lambda epoch: (effects[epoch - 1], -epoch))


def shipped(rows: Sequence[int]) -> int | None:
    """The epoch in whose portion faults hit relays: of those in the middle, the one with most rows for targets; None if
    they have none. `rows`: for targets, by epoch."""
    best = max(range(2, len(rows)), key=lambda epoch: (rows[epoch - 1], -epoch), default=0)
    return best if best and rows[best - 1] else None


def points(sinks: int) -> list[str]:
    """All crash points of a rule with so many tables of sinks, in the order in which a rule reaches them; then those
    of its relays, which work beside it."""
    epoch = [point for point in EPOCH_POINTS if not point.startswith("sink")]
    at = epoch.index("commit.before")
    written = [f"sink{i}.{when}" for i in range(sinks) for when in ("before", "after")]
    beyond = [point for point in EPOCH_POINTS if point.startswith("sink") and point not in written]
    return [
        *BEGIN_POINTS,
        *epoch[:at],
        *written,
        *beyond,
        *epoch[at:],
        *COMPACT_POINTS,
        *LOST_POINTS,
        *RESET_POINTS,
        *CORRECTION_POINTS,
        *RELAY_POINTS,
    ]


def plan_cases(
    ground: Baseline, only: Collection[str] = (), kinds: Collection[str] = KINDS
) -> tuple[list[Case], list[Skipped]]:
    """The cases, and the skipped faults. `only`: points to keep (none: all). Raises Refused for an unknown point."""
    found = points(ground.sinks)
    check_points(only, ground.sinks)
    wanted = [point for point in found if not only or point in only]
    tried: list[Case] = []
    skipped: list[Skipped] = []
    for point in wanted:
        for fault in (fault for fault in FAULTS if fault in kinds):
            one = _case(point, fault, ground)
            (tried if isinstance(one, Case) else skipped).append(one)  # type: ignore[arg-type]
    return tried, skipped


def check_points(only: Collection[str], sinks: int) -> None:
    """Raise Refused for an unknown point."""
    known = points(sinks)
    unknown = sorted(set(only) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise Refused(f"--only: expected crash points out of {', '.join(known)}, found {', '.join(unknown)}{hint}")


def _case(point: str, fault: Fault, ground: Baseline) -> Case | Skipped:
    why = _unreachable(point, ground) or _unplanned(point, fault)
    return Skipped(point, fault, why) if why else Case(point, fault, tuple(_kills(point, fault, ground)), _how(point))


def _unreachable(point: str, ground: Baseline) -> str | None:
    if point.startswith("sink") and point not in points_of_sinks(ground.sinks):
        return f"the rule has {counted(ground.sinks, 'Delta sink')}"
    if point == "reset.empty.after" and not ground.sinks:
        return "the rule has no sink whose rows a reset removes"
    if point.startswith("state.") and not ground.state:
        return "the rule keeps no state"
    if point in COMPACT_POINTS:
        return f"state is rewritten after many epochs, and the sample has {ground.epochs}"
    if point in LOST_POINTS and ground.qos > 0:
        return "epochs are given up at qos 0 only"
    if point in RESET_POINTS and ground.unreset is not None:
        return f"the rule cannot be reset: nobody can take rows away from target {ground.unreset}"
    if point in CORRECTION_POINTS:
        return _uncorrected(ground, point)
    return _unshipped(ground, point) if point in RELAY_POINTS else None


def _uncorrected(ground: Baseline, point: str) -> str | None:
    """Why no correction reaches the point."""
    if ground.uncorrected is None and point.startswith("backfill.state.") and not ground.corrects_state:
        return "the correction replaces no rows of the state"
    return ground.uncorrected


def _unshipped(ground: Baseline, point: str) -> str | None:
    """Why no relay reaches the point."""
    if not ground.relays:
        return "the rule has no target"
    if point == "relay.between" and min(ground.relays) == 2:
        return "at qos 2, rows and position move together"
    if point == "relay.refused":
        return "the sample has no row that a target refuses"
    return None


def points_of_sinks(sinks: int) -> set[str]:
    return {f"sink{i}.{when}" for i in range(sinks) for when in ("before", "after")}


def _unplanned(point: str, fault: Fault) -> str | None:
    if fault == "killed":
        return None
    if point in RELAY_POINTS and fault == "stopped":
        return None
    if point in (*RESET_POINTS, *LOST_POINTS) or (fault == "stopped" and point in BEGIN_POINTS):
        return EPOCHS_ONLY
    if point in ("relay.between", "relay.after"):
        return BEHIND
    return NOT_AGAIN if point in ONCE_POINTS and fault == "twice" else None


def _kills(point: str, fault: Fault, ground: Baseline) -> Iterator[str]:
    """The first kill is in the target epoch; the second is where the recovery reaches that point first."""
    if point in LOST_POINTS:
        yield f"intent.after@{ground.target}"
    yield f"{point}{_epoch_of(point, ground)}"
    if fault == "twice":
        yield point


def _epoch_of(point: str, ground: Baseline) -> str:
    """Before the query starts there is only the next epoch; some points are in no epoch."""
    if point in (*BEGIN_POINTS, *LOST_POINTS, *RESET_POINTS, *CORRECTION_POINTS):
        return ""
    if point in RELAY_POINTS:
        return "" if ground.shipped is None else f"@{ground.shipped}"
    return "@1" if point == "offsets.before" else f"@{ground.target}"


def _how(point: str) -> How:
    if point in CORRECTION_POINTS:
        return "correct"
    return "reset" if point in RESET_POINTS else "run"


def counted(count: int, word: str) -> str:
    """A count with its noun, in the singular or the plural."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def waves(cases: Sequence[Case], most: int) -> list[list[Case]]:
    """The cases in as few groups as possible, each of about the same size and with at most `most` cases."""
    count = -(-len(cases) // most)
    return [list(cases[i::count]) for i in range(count)]


@dataclass(frozen=True)
class ReplayCase:
    """The sample again with other epochs. `files`: commits in one epoch; None: all of them."""

    files: int | None

    @property
    def name(self) -> str:
        return f"Replayed_{self.files or 'all'}"

    @property
    def title(self) -> str:
        return "one epoch for all" if self.files is None else f"{counted(self.files, 'commit')} an epoch"


PORTIONS = 6  # commits of the sample, two for each epoch


def cut(rows: int) -> tuple[int, int]:
    """The number of commits for a stream of so many rows, and the number of commits in an epoch."""
    portions = min(PORTIONS, rows)
    return portions, 2 if portions >= 2 * LEAST_EPOCHS else 1


REFERENCE = "Undisturbed"
CORRECTED = "Corrected"  # the copy whose input is rewritten and corrected without a fault


def undisturbed(rows: int, replayed: bool) -> dict[str, int | None]:
    """The copies without a fault, by name, and the number of commits in one of their epochs (None: all)."""
    files = cut(rows)[1]
    return {REFERENCE: files} | {replay.name: replay.files for replay in (replays(files) if replayed else ())}


def replays(files: int) -> list[ReplayCase]:
    """Epochs of other sizes than `files` commits: fewer or more commits, and one epoch for all."""
    return [ReplayCase(n) for n in (1, 2, 4) if n != files] + [ReplayCase(None)]
