"""Check the files that each commit of a table adds and removes: their rows must match what the commit says.

All counts come from the statistics in the log. Rows of the table are those of its files, less the rows that deletion
vectors mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.audit.effects.partitions import differ
from floodmark.audit.evidence import File, LogEntry, TableLog, live_rows_of
from floodmark.audit.ledger.named import SEAL

Problems = Iterator[tuple[Literal["broken", "unknown"], str]]
Files = dict[tuple[str, str], File]
Paths = dict[str, Files]  # the same files, by path


@dataclass(frozen=True)
class Move:
    """Rows that one commit adds and removes; None if the number is unknown."""

    added: int | None
    removed: int | None


@dataclass(frozen=True)
class Allowance:
    """What one of the ledger's commits may do to its table besides adding files.

    `merge`: remove files, and say so; `most`: insert, update or delete at most so many rows, None: any number;
    `delete`: delete some of them.
    """

    merge: bool = False
    most: int | None = None
    delete: bool = True


@dataclass
class LogReplay:
    """A log's entries, replayed in order. `moves`: by version; `faults`: by version, changes that no engine makes;
    `stay`: by version, how many older files it leaves; `files`: those after all entries, `then`: those as of the newest
    checkpoint; None if the files at the log's start are unknown."""

    moves: dict[int, Move] = field(default_factory=dict)
    faults: dict[int, list[str]] = field(default_factory=dict)
    stay: dict[int, int] = field(default_factory=dict)
    files: Files | None = None
    then: Files | None = None


def replay_log(log: TableLog) -> LogReplay:
    if log.moves is not None:
        return LogReplay({version: Move(*rows) for version, rows in log.moves.items()})
    base, found = log.base, LogReplay()
    found.files = None if base is None else dict(base.files)
    paths: Paths = {}
    for file in (found.files or {}).values():
        paths.setdefault(file.path, {})[file.key] = file
    for entry in log.entries:
        if base is None or found.files is None or entry.version <= base.version:
            found.moves[entry.version] = _unfounded(entry)
        else:
            found.faults[entry.version] = list(_odd(entry, found.files, paths, log.types))
            found.moves[entry.version] = _moved(entry, found.files, paths)
            found.stay[entry.version] = len(found.files) - len({file.key for file in entry.added})
            if log.shown is not None and log.shown.version == entry.version:
                found.then = dict(found.files)
    return found


def _unfounded(entry: LogEntry) -> Move:
    """The move of an entry before which the files are unknown: a file added without a change may be one of them."""
    if not entry.changes and not entry.removed:
        return Move(None, None) if entry.added else Move(0, 0)
    return Move(live_rows_of(entry.added), live_rows_of(entry.removed))


def _odd(entry: LogEntry, files: Files, paths: Paths, types: Mapping[str, Any]) -> Iterator[str]:
    """Faults in how an entry adds files, whatever their rows are. `files`, `paths`: those before it."""
    gone = {file.key for file in entry.removed}
    before_it = (one for added in entry.added for one in paths.get(added.path, {}).values())
    there = {file.path: file for file in before_it if file.key not in gone}
    fresh = [file.path for file in entry.added if file.path not in there]
    if fresh and not entry.changes and not gone & files.keys():
        yield f"a commit that claims to change no rows adds the file {fresh[0]}, and removes none"
    for file in entry.added:
        before = there.setdefault(file.path, file)
        yield from (f"the file {file.path} is added again, with {what}" for what in _unlike(before, file, types))
    marks = {file.path: file.key for file in entry.removed if file.key in files}
    for file in () if entry.changes else entry.added:
        if marks.get(file.path, file.key) != file.key:
            yield f"a commit that claims to change no rows gives the file {file.path} another deletion vector"


def _unlike(one: File, other: File, types: Mapping[str, Any]) -> Iterator[str]:
    """Illegal differences of a file that is listed again: only its tags and the bounds of its values may change."""
    if one.key != other.key:
        yield "another deletion vector, while it is there with its old one"
    if one.partition.keys() != other.partition.keys() or any(
        differ(one.partition[name], other.partition[name], types.get(name, "string")) for name in one.partition
    ):
        yield "other values of the columns by which the table is partitioned"
    if None not in (one.rows, other.rows) and one.rows != other.rows:
        yield f"{other.rows} rows in place of {one.rows}"


def _moved(entry: LogEntry, files: Files, paths: Paths) -> Move:
    """Apply an entry to `files` and `paths`.

    An existing file may be added again, with other tags or statistics: no rows move.
    """
    went = [files.pop(file.key) for file in entry.removed if file.key in files]
    came = {file.key: file for file in entry.added if file.key not in files}
    files |= {file.key: file for file in entry.added}
    for file in entry.removed:
        paths.get(file.path, {}).pop(file.key, None)
    for file in entry.added:
        paths.setdefault(file.path, {})[file.key] = file
    return Move(live_rows_of(came.values()), live_rows_of(went))


def hidden(log: TableLog, files: Files | None) -> Iterator[str]:
    """Where readers, who trust the newest checkpoint, see other files than the entries leave, or see a file twice."""
    yield from (f"readers see the rows of {path} twice: the log has its path in two spellings" for path in log.twice)
    if files is None:
        return
    left = {path for path, _ in files}
    for path in sorted(left ^ log.live.keys()):
        yield f"by its entries the log {'has' if path in left else 'does not have'} the file {path}, but readers " \
              f"{'do not see it' if path in left else 'see it'}"  # fmt: skip


