"""Targets outside of the lake: whether each is at a position of the ledger, and holds what its outbox says.

The auditor cannot reach a target. So it is given `targets`, which ask the target's own kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from floodmark.audit.content.content import GONE, differences, rows_of
from floodmark.audit.content.joined import total
from floodmark.audit.content.rowhash import digest, row_hashes
from floodmark.audit.effects.sinktables import Sink, other_sinks
from floodmark.audit.evidence import Finding, Row, TableLog
from floodmark.audit.ledger.forgets import Forget
from floodmark.audit.logreader import store_of
from floodmark.redaction import redacted

Id = tuple[int, int]  # a row of a portion: the ledger's row, and the number there
ASIDE = ("_reason", "_generation", "_epoch", "_seq", "_number", "_at")  # what is said of a refused row
# How a sink's rows are merged, each with what counts where the text does not say it.
TERMS: dict[str, Any] = {"key": [], "newest": None, "qos": 2}
POSITION = ("ledger", "generation", "token", "epoch", "seq", "hash")


class Held(Protocol):
    """What a target has: its position by POSITION (None: it has none), and its rows with the outbox's columns."""

    @property
    def position(self) -> Mapping[str, Any] | None: ...
    def rows(self) -> Iterator[pa.RecordBatch]: ...


Targets = Callable[[Sink], Held]


@dataclass(frozen=True)
class Portion:
    """What one row of the ledger has for a target: the outbox's commit; the backfill that it ends, if it does. again:
    rows that the target refused, in place of the outbox's. terms: by TERMS, of the text by which it was written."""

    seq: int
    written: Mapping[str, Any] | None
    backfill: Mapping[str, Any] | None
    again: tuple[Id, ...] = ()
    terms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Aside:
    """Rows that a target refused, by their portion's row of the ledger and their number in the portion."""

    table: pa.Table | None = None

    @cached_property
    def places(self) -> dict[Id, int]:
        """Where each is in the table."""
        if self.table is None:
            return {}
        ids = zip(self.table["_seq"].to_pylist(), self.table["_number"].to_pylist(), strict=True)
        return {one: place for place, one in enumerate(ids)}

    def numbers(self, seq: int) -> set[int]:
        return {number for one, number in self.places if one == seq}

    def rows(self, ids: Sequence[Id]) -> pa.Table:
        """These rows, in this order, without what is said of them. Raises KeyError."""
        assert self.table is not None or not ids
        if self.table is None:
            return pa.table({})
        return self.table.take([self.places[one] for one in ids]).drop_columns(list(ASIDE))

    def undelivered(self, shipped: Sequence[Portion]) -> list[Id]:
        """Those that these portions have left out, and that none of them has brought after all."""
        again = {one for portion in shipped for one in portion.again}
        seqs = {portion.seq for portion in shipped}
        return sorted(one for one in self.places if one[0] in seqs and one not in again)


def check_target(
    table: str,
    sink: Sink,
    log: TableLog,
    rows: Sequence[Row],
    ledger: str,
    targets: Targets,
    refused: TableLog,
    undelivered: dict[str, int],
    forgot: Forget | None = None,
) -> Iterator[Finding]:
    """What a target lacks or has too much. `table`: the ledger's name of the sink; `log`: its outbox's; `refused`: that
    of the rows that it refused. undelivered: gets the number of those that it lacks. forgot: the newest forget that has
    removed rows of the two.
    """
    try:
        held = targets(sink)
        position = held.position
        wrong = _misplaced(position, rows, ledger)
        if position is None or wrong is not None:
            yield Finding("broken" if wrong else "unknown", wrong or "nothing has been shipped yet", table=table)
            return
        emptied, shipped = _shipped(table, rows, int(position["seq"]))
        if forgot is not None and emptied < forgot.row.seq:
            raise _Unknown(
                f"forget {forgot.number} removed rows of its outbox ({forgot.row.at} by {forgot.row.run}): it cannot "
                "be told any more which rows the target has to hold, until it has got all rows anew, by a reset or "
                "`floodmark backfill --all`"
            )
        then = _as_shipped(sink, shipped)
        found, aside = list((held if then == sink else targets(then)).rows()), _aside(refused)
        yield from (Finding("broken", what, table=table) for what in _differing(then, log, shipped, found, aside))
        lacks = len(aside.undelivered(shipped))
        undelivered.update({table: lacks} if lacks else {})
    except _Unknown as fault:
        yield Finding("unknown", str(fault), table=table)
    except Exception as fault:  # of a kind that the auditor does not know: a server that is down, a missing module
        yield Finding("unknown", redacted(f"it cannot be asked ({type(fault).__name__}: {fault})"), table=table)


