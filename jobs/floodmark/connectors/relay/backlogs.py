"""How far a target is behind its outbox, by the ledger and what the home remembers: nobody asks the target."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from floodmark.connectors.relay.aside import Aside, newest_of
from floodmark.connectors.relay.contents import check_fits, columns_in, columns_of, size_of, spelt_as, unlike
from floodmark.connectors.relay.memory import Memory, recall
from floodmark.core.lifecycle.freshness import lag_with
from floodmark.core.protocol.places import PREFIX
from floodmark.core.relay.portions import Portion, portions
from floodmark.core.relay.positions import Position
from floodmark.core.relay.redeliveries import Id, Sifted, sifted, waiting
from floodmark.core.relay.terms import check_format
from floodmark.core.rules.kinds import targets
from floodmark.core.text.durations import SECOND
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import FloodmarkError, Refused, WrongColumn
from floodmark.ledger.landings import OUTBOX, LandedTable, app_of
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Row
    from floodmark.core.rules.model import Rule, Sink
    from floodmark.ledger.home import Home

_LOG = logging.getLogger(__name__)
LOOK_BACK = 64  # rows of the ledger; between two commits lie few


@dataclass(frozen=True)
class Undelivered:
    """What a target has still to get. `bytes`: of its files; `oldest`: when the first of it was committed.

    memory: the position that was last seen in the target, and the last fault. limit: the bytes at which the rule waits.
    maxima: of each stream, the newest event time that is in what the target has; None: nothing yet, or unknown.
    refused: rows that it refused and has not got since. stuck: why no relay can ship, by the ledger alone; it is then
    unknown what the target has still to get.
    """

    target: str
    portions: int
    rows: int
    bytes: int
    oldest: str | None
    memory: Memory
    limit: int | None = None
    maxima: Mapping[str, int | None] | None = None

    @property
    def full(self) -> bool:
        """Whether the rule waits for the target."""
        return self.limit is not None and self.bytes >= self.limit

    def age(self, now: datetime) -> float:
        """Seconds since the oldest of it was committed; 0 if there is none."""
        return max(0.0, (now - datetime.fromisoformat(self.oldest)).total_seconds()) if self.oldest else 0.0

    refused: int = 0
    stuck: str | None = None

    def text(self) -> str:
        """For people."""
        has = "nothing shipped yet" if self.memory.position is None else f"has {self.memory.position.words}"
        if self.portions:
            epochs = "1 epoch" if self.portions == 1 else f"{self.portions} epochs"
            has += f"; {epochs} ({self.rows} rows, {self.bytes:,} bytes) not shipped, since {self.oldest}"
            has += f"; the rule waits, at `max_bytes` {self.limit:,}" if self.full else ""
        if self.refused:
            rows = "1 row is" if self.refused == 1 else f"{self.refused} rows are"
            has += f"; {rows} undelivered, because it refused {'it' if self.refused == 1 else 'them'}"
        if self.memory.lost_of:
            has += f"; it may lack {self.memory.lost} rows that were lost at `qos: 0`, the last {self.memory.lost_of}"
        fault = f"; the last attempt failed at {self.memory.fault_at}: {self.memory.fault}" if self.memory.fault else ""
        return f"{self.target}: {has}{f'; no relay can ship to it: {self.stuck}' if self.stuck else fault}"

    def left_behind(self, rule: str) -> str:
        """What the target never gets if its outbox goes away, for people; '' if it has all."""
        ship = f"`floodmark relay {rule} --target {self.target}`"
        epochs = "1 epoch" if self.portions == 1 else f"{self.portions} epochs"
        said = [
            f"nobody knows what target {self.target} has not got: {self.stuck}" if self.stuck else "",
            f"target {self.target} has not got {self.rows} rows of {epochs}: {ship} ships them"
            if self.portions
            else "",
            f"target {self.target} has refused {self.refused} rows" if self.refused else "",
        ]
        return "; ".join(filter(None, said))

    def removed(self, rule: str) -> str:
        """For people, of a target that the rule's file no longer has."""
        put_back = f"put the sink back as it was, and `floodmark relay {rule}` ships to it"
        return f"{self.text()}. The rule's file no longer has this sink: {put_back}"

    def facts(self) -> dict[str, Any]:
        """For --json."""
        position = self.memory.position
        return {
            "target": self.target,
            "generation": position.generation if position else None,
            "epoch": position.epoch if position else None,
            "moved_at": self.memory.at,
            "undelivered_epochs": self.portions,
            "undelivered_rows": self.rows,
            "undelivered_bytes": self.bytes,
            "oldest_undelivered": self.oldest,
            "max_bytes": self.limit,
            "full": self.full,
            "shipped_rows": self.memory.shipped,
            "rows_per_second": self.memory.speed and round(self.memory.speed, 1),
            "refused_rows": self.refused,
            "lost_rows": self.memory.lost,
            "error": self.stuck or self.memory.fault,
            "error_at": self.memory.fault_at,
        }


