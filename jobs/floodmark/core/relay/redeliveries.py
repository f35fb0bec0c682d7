"""Which of the rows that a target refused it may still get. Pure.

A row comes after those that were committed later. So it must not come if one of these has decided about its key, or has
replaced the interval in which it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Redelivery, Row
from floodmark.core.relay.portions import Portion, portions, redelivery_in
from floodmark.core.relay.positions import Position
from floodmark.errors import Refused

MOST = 10_000  # rows in one row of the ledger


@dataclass(frozen=True)
class RefusedRow:
    """The row `number` of the portion that the ledger's row `seq` has. key: its values, if the sink has a key. times:
    microseconds since 1970, by column in small letters, of its instants.
    """

    seq: int
    number: int
    key: tuple[Any, ...] = ()
    times: Mapping[str, int] = field(default_factory=dict)

    @property
    def id(self) -> tuple[int, int]:
        return self.seq, self.number


def waiting(ids: Iterable[tuple[int, int]], rows: Sequence[Row], table: str, ledger: str) -> set[tuple[int, int]]:
    """Those of the refused rows that the target lacks: no replay has named them, and it was not emptied since.

    rows: the ledger's, from the portion of the oldest on. table: its name of the sink; ledger: its id.
    """
    left = set(ids)
    first = min((seq for seq, _ in left), default=0)
    for row in rows:
        found = redelivery_in(row, table)
        left -= set(found.rows) if found else set()
    later = portions(rows, table, Position(ledger, seq=first)) if left else []
    emptied = later[0].position.seq if later and later[0].empties else 0
    return {one for one in left if one[0] >= emptied}


def still_due(
    rows: Iterable[RefusedRow], later: Iterable[tuple[Portion, Mapping[Any, bool]]], compares: bool
) -> list[tuple[int, int]]:
    """The rows that may come now, in the order of their portions.

    later: the portions after the oldest of them, each with the keys that it changes, and whether it takes the key's row
    away. compares: of two rows of a key the target keeps the newer, whichever comes first.
    """
    left = sorted(rows, key=lambda one: one.id)
    for portion, keys in later:
        left = [one for one in left if one.seq >= portion.position.seq or not _decided(one, portion, keys, compares)]
    return [one.id for one in left]


def _decided(one: RefusedRow, portion: Portion, keys: Mapping[Any, bool], compares: bool) -> bool:
    """Whether a later portion has decided about the row."""
    if portion.empties or (one.key in keys and (keys[one.key] or portion.whole or not compares)):
        return True
    replaced = portion.replaces
    return replaced is not None and replaced.holds(one.times.get(replaced.column.lower()))


def redelivering(head: Head, name: str, target: str, rows: Collection[tuple[int, int]]) -> Life:
    """The row of the ledger by which a relay ships these rows. Raises Refused if the rule cannot have one now."""
    if head.seal is not None or head.dropping is not None:
        raise Refused(
            f"rule {name}: expected a rule without an unfinished reset or drop, found one: finish it first, then try "
            "again"
        )
    return Life(what="redelivered", redelivery=Redelivery(target=target, rows=tuple(rows)[:MOST]))
