"""Commits of a Delta table that remove rows, and the files that left and came with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable

from floodmark.connectors.delta import mapping
from floodmark.core.sql.tree.names import has_feed
from floodmark.core.text.tablenames import about_table
from floodmark.errors import HistoryGone
from floodmark.ledger.delta import tablelog
from floodmark.ledger.delta.datafiles import sizes_of
from floodmark.ledger.delta.tablelog import DataCommit

if TYPE_CHECKING:
    from floodmark.connectors.planning.versionrows import Added
    from floodmark.core.rules.rule import Stream

_TRACKED, _ROW_IDS = "delta.enableRowTracking", ("baseRowId", "defaultRowCommitVersion")
Key = tuple[str, str]  # a file, and its deletion vector: the same file with another vector has other rows


def rewriting(commits: Iterable[DataCommit]) -> list[DataCommit]:
    """The first commits in a row, among those that change data, that remove rows."""
    found: list[DataCommit] = []
    for commit in commits:
        if commit.removes:
            found.append(commit)
        elif found:
            break
    return found


def entry_gone(version: int) -> str:
    return (
        f"expected the log entry of version {version}, which is still to be read; it is gone. Restore the table's log, "
        "or start over with `floodmark reset`; give the source a longer `delta.logRetentionDuration`"
    )


def is_skipped(commit: DataCommit, stream: Stream) -> bool:
    """Whether a stream passes a commit over. One whose log entry is gone is not: it may have added rows.

    Nor is one that only brings files back: Spark reads their rows, as it passes over commits that remove files alone.
    """
    return stream.on_rewrite == "skip" and commit.removes and not commit.gone and not commit.only_returns


def why_stopped(commit: DataCommit, stream: Stream) -> str | None:
    """Why nothing beyond a commit is read until somebody decides; None: it is read.

    `on_rewrite: correct` follows no reset where rows can be late: the results that are written again lie below the
    watermark, so they would not count, and no correction would be due any more.
    """
    said = commit.metadata
    if said is None:
        return entry_gone(commit.version)
    if stream.on_rewrite != "correct" and commit.only_returns:
        return _returning(commit.version)
    if not commit.removes or stream.on_rewrite == "skip":
        return None
    problem = f"version {commit.version} of the table removes or changes existing rows: {author(said, stream.rule)}. "
    if stream.on_rewrite == "stop":
        return (
            f"{problem}Nothing more is read until the rule says what to do: with "
            "`on_rewrite: correct` at the stream, the next run recomputes the results of the rows that left and "
            "came; with `on_rewrite: skip`, it passes the commit over. Or start over from the table's current "
            "content with `floodmark reset`"
        )
    if stream.lateness_us is None or not _is_reset(said):
        return None
    first = f"`floodmark run {stream.rule}`" if stream.rule else "run that rule"
    return (
        f"{problem}Its new results lie below this rule's watermark, and `lateness` makes them late, so "
        f"`on_rewrite: correct` cannot follow. Nothing more is read. First {first}, then start this rule over with "
        "`floodmark reset`"
    )


def _returning(version: int) -> str:
    return (
        f"version {version} of the table is a RESTORE that brings removed files back and removes none: expected a "
        "commit that can be passed over, found one whose rows Spark would read as new ones, although they have counted "
        "before. Nothing more is read. If the rule can be corrected, the next run recomputes the results of the rows "
        "that are back with `on_rewrite: correct` at the stream, and `floodmark correct` does so once for a stream "
        "without `on_rewrite`. Otherwise, start over from the table's current content with `floodmark reset`"
    )


def described(address: str, commit: DataCommit) -> str:
    """A commit for people: its version and its operation."""
    info = tablelog.commit_info(address, commit.version)
    return f"version {commit.version} ({info.get('operation', 'unknown operation')})"


def newest_alike(address: str, version: int, newest: int) -> int:
    """The newest version with the same rows: VACUUM may have removed files that OPTIMIZE has joined since."""
    changed = next(tablelog.data_commits(address, version + 1, newest), None)
    return newest if changed is None else changed.version - 1


@dataclass
class FileChanges:
    """The files that left and came over some commits, as the log has them. One that came and left is in neither."""

    left: dict[Key, dict[str, Any]] = field(default_factory=dict)
    came: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def follow(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Take in one commit. Delta has no order within it, so what it removes goes first."""
        moves = list(actions)
        for removed in (one["remove"] for one in moves if "remove" in one):
            self._move(removed, self.came, self.left)
        for added in (one["add"] for one in moves if "add" in one):
            self._move(added, self.left, self.came)

    def _move(self, file: dict[str, Any], other: dict[Key, Any], own: dict[Key, Any]) -> None:
        key = (file["path"], json.dumps(file.get("deletionVector")))
        if other.pop(key, None) is None:
            own[key] = file


