"""Targets outside of the lake: whether each is at a position of the ledger, and holds what its outbox says.

The auditor cannot reach a target. So it is given `targets`, which ask the target's own kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from floodmark.audit.content.content import differences
from floodmark.audit.content.joined import total
from floodmark.audit.content.rowhash import digest
from floodmark.audit.delivered.asides import Aside, aside_in
from floodmark.audit.delivered.columns import Columns
from floodmark.audit.delivered.portions import Delivery, Portion, Undecided, as_shipped, delivered_by, is_under_way
from floodmark.audit.delivered.replay import Replay, plain
from floodmark.audit.effects.sinktables import Sink
from floodmark.audit.evidence import Finding, Row, TableLog
from floodmark.audit.ledger.forgets import Forget
from floodmark.redaction import redacted

LOOKS = 3  # at a target that moves while it is read
POSITION = ("ledger", "generation", "token", "epoch", "seq", "hash")
MOVED = f"it moved while it was read, {LOOKS} times: audit again once its relay has shipped what is committed"
UNDER_WAY = (
    "its rows are not those of its position, and may be of a portion that is under way: ship what is committed, then "
    "audit again"
)


class Held(Protocol):
    """What a target has: its position by POSITION (None: it has none), and its rows with the outbox's columns.

    damage: what others did to it, if it can tell without its rows. expired: how many rows, at most, it has dropped by
    itself because they are old.
    """

    @property
    def position(self) -> Mapping[str, Any] | None: ...
    def rows(self) -> Iterator[pa.RecordBatch]: ...
    def damage(self) -> Iterator[str]: ...
    def expired(self) -> int: ...


Targets = Callable[[Sink], Held]


@dataclass(frozen=True)
class Books:
    """What the home says of a target: the rows of the ledger; the logs of its outbox, and of the rows that it refused.
    forgot: the newest forget that has removed rows of the two."""

    rows: Sequence[Row]
    log: TableLog
    refused: Sequence[TableLog]
    forgot: Forget | None = None


@dataclass(frozen=True)
class TargetCheck:
    """Of one target. `table`: the ledger's name of the sink. `books`: reads them, as they are then."""

    table: str
    sink: Sink
    ledger: str
    targets: Targets
    books: Callable[[], Books]

    def findings(self, undelivered: dict[str, int], behind: dict[str, int | None]) -> Iterator[Finding]:
        """What the target lacks or has too much. undelivered: gets the number of refused rows that it lacks, `behind`
        that of portions that it has not got yet.

        A relay may work meanwhile. So the books are read after the position: they have what the target has by then, and
        maybe more. Rows that do not fit say something only if the position is the same again after them.
        """
        try:
            for _ in range(LOOKS):
                held = self.targets(self.sink)
                lacks, ahead, told = self._found(held)
                if not told or self.targets(self.sink).position == held.position:
                    undelivered.update({self.table: lacks} if lacks else {})
                    behind[self.table] = ahead
                    yield from told
                    return
            yield Finding("unknown", MOVED, table=self.table)
        except Exception as fault:  # of a kind that the auditor does not know: a server that is down, a missing module
            yield self._undecided(fault)

    def _found(self, held: Held) -> tuple[int, int | None, list[Finding]]:
        """How many refused rows the target lacks, how many portions it has not got yet, and what is found besides."""
        books, lacks, ahead = self.books(), 0, None
        position, told = held.position, list[Finding]()
        wrong = _misplaced(position, books.rows, self.ledger)
        if position is None or wrong is not None:
            what = wrong or "nothing has been shipped yet"
            return 0, None, [Finding("broken" if wrong else "unknown", what, table=self.table)]
        try:
            found = delivered_by(self.table, books.rows, int(position["seq"]))
            ahead = len(found.behind)
            whats = list(held.damage())
            if not whats:
                lacks, whats = self._compared(held, books, found)
            told += [Finding("broken", what, table=self.table) for what in whats]
            if told and is_under_way(self.sink, found):
                raise Undecided(UNDER_WAY)
        except Exception as fault:
            told = [self._undecided(fault)]
        return lacks, ahead, told

    def _compared(self, held: Held, books: Books, found: Delivery) -> tuple[int, list[str]]:
        if books.forgot is not None and found.emptied < books.forgot.row.seq:
            raise Undecided(
                f"forget {books.forgot.number} removed rows of its outbox ({books.forgot.row.at} by "
                f"{books.forgot.row.run}): it cannot be told any more which rows the target has to hold, until it has "
                "got all rows anew, by a reset or `floodmark backfill --all`"
            )
        then = as_shipped(self.sink, found.portions)
        held = held if then == self.sink else self.targets(then)
        rows = list(held.rows())
        expired = held.expired()  # read last: it only grows
        columns = Columns(books.log.types)
        aside = aside_in(books.refused, columns)
        whats = list(_differing(then, books.log, found.portions, rows, aside, columns, expired))
        return len(aside.undelivered(found.portions)), whats

    def _undecided(self, fault: Exception) -> Finding:
        what = str(fault) if isinstance(fault, Undecided) else f"it cannot be asked ({type(fault).__name__}: {fault})"
        return Finding("unknown", redacted(what), table=self.table)


