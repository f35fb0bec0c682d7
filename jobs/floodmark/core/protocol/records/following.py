"""Folds the ledger's rows, in their order, into the ledger's head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Deferred, Rewrite
from floodmark.core.protocol.records.chain import check_chain
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import (
    ENDS,
    Abandoned,
    Abandoning,
    Commit,
    Intent,
    Life,
    Lost,
    Row,
    Seal,
    text_of,
    total,
)
from floodmark.core.protocol.watermark import merge
from floodmark.core.rules.kinds import durable_sinks
from floodmark.core.rules.rule import Rule, Sink
from floodmark.errors import LedgerBroken

DEFERRED_SINCE = 10  # the first format in which the offsets are behind a rewrite before its correction


def read_head(rows: Iterable[Row], head: Head | None = None) -> Head | None:
    """The head of a whole ledger, oldest row first, or of the rows that follow on `head`; None for an empty one.

    Raises LedgerBroken if sequence, chain or order of the rows is wrong.
    """
    for row in rows:
        head = follow(head, row)
    return head


def head_at(rows: Sequence[Row], epoch: int) -> Head:
    """The head of the newest generation at the end of `epoch`, one of its own."""
    ends = (row.kind in ENDS and (row.generation, row.epoch) == (rows[-1].generation, epoch) for row in rows)
    head = read_head(rows[: list(ends).index(True) + 1])
    assert head is not None
    return head


def follow(head: Head | None, row: Row) -> Head:
    """The head after one more row. Raises LedgerBroken if the row does not follow."""
    check_chain(row, *((head.seq + 1, head.hash) if head else (1, "")))
    return _fold(head, row)


def _fold(head: Head | None, row: Row) -> Head:
    if row.kind == "commit" and row.epoch == 0:
        return _begin(head, row)
    if head is None or row.generation != head.generation:
        raise LedgerBroken(f"ledger row {row.seq} ({row.kind}) belongs to a generation that never started")
    if head.retired is not None and row.kind != "life":
        raise LedgerBroken(f"ledger row {row.seq}: {row.kind} of a rule that was retired {head.retired}")
    if head.forgetting is not None and row.kind not in ("life", "seal"):
        raise LedgerBroken(f"ledger row {row.seq}: {row.kind} while forget {head.forgetting.number} was open")
    changed = _FOLLOWS[row.kind](head, row)
    return replace(changed, seq=row.seq, hash=row.hash)


def _begin(head: Head | None, row: Row) -> Head:
    commit = Commit.model_validate_json(row.body)
    if head is not None and (
        head.seal is None or head.retired or (row.generation, row.token) != (head.seal.successor, head.seal.token)
    ):
        raise LedgerBroken(f"ledger row {row.seq} starts generation {row.generation}, which no seal announced")
    if commit.rule is None:
        raise LedgerBroken(f"ledger row {row.seq} starts a generation without its rule")
    places = _still_placed(head, commit) if head else {}
    return Head(
        seq=row.seq,
        hash=row.hash,
        generation=row.generation,
        token=row.token,
        epoch=0,
        entry=Entry.parse(commit.entry),
        watermark=commit.watermark,
        maxima=commit.maxima,
        rule=Rule.from_json(commit.rule),
        begun_with=commit,
        kept_output=commit.kept_output,
        written={name: written.version for name, written in commit.tables.items()},
        commits={name: written.commit for name, written in commit.tables.items()},
        table_ids=commit.table_ids,
        heard=commit.heard,
        columns=commit.columns,
        name=head.name if head else None,
        places=places,
        text_places=places,
        maintained=head.maintained if head else None,
    )


def _still_placed(head: Head, commit: Commit) -> dict[str, str]:
    """Addresses of moved sinks that the new generation keeps; a table that it created is where its name says."""
    ids = {name: (commit.table_ids.get(name), head.table_ids.get(name)) for name in head.places}
    return {name: place for name, place in head.places.items() if ids[name][0] in (None, ids[name][1])}


def _expect_next(head: Head, row: Row) -> None:
    """Raise LedgerBroken unless the row is of the next epoch. One that is being abandoned has no other end."""
    if head.abandoning and row.kind != "abandoned":
        raise LedgerBroken(f"ledger row {row.seq}: {row.kind} of epoch {row.epoch}, which is being abandoned")
    if head.seal is not None or head.backfill is not None or row.epoch != head.epoch + 1:
        what = f"epoch {head.epoch + 1}" if head.backfill is None else f"the end of backfill {head.backfill.number}"
        raise LedgerBroken(f"ledger row {row.seq}: expected {what}, found {row.kind} of epoch {row.epoch}")


def _open(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    intent = Intent.model_validate_json(row.body)
    if head.open is not None and head.open.digest != intent.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was planned again while an intent was open")
    places = head.places if head.open is None else head.open_places
    return replace(head, open=intent, attempt=row.attempt, open_places=places)


def _commit(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    commit = Commit.model_validate_json(row.body)
    if head.open is None or commit.intent != head.open.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was committed without its intent")
    rule = Rule.from_json(head.open.rule)
    return replace(
        _advanced(head, commit, row),
        rule=rule,
        restated_by=None,
        text_places=head.open_places,
        texts=tuple(dict.fromkeys((*head.texts, text_of(rule)))),
        looked_up=head.open.lookups,
        written={**head.written, **{name: table.version for name, table in commit.tables.items()}},
        commits={**head.commits, **{name: table.commit for name, table in commit.tables.items()}},
        table_ids={**head.table_ids, **commit.table_ids},
    )


def _lose(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    lost = Lost.model_validate_json(row.body)
    return replace(_advanced(head, lost, row), lost=lost.lost_epochs, announced_sinks=_announced(head))


def _abandon(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    if head.open is None or Abandoning.model_validate_json(row.body).intent != head.open.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} is being abandoned, but is not open")
    return replace(head, abandoning=True, failed=None)


def _abandoned(head: Head, row: Row) -> Head:
    """The head after an abandoned epoch: only the epoch's number advances; offsets and watermark do not."""
    _expect_next(head, row)
    done = Abandoned.model_validate_json(row.body)
    if not head.abandoning or head.open is None or done.intent != head.open.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was abandoned without a row that announced it")
    if (Entry.parse(done.entry), done.watermark) != (head.entry, head.watermark):
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was abandoned, but its offsets or watermark moved")
    listed = {name: table for name, table in done.tables.items() if name in head.table_ids}  # others may be made anew
    return replace(
        head,
        epoch=row.epoch,
        lost=done.lost_epochs,
        abandoned=(*head.abandoned, row.epoch),
        abandoning=False,
        announced_sinks=_announced(head),
        written={**head.written, **{name: table.version for name, table in listed.items()}},
        commits={**head.commits, **{name: table.commit for name, table in listed.items()}},
        open=None,
        attempt=0,
    )


