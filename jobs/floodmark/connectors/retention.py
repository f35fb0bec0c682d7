"""How long the sources of a rule keep what it has not read yet, from their logs alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from floodmark.connectors.registry import sources
from floodmark.core.lifecycle.retention import DEFAULTS, FILES, LOG, Limit, kept_us, nearest
from floodmark.core.protocol.entry import NOWHERE, DeltaOffset
from floodmark.ledger.delta import tablelog, tables

if TYPE_CHECKING:
    from floodmark.connectors.delta.table import DeltaSource
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule


def limits(rule: Rule, head: Head) -> dict[str, Limit]:
    """By stream that has unread input, what of it goes first. What an open epoch, or backfill, reads counts as unread.

    A rule that is rebuilt by each run reads what is there then, and needs no history.
    """
    found: dict[str, Limit] = {}
    if rule.rebuild:
        return found
    lines = head.lines_of(head.reads_from)
    for name, source in sources(rule).items():
        line = lines.get(name, NOWHERE)
        limit = None if line == NOWHERE else nearest(_limits(source, DeltaOffset.parse(line), time.time_ns() // 1000))
        if limit is not None:
            found[name] = limit
    return found


def _limits(source: DeltaSource, at: DeltaOffset, now: int) -> list[Limit]:
    table = source.table()
    newest, first = table.version(), at.version + at.snapshot
    fresh = [commit.version for commit in source.fresh(at, newest)]
    whole = source.paths_at(at.version) if at.snapshot else set[str]()
    if tables.table_id(table) != at.table_id or not (fresh or whole):
        return []
    said = table.metadata().configuration
    kept = {name: kept_us(source.address, name, said.get(name) or DEFAULTS[name]) for name in (LOG, FILES)}
    moves = {version: tablelog.moved(source.address, version) for version in range(min([first, *fresh]), newest + 1)}
    needed, removed = set(whole), list[int]()
    for version, move in moves.items():
        if move is None:
            return [Limit(source.name, LOG, kept[LOG], kept[LOG], gone=version in fresh)]
        removed += [at_us for path, at_us in move.removed.items() if path in needed]
        needed |= move.added if version in fresh else set()
    oldest = moves[min(fresh)] if fresh else None
    written = [oldest.written_us] if oldest else [tablelog.written_us(source.address, at.version)]
    found = [Limit(source.name, LOG, now - one, kept[LOG]) for one in written if one is not None]
    return found + [Limit(source.name, FILES, now - one, kept[FILES]) for one in removed]
