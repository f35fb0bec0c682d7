"""What of a ledger's rows a target has still to get."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from floodmark.core.protocol.places import PREFIX
from floodmark.core.protocol.records.backfills import Backfill
from floodmark.core.protocol.records.rows import Life, Redelivery, Row
from floodmark.core.relay.positions import Position
from floodmark.core.relay.terms import Terms, terms_by
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import LedgerBroken, NotOwned, Refused

ANEW = "remove the target with its position: the relay then makes it anew, and ships all that its outbox has"
MOST_ROWS = 250_000  # in one transaction of a target, unless a single portion has more
MOST_BYTES = 64 << 20  # of the outbox's files, as well: a target may be slow


@dataclass(frozen=True)
class Replaced:
    """The rows that a backfill replaces: `column` in one of `parts`, [low, high) each, microseconds."""

    column: str
    parts: tuple[tuple[int, int], ...]

    def holds(self, at: int | None) -> bool:
        """Whether a row is one of them, by its `column` in microseconds."""
        return at is not None and any(low <= at < high for low, high in self.parts)


def micros_of(value: Any) -> int | None:
    """An instant, or a time without a zone, in microseconds since 1970; None of any other value."""
    if not isinstance(value, datetime):
        return None
    at = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution


@dataclass(frozen=True)
class Portion:
    """What one row of the ledger has for a target. `position`: the target's afterwards; `at`: when it was committed.

    commit: the outbox's version with the rows, None if there are none. rows, digest: of these. empties: a reset took
    away what the target has; replaces: rows of an interval leave it; both come before the rows. whole: each row takes
    its key's place, as new as the target's own or not. again: the rows are not the outbox's but these, which the target
    has refused (see `Redelivery`). terms: those of the rule's text by which it was written; None: none of the rows
    that were read has that text.
    """

    position: Position
    at: str
    commit: int | None
    rows: int
    digest: dict[str, Any] | None
    empties: bool = False
    replaces: Replaced | None = None
    whole: bool = False
    again: tuple[tuple[int, int], ...] = ()
    terms: Terms | None = None

    @property
    def token(self) -> str:
        """The same again for the same rows. After the home was restored from a backup, other rows have the same number,
        and only the hash tells them from those that the target has got."""
        return f"{self.position.ledger}/{self.position.seq}-{self.position.hash[:8]}"

    @property
    def takes_away(self) -> bool:
        """Whether rows leave the target before its rows come."""
        return self.empties or self.replaces is not None

    @property
    def is_empty(self) -> bool:
        """Whether it only empties the target."""
        return self.commit is None and self.replaces is None and not self.again


def check_position(target: str, found: Position, ledger: str, row: Row | None, newest: int) -> None:
    """Raise unless a target's position is one of this ledger's. `row`: the ledger's at `found.seq`; `newest`: the
    largest number of its rows.

    NotOwned: another ledger's. LedgerBroken: the home went back, or somebody changed the position.
    """
    if found.ledger != ledger:
        raise NotOwned(
            about_sink(
                target,
                f"it belongs to another rule's ledger (id {found.ledger}; this rule's ledger: {ledger}). Name another "
                "target, or drop the other rule with its target",
            )
        )
    if not found.seq:
        return
    if found.seq > newest:
        raise LedgerBroken(
            about_sink(
                target,
                f"it has row {found.seq} of the ledger ({found.words}), whose newest row is {newest}: the home is an "
                f"older copy. Restore the newest home, or {ANEW}",
            )
        )
    if row is None or (row.hash, row.generation, row.epoch) != (found.hash, found.generation, found.epoch):
        raise LedgerBroken(
            about_sink(
                target,
                f"its position is not one of the ledger's ({found.words}, row {found.seq}): it was changed by hand, or "
                f"the home is another copy. Restore it, or {ANEW}",
            )
        )


def portions(rows: Iterable[Row], table: str, since: Position) -> list[Portion]:
    """The portions after a position, the oldest first. `table`: the ledger's name of the sink.

    What a later reset takes away again is left out. If each run replaces all rows, the target is emptied together with
    the epoch that fills it. Raises Refused if a generation began without the sink, unless a later reset empties it.
    """
    found = list(_each(rows, table, since))
    last = max((i for i, one in enumerate(found) if one.empties), default=0)
    return [] if found and _waits(found[-1]) else found[last:]


def _waits(last: Portion) -> bool:
    """Whether it empties a target that the next epoch fills anew."""
    return last.empties and last.is_empty and last.terms is not None and last.terms.rebuilt


def _each(rows: Iterable[Row], table: str, since: Position) -> Iterator[Portion]:
    known = bool(since.seq)  # whether the target may have rows of a generation before
    backfill: dict[str, Any] = {}
    terms: Terms | None = None
    missed: int | None = None  # the generation whose reset should have emptied the target, as long as none has
    for row in (one for one in rows if one.seq > since.seq):
        terms = terms_by(row, table) or terms
        if row.kind == "backfill":
            backfill = json.loads(row.body)
        again = redelivery_in(row, table)
        if again is not None:
            known = True
            found = _portion(row, since.ledger, None, False)
            yield replace(found, rows=len(again.rows), again=again.rows, whole=again.whole, terms=terms)
        if row.kind not in ("commit", "backfilled"):
            continue
        body = json.loads(row.body)
        written = body["tables"].get(table)
        begins = row.kind == "commit" and row.epoch == 0
        kept = begins and (body.get("kept_output") or _keeps(body["rule"], table))
        is_in = not begins or table in body["table_ids"]
        empties = begins and known and not kept and is_in
        missed = missed if is_in or kept or not known else missed or row.generation
        if written is not None or empties:
            known = True
            found = replace(_portion(row, since.ledger, written, empties), terms=terms)
            found = _restating(found, Backfill.model_validate(backfill)) if row.kind == "backfilled" else found
            missed = None if found.empties else missed
            yield found
    if missed is not None:
        raise _not_emptied(table, missed)


def _not_emptied(table: str, generation: int) -> Refused:
    return Refused(
        about_sink(
            table.removeprefix("sink/"),
            f"it has rows from before the reset that began generation {generation}, which did not empty it because the "
            "rule did not have this sink then. Start over with `floodmark reset`",
        )
    )


def redelivery_in(row: Row, table: str) -> Redelivery | None:
    """What a ledger's row has a target get after all; None if it is another row."""
    if row.kind != "life":
        return None
    found = Life.model_validate_json(row.body).redelivery
    return found if found and found.target == table else None