def _advanced(head: Head, record: Commit | Lost, row: Row) -> Head:
    return replace(
        head,
        epoch=row.epoch,
        entry=Entry.parse(record.entry),
        watermark=record.watermark,
        maxima=record.maxima,
        heard=record.heard,
        log_sums=record.log_sums,
        columns=(head.open.columns if head.open else {}) or head.columns,
        replays=head.replays | ({row.epoch: head.open.replay} if head.open and head.open.replay else {}),
        skipped=_skipped(head),
        quiet_ms=None if _is_heard(head, record) else head.quiet_since_ms,
        open=None,
        attempt=0,
        failed=None,
    )


def _is_heard(head: Head, record: Commit | Lost) -> bool:
    """Whether an epoch ends the silence: it has folded rows, or the watermark has taken the silence into account.

    Filtered, late and dead rows do not move the watermark: if they ended the silence, windows could stay open for good.
    """
    ticks = head.open.ticks if head.open else ()
    return bool(total(record.counts).folded or ticks or record.watermark != head.watermark)


def _skipped(head: Head) -> dict[str, int]:
    found = head.open.skipped if head.open else {}
    return _added(head.skipped, {name: len(commits) for name, commits in found.items()})


def _added(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**counts, **{name: counts.get(name, 0) + count for name, count in more.items()}}


