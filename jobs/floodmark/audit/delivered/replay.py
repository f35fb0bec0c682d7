"""The rows that a target has to hold, replayed from the files of its outbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from floodmark.audit.content.content import GONE, rows_of
from floodmark.audit.content.rowhash import row_hashes
from floodmark.audit.delivered.asides import Aside
from floodmark.audit.delivered.columns import Columns
from floodmark.audit.delivered.portions import Portion
from floodmark.audit.effects.sinktables import Sink
from floodmark.audit.evidence import TableLog
from floodmark.audit.logreader import store_of


@dataclass
class Replay:
    """The rows that a target has to hold, from its outbox's files. Each is (hash, time, order), by key or number.

    time: in the column by which backfills replace, in microseconds. order: of two rows with one key the larger stays.
    columns: in which they are read back. brought: at qos 0, all that any portion brought. foreign: refused rows that
    are not those of the outbox.
    """

    sink: Sink
    log: TableLog
    aside: Aside
    columns: Columns
    column: str | None = None  # the one by which backfills replace
    held: dict[Any, tuple[int, int | None, Any]] = field(default_factory=dict)
    count: int = 0
    foreign: int = 0
    brought: Counter[int] = field(default_factory=Counter)

    def hashes(self) -> Counter[int]:
        return Counter(one for one, _, _ in self.held.values())

    def apply(self, one: Portion) -> None:
        interval = None if one.backfill is None or one.backfill["begin"] == one.backfill["end"] else one.backfill
        if interval is not None:
            self._make_room(interval)
        for table in self._left(one):
            self._add(table, one.whole or one.backfill is not None)

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
        self.foreign += sum(a != b for a, b in zip(plain(self.columns.of(ours)), plain(noted), strict=True))
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
        rows, now = (table.drop_columns([GONE]) if GONE in table.column_names else table), self.columns.of(table, ())
        keys, times, orders = self._keys(now), self._times(rows), self._orders(rows)
        hashes = plain(now)
        if self.sink.get("qos", 2) == 0:
            self.brought.update(one for one, gone in zip(hashes, marks, strict=True) if not gone)
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
        return plain(keys)

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


def plain(table: pa.Table) -> list[int]:
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
    if isinstance(value, float):
        return (1, 0.0) if np.isnan(value) else (0, value)
    return value