def _keeps(rule: str, table: str) -> bool:
    """Whether the rule's text, as of a reset, says that the target keeps its rows."""
    return any(
        sink.get("on_reset") == "keep" and PREFIX + str(sink["address"]) == table for sink in json.loads(rule)["sinks"]
    )


def _portion(row: Row, ledger: str, written: dict[str, Any] | None, empties: bool) -> Portion:
    position = Position(ledger, row.generation, row.token, row.epoch, row.seq, row.hash)
    if written is None or not written["rows"]:
        return Portion(position, row.at, None, 0, None, empties)
    return Portion(position, row.at, written["commit"], written["rows"], written["digest"], empties)


def _restating(found: Portion, backfill: Backfill) -> Portion:
    """The portion of a backfill. The rows of one by key say what they replace."""
    if not backfill.is_bounded:
        return replace(found, empties=backfill.whole, whole=True)
    parts = tuple((low + backfill.shift, high + backfill.shift) for low, high in backfill.parts)
    return replace(found, replaces=Replaced(backfill.column, parts), whole=True)


def batches(
    found: Sequence[Portion], most: int = MOST_ROWS, size: Callable[[Portion], int] = lambda _: 0
) -> Iterator[list[Portion]]:
    """Portions in order, several together as long as they have at most `most` rows, and MOST_BYTES by `size`.

    One that takes rows away begins a batch: it may need to read what the target has. So does one by other terms.
    """
    batch, rows, taken = list[Portion](), 0, 0
    for one in found:
        more = size(one)
        is_full = rows and (rows + one.rows > most or taken + more > MOST_BYTES)
        if batch and (one.takes_away or is_full or one.terms != batch[0].terms):
            yield batch
            batch, rows, taken = [], 0, 0
        batch.append(one)
        rows += one.rows
        taken += more
    if batch:
        yield batch
