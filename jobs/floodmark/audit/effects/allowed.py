"""What the ledger lets a commit of its own do, and which of them may stand in a log unnamed."""

from __future__ import annotations

from typing import Any

from floodmark.audit.effects.moves import May
from floodmark.audit.effects.sinks import PREFIX, Sink, Sinks
from floodmark.audit.effects.undone import is_undo, may_stand
from floodmark.audit.facts import Tally
from floodmark.audit.ledger.named import ATTEMPTS, BACKFILLS, SEAL, Named
from floodmark.audit.ledger.story import Epoch, Generation


def epoch_in(generation: Generation, number: int) -> Epoch | None:
    """They stand in their order, but in a ledger that is broken."""
    there = generation.epochs[max(0, number - 1) : number]
    return next((one for one in (*there, *generation.epochs) if one.number == number), None)


def of_sink(epoch: Epoch, sink: Sink | None, named: Named | None) -> May:
    """What a commit of an epoch may do to a sink. `sink`: None where it cannot be told which one it is."""
    results = None if named is None else named.written.get("results")
    if sink is None:
        return May(merge=named is None or results is not None)
    if epoch.rule.get("rebuild") or not sink.get("key"):
        return May(merge=bool(epoch.rule.get("rebuild")) or results is not None)
    takes = bool(sink.get("delete") or sink.get("where"))  # a result that `where` leaves out takes its key's row away
    return May(True, None if results is None else results["rows"], takes)


def undone_in(epoch: Epoch | None, table: str, commit: int, version: int, intent: Any, tally: Tally) -> bool:
    """Whether a commit is of an epoch that was abandoned, as the ledger tells, or the one that took it back."""
    found = epoch is not None and version % ATTEMPTS <= BACKFILLS and may_stand(epoch, table, commit, version, intent)
    tally.undone += found
    return found


def excused(
    generation: Generation, version: int, intent: Any, tally: Tally, epoch: Epoch | None, qos: int | None
) -> bool:
    """Whether a commit of this generation, which carries the hash of this intent, may stand there unnamed.

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
    return epoch.result == "lost"


def qos_of(epoch: Epoch | None, sinks: Sinks | None, table: str) -> int | None:
    """Of a sink, as the epoch's rule has it; where it cannot be told which one that is, 1 if any has 1."""
    if epoch is None or not table.startswith(PREFIX):
        return None
    if sinks is None:
        return 1 if any(sink["qos"] == 1 for sink in epoch.rule["sinks"]) else None
    return sinks[table]["qos"] if table in sinks else None