def _misplaced(position: Mapping[str, Any] | None, rows: Sequence[Row], ledger: str) -> str | None:
    """Why a position is none of the ledger's; None if it is one, or there is none."""
    if position is None or not position["seq"]:
        return None
    row = next((one for one in rows if one.seq == position["seq"]), None)
    expected = None if row is None else (ledger, row.generation, row.token, row.epoch, row.seq, row.hash)
    if expected != tuple(position[name] for name in POSITION):
        return f"its position (row {position['seq']}, epoch {position['epoch']}) is not one of the ledger's"
    return None


def _differing(
    sink: Sink,
    log: TableLog,
    shipped: Sequence[Portion],
    found: Sequence[pa.RecordBatch],
    aside: Aside,
    columns: Columns,
    expired: int,
) -> Iterator[str]:
    """Rows that the target lacks, and rows that it has too much. expired: see `Held`."""
    lost = [one for portion in shipped for one in portion.again if one not in aside.places]
    if lost:
        seq, number = lost[0]
        yield f"it got rows again that it had not refused, such as row {number} of what row {seq} of the ledger has"
        return
    if not _can_replay(log, shipped):
        yield from _by_sums(sink, shipped, found, aside, expired)
        return
    by = [one.backfill["column"] for one in shipped if one.backfill and one.backfill["column"]]
    replay = Replay(sink, log, aside, columns, by[0] if by else None)
    for one in shipped:
        replay.apply(one)
    if replay.foreign:
        yield f"{replay.foreign} rows that it refused are none of its outbox: somebody changed their table"
    there = Counter(one for batch in found for one in plain(columns.of(pa.Table.from_batches([batch]))))
    wanted = replay.hashes()
    lacking, more = sum((wanted - there).values()), sum((there - wanted).values())
    qos = sink.get("qos", 2)
    if qos == 0:  # a lost portion leaves what it was to replace
        lacking, more = 0, sum((there - replay.brought).values())
    doubled = sum(count for one, count in (there - wanted).items() if one in wanted)
    wrong = more - (doubled if qos == 1 else 0)
    if not wrong and 0 < lacking <= expired:
        raise _expired(lacking, expired)
    if lacking or wrong:
        yield (
            f"it holds other rows than its outbox says: {lacking} missing, {more} too many, of which {doubled} are "
            "there more than once (a changed row is both missing and too many). Mend them by hand, or fill the target "
            "again (docs/reference/targets.md#fill-a-target-again)"
        )


def _can_replay(log: TableLog, shipped: Sequence[Portion]) -> bool:
    """Whether all files of these portions are there."""
    entries = [log.at(int(one.written["commit"])) for one in shipped if one.written is not None]
    return all(one is not None for one in entries) and all(
        file.path in log.present for one in entries if one is not None for file in one.files_with_rows
    )


def _expired(lacking: int, expired: int) -> Undecided:
    return Undecided(
        f"{lacking} missing rows cannot be compared: the topic's retention removed {expired} records. All other rows "
        "are those of its outbox"
    )


def _by_sums(
    sink: Sink, shipped: Sequence[Portion], found: Sequence[pa.RecordBatch], aside: Aside, expired: int
) -> Iterator[str]:
    """By the digests in the ledger alone, which add up: to the rows that it has, and those that it refused."""
    if sink.get("key") or any(one.backfill for one in shipped):
        raise Undecided("its rows cannot be compared: the outbox no longer has all of them (`outbox: {keep: ...}`)")
    known = total([one.written["digest"] for one in shipped if one.written is not None])
    lacks = aside.undelivered(shipped)
    parts = [*(pa.Table.from_batches([one]) for one in found), *([aside.rows(lacks)] if lacks else [])]
    rows = pa.concat_tables(parts, promote_options="permissive") if parts else None
    count, qos = 0 if rows is None else rows.num_rows, sink.get("qos", 2)
    if (qos == 1 and count > known["rows"]) or (qos == 0 and count < known["rows"]):
        raise Undecided(
            f"its rows cannot be compared: the outbox no longer has all of them (`outbox: {{keep: ...}}`), and at qos "
            f"{qos} rows may {'be there more than once' if qos else 'be lost'} ({known['rows']} rows, found {count})"
        )
    if rows is None:
        said = f"{known['rows']} rows, found 0" if known["rows"] else ""
    else:
        said = "; ".join(differences(known, digest(rows, computed=bool(known["floats"]))))
    short = known["rows"] - count
    if said and expired and 0 <= short <= expired and (short or qos == 1):
        raise Undecided(
            f"its rows cannot be compared: the topic's retention removed {expired} records, and the outbox no longer "
            f"has all rows (`outbox: {{keep: ...}}`) ({known['rows']} rows, found {count})"
        )
    if said and known["rows"] == count and len({one.generation for one in shipped}) > 1:
        raise Undecided(
            "its rows cannot be compared: a reset left them, and may have changed a column's type, and the outbox no "
            "longer has all of them (`outbox: {keep: ...}`)"
        )
    if said:
        yield f"it holds other rows than the ledger says ({said})"
