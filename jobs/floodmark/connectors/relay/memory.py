"""What a home remembers of a target: its last known position, and the last fault. For people and for noticing.

The truth is the position in the target. A target that is behind what is remembered was restored from a copy.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from floodmark.core.relay.positions import Position
from floodmark.errors import RunFailed


@dataclass(frozen=True)
class Memory:
    """position: the last that was seen in the target; None: none yet. at: when it got there.

    fault, fault_at: of the last attempt, if it failed; UTC, ISO 8601. rows, seconds: of the last relay that shipped
    anything. shipped: rows that all relays of this home have shipped. lost: rows that `qos: 0` has lost since the
    target was emptied last; lost_of: the last of them, in words.
    """

    position: Position | None = None
    at: str | None = None
    fault: str | None = None
    fault_at: str | None = None
    rows: int = 0
    seconds: float = 0.0
    shipped: int = 0
    lost: int = 0
    lost_of: str | None = None

    @property
    def speed(self) -> float | None:
        """Rows a second of the last relay that shipped rows."""
        return self.rows / self.seconds if self.rows and self.seconds else None


@dataclass(frozen=True)
class Lost:
    """What relays have lost at `qos: 0`: it was sent, and did not arrive, or not all of it. why: of the last."""

    rows: int = 0
    epochs: tuple[int, ...] = ()
    why: str = ""

    def and_(self, other: Lost) -> Lost:
        epochs = tuple(sorted({*self.epochs, *other.epochs}))
        return Lost(self.rows + other.rows, epochs, other.why or self.why)

    @property
    def text(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        first, last = min(self.epochs), max(self.epochs)
        return f"{rows} of {f'epoch {first}' if first == last else f'epochs {first} to {last}'}"


LONG_AGO = 60.0  # seconds after which nobody writes a file any more
_REST = tuple(one.name for one in fields(Memory) if one.name != "position")


def file_of(folder: Path) -> Path:
    """Beside the outbox in `folder`."""
    return folder.with_name(f"{folder.name}.json")


def recall(folder: Path) -> Memory:
    """What is remembered. A file that cannot be read counts as none: it is no proof of anything."""
    try:
        found: dict[str, Any] = json.loads(file_of(folder).read_text())
        position = found.get("position")
        known = None if position is None else Position.parse(json.dumps(position))
        return Memory(known, **{name: found[name] for name in _REST if name in found})
    except (OSError, ValueError, AttributeError, TypeError):
        return Memory()


def remember(folder: Path, position: Position) -> None:
    """The target has this now, and the last attempt did not fail."""
    known = recall(folder)
    at = known.at if known.position == position else _now()
    _write(folder, replace(known, position=position, at=at, fault=None, fault_at=None))


def remember_shipped(
    folder: Path, position: Position, rows: int, whole: int, seconds: float, emptied: bool = False
) -> None:
    """The target has this now, by a relay that has just shipped `rows`, and `whole` rows in `seconds` so far."""
    known = recall(folder)
    found = Memory(position, _now(), rows=whole, seconds=round(seconds, 3), shipped=known.shipped + rows)
    _write(folder, found if emptied else replace(found, lost=known.lost, lost_of=known.lost_of))


def remember_lost(folder: Path, lost: Lost, emptied: bool) -> None:
    known = recall(folder)
    rows = lost.rows + (0 if emptied else known.lost)
    _write(folder, replace(known, lost=rows, lost_of=f"{lost.text} at {_now()}"))


def remember_fault(folder: Path, said: str) -> None:
    _write(folder, replace(recall(folder), fault=said, fault_at=_now()))


def forget_faults(outboxes: Path) -> None:
    """Drop what targets have said of their faults: it may quote a row. `outboxes`: a rule's folder of them.

    A sink that is gone has left its file, and a relay that was killed while it wrote one has left a part of it.
    """
    for file in outboxes.glob("*.json"):
        folder = file.with_suffix("")
        known = recall(folder)
        if known.fault is not None:
            _write(folder, replace(known, fault=None, fault_at=None))
    for file in outboxes.glob("*.json.*"):
        if file.suffix[1:].isdigit() and file.is_file() and time.time() - file.stat().st_mtime > LONG_AGO:
            file.unlink(missing_ok=True)


def check_home(folder: Path, fault: Exception) -> None:
    """Raise RunFailed if the home of the outbox in `folder` is gone, which explains any fault of a relay."""
    home = folder.parent.parent
    if not home.exists():
        problem = f"the home {home} was renamed or dropped while a relay was at work"
        raise RunFailed(f"{problem}. After a rename, ship the rest with `floodmark relay` and the new name") from fault


def _write(folder: Path, memory: Memory) -> None:
    facts = {**vars(memory), "position": memory.position and memory.position.facts()}
    file = file_of(folder)
    # by no process id: on a shared disk, processes of two containers may have the same
    fresh = file.with_name(f"{file.name}.{uuid4().int}")
    with suppress(FileNotFoundError):  # a home that was renamed or dropped meanwhile is not made again
        file.parent.mkdir(exist_ok=True)
        fresh.write_text(json.dumps(facts, indent=1))
        fresh.replace(file)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