def _aside(log: TableLog) -> Aside:
    if log.id is None:
        return Aside()
    store = store_of(log.address)
    parts = [rows_of(store, path, log) for path in log.live]
    return Aside(pa.concat_tables(parts, promote_options="default") if parts else None)


class _Unknown(Exception):
    """It cannot be told what the target has to hold."""


def _misplaced(position: Mapping[str, Any] | None, rows: Sequence[Row], ledger: str) -> str | None:
    """Why a position is none of the ledger's; None if it is one, or there is none."""
    if position is None or not position["seq"]:
        return None
    row = next((one for one in rows if one.seq == position["seq"]), None)
    expected = None if row is None else (ledger, row.generation, row.token, row.epoch, row.seq, row.hash)
    if expected != tuple(position[name] for name in POSITION):
        return f"its position (row {position['seq']}, epoch {position['epoch']}) is not one of the ledger's"
    return None


def _as_shipped(sink: Sink, shipped: Sequence[Portion]) -> Sink:
    """The sink by the text of what the target has. The newest text may have come with a reset that left its rows."""
    found = [one.terms for one in shipped if one.terms]
    if any(_folded(one) != _folded(found[0]) for one in found):
        raise _Unknown(
            "its rows cannot be compared: a reset left them, and has changed `key`, `newest` or `qos` of the sink"
        )
    same = not found or _folded(sink) == _folded(found[0])
    return sink if same else {**sink, **found[0]}


def _folded(terms: Mapping[str, Any]) -> tuple[list[str], str | None, int]:
    """To compare: names of columns have no case, and those of a key no order."""
    key, newest, qos = ({**TERMS, **terms}[name] for name in TERMS)
    return sorted(name.lower() for name in key), newest and newest.lower(), qos