def file_changes(address: str, first: int, last: int) -> FileChanges:
    """The files that left and came by the versions from `first` to `last`. Raises HistoryGone without a log entry."""
    found = FileChanges()
    for _, actions in tablelog.logged(address, range(first, last + 1)):
        found.follow(actions)
    return found


def files_moved(
    address: str, now: DeltaTable, as_of: Callable[[int], DeltaTable], first: int, last: int
) -> tuple[Added, Added]:
    """The files that left and came, each to be read by the version that had them if its partition columns differ."""
    found, before = file_changes(address, first, last), partial(as_of, first - 1)

    def added(files: Mapping[Key, Any], version: int) -> Added:
        other = bool(files) and mapping.relaid(address, version, now, as_of) is not None
        lines = as_added(as_of(version) if other else now, address, files.values(), before)
        return lines, version if other else None

    return added(found.left, first - 1), added(found.came, last)


def is_fed(table: DeltaTable, address: str, first: int) -> bool:
    """Whether the table's change feed has all rows that left and came since version `first`, with today's columns."""
    if not has_feed(table.metadata().configuration):
        return False
    since = tablelog.logged(address, range(first, table.version() + 1))
    return not any("metaData" in action for _, actions in since for action in actions)


def as_added(
    table: DeltaTable, address: str, files: Iterable[Mapping[str, Any]], before: Callable[[], DeltaTable]
) -> Iterator[str]:
    """Actions of a log that add these files, which others may have removed. Raises HistoryGone where these do not say
    enough.

    before: the table as it was before files left. An action that removes a file need not say its size, and of a file
    without a size Spark reads no row.
    """
    found = table.metadata()
    partitioned = bool(found.partition_columns)
    ids = _ROW_IDS if found.configuration.get(_TRACKED, "").lower() == "true" else ()
    sizes: dict[str, int] = {}
    for file in files:
        size = file.get("size")
        if size is None:
            sizes = sizes or sizes_of(before())
            size = sizes.get(unquote(file["path"]))
            if size is None:
                raise _unknown(address, "size", file)
        if partitioned and file.get("partitionValues") is None:
            raise _unknown(address, "partition", file)
        yield json.dumps({"add": _added(file, size, ids)})


def _added(file: Mapping[str, Any], size: int, ids: Iterable[str]) -> dict[str, Any]:
    """`ids`: of rows, without which Spark does not read a vectored file. Nothing here depends on their values."""
    vector = file.get("deletionVector")
    return {
        "path": file["path"],
        "partitionValues": file.get("partitionValues") or {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
        **({"deletionVector": vector} if vector else {}),
        **{name: file.get(name) or 0 for name in ids},
    }


def _unknown(address: str, what: str, file: Mapping[str, Any]) -> HistoryGone:
    problem = (
        f"expected the {what} of {file['path']} in the log entry that removes it, found none: its rows cannot be "
        "compared. Start over with `floodmark reset`"
    )
    return HistoryGone(about_table(address, problem))


def _is_reset(info: Mapping[str, Any]) -> bool:
    """Whether a commit is the one by which the reset of a rule empties its sink."""
    return str(info.get("app", "")).startswith("floodmark/") and info.get("intent") == "empty"


def author(info: Mapping[str, Any], rule: str | None) -> str:
    """Who made a commit that removes rows, and why, according to its metadata. `rule`: whose sink the table is."""
    who = f"rule {rule}" if rule else "the rule that writes it"
    if not str(info.get("app", "")).startswith("floodmark/"):
        return "something other than a rule did it, and Floodmark reads only added rows"
    if _is_reset(info):
        return f"{who} was reset"
    if "backfill" in info:
        return f"{who} has replaced the results of an interval, in its backfill {info['backfill']}"
    return (
        f"{who} upserts rows by key, or replaces all of them in each run. If this rule needs only the newest rows, "
        "read the table as a lookup table (`lookups`)"
    )
