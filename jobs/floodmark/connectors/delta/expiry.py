"""When rows of a Delta table that are still to be read may be removed from disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from deltalake import DeltaTable

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.lifecycle.retention import DEFAULTS, FILES, LOG, Limit, retention_us
from floodmark.ledger.delta import tablelog


def expiring(
    name: str,
    address: str,
    table: DeltaTable,
    at: DeltaOffset,
    fresh: Sequence[int],
    needed: Collection[str],
    compares: bool,
    now_us: int,
) -> list[Limit]:
    """Limits on what stream `name` has not read: the log entries of the `fresh` versions, and files that were replaced.

    needed: files of a first snapshot. compares: files that a rewrite removed are needed, too.
    """
    info, first, newest = table.metadata().configuration, at.version + at.snapshot, table.version()
    kept = {setting: retention_us(address, setting, info.get(setting) or DEFAULTS[setting]) for setting in (LOG, FILES)}
    moves = {version: tablelog.moved(address, version) for version in range(min([first, *fresh]), newest + 1)}
    files, removed = set(needed), list[int]()
    for version, move in moves.items():
        if move is None:
            return [Limit(name, LOG, kept[LOG], kept[LOG], lost=version in fresh)]
        compared = compares and version in fresh
        removed += [at_us for path, at_us in move.removed.items() if path in files or compared]
        files |= move.added if version in fresh else set()
    oldest = moves[min(fresh)] if fresh else None
    written = [oldest.written_us] if oldest else [tablelog.written_us(address, at.version)]
    found = [Limit(name, LOG, now_us - one, kept[LOG]) for one in written if one is not None]
    return found + [Limit(name, FILES, now_us - one, kept[FILES]) for one in removed]
