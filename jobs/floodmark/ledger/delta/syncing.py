"""Syncs an epoch's writes to disk before the ledger records them; only with FLOODMARK_SYNC=1.

Neither Spark nor Delta nor delta-rs syncs on a local disk, so a power loss may leave any of their newest files missing,
empty or cut off. This order makes that harmless: an intent's row before the epoch's first effect; a table's data files
before the log entry that names them; the entry before the ledger's row that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from floodmark.ledger.delta import datafiles, tables

LEVELS = 4  # folders above a new table that a run may have created: HOME/RULE/state/gN


def is_enabled() -> bool:
    return os.environ.get("FLOODMARK_SYNC") == "1"


def sync_files(address: str, paths: Iterable[str]) -> None:
    """Sync data files of a local table, by their paths in its log, with Hadoop's checksums and the folders."""
    root = Path(address)
    if not is_enabled() or not root.is_dir():
        return
    files = [root / unquote(path) for path in paths]
    for file in files:
        _sync(file)
        _sync(file.with_name(f".{file.name}.crc"))
    for folder in {file.parent for file in files} | {root}:
        _sync(folder)


def sync_commit(address: str, commit: int) -> None:
    """Sync version `commit` of a local table: the files that it added, then its log entry."""
    log = Path(address) / "_delta_log"
    if not is_enabled() or not log.is_dir():
        return
    sync_files(address, datafiles.added_paths(address, commit))
    entry = log / f"{commit:020}.json"
    for place in (entry, log / f".{entry.name}.crc", log):
        _sync(place)


def sync_log(address: str, names: Iterable[str]) -> None:
    """Sync files of a local table's log, such as a checkpoint before the entries that it replaces are removed."""
    log = Path(address) / "_delta_log"
    if is_enabled() and log.is_dir():
        for place in (*(log / name for name in names), log):
            _sync(place)


def sync_table(address: str) -> None:
    """Sync the newest version of a table that may be new, with the folders that were created for it."""
    if is_enabled() and Path(address).is_dir():
        sync_commit(address, tables.newest_version(address))
        for folder in Path(address).parents[:LEVELS]:
            _sync(folder)


def _sync(place: Path) -> None:
    """Sync a file's content or a folder's entries, if it exists."""
    try:
        handle = os.open(place, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
