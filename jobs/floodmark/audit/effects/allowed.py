"""Decide what the ledger's own commits may do, and which of them may be in a log without being named."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from floodmark.audit.effects.moves import Allowance
from floodmark.audit.effects.sinktables import PREFIX, Sink, Sinks
from floodmark.audit.effects.undone import is_allowed, is_undo
from floodmark.audit.evidence import LogEntry, TableLog, Tally
from floodmark.audit.ledger.generations import Epoch, Generation
from floodmark.audit.ledger.named import ATTEMPTS, BACKFILLS, SEAL, Named


def is_forget(entry: LogEntry, apps: Collection[str]) -> bool:
    """Whether the commit belongs to a forget, by its app ids; `floodmark.audit.forgotten` checks these."""
    return any(app in apps for app, _ in entry.transactions)


def is_rewrite(entry: LogEntry, table: str) -> bool:
    """Whether the commit rewrites state between epochs."""
    return table.startswith("state/") and "holds_from" in entry.metadata and not entry.transactions


def cuts(log: TableLog, apps: Collection[str]) -> dict[int, int]:
    """The commits that take old portions out of an outbox: version -> the first one whose rows are all there.

    The target has these portions: its own check compares it. `apps`: the ids under which they are taken out.
    """
    added = {file.path: entry.version for entry in log.entries for file in entry.added}
    return {
        entry.version: first
        for entry in log.entries
        for app, first in entry.transactions
        if app in apps and first <= entry.version and not entry.added and not entry.changes
        and all(added.get(file.path, -1) < first for file in entry.removed)
    }  # fmt: skip


def epoch_in(generation: Generation, number: int) -> Epoch | None:
    """The epoch with this number. Epochs are in order, except in a broken ledger."""
    there = generation.epochs[max(0, number - 1) : number]
    return next((one for one in (*there, *generation.epochs) if one.number == number), None)


def of_sink(epoch: Epoch, sink: Sink | None, named: Named | None) -> Allowance:
    """What a commit of an epoch may do to a sink. `sink`: None if it cannot be identified."""
    results = None if named is None else named.written.get("results")
    if sink is None:
        return Allowance(merge=named is None or results is not None)
    if epoch.rule.get("rebuild") or not sink.get("key"):
        return Allowance(merge=bool(epoch.rule.get("rebuild")) or results is not None)
    takes = bool(sink.get("delete") or sink.get("where"))  # a result that does not match `where` deletes its key's row
    return Allowance(True, None if results is None else results["rows"], takes)


def undone_in(epoch: Epoch | None, table: str, commit: int, version: int, intent: Any, tally: Tally) -> bool:
    """Whether the ledger accounts for a commit as one of an abandoned epoch, or as the one that undid it."""
    found = epoch is not None and version % ATTEMPTS <= BACKFILLS and is_allowed(epoch, table, commit, version, intent)
    tally.undone += found
    return found


def excused(
    generation: Generation, version: int, intent: Any, tally: Tally, epoch: Epoch | None, qos: int | None
) -> bool:
    """Whether a commit of this generation, with the hash of this intent, may be in a log unnamed.

    `qos`: of the sink, in the rule of that epoch.
    """
    if version == SEAL:
        return generation.seal is not None
    if version % ATTEMPTS > BACKFILLS:
        open_one = next((one for one in generation.backfills if one.result == "open"), None)
        mine = open_one is not None and (version, intent) == (
            open_one.epoch * ATTEMPTS + BACKFILLS + open_one.number,
            open_one.intent_hash,
        )
        tally.pending += mine
        return mine
    if epoch is None or intent != epoch.intent_hash:
        return False
    if epoch.result == "open":
        tally.pending += 1
        return epoch.abandoning or not is_undo(version)
    if epoch.result == "committed" and qos == 1 and version % ATTEMPTS < epoch.attempts:
        tally.repeated += 1
        return True
    # The first attempt at a sink of qos 0 is the only one, and a later one does not name what that has committed.
    only = qos == 0 and epoch.attempts > 1 and version % ATTEMPTS == 0
    return epoch.result == "lost" or (epoch.result == "committed" and only)


def qos_of(epoch: Epoch | None, sinks: Sinks | None, table: str) -> int | None:
    """The qos of a sink in the epoch's rule. If the sink cannot be identified: 1 if any sink has 1."""
    if epoch is None or not table.startswith(PREFIX):
        return None
    if sinks is None:
        return 1 if any(sink["qos"] == 1 for sink in epoch.rule["sinks"]) else None
    return sinks[table]["qos"] if table in sinks else None
