"""Has the disk take what an epoch wrote before the ledger says so; only where FLOODMARK_SYNC=1 asks for it.

Neither Spark nor Delta nor delta-rs syncs on a local disk, so a power loss may leave any of their newest files out,
empty or cut off. In this order it cannot harm: an intent's row before the epoch's first effect; a table's data files
before the log entry that names them; the entry before the ledger's row that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from floodmark.ledger.delta import datafiles, tables

LEVELS = 4  # of folders above a new table that a run may have made: HOME/RULE/state/gN


def asked() -> bool:
    return os.environ.get("FLOODMARK_SYNC") == "1"


def sync_files(address: str, paths: Iterable[str]) -> None:
    """Data files of a local table, by their paths in its log, with Hadoop's checksums and the folder's entries."""
    root = Path(address)
    if not asked() or not root.is_dir():
        return
    files = [root / unquote(path) for path in paths]
    for file in files:
        _sync(file)
        _sync(file.with_name(f".{file.name}.crc"))
    for folder in {file.parent for file in files} | {root}:
        _sync(folder)


def sync_commit(address: str, commit: int) -> None:
    """Version `commit` of a local table: the files that it added, then its log entry."""
    log = Path(address) / "_delta_log"
    if not asked() or not log.is_dir():
        return
    sync_files(address, datafiles.added_paths(address, commit))
    entry = log / f"{commit:020}.json"
    for place in (entry, log / f".{entry.name}.crc", log):
        _sync(place)


def sync_table(address: str) -> None:
    """The newest version of a table that may just have been made, with the folders that were made for it."""
    if asked() and Path(address).is_dir():
        sync_commit(address, tables.newest_version(address))
        for folder in Path(address).parents[:LEVELS]:
            _sync(folder)


def _sync(place: Path) -> None:
    """A file's content, or which names a folder has; what is not there needs none."""
    try:
        handle = os.open(place, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
