"""The files that come and go with each commit of a table: their rows must be those that the commit says.

Everything here is by the statistics in the log. Rows of the table are those of its files, less what deletion vectors
leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.audit.facts import File, LogEntry, TableLog, held
from floodmark.audit.named import SEAL

Told = Iterator[tuple[Literal["broken", "unknown"], str]]
Files = dict[tuple[str, str], File]


@dataclass(frozen=True)
class Move:
    """Rows that come and rows that go with one commit; None where that cannot be told."""

    came: int | None
    went: int | None


@dataclass
class Replay:
    """A log's entries, one after another. `moves`: by version; `files`: what they leave; None where it is not known
    what they go on from."""

    moves: dict[int, Move] = field(default_factory=dict)
    files: Files | None = None


def replay(log: TableLog) -> Replay:
    base, found = log.base, Replay()
    found.files = None if base is None else dict(base.files)
    for entry in log.entries:
        if base is None or found.files is None or entry.version <= base.version:
            found.moves[entry.version] = Move(held(entry.added), held(entry.removed))
        else:
            found.moves[entry.version] = _moved(entry, found.files)
    return found


def _moved(entry: LogEntry, files: Files) -> Move:
    """Takes the entry's step. A file that is there may be added again, with other tags or statistics: it stays."""
    went = [files.pop(file.key) for file in entry.removed if file.key in files]
    came = {file.key: file for file in entry.added if file.key not in files}
    files |= {file.key: file for file in entry.added}
    return Move(held(came.values()), held(went))


def hidden(log: TableLog, files: Files | None) -> Iterator[str]:
    """Where readers, who believe the newest checkpoint, see other files than the entries leave."""
    if files is None:
        return
    left = {path for path, _ in files}
    for path in sorted(left ^ log.live.keys()):
        yield f"by its entries the log {'has' if path in left else 'does not have'} the file {path}, readers see it " \
              f"{'not' if path in left else 'all the same'}"  # fmt: skip


def unbalanced(entry: LogEntry, move: Move, version: int | None) -> Told:
    """What a commit's files contradict of what it says. `version`: our app's that it records, None: it is not ours."""
    if version is None:
        return _kept(move) if not entry.changes else iter(())
    if version == SEAL:
        return _sealed(entry)
    return _emptied(move) if version == 0 else _ours(entry, move)


def _kept(move: Move) -> Told:
    yield from _compared("a commit that says that it changes no rows", (move.came, move.went), (move.came, move.came))


def _sealed(entry: LogEntry) -> Told:
    if entry.added or entry.removed:
        yield "broken", f"a seal that adds {len(entry.added)} files and removes {len(entry.removed)}"


def _emptied(move: Move) -> Told:
    """A generation's first commit may take all rows away."""
    yield from _compared("a commit that empties the table", (move.came, 0), (0, 0))


def _ours(entry: LogEntry, move: Move) -> Told:
    yield from _filled(entry)
    if "inserted" in entry.said:
        yield from _compared("the commit", (move.came, move.went), _effect(entry.said))
    elif entry.removed:
        yield "broken", f"an append that removes {len(entry.removed)} files, with {_shown(move.went)} rows"


def _filled(entry: LogEntry) -> Told:
    """The digest is of the files that came with rows."""
    digest, found = entry.said.get("digest"), held(entry.brought)
    if digest is not None and found is not None and digest["rows"] != found:
        yield "broken", f"its files have {found} rows, the digest of what was written is of {digest['rows']}"


def _effect(said: Mapping[str, Any]) -> tuple[int, int]:
    """Rows that come and rows that go, by what a merge or a replacement says of itself: copies do both."""
    inserted, updated, deleted, copied = (said[name] for name in ("inserted", "updated", "deleted", "copied"))
    return inserted + updated + copied, updated + deleted + copied


def _compared(whose: str, found: tuple[int | None, int | None], wanted: tuple[int | None, int | None]) -> Told:
    if None in found:
        yield "unknown", ""
    elif found != wanted:
        yield "broken", f"{whose} adds files with {found[0]} rows and removes {found[1]}, expected {wanted[0]} and " \
                        f"{wanted[1]}"  # fmt: skip


def _shown(rows: int | None) -> str:
    return "an unknown number of" if rows is None else str(rows)