def _seal(head: Head, row: Row) -> Head:
    seal = Seal.model_validate_json(row.body)
    over: dict[str, Any] = dict.fromkeys(("open", "backfill", "failed", "forgetting"))
    return replace(head, seal=seal, announced_sinks=_announced(head), abandoning=False, attempt=0, **over)


def _announced(head: Head) -> tuple[Sink, ...]:
    """`announced_sinks` once the open epoch, if any, is over without a commit."""
    if head.open is None:
        return head.announced_sinks
    known = {sink.address for sink in head.announced_sinks}
    found = durable_sinks(Rule.from_json(head.open.rule))
    return (*head.announced_sinks, *(sink for sink in found if sink.address not in known))


def _start_backfill(head: Head, row: Row) -> Head:
    _expect_between(head, row)
    backfill = Backfill.model_validate_json(row.body)
    if head.backfill is not None and head.backfill.digest != backfill.digest:
        raise LedgerBroken(f"ledger row {row.seq}: another backfill than {head.backfill.number}, which is open, begins")
    coming = len(head.backfills) + 1
    if backfill.number != coming:
        raise LedgerBroken(f"ledger row {row.seq}: expected backfill {coming}, found backfill {backfill.number}")
    places = head.places if head.backfill is None else head.open_places
    return replace(head, backfill=backfill, attempt=row.attempt, open_places=places)


def _end_backfill(head: Head, row: Row) -> Head:
    _expect_between(head, row)
    done = Backfilled.model_validate_json(row.body)
    if head.backfill is None or done.intent != head.backfill.digest:
        raise LedgerBroken(f"ledger row {row.seq}: a backfill was committed without its intent")
    return replace(
        _corrected(head, head.backfill),
        written={**head.written, **{name: table.version for name, table in done.tables.items()}},
        commits={**head.commits, **{name: table.commit for name, table in done.tables.items()}},
        table_ids={**head.table_ids, **done.table_ids},
        backfills={**head.backfills, head.backfill.number: head.backfill.span},
        restated_by=Rule.from_json(head.backfill.rule).process if head.backfill.whole else head.restated_by,
        backfill=None,
        attempt=0,
        failed=None,
    )


def _corrected(head: Head, done: Backfill) -> Head:
    """The head after a correction. The watermark does not move."""
    if not done.rewrites:
        return head
    if done.format < DEFERRED_SINCE:  # its sources' offsets are behind the rewrites from here on
        moved = replace(head, entry=Entry.parse(done.entry), maxima=done.maxima, log_sums=done.log_sums)
        return _counted(moved, done)
    left = {name: after_rewrites(head.deferred.get(name, ()), one) for name, one in done.rewrites.items()}
    deferred = {name: ones for name, ones in {**head.deferred, **left}.items() if ones}
    maxima = merge(head.maxima, done.maxima)
    return _counted(replace(head, maxima=maxima, deferred=deferred), done)


def _counted(head: Head, done: Backfill) -> Head:
    corrected = tuple(dict.fromkeys((*head.corrected, *done.rewrites)))
    return replace(head, corrections=head.corrections + 1, corrected=corrected)


def after_rewrites(deferred: Sequence[Rewrite], done: Rewrite) -> tuple[Rewrite, ...]:
    """The rewrites of a stream that remain after a correction has followed those from `since` to `upto` of `done`."""
    ends = [one.upto for one in deferred]
    if done.upto not in ends or deferred[0].since != done.since:
        raise LedgerBroken(f"a correction of the rewrites from {done.since} to {done.upto}, which were not deferred")
    return (*deferred[ends.index(done.upto) + 1 :],)


