"""Compares a table's commit with the results that an attempt at the epoch computed.

Before a commit, it checks that the files to add and remove have the computed effect. After it, or for a commit of an
earlier attempt, it checks the intent's hash, the number of rows and the files that the log entry moved. Then it
compares the rows by their digests, and checks that they are still in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.presence import Presence
from floodmark.core.rules.sinks.upserts import Effect
from floodmark.core.text.tablenames import about_named
from floodmark.errors import VerifyFailed

_AGAIN = "computed again, its rows differ"
_CAUSES = "the source was rewritten, the SQL depends on more than its input, or the sink's files were edited"


@dataclass(frozen=True)
class Committed:
    """One of our writes, as a sink holds it.

    commit: where (of a Delta table its version). rows: how many results. metadata: what the write recorded of itself.
    added, removed: rows that were added and removed, by the sink's own account.
    """

    commit: int
    rows: int
    added: int
    removed: int
    metadata: Mapping[str, Any]


def check_before_commit(table: str, moves: tuple[int, int], promised: Effect) -> None:
    """Raise VerifyFailed unless files with so many rows, added and removed, have the computed effect."""
    if not promised.agrees(*moves):
        raise VerifyFailed(
            about_named(
                table,
                f"the files to be committed add {moves[0]} rows and remove {moves[1]}, which does not match "
                f"what was computed ({promised}). Nothing was committed to this table",
            )
        )


def check_same_effect(table: str, found: Committed, intent: str, rows: int) -> None:
    """Raise VerifyFailed unless the commit carries this intent and as many rows as this attempt computed."""
    if found.metadata["intent"] != intent:
        raise VerifyFailed(
            about_named(
                table,
                f"commit {found.commit} was written for another intent ({found.metadata['intent'][:12]}) than "
                f"the ledger's ({intent[:12]}); the ledger was restored or edited",
            )
        )
    if found.rows != rows:
        raise VerifyFailed(
            about_named(
                table,
                f"{_named(found)} wrote {found.rows} rows; computed again, it has {rows}. Likely: the source "
                "was rewritten, or the SQL depends on more than its input",
            )
        )


def check_same_files(table: str, found: Committed, effect: Effect | None) -> None:
    """Raise VerifyFailed unless the files that the commit moved have this effect (None: that of an append)."""
    effect = effect or Effect(found.rows, inserted=found.rows)
    if not effect.agrees(found.added, found.removed):
        raise VerifyFailed(
            about_named(
                table,
                f"according to its log, commit {found.commit} added {found.added} rows and removed "
                f"{found.removed}, which does not match what was computed ({effect})",
            )
        )


def check_same_rows(table: str, found: Committed, digest: Digest, results: Digest | None) -> None:
    """Raise VerifyFailed unless the commit's metadata has the digest of the rows that were computed again.

    digest, results: as this attempt computed them. For an upsert (`results` is not None) the results are compared,
    because the rows that they change have changed since.
    """
    name, again = ("digest", digest) if results is None else ("results", results)
    written = _digest(found.metadata.get(name))
    if written is not None:
        _check_same(table, found, written, again, _AGAIN, _CAUSES)


def check_same_content(table: str, found: Committed, held: Digest, digest: Digest, results: Digest | None) -> None:
    """Raise VerifyFailed unless the commit's files hold (`held`) what it wrote.

    Commits of older versions do not record what they wrote; an append's rows must equal those that were computed again.
    """
    written = _digest(found.metadata.get("digest"))
    if written is not None:
        _check_same(table, found, written, held, "its files contain other rows than it wrote", "the files were edited")
    elif results is None:
        _check_same(table, found, held, digest, _AGAIN, _CAUSES)


def check_rows_present(table: str, found: Committed, now: Presence) -> None:
    """Raise VerifyFailed if another commit has since removed or changed rows that the commit wrote."""
    if now.removed_by is None:
        return
    version, operation = now.removed_by
    raise VerifyFailed(
        about_named(
            table,
            f"{_named(found)} wrote its rows in commit {found.commit}; commit {version} ({operation}), which "
            "is not Floodmark's, removed some of them or restored rows that they replaced. Restore the table, for "
            f"example by RESTORE TABLE delta.`...` TO VERSION AS OF {version - 1}",
        )
    )


def recorded_digest(found: Committed) -> Digest:
    """The digest of the rows that the commit wrote, from its metadata."""
    return Digest.model_validate(found.metadata["digest"])


def _named(found: Committed) -> str:
    """The epoch or backfill whose commit it is."""
    backfill = found.metadata.get("backfill")
    return f"epoch {found.metadata['epoch']}" if backfill is None else f"backfill {backfill}"


def _digest(facts: dict[str, Any] | None) -> Digest | None:
    return None if facts is None else Digest.model_validate(facts)


def _check_same(table: str, found: Committed, before: Digest, now: Digest, what: str, causes: str) -> None:
    differing = "; ".join(before.differences(now))
    if differing:
        raise VerifyFailed(
            about_named(table, f"{_named(found)}, commit {found.commit}: {what} ({differing}). Likely: {causes}")
        )
