"""Reads from the log when each version of a table was committed.

delta-rs' history skips entries without `commitInfo`, which writers may leave out, and numbers the others down from the
newest. So every version before such an entry gets the number, and the time, of another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.committimes import committed, copied, copied_with, in_commit_from
from floodmark.core.text.tablenames import about_table
from floodmark.errors import HistoryGone, TableBroken
from floodmark.ledger.delta import tablelog
from floodmark.ledger.delta.tables import not_now

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ENTRY = re.compile(r"(\d{20})\.json")  # no checkpoints, which may end so, nor compacted entries


def commit_times(table: DeltaTable, address: str) -> dict[int, int]:
    """Version -> milliseconds since 1970, of all entries that the log still has, up to the loaded version.

    Raises HistoryGone if the entries were copied without their times, TableBroken if one lacks its in-commit timestamp,
    RunFailed if the log changes meanwhile.
    """
    newest = table.version()
    files = {version: time for version, time in _files(address) if version <= newest}
    since = in_commit_from({name: value or "" for name, value in table.metadata().configuration.items()})
    infos = {version: tablelog.info_in(one) for version, one in _entries(address, files, sorted(files))}
    own = {version: _own(address, version, infos[version]) for version in files if since and version >= since[0]}
    _refuse_copies(address, files, {version: info for version, info in infos.items() if version not in own})
    return committed(files, own, since)


def check_none_held(address: str, oldest: int) -> None:
    """Raise RunFailed if the log has entries before its `oldest`: an upkeep that joins files has yet to put them back,
    or has done so meanwhile."""
    if oldest > 0:
        list(_entries(address, (), [oldest - 1]))


def changes_since(table: DeltaTable, address: str, newest: int, since_us: int | None) -> dict[int, int]:
    """Version -> the same, of versions with other rows than the one before, up to `newest`: back to the first one that
    was committed before `since_us` (None: to the oldest in the log). Oldest first; empty without any entry.

    Only their entries are read, from the newest on. Raises as `commit_times`, for what affects these times; RunFailed
    if an upkeep holds some of them.
    """
    files = {version: time for version, time in _files(address) if version <= newest}
    oldest = min(files, default=newest + 1)
    since = in_commit_from({name: value or "" for name, value in table.metadata().configuration.items()})
    older = {version: time for version, time in files.items() if since is None or version < since[0]}
    times, found, infos = committed(older, {}, since), dict[int, int](), dict[int, dict[str, Any]]()
    for version, actions in _entries(address, files, range(newest, oldest - 1, -1)):
        infos[version] = tablelog.info_in(actions)
        if version == oldest or tablelog.changes_data(actions):
            found[version] = times[version] if version in times else _own(address, version, infos[version])
            if since_us is not None and found[version] * 1000 < since_us:
                break
    else:
        check_none_held(address, oldest)
    _check_copied(address, older, infos)
    return dict(reversed(found.items()))


def _entries(
    address: str, files: Collection[int], versions: Sequence[int]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Those of the log entries that were listed (`files`), in this order. Raises RunFailed if one has come or gone
    since."""
    for version, actions in tablelog.entries(address, versions):
        if (actions is None) == (version in files):
            raise not_now(address, f"log entry {version} came or went while the log was read")
        if actions is not None:
            yield version, actions


def _check_copied(address: str, files: Mapping[int, int], infos: Mapping[int, dict[str, Any]]) -> None:
    """Raise HistoryGone if the times of the entries that were read (`infos`) come from a copy. files: those whose time
    is that of their file.

    If the oldest entry names no time of its own, the next older one that does speaks for it, if one copy may have
    written the files of both.
    """
    read = {version: info for version, info in infos.items() if version in files}
    first = min(read, default=None)
    if first is not None and ((mover := _mover(files, first)) != first or not _names_time(read[first])):
        older = [version for version in copied_with(files, mover) if version != first]
        for version, actions in _entries(address, files, older):
            read[version] = tablelog.info_in(actions)
            if _names_time(read[version]):
                break
    _refuse_copies(address, files, read)


def _mover(files: Mapping[int, int], version: int) -> int:
    """The version whose file decides when this one was committed: its own, unless an earlier one is so young that it
    moves this one's time."""
    times = committed(files, {}, None)
    return max(one for one in files if one <= version and times[one] == files[one])


def _names_time(info: Mapping[str, Any]) -> bool:
    return info.get("timestamp") is not None


def _own(address: str, version: int, info: dict[str, Any]) -> int:
    if info.get("inCommitTimestamp") is None:
        raise TableBroken(
            about_table(
                address, f"expected a timestamp in log entry {version} (the table has in-commit timestamps), found none"
            )
        )
    return int(info["inCommitTimestamp"])


def _refuse_copies(address: str, files: Mapping[int, int], infos: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise HistoryGone if one of these entries names a time long before its file's."""
    version = copied(files, {version: int(info["timestamp"]) for version, info in infos.items() if _names_time(info)})
    if version is not None:
        raise HistoryGone(
            about_table(
                address,
                f"log entry {version} says that it was written long before its file, so the log was copied "
                "without the modification times of its files, from which Delta reads when a version was committed. "
                "Copy it again with its times (`cp -p`, `rsync -t`); or name a version instead of a time, and join "
                "without `history`",
            )
        )


def _files(address: str) -> Iterator[tuple[int, int]]:
    """The log's entries by version, with the times of their files."""
    for name, stamp in _listed(address):
        if found := _ENTRY.fullmatch(name):
            yield int(found[1]), stamp // 1_000_000


def _listed(address: str) -> Iterator[tuple[str, int]]:
    if "://" not in address:
        return ((file.name, file.stat().st_mtime_ns) for file in Path(address, "_delta_log").iterdir())
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileSelector

    found = DeltaStorageHandler(address).get_file_info_selector(FileSelector("_delta_log"))
    return ((file.path.rpartition("/")[2], file.mtime_ns) for file in found)