def with_deferred(head: Head, found: Deferred) -> Head:
    """The head whose offsets are behind these rewrites."""
    ones = {name: (*head.deferred.get(name, ()), one) for name, one in found.rewrites.items()}
    return replace(head, entry=Entry.parse(found.entry), log_sums=found.log_sums, deferred={**head.deferred, **ones})


def _defer(head: Head, row: Row) -> Head:
    _expect_between(head, row)
    if head.backfill is not None:
        raise LedgerBroken(
            f"ledger row {row.seq}: rewrites were deferred while backfill {head.backfill.number} was open"
        )
    return with_deferred(head, Deferred.model_validate_json(row.body))


def _expect_between(head: Head, row: Row) -> None:
    """Raise LedgerBroken unless the row, of a backfill, is between two epochs."""
    if head.seal is not None or head.open is not None or row.epoch != head.epoch:
        raise LedgerBroken(
            f"ledger row {row.seq}: expected what follows on epoch {head.epoch}, found {row.kind} of epoch {row.epoch}"
        )


def _live(head: Head, row: Row) -> Head:
    life = Life.model_validate_json(row.body)
    fits = {
        "retired": head.retired is None,
        "returned": head.retired is not None and head.dropping is None,
        "renamed": bool(life.name) and head.dropping is None,
        "dropping": head.retired is not None and head.dropping is None,
        "dropped": head.dropping is not None,
        "maintained": head.dropping is None and head.seal is None,
        "moved": head.dropping is None and life.places.keys() <= head.table_ids.keys(),
        "failed": bool(life.said) and (head.open or head.backfill) is not None,
        "recheck": head.failed is not None,
        "forgetting": _can_forget(head, life),
        "forgot": head.forgetting is not None and life.forgotten is not None,
        "redelivered": bool(life.redelivery and life.redelivery.rows) and head.dropping is None and head.seal is None,
        "skipped": bool(life.streams) and head.backfill is None and set(life.streams) <= head.deferred.keys(),
    }
    if row.epoch != head.epoch or not fits[life.what]:
        raise LedgerBroken(f"ledger row {row.seq}: the rule cannot be {life.what} after epoch {head.epoch}")
    changes: dict[str, dict[str, Any]] = {
        "retired": {"retired": f"{row.at} by {row.run}"},
        "returned": {"retired": None},
        "renamed": {"name": life.name},
        "dropping": {"dropping": life},
        "dropped": {"dropping": None},
        "maintained": {"maintained": row.at},
        "moved": {"places": {**head.places, **life.places}},
        "failed": {"failed": life.said},
        "recheck": {"failed": None},
        "forgetting": {"forgetting": life.forgetting},
        "forgot": {"forgetting": None, "forgets": head.forgets + 1, "forgotten": _forgotten(head, life)},
        "redelivered": {},
        "skipped": _without_deferred(head, life.streams),
    }
    return replace(head, **changes[life.what])


def _without_deferred(head: Head, streams: Sequence[str]) -> dict[str, Any]:
    counts = {name: sum(len(one.commits) for one in head.deferred.get(name, ())) for name in streams}
    left = {name: ones for name, ones in head.deferred.items() if name not in streams}
    return {"deferred": left, "skipped": _added(head.skipped, counts)}


def _forgotten(head: Head, life: Life) -> dict[str, int]:
    done = life.forgotten.tables if life.forgotten is not None else {}
    return head.forgotten | {name: left.commit for name, left in done.items()}


def _can_forget(head: Head, life: Life) -> bool:
    busy = (head.open, head.backfill, head.seal, head.dropping, head.forgetting)
    return busy == (None,) * 5 and life.forgetting is not None and life.forgetting.number == head.forgets + 1


_FOLLOWS = {
    "intent": _open,
    "commit": _commit,
    "lost": _lose,
    "abandoning": _abandon,
    "abandoned": _abandoned,
    "seal": _seal,
    "backfill": _start_backfill,
    "backfilled": _end_backfill,
    "deferred": _defer,
    "life": _live,
}
