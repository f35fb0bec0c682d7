"""Reads commits in the logs of Delta tables: those of a rule, and the files that each moved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

from deltalake import DeltaTable

from floodmark.core.protocol.presence import Moves, Presence, moves_of, presence
from floodmark.core.text.tablenames import about_table
from floodmark.errors import HistoryGone
from floodmark.ledger.comparing import Committed
from floodmark.ledger.delta.datafiles import commit_metadata, file_rows, root_of
from floodmark.ledger.delta.storelogs import StoredLog, ahead
from floodmark.ledger.delta.tables import (
    NEWEST,
    actions_in,
    delta_errors,
    entry_actions,
    local_entry,
    logged_between,
    metadata_of,
    missing_files,
    newest_version,
    open_table,
    stored_entry_us,
    there_bytes,
)

Actions = list[dict[str, Any]]  # of a log entry
_MOVES = ("add", "remove")


def entries(address: str, versions: Sequence[int]) -> Iterator[tuple[int, Actions | None]]:
    """Log entries in this order, each with its version; None in place of one that is gone.

    Raises RunFailed for an entry that an upkeep has yet to put back.
    """
    store = StoredLog(address, versions)

    def ask(version: int) -> tuple[int, bytes | None]:
        try:
            return version, there_bytes(address, version, store)
        except FileNotFoundError:
            return version, None

    local = local_entry(address, 0).parent.is_dir()
    for version, data in map(ask, versions) if local else ahead(ask, versions):
        yield version, None if data is None else actions_in(data, address, version)


def logged(address: str, versions: Sequence[int]) -> Iterator[tuple[int, Actions]]:
    """The same. Raises HistoryGone for an entry that is gone."""
    for version, actions in entries(address, versions):
        if actions is None:
            raise missing_files(address, version, "its log entry")
        yield version, actions


def recorded_version(address: str, app: str) -> int | None:
    """The largest version the table has recorded for an app id; None also if there is no table."""
    table = open_table(address)
    return None if table is None else recorded_in(table, app)


def recorded_in(table: DeltaTable, app: str) -> int | None:
    """The largest version the table has recorded for an app id. Raises TableBroken: delta-rs reads the log for it."""
    with delta_errors(root_of(table)):
        return table.transaction_version(app)


def committed_of(entry: Mapping[str, Any], added: int, removed: int) -> Committed:
    """A commit by one of our writes, from its `commitInfo` and version; `added`, `removed`: as the log counts."""
    metadata = json.loads(entry["userMetadata"])
    written = entry.get("operationMetrics", {}).get("numOutputRows", 0)
    rows = int(metadata.get("rows", written))  # an upsert writes other rows than its results
    return Committed(int(entry["version"]), rows, added, removed, metadata)


def commit_at(address: str, commit: int, app: str, version: int) -> Committed | None:
    """The table's commit `commit`, from its log; None if it does not record (app, version)."""
    actions = entry_actions(address, commit)
    recorded = [action["txn"] for action in actions if "txn" in action]
    if not any((said["appId"], said["version"]) == (app, version) for said in recorded):
        return None
    entry = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return committed_of({**entry, "version": commit}, *rows_moved(actions))