def target_lag(rule: Rule, head: Head | None, of: Undelivered, now: datetime) -> float | None:
    """How old the newest row is that the target has, by event time, in seconds; None if that is unknown."""
    lag = lag_with(rule, head, of.maxima, now) if head else None
    return None if lag is None else lag.us / SECOND


def undelivered(rule: Rule, home: Home, ledger: LedgerReader | None) -> list[Undelivered]:
    """Of each target of a rule, in the rule's order."""
    return [undelivered_by(sink, home, ledger) for sink in targets(rule)]


def undelivered_of_removed(rule: Rule, home: Home, ledger: LedgerReader | None) -> list[Undelivered]:
    """Of targets that the rule's file no longer has, while the newest generation has them; those that have all are left
    out. A new name of a sink's connection is another target, too."""
    if ledger is None or ledger.head is None:
        return []
    remain = {sink.address for sink in rule.sinks}
    found = [undelivered_by(sink, home, ledger) for sink in targets(ledger.head.rule) if sink.address not in remain]
    return [one for one in found if one.portions or one.refused or one.stuck]


def undelivered_by(sink: Sink, home: Home, ledger: LedgerReader | None) -> Undelivered:
    """Of the target of one sink."""
    folder = cast("Path", home.outbox(sink))
    memory = recall(folder)
    try:
        left, refused = list(pending(sink, memory, ledger)), len(refused_by(sink, home, ledger))
    except Refused as fault:  # the rule's other targets are told of all the same
        return Undelivered(sink.label, 0, 0, 0, None, memory, sink.outbox_bytes, stuck=str(fault))
    rows, size = sum(one.rows for one in left), sum(size_of(folder, one) for one in left)
    oldest, maxima = left[0].at if left else None, _maxima(ledger, memory, left)
    return Undelivered(sink.label, len(left), rows, size, oldest, memory, sink.outbox_bytes, maxima, refused)


def _maxima(ledger: LedgerReader | None, memory: Memory, left: list[Portion]) -> Mapping[str, int | None] | None:
    """Of the newest epoch before the first portion that a target has not got. None if it is far back."""
    if ledger is None or ledger.head is None or memory.position is None or not memory.position.seq:
        return None
    if not left:
        return ledger.head.maxima
    first = left[0]
    before = (row for row in reversed(ledger.since(max(0, first.position.seq - LOOK_BACK - 1))) if row.kind == "commit")
    body = next((row.body for row in before if row.seq < first.position.seq), None)
    return None if body is None else json.loads(body)["maxima"]


def check_shipped(rule: Rule, home: Home, ledger: LedgerReader, folders: Collection[str]) -> None:
    """Raise Refused if a target has not got all that its outbox holds. folders: of outboxes, and of rows that targets
    refused, in the rule's home."""
    names = {newest_of(folder.rpartition("/")[2]) for folder in folders}
    for sink, one in zip(targets(rule), undelivered(rule, home, ledger), strict=True):
        if (one.portions or one.stuck) and str(sink.outbox).rpartition("/")[2] in names:
            problem = f"rule {rule.rule}: its outbox has such rows, and target {one.target} has not got all of it"
            ship = f"`floodmark relay {rule.rule} --target {one.target}`"
            raise Refused(
                f"{problem}: {one.stuck}. Then ship with {ship}, and forget"
                if one.stuck
                else f"{problem}. Ship the rest with {ship}, then forget. If the target refuses a row for good, write "
                "`on_error: dead` at the sink and ship again: the row is set aside, and forget removes it from there"
            )


def check_rest(rule: Rule, home: Home, ledger: LedgerReader, schemas: Mapping[str, str]) -> None:
    """Raise Refused if a target that keeps its rows in a reset has still to get some that its new columns cannot hold.

    schemas: of the results that each target gets from then on, by its address, as Spark's JSON.
    """
    for sink in (one for one in targets(rule) if one.on_reset == "keep"):
        try:
            _check_rest(sink, home, ledger, schemas[str(sink.address)])
        except WrongColumn as fault:
            ship = f"`floodmark relay {rule.rule} --target {sink.label}`"
            raise Refused(
                f"{fault}. Target {sink.label} has not got all of them: ship the rest with {ship}, then reset. Or "
                "write `on_reset: empty` at the sink"
            ) from fault