def _terms(table: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Those of the sink in a rule's text; None if the row has no such text."""
    sink = other_sinks(json.loads(body["rule"])["sinks"]).get(table) if body.get("rule") else None
    return None if sink is None else {name: sink[name] for name in TERMS if name in sink}


def _shipped(table: str, rows: Sequence[Row], upto: int) -> tuple[int, list[Portion]]:
    """The portions that the target has, since it was emptied last; and the row of the ledger that emptied it, or 0."""
    found, emptied, backfill, terms = list[Portion](), 0, None, dict[str, Any]()
    for row in rows:
        if row.seq > upto:
            break
        body = json.loads(row.body)
        terms = (_terms(table, body) if row.kind in ("commit", "intent", "backfill") else None) or terms
        backfill = body if row.kind == "backfill" else backfill
        again = body.get("redelivery") if row.kind == "life" else None
        if again is not None and again["target"] == table:
            found.append(Portion(row.seq, None, None, tuple((seq, number) for seq, number in again["rows"]), terms))
        if row.kind not in ("commit", "backfilled"):
            continue
        begins = row.kind == "commit" and row.epoch == 0
        if begins and not body.get("kept_output") and not _stay(table, body):
            found, emptied = [], row.seq
        if row.kind == "backfilled" and backfill is not None and backfill.get("whole"):
            found, emptied = [], row.seq
        written = body["tables"].get(table)
        if written is not None:
            found.append(Portion(row.seq, written, backfill if row.kind == "backfilled" else None, terms=terms))
    return emptied, found


def _stay(table: str, begun: Mapping[str, Any]) -> bool:
    """Whether the text with which a generation begins has the target keep the rows of the one before."""
    return other_sinks(json.loads(begun["rule"])["sinks"]).get(table, {}).get("on_reset") == "keep"


def _differing(
    sink: Sink, log: TableLog, shipped: Sequence[Portion], found: Sequence[pa.RecordBatch], aside: Aside
) -> Iterator[str]:
    """Rows that the target lacks, and rows that it has too much."""
    lost = [one for portion in shipped for one in portion.again if one not in aside.places]
    if lost:
        seq, number = lost[0]
        yield f"it got rows again that it had not refused, such as row {number} of what row {seq} of the ledger has"
        return
    if not _can_replay(log, shipped):
        yield from _by_sums(sink, shipped, found, aside)
        return
    columns = [one.backfill["column"] for one in shipped if one.backfill and one.backfill["column"]]
    replay = _Replay(sink, log, aside, columns[0] if columns else None)
    for one in shipped:
        replay.apply(one)
    if replay.foreign:
        yield f"{replay.foreign} rows that it refused are none of its outbox: somebody changed their table"
    there = Counter(int(one) for batch in found for one in row_hashes(batch, computed=False))
    wanted = replay.hashes()
    lacking, more = sum((wanted - there).values()), sum((there - wanted).values())
    doubled = sum(count for one, count in (there - wanted).items() if one in wanted)
    qos = sink.get("qos", 2)
    if (lacking and qos > 0) or more - (doubled if qos == 1 else 0):
        yield (
            f"it holds other rows than its outbox says: {lacking} missing, {more} too many, of which {doubled} are "
            "there more than once (a changed row is both missing and too many)"
        )


def _can_replay(log: TableLog, shipped: Sequence[Portion]) -> bool:
    """Whether all files of these portions are there."""
    entries = [log.at(int(one.written["commit"])) for one in shipped if one.written is not None]
    return all(one is not None for one in entries) and all(
        file.path in log.present for one in entries if one is not None for file in one.files_with_rows
    )


def _by_sums(sink: Sink, shipped: Sequence[Portion], found: Sequence[pa.RecordBatch], aside: Aside) -> Iterator[str]:
    """By the digests in the ledger alone, which add up: to the rows that it has, and those that it refused."""
    if sink.get("key") or any(one.backfill for one in shipped):
        raise _Unknown("its rows cannot be compared: the outbox no longer has all of them (`outbox: {keep: ...}`)")
    known = total([one.written["digest"] for one in shipped if one.written is not None])
    lacks = aside.undelivered(shipped)
    parts = [*(pa.Table.from_batches([one]) for one in found), *([aside.rows(lacks)] if lacks else [])]
    rows = pa.concat_tables(parts, promote_options="permissive") if parts else None
    if rows is None:
        if known["rows"]:
            yield f"it holds other rows than the ledger says ({known['rows']} rows, found 0)"
        return
    said = "; ".join(differences(known, digest(rows, computed=bool(known["floats"]))))
    if said:
        yield f"it holds other rows than the ledger says ({said})"


@dataclass
class _Replay:
    """The rows that a target has to hold, from its outbox's files. Each is (hash, time, order), by key or number.

    time: in the column by which backfills replace, in microseconds. order: of two rows with one key the larger stays.
    foreign: refused rows that are not those of the outbox.
    """

    sink: Sink
    log: TableLog
    aside: Aside
    column: str | None = None  # the one by which backfills replace
    held: dict[Any, tuple[int, int | None, Any]] = field(default_factory=dict)
    count: int = 0
    foreign: int = 0

    def hashes(self) -> Counter[int]:
        return Counter(one for one, _, _ in self.held.values())

    def apply(self, one: Portion) -> None:
        interval = None if one.backfill is None or one.backfill["begin"] == one.backfill["end"] else one.backfill
        if interval is not None:
            self._make_room(interval)
        for table in self._left(one):
            self._add(table, one.backfill is not None)

    def _left(self, one: Portion) -> Iterator[pa.Table]:
        """The rows of a portion that the target has not refused."""
        numbers, first = sorted(self.aside.numbers(one.seq)), 0
        for table in self._brought(one):
            here = [number for number in numbers if first <= number < first + table.num_rows]
            yield self._without(table, one.seq, here, first) if here else table
            first += table.num_rows

    def _without(self, table: pa.Table, seq: int, numbers: Sequence[int], first: int) -> pa.Table:
        """The rows but for some that were refused. `first`: the number of the first row."""
        places = [number - first for number in numbers]
        ours, noted = table.take(places), self.aside.rows([(seq, number) for number in numbers])
        self.foreign += sum(a != b for a, b in zip(_plain(ours), _plain(noted), strict=True))
        return table.filter(pa.array([place not in set(places) for place in range(table.num_rows)]))

    def _brought(self, one: Portion) -> Iterator[pa.Table]:
        if one.written is None:
            yield self.aside.rows(one.again)
            return
        entry = self.log.at(int(one.written["commit"]))
        for file in () if entry is None else entry.files_with_rows:
            yield rows_of(store_of(self.log.address), file.path, self.log)

    def _make_room(self, backfill: Mapping[str, Any]) -> None:
        edges = [backfill["begin"], *(edge for gap in backfill.get("gaps", ()) for edge in gap), backfill["end"]]
        parts = [
            (low + backfill["shift"], high + backfill["shift"])
            for low, high in zip(edges[::2], edges[1::2], strict=True)
        ]
        gone = [key for key, (_, at, _) in self.held.items() if at is not None and any(a <= at < b for a, b in parts)]
        for key in gone:
            del self.held[key]

    def _add(self, table: pa.Table, whole: bool) -> None:
        marks = table[GONE].to_pylist() if GONE in table.column_names else [False] * table.num_rows
        rows = table.drop_columns([GONE]) if GONE in table.column_names else table
        hashes = [int(one) for batch in rows.to_batches() for one in row_hashes(batch, computed=False)]
        keys, times, orders = self._keys(rows), self._times(rows), self._orders(rows)
        for key, hashed, at, order, gone in zip(keys, hashes, times, orders, marks, strict=True):
            if gone:
                self.held.pop(key, None)
            elif whole or key not in self.held or order is None or order >= self.held[key][2]:
                self.held[key] = (hashed, at, order)

    def _keys(self, rows: pa.Table) -> list[Any]:
        """By the columns of the key; without one, each row has a number."""
        if not self.sink.get("key"):
            self.count += rows.num_rows
            return list(range(self.count - rows.num_rows, self.count))
        wanted = {name.lower() for name in self.sink["key"]}
        keys = rows.select([name for name in rows.column_names if name.lower() in wanted])
        return [int(one) for batch in keys.to_batches() for one in row_hashes(batch, computed=False)]

    def _times(self, rows: pa.Table) -> list[int | None]:
        wanted = (self.column or "").lower()
        column = next((name for name in rows.column_names if name.lower() == wanted), None)
        if column is None:
            return [None] * rows.num_rows
        times = rows[column].cast(pa.timestamp("us", rows[column].type.tz)).cast(pa.int64())
        found: list[int | None] = times.to_pylist()
        return found

    def _orders(self, rows: pa.Table) -> list[Any]:
        """By `newest`, then by all columns sorted by name; null is the smallest. None without `newest`."""
        newest = self.sink.get("newest")
        if newest is None:
            return [None] * rows.num_rows
        first = next(name for name in rows.column_names if name.lower() == newest.lower())
        columns = [rows[name].to_pylist() for name in (first, *sorted(rows.column_names))]
        return [tuple((one is not None, _comparable(one)) for one in row) for row in zip(*columns, strict=True)]


def _plain(table: pa.Table) -> list[int]:
    """A hash of each row."""
    return [int(one) for batch in table.to_batches() for one in row_hashes(batch, computed=False)]


def _comparable(value: Any) -> Any:
    """Text is ordered by its bytes; NaN is the largest number."""
    if value is None:
        return 0
    if isinstance(value, dict):  # a struct, by its fields in order
        return tuple((one is not None, _comparable(one)) for one in value.values())
    if isinstance(value, list):
        return tuple((one is not None, _comparable(one)) for one in value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float) and np.isnan(value):
        return np.inf
    return value
