"""Which of the rows that a target refused it may still get. Pure.

A row comes after those that were committed later. So it must not come if one of these has decided about its key, or has
replaced the interval in which it is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Redelivery, Row
from floodmark.core.relay.portions import Portion, portions, redelivery_in
from floodmark.core.relay.positions import Position
from floodmark.errors import Refused

MOST = 10_000  # rows in one row of the ledger
Id = tuple[int, int]  # of a row: its portion's row of the ledger, and its number in the portion


@dataclass(frozen=True)
class RefusedRow:
    """The row `number` of the portion that the ledger's row `seq` has. key: its values, if the sink has a key. times:
    microseconds since 1970, by column in small letters, of its instants. gone: it takes its key's row away; whole: it
    takes its key's place, as new as the target's own or not. order: of two rows of a key that the target compares, the
    one with the larger stays. Key and order are of `ranks`.
    """

    seq: int
    number: int
    key: tuple[Any, ...] = ()
    times: Mapping[str, int] = field(default_factory=dict)
    gone: bool = False
    whole: bool = False
    order: tuple[Any, ...] = ()

    @property
    def id(self) -> Id:
        return self.seq, self.number


@dataclass(frozen=True)
class Sifted:
    """Which refused rows a target lacked as of row `seq` of the ledger, by `waiting`, and which were `settled` by then.

    hash: that row's. A ledger without this row has gone back, and settles other rows.
    """

    ledger: str
    seq: int
    hash: str
    lacked: frozenset[Id]
    settled: frozenset[Id]

    def knows(self, ids: Iterable[Id]) -> bool:
        """Whether the ledger's rows from `seq` on say which of these the target lacks. A relay may set a row aside long
        after its epoch."""
        return all(seq >= self.seq for seq, _ in set(ids) - self.lacked - self.settled)

    def text(self) -> str:
        return json.dumps({**vars(self), "lacked": sorted(self.lacked), "settled": sorted(self.settled)})

    @classmethod
    def parse(cls, text: str) -> Sifted:
        """What `text` wrote. Raises ValueError, KeyError or TypeError for any other text."""
        found = json.loads(text)
        lacked, settled = (frozenset((seq, number) for seq, number in found[name]) for name in ("lacked", "settled"))
        return cls(found["ledger"], found["seq"], found["hash"], lacked, settled)


def sifted(ids: Iterable[Id], rows: Sequence[Row], table: str, ledger: str) -> Sifted | None:
    """What `waiting` says as of the newest row from which on it can be asked alone; None if there is none.

    ids, rows: as there, `ids` with those that were settled before. It may begin after an epoch: no backfill is then
    open. A reset, though, may empty the target by the epoch that fills it, and needs to be read with it.
    """
    at, fills = None, False
    for place, row in enumerate(rows):
        if row.kind == "commit":
            fills = not row.epoch or (fills and table not in json.loads(row.body)["tables"])
            at = at if fills else place
    if at is None:
        return None
    every, row = frozenset(ids), rows[at]
    lacked = frozenset(waiting(every, rows[: at + 1], table, ledger))
    return Sifted(ledger, row.seq, row.hash, lacked, every - lacked)


def waiting(ids: Iterable[Id], rows: Sequence[Row], table: str, ledger: str) -> set[Id]:
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


def whole_in(row: Row, table: str) -> bool:
    """Whether the rows that a ledger's row has for a target take their keys' places."""
    again = redelivery_in(row, table)
    return row.kind == "backfilled" or (again is not None and again.whole)


def still_due(
    rows: Iterable[RefusedRow], later: Iterable[tuple[Portion, Mapping[Any, bool]]], compares: bool
) -> list[RefusedRow]:
    """The rows that may come now, in the order of their portions: of each key one.

    later: the portions after the oldest of them, each with the keys that it has changed, and whether it took the key's
    row away. compares: of two rows of a key the target keeps the newer, whichever comes first.
    """
    left, waits = dict[Any, RefusedRow](), deque(sorted(rows, key=lambda one: one.id))
    for portion, keys in later:
        while waits and waits[0].seq < portion.position.seq:
            _join(left, waits.popleft())
        left = {at: one for at, one in left.items() if not _decided(one, portion, keys, compares)}
    for one in waits:
        _join(left, one)
    return sorted(left.values(), key=lambda one: one.id)


def _join(left: dict[Any, RefusedRow], one: RefusedRow) -> None:
    """A target expects each key once in a portion. So of two rows of a key one comes, as if the other had before."""
    at = (one.key,) if one.key else one.id
    held = left.get(at)
    if held is None or one.gone or one.whole:
        left[at] = one
    elif held.gone or one.order >= held.order:
        left[at] = replace(one, whole=held.whole or held.gone)


def _decided(one: RefusedRow, portion: Portion, keys: Mapping[Any, bool], compares: bool) -> bool:
    """Whether a later portion has decided about the row. What takes its key's place does so only until then."""
    takes_part = compares and not (one.gone or one.whole or portion.whole)
    if portion.empties or (one.key in keys and (keys[one.key] or not takes_part)):
        return True
    replaced = portion.replaces
    return replaced is not None and replaced.holds(one.times.get(replaced.column.lower()))


def older_twins(rows: Sequence[RefusedRow]) -> frozenset[int]:
    """The places of rows of one replay that another of their key replaces. Earlier versions recorded such replays."""
    kept = {one.id for one in still_due(rows, [], compares=True)}
    return frozenset(place for place, one in enumerate(rows) if one.id not in kept)


def redelivering(head: Head, name: str, target: str, rows: Sequence[RefusedRow]) -> list[Life]:
    """The rows of the ledger by which a relay ships these rows; those that take their keys' places come by some of
    their own. Raises Refused if the rule cannot have one now."""
    if any(one is not None for one in (head.seal, head.dropping, head.backfill, head.forgetting)):
        raise Refused(
            f"rule {name}: expected a rule without an unfinished reset, drop, forget, backfill or correction, found "
            f"one: finish it first, a backfill or a correction with `floodmark run {name}`, a forget with `floodmark "
            f"forget {name}` and the same --where, then try again"
        )
    found = list[Life]()
    for whole in (False, True):
        ids = [one.id for one in rows if one.whole == whole]
        for part in (ids[first : first + MOST] for first in range(0, len(ids), MOST)):
            redelivery = Redelivery(target=target, rows=tuple(part), whole=whole)
            found.append(Life(what="redelivered", redelivery=redelivery))
    return found
