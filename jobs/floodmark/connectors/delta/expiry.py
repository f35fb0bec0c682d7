"""When rows of a Delta table that are still to be read may be removed from disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from deltalake import DeltaTable

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.lifecycle.retention import DEFAULTS, FILES, LOG, Limit, is_to_pass, retention_us
from floodmark.errors import Refused
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
    """Limits on what stream `name` has not passed: the log entries from the offset on, and files that were replaced.

    fresh: versions with unread rows. Without the entry of another one, nobody knows that it has none.
    needed: files of a first snapshot. compares: files that a rewrite removed are needed, too.
    """
    info, first, newest = table.metadata().configuration, min([at.newest_read + 1, *fresh]), table.version()
    whole = tablelog.stored_us(address, at.version) if at.snapshot else None
    kept = {setting: retention_us(address, setting, info.get(setting) or DEFAULTS[setting]) for setting in (LOG, FILES)}
    if not (fresh or needed):
        waits = whole if at.snapshot else tablelog.stored_us(address, first)
        return [] if waits is None else [Limit(name, LOG, now_us - waits, kept[LOG], unread=False)]
    moves = tablelog.moved(address, first, newest)
    files, removed = set(needed), list[int]()
    for version, move in moves.items():
        if move is None:
            return [Limit(name, LOG, kept[LOG], kept[LOG], lost=version in fresh)]
        compared = compares and version in fresh
        removed += [at_us for path, at_us in move.removed.items() if path in files or compared]
        files |= move.added if version in fresh else set()
    oldest = moves.get(first)
    written = [whole, oldest.written_us if oldest else None]
    found = [Limit(name, LOG, now_us - one, kept[LOG]) for one in written if one is not None]
    return found + [Limit(name, FILES, now_us - one, kept[FILES]) for one in removed]


def is_due(address: str, at: DeltaOffset, table: Callable[[], DeltaTable], now_us: int) -> bool:
    """Whether an offset is to pass commits that hold nothing unread. Reads none of their log entries.

    A first snapshot that holds nothing is such a commit itself. Of an older one, only a checkpoint is left.
    """
    written = tablelog.stored_us(address, at.version if at.snapshot else at.newest_read + 1)
    if written is None:
        return at.snapshot
    said = table().metadata().configuration.get(LOG) or DEFAULTS[LOG]
    try:
        return is_to_pass(now_us - written, retention_us(address, LOG, said))
    except Refused:  # `forgets` tells it
        return False
