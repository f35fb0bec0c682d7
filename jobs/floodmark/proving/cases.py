"""Which faults a rule is put to: every crash point that it can reach, and why the others are left out. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.core.protocol.crashpoints import BEGIN_POINTS, COMPACT_POINTS, EPOCH_POINTS, LOST_POINTS, RESET_POINTS
from floodmark.errors import Refused

Fault = Literal["killed", "twice", "stopped"]
FAULTS: tuple[Fault, ...] = ("killed", "twice", "stopped")
REPLAYS = "replayed"
KINDS = (*FAULTS, REPLAYS)
TITLES = {
    "killed": "killed",
    "twice": "killed twice in a row",
    "stopped": "stopped, retried, woken",
    REPLAYS: "replayed",
}
LEAST_EPOCHS = 3  # one before the fault, the one that it hits, and one that the next run plans itself
NOT_AGAIN = "the run after a kill there does not come to this point again"
EPOCHS_ONLY = "planned at the points of an epoch"


@dataclass(frozen=True)
class Case:
    """One copy of the rule and what is done to it.

    kills: the points at which it is stopped, one for each run, as FLOODMARK_CRASH_AT has them. how: `run`, or `reset`
    where a run to the end comes first and the fault hits the reset after it.
    """

    point: str
    fault: Fault
    kills: tuple[str, ...]
    how: Literal["run", "reset"] = "run"

    @property
    def name(self) -> str:
        """The copy's name: that of a user's rule has small letters only."""
        return f"{self.fault.capitalize()}_{self.point.replace('.', '_')}"


@dataclass(frozen=True)
class Skipped:
    """A fault that is not tried, and why."""

    point: str
    fault: Fault
    why: str


@dataclass(frozen=True)
class Ground:
    """What the undisturbed run has shown: the rule's qos, its Delta sinks, whether it keeps state, its epochs.

    `target`: the epoch that the faults hit.
    """

    qos: int
    sinks: int
    state: bool
    epochs: int
    target: int


def target(effects: Sequence[int]) -> int:
    """The epoch that a fault is to hit, by the number of tables that each wrote: of those in the middle, the busiest.

    Raises Refused for fewer epochs than a fault needs around it.
    """
    if len(effects) < LEAST_EPOCHS:
        raise Refused(f"expected a sample of at least {LEAST_EPOCHS} epochs, found {len(effects)}: give more --rows")
    middle = range(2, len(effects))
    return max(middle, key=lambda epoch: (effects[epoch - 1], -epoch))


def points(sinks: int) -> list[str]:
    """All crash points of a rule with so many Delta sinks, in the order in which a rule meets them."""
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
    ]


def planned(
    ground: Ground, only: Collection[str] = (), kinds: Collection[str] = KINDS
) -> tuple[list[Case], list[Skipped]]:
    """The cases, and what is left out. `only`: points to keep (none: all). Raises Refused for an unknown point."""
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
    """Raise Refused for a point that is none."""
    known = points(sinks)
    unknown = sorted(set(only) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise Refused(f"--only: expected crash points out of {', '.join(known)}, found {', '.join(unknown)}{hint}")


def _case(point: str, fault: Fault, ground: Ground) -> Case | Skipped:
    why = _unreachable(point, ground) or _unplanned(point, fault)
    return Skipped(point, fault, why) if why else Case(point, fault, tuple(_kills(point, fault, ground)), _how(point))


def _unreachable(point: str, ground: Ground) -> str | None:
    if point.startswith("sink") and point not in points_of_sinks(ground.sinks):
        return f"the rule has {counted(ground.sinks, 'Delta sink')}"
    if point.startswith("state.") and not ground.state:
        return "the rule keeps no state"
    if point in COMPACT_POINTS:
        return f"state is rewritten after many epochs, and the sample has {ground.epochs}"
    if point in LOST_POINTS and ground.qos > 0:
        return "epochs are given up at qos 0 only"
    return None


def points_of_sinks(sinks: int) -> set[str]:
    return {f"sink{i}.{when}" for i in range(sinks) for when in ("before", "after")}


def _unplanned(point: str, fault: Fault) -> str | None:
    if fault == "killed":
        return None
    if point in (*RESET_POINTS, *LOST_POINTS) or (fault == "stopped" and point in BEGIN_POINTS):
        return EPOCHS_ONLY
    return NOT_AGAIN if point == "begin.commit.after" else None


def _kills(point: str, fault: Fault, ground: Ground) -> Iterator[str]:
    """In the epoch that is aimed at; the second time wherever the recovery comes to that point first."""
    if point in LOST_POINTS:
        yield f"intent.after@{ground.target}"
    yield f"{point}{_epoch_of(point, ground)}"
    if fault == "twice":
        yield point


def _epoch_of(point: str, ground: Ground) -> str:
    """Before the query starts there is no epoch but the next one; some points lie in none."""
    if point in (*BEGIN_POINTS, *LOST_POINTS, *RESET_POINTS):
        return ""
    return "@1" if point == "offsets.before" else f"@{ground.target}"


def _how(point: str) -> Literal["run", "reset"]:
    return "reset" if point in RESET_POINTS else "run"


def counted(count: int, word: str) -> str:
    """A number of things, as people write it."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def waves(cases: Sequence[Case], most: int) -> list[list[Case]]:
    """The cases in as few groups as hold at most so many, of about one size."""
    count = -(-len(cases) // most)
    return [list(cases[i::count]) for i in range(count)]


@dataclass(frozen=True)
class Replay:
    """The sample once more with other epochs. `files`: commits that make one epoch; None: all of them."""

    files: int | None

    @property
    def name(self) -> str:
        return f"Replayed_{self.files or 'all'}"

    @property
    def title(self) -> str:
        return "one epoch for all" if self.files is None else f"{counted(self.files, 'commit')} an epoch"


PORTIONS = 6  # commits that the sample is cut into, two an epoch


def cut(rows: int) -> tuple[int, int]:
    """Into how many commits a stream of so many rows is cut, and how many of them make an epoch."""
    portions = min(PORTIONS, rows)
    return portions, 2 if portions >= 2 * LEAST_EPOCHS else 1


REFERENCE = "Undisturbed"


def undisturbed(rows: int, replayed: bool) -> dict[str, int | None]:
    """The copies that nothing is done to, by name, and how many commits make one of their epochs (None: all)."""
    files = cut(rows)[1]
    return {REFERENCE: files} | {replay.name: replay.files for replay in (replays(files) if replayed else ())}


def replays(files: int) -> list[Replay]:
    """Other epochs than those of `files` commits: of fewer or more, and one for all."""
    return [Replay(n) for n in (1, 2, 4) if n != files] + [Replay(None)]