def misshown(log: TableLog, files: Files | None) -> Iterator[str]:
    """Files that the newest checkpoint lists otherwise than the entries up to it. `files`: as of these entries."""
    if files is None or log.shown is None:
        return
    left = {file.path: file for file in files.values()}
    for file in log.shown.files.values():
        if file.path in left:
            for what in _unlike(left[file.path], file, log.types):
                yield f"the checkpoint of version {log.shown.version} has the file {file.path} with {what}"


def miscompacted(log: TableLog) -> Iterator[str]:
    """Files that stand for several entries, of which readers take other files, or another table, than of these."""
    for (first, last), whole in log.compacted.items():
        entries = [entry for version in range(first, last + 1) if (entry := log.at(version)) is not None]
        if len(entries) == last - first + 1 and not _stands_for(whole, entries):
            yield f"the log's file that stands for versions {first} to {last} says something else than their entries"


def _stands_for(whole: LogEntry, entries: list[LogEntry]) -> bool:
    files: Files = {}
    gone: set[tuple[str, str]] = set()  # of all removed files
    older: set[tuple[str, str]] = set()  # of those from before the first entry, which have to be named
    declared, apps = dict[str, Any](), dict[str, int]()
    for entry in entries:
        keys = {file.key for file in entry.removed}
        older |= keys - files.keys() - gone
        gone = (gone | keys) - {file.key for file in entry.added}
        files = {key: file for key, file in files.items() if key not in keys} | {one.key: one for one in entry.added}
        declared |= entry.declared
        apps |= dict(entry.transactions)
    told = {file.key for file in whole.removed}
    return (
        {one.key: one for one in whole.added} == files
        and older - files.keys() <= told <= gone
        and (whole.declared, dict(whole.transactions).items() <= apps.items()) == (declared, True)
    )


def unbalanced(entry: LogEntry, move: Move, version: int | None, may: Allowance) -> Problems:
    """Contradictions between a commit's files and its metadata. `version`: of the ledger's app; None: another writer's
    commit."""
    if version is None:
        return _unchanged(move) if not entry.changes else iter(())
    if version == SEAL:
        return _sealed(entry, move)
    return _emptied(move) if version == 0 else _ours(entry, move, may)


def rewritten(entry: LogEntry, move: Move) -> Problems:
    """Contradictions in a rewrite of state. One by older code does not say how many rows it moves."""
    if "digest" in entry.metadata:
        yield from _filled(entry)
        yield from _compared("the commit", (move.added, move.removed), _effect(entry.metadata))


def _unchanged(move: Move) -> Problems:
    yield from _compared("a commit that claims to change no rows", (move.added, move.removed), (move.added, move.added))


def _sealed(entry: LogEntry, move: Move) -> Problems:
    if entry.added or entry.removed:
        yield "broken", f"a seal that adds {len(entry.added)} files and removes {len(entry.removed)}"
    elif move.removed:
        yield "broken", f"a seal that removes {move.removed} rows"


def _emptied(move: Move) -> Problems:
    """A generation's first commit may remove all rows."""
    yield from _compared("a commit that empties the table", (move.added, 0), (0, 0))


def _ours(entry: LogEntry, move: Move, may: Allowance) -> Problems:
    yield from _filled(entry)
    if may.merge and "inserted" in entry.metadata:
        yield from _overdone(entry.metadata, may)
        yield from _compared("the commit", (move.added, move.removed), _effect(entry.metadata))
    elif entry.removed:
        yield "broken", f"an append that removes {len(entry.removed)} files, with {_shown(move.removed)} rows"
    elif move.removed:
        yield "broken", f"an append that removes {move.removed} rows"


def _filled(entry: LogEntry) -> Problems:
    """The digest covers the added files with new rows."""
    digest, found = entry.metadata.get("digest"), live_rows_of(entry.files_with_rows)
    if digest is not None and found is not None and digest["rows"] != found:
        yield "broken", f"its files have {found} rows, the digest of what was written is of {digest['rows']}"


def _overdone(metadata: Mapping[str, Any], may: Allowance) -> Problems:
    """An upsert changes at most one row for each result, and deletes rows only if the rule says so."""
    inserted, updated, deleted = (metadata[name] for name in ("inserted", "updated", "deleted"))
    changed = inserted + updated + deleted
    if may.most is not None and changed > may.most:
        yield "broken", f"a merge of {may.most} results that claims to change {changed} rows"
    if deleted and not may.delete:
        yield "broken", f"a merge that claims to delete {deleted} rows, of a sink whose rule deletes none"


def _effect(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Rows added and rows removed, by the counts of a merge or a replacement: copied rows count as both."""
    inserted, updated, deleted, copied = (metadata[name] for name in ("inserted", "updated", "deleted", "copied"))
    return inserted + updated + copied, updated + deleted + copied


def _compared(whose: str, found: tuple[int | None, int | None], wanted: tuple[int | None, int | None]) -> Problems:
    if None in found:
        yield "unknown", ""
    elif found != wanted:
        yield "broken", f"{whose} adds files with {found[0]} rows and removes {found[1]}, expected {wanted[0]} and " \
                        f"{wanted[1]}"  # fmt: skip


def _shown(rows: int | None) -> str:
    return "an unknown number of" if rows is None else str(rows)