def rows_moved(actions: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How many rows a commit with these actions adds and removes, by the statistics of its files."""
    added, removed = (sum(file_rows(action[kind]) for action in actions if kind in action) for kind in _MOVES)
    return added, removed


def our_commit(address: str, app: str, version: int) -> Committed:
    """The commit that recorded (app, version). Raises HistoryGone if the table's log no longer holds it.

    It searches from the newest on and stops at the match, which is nearly always among the first. Older entries, which
    a checkpoint replaces, are not needed here.
    """
    for entry in commit_infos(address):
        said = metadata_of(entry)
        if said and (said["app"], said["version"]) == (app, version):
            found = commit_at(address, entry["version"], app, version)
            if found is not None:
                return found
    raise HistoryGone(
        about_table(
            address,
            f"the log no longer has the commit of {app} version {version}, so its rows cannot be compared; "
            "restore the table's log, or start over with `floodmark reset`",
        )
    )


def commit_infos(address: str) -> Iterator[dict[str, Any]]:
    """The metadata of each commit, from the newest to the oldest that the log still holds."""
    table = open_table(address)
    for version in range(table.version() if table else -1, -1, -1):
        try:
            info = commit_info(address, version)
        except FileNotFoundError:
            return
        yield {**info, "version": version}


def commit_info(address: str, version: int) -> dict[str, Any]:
    """The metadata of a commit, empty if its writer left it out. Raises FileNotFoundError if it is gone."""
    return info_in(entry_actions(address, version))


def info_in(actions: Actions) -> dict[str, Any]:
    """The same, from a log entry."""
    found: Iterator[dict[str, Any]] = (one["commitInfo"] for one in actions if "commitInfo" in one)
    return next(found, {})


def moves_rows(address: str, version: int) -> bool:
    """Whether a commit changes rows: by its files, because layouts and upkeep have operations of many names."""
    files = (action[kind] for action in entry_actions(address, version) for kind in _MOVES if kind in action)
    return any(file.get("dataChange", True) for file in files)


def written_for(address: str, ledger: str) -> bool:
    """Whether one of the table's newest commits is by the rule with this ledger."""
    found = map(metadata_of, islice(commit_infos(address), NEWEST))
    return any(one["app"].split("/")[1] == ledger for one in found if one)


def rows_now(address: str, commit: int) -> Presence:
    """Whether the rows that commit `commit` added are still in the table. Raises HistoryGone without log entries."""
    later = logged(address, range(commit + 1, newest_version(address) + 1))
    return presence(_moves(address, commit), (moves_of(version, actions) for version, actions in later))


def _moves(address: str, version: int) -> Moves:
    return moves_of(version, logged_between(address, version))


def transactions(address: str, version: int) -> list[tuple[str, int]]:
    """The app transactions that a log entry records. Raises FileNotFoundError if it does not exist."""
    return [
        (one["txn"]["appId"], int(one["txn"]["version"])) for one in entry_actions(address, version) if "txn" in one
    ]


@dataclass(frozen=True)
class DataCommit:
    """A commit that changes data: files added, their bytes, and whether any is removed, or brought back.

    metadata: of a rule's commit; None if the commit's log entry is gone. only_returns: whether it is a RESTORE that
    brings whole files back and removes none.
    """

    version: int
    adds: int
    size: int
    removes: bool
    metadata: dict[str, Any] | None
    only_returns: bool = False

    @property
    def gone(self) -> bool:
        """Whether the log no longer tells what the commit did: it may have added rows that are not read yet."""
        return self.metadata is None


def data_commits(address: str, first: int, last: int) -> Iterator[DataCommit]:
    """The commits in [first, last] that change data. A version without its log entry counts, because it may."""
    for version, actions in entries(address, range(first, last + 1)):
        found = _data_changes(version, actions)
        if found.adds or found.removes:
            yield found


def changes_data(actions: Actions) -> bool:
    """Whether a log entry is that of a commit that changes data."""
    return any(action.get(kind, {}).get("dataChange") for action in actions for kind in _MOVES)


def _data_changes(version: int, actions: Actions | None) -> DataCommit:
    if actions is None:
        return DataCommit(version, 1, 0, True, None)
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    removes = any(action.get("remove", {}).get("dataChange") for action in actions)
    # Such rows are as old as when they left.
    returns = bool(added) and not removes and any(_operation(action) == "RESTORE" for action in actions)
    size, said = sum(add["size"] for add in added), commit_metadata(actions)
    return DataCommit(version, len(added), size, removes or returns, said, returns)


def _operation(action: dict[str, Any]) -> str | None:
    found: str | None = action.get("commitInfo", {}).get("operation")
    return found


@dataclass(frozen=True)
class Moved:
    """The files that a commit added, and those that it removed, with when; when it was written. Microseconds."""

    added: frozenset[str]
    removed: Mapping[str, int]
    written_us: int


def moved(address: str, first: int, last: int) -> dict[int, Moved | None]:
    """The files that the commits in [first, last] moved, whether rows changed or not; None if the log entry is gone."""
    found = entries(address, range(first, last + 1))
    return {version: None if actions is None else _moved(address, version, actions) for version, actions in found}


def _moved(address: str, version: int, actions: Actions) -> Moved:
    removes = [action["remove"] for action in actions if "remove" in action]
    info = info_in(actions)
    return Moved(
        frozenset(action["add"]["path"] for action in actions if "add" in action),
        {remove["path"]: int(remove.get("deletionTimestamp", 0)) * 1000 for remove in removes},
        written_us(address, version) or int(info.get("timestamp", 0)) * 1000,
    )


def written_us(address: str, version: int) -> int | None:
    """When a log entry of a local table was written, by which Delta judges its age; None if it is not local."""
    try:
        return local_entry(address, version).stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return None


def stored_us(address: str, version: int) -> int | None:
    """The same wherever the table is, without reading the entry; None if there is no such entry."""
    if local_entry(address, version).parent.is_dir():
        return written_us(address, version)
    return stored_entry_us(address, version)


def log_sum(address: str, version: int) -> str | None:
    """SHA-256 of a log entry, which distinguishes it from another table's; None if it does not exist.

    Raises RunFailed if the store cannot be reached, or upkeep holds the entry: it is not treated as gone.
    """
    try:
        return sha256(there_bytes(address, version)).hexdigest()
    except FileNotFoundError:
        return None