def _check_rest(sink: Sink, home: Home, ledger: LedgerReader, schema: str) -> None:
    folder, address = cast("Path", home.outbox(sink)), str(sink.address)
    left = _pending_or_none(sink, folder, ledger)
    if not left:
        return
    columns, aside = columns_of(address, schema), Aside(address, folder)
    now = [column.name for column in columns_in(address, folder)]
    for one in left:
        check_format(sink, one.terms)
        rows = aside.rows(one.again, now) if one.again else unlike(folder, one.commit, columns)
        check_fits(address, rows, columns)
        if one.replaces is not None:
            spelt_as(address, one.replaces.column, columns, "")


def _pending_or_none(sink: Sink, folder: Path, ledger: LedgerReader) -> list[Portion]:
    """None where no relay can ship to the target before a reset."""
    try:
        return list(pending(sink, recall(folder), ledger)) if folder.exists() else []
    except Refused:
        return []


def refused_by(sink: Sink, home: Home, ledger: LedgerReader | None) -> set[Id]:
    """The rows that a target refused and has not got since, each by its portion and its number there. Without those
    that a replay has found to be superseded.
    """
    aside = Aside(str(sink.address), cast("Path", home.outbox(sink)))
    found = aside.left()
    if not found or ledger is None:
        return set()
    rows, settled = _not_sifted(found, aside.sifted(), ledger)
    return waiting(found - settled, rows, PREFIX + str(sink.address), ledger.id)


def note_refused(sink: Sink, aside: Aside, ledger: LedgerReader) -> None:
    """Note what `refused_by` says now: no look at the rule need read the ledger from the first refused row on then.

    For relays: they change it, and may write into the home. Their work is done by now, and has not failed if it cannot
    be noted.
    """
    try:
        _note_refused(sink, aside, ledger)
    except FloodmarkError as fault:
        problem = f"which of the rows that it refused it still lacks cannot be noted, so looks take longer: {fault}"
        _LOG.warning("%s", about_sink(str(sink.address), problem))


def _note_refused(sink: Sink, aside: Aside, ledger: LedgerReader) -> None:
    found, known = aside.ids(), aside.sifted()
    if not found:
        return
    rows, settled = _not_sifted(found, known, ledger)
    with suppress(Refused):  # a reset has left the target's rows: nothing is noted until another one has removed them
        now = sifted(found - settled, rows, PREFIX + str(sink.address), ledger.id)
        whole = now and replace(now, settled=now.settled | (settled & found))
        if whole not in (None, known):
            aside.note(whole)


def _not_sifted(found: set[Id], known: Sifted | None, ledger: LedgerReader) -> tuple[list[Row], frozenset[Id]]:
    """The ledger's rows that say which of the refused rows the target lacks, and those that need not be asked."""
    if known is not None and known.ledger == ledger.id and known.knows(found):
        rows = ledger.since(known.seq - 1)
        if rows and (rows[0].seq, rows[0].hash) == (known.seq, known.hash):
            return rows, known.settled
    return ledger.since(min(seq for seq, _ in found) - 1), frozenset()


def outboxes(rule: Rule, home: Home) -> list[LandedTable]:
    """The outboxes that are there, each with the first version that its target has not got."""
    ledger = LedgerReader.load(home.ledger)
    found = ((sink, home.outbox(sink)) for sink in targets(rule))
    there = [(sink, folder) for sink, folder in found if folder is not None and folder.exists()]
    return [] if ledger is None else [_upkeep(sink, folder, ledger) for sink, folder in there]


def _upkeep(sink: Sink, folder: Path, ledger: LedgerReader) -> LandedTable:
    first = _first_left(sink, folder, ledger)
    app = app_of(ledger.id, folder.name, OUTBOX)
    return LandedTable(folder.name, str(folder), app, sink.outbox_keep_us, first, OUTBOX)


def _first_left(sink: Sink, folder: Path, ledger: LedgerReader) -> int:
    """The first version that the target has not got; 0 if no relay can ship to it, and nobody knows."""
    try:
        commits = [one.commit for one in pending(sink, recall(folder), ledger)]
    except Refused:
        return 0
    newest = ledger.head.commits.get(PREFIX + str(sink.address), 0) if ledger.head else 0
    return next((commit for commit in commits if commit is not None), newest + 1)


def pending(sink: Sink, memory: Memory, ledger: LedgerReader | None) -> Iterator[Portion]:
    """The portions with an effect beyond what the target was last seen to have."""
    if ledger is None or ledger.head is None:
        return
    since = memory.position if memory.position and memory.position.ledger == ledger.id else Position(ledger.id)
    found = portions(ledger.since(since.seq), PREFIX + str(sink.address), since)
    yield from (one for one in found if not one.is_empty or one.empties)
