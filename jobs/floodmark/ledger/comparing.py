"""What a table's commit says was written, held against what an attempt at the epoch computed.

Compared in this order: the intent's hash, the number of rows, the rows themselves by their digest.
"""

from __future__ import annotations

from typing import Any

from floodmark.core.digests import Digest
from floodmark.core.upserts import Effect
from floodmark.errors import ReplayDiffers
from floodmark.ledger.tables import OurCommit

_AGAIN = "computed again, its rows are others"
_CAUSES = "the source was rewritten, the SQL depends on more than its input, or the sink's files were edited"


def same_effect(address: str, found: OurCommit, intent: str, rows: int) -> None:
    """Raise ReplayDiffers unless the commit carries this intent and as many rows as this attempt computed."""
    if found.metadata["intent"] != intent:
        raise ReplayDiffers(
            f"{address}: commit {found.commit} was written for another intent ({found.metadata['intent'][:12]}) than "
            f"the ledger's ({intent[:12]}); the ledger was put back or edited. Begin anew with `floodmark reset`"
        )
    if found.rows != rows:
        raise ReplayDiffers(
            f"{address}: {_named(found)} wrote {found.rows} rows, computed again it has {rows}. "
            "Likely: the source was rewritten, or the SQL depends on more than its input. "
            "Begin anew with `floodmark reset`"
        )


def same_files(address: str, found: OurCommit, effect: Effect | None) -> None:
    """Raise ReplayDiffers unless the files that the commit moved have the effect that was computed (None: any)."""
    if effect is not None and not effect.agrees(found.added, found.removed):
        raise ReplayDiffers(
            f"{address}: by its log, commit {found.commit} added {found.added} rows and removed {found.removed}, which "
            f"is not what was computed ({effect}). Begin anew with `floodmark reset`"
        )


def same_rows(address: str, found: OurCommit, held: Digest, digest: Digest, results: Digest | None) -> None:
    """Raise ReplayDiffers unless the commit's files hold what was written, and that is what was computed again.

    `held`: of the rows in these files; `digest`, `results`: as this attempt computed them. Of an upsert (`results` is
    not None) the results are compared with those that the commit's metadata names: what they change, is changed.
    """
    written, merged = (_digest(found.metadata.get(name)) for name in ("digest", "results"))
    if written is not None:
        _same(address, found, written, held, "its files hold other rows than it wrote", "the files were edited")
    if results is None:
        _same(address, found, held, digest, _AGAIN, _CAUSES)
    elif merged is not None:
        _same(address, found, merged, results, _AGAIN, _CAUSES)


def _named(found: OurCommit) -> str:
    """Whose commit it is."""
    backfill = found.metadata.get("backfill")
    return f"epoch {found.metadata['epoch']}" if backfill is None else f"backfill {backfill}"


def _digest(said: dict[str, Any] | None) -> Digest | None:
    return None if said is None else Digest.model_validate(said)


def _same(address: str, found: OurCommit, before: Digest, now: Digest, what: str, causes: str) -> None:
    differing = "; ".join(before.differences(now))
    if differing:
        raise ReplayDiffers(
            f"{address}: {_named(found)}, commit {found.commit}: {what} ({differing}). Likely: "
            f"{causes}. Put back what was changed and run again, or begin anew with `floodmark reset`"
        )
