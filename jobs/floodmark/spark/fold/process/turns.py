"""The Python worker of a process class: sorted rows and stored values in, output and state changes out.

Both are Arrow batches with the columns of all kinds of rows side by side, null where a kind has none. A worker holds
one batch of input, the stored values of one key, and unsent output: never a whole partition or all rows of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from floodmark.core.lifecycle.zones import far_text
from floodmark.core.process.calls import LACKS, Caller, Rejected
from floodmark.core.process.context import ORIGIN, Declaration, Times
from floodmark.core.process.loading import load_class
from floodmark.core.process.slots import Change, Place, Slot
from floodmark.core.process.values import short
from floodmark.errors import ProcessFault

SEND = 4096  # output rows and changes that are sent together
OUTPUT = -1  # marks output rows in column `part`; otherwise `part` is the number of a state table, or
REJECTED = -2  # this for rejected rows of the first stream, one less for those of the second, …
DAY = 86_400_000_000  # in microseconds
NOT_PYTHONS = (OverflowError, ValueError, KeyError)  # raised for a value that Python lacks


@dataclass(frozen=True)
class Layout:
    """The columns of the rows. Key column i is `k<i>`; `states`: the columns of each state table.

    In: with `waits`, a row of stream `part`, whose column j is `r<part>_<j>`; otherwise a stored value of table `part`.
    Both have `time`, in microseconds. A state's column j is `s<table>_<j>`; other tables have `name` and `number`.
    Out: the same for changes of state, with `gone`; an output row has `o<j>`, a rejected row its `r<part>_<j>` and
    `why`.
    """

    keys: int
    streams: tuple[tuple[str, tuple[str, ...]], ...]
    tables: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    output: int

    @property
    def key_columns(self) -> list[str]:
        return [f"k{i}" for i in range(self.keys)]

    def row_columns(self, stream: int) -> list[str]:
        return [f"r{stream}_{j}" for j in range(len(self.streams[stream][1]))]

    def state_columns(self, table: int) -> list[str]:
        return [f"s{table}_{j}" for j in range(len(self.states[table]))] if table < len(self.states) else []

    def place(self, name: str) -> str:
        """An input column, in words."""
        for i, (stream, names) in enumerate(self.streams):
            if name in self.row_columns(i):
                return f"stream {stream}, column {names[self.row_columns(i).index(name)]}"
        return f"column {self.key_columns.index(name) + 1} of the key" if name in self.key_columns else "state"

    @property
    def output_columns(self) -> list[str]:
        return [f"o{j}" for j in range(self.output)]


@dataclass(frozen=True)
class Work:
    """All that a worker needs; `schema`: of the batches that it returns."""

    layout: Layout
    source: str
    file: str
    name: str
    output: str
    declared: Declaration
    times: Times
    rejects: bool
    schema: pa.Schema


Batches = Iterator[pa.RecordBatch]
Values = dict[str, list[Any]]  # of a batch, by column


def worker(work: Work) -> Callable[[Batches], Batches]:
    """The function that Spark calls for each partition, sorted by key."""

    def turns(batches: Batches) -> Batches:
        make = load_class(work.source, work.file, work.name)
        caller = Caller(make, work.output, work.declared, work.times, work.file, work.rejects)
        outbox = _Outbox(work)
        for key, records in groupby(_records(work.layout, _fit(work, batches, outbox)), key=itemgetter(0)):
            stored, rows = _split(work.layout, records)
            for one in caller.turn(key, stored, rows):
                outbox.put(key, one)
                if outbox.waiting >= SEND:
                    yield from outbox.sent()
        yield from outbox.sent()

    return turns


def _fit(work: Work, batches: Batches, outbox: _Outbox) -> Iterator[Values]:
    """The values of each batch. The outbox gets rows with a value that Python lacks, as they are: the class does not
    get them. Raises ProcessFault if they may not be rejected."""
    for batch in batches:
        try:
            yield _values(batch)
        except NOT_PYTHONS:
            unfit = _unfit(work, batch)
            outbox.reject_unfit(batch, unfit)
            yield _values(batch.filter(pa.array(i not in unfit for i in range(batch.num_rows))))


def _values(batch: pa.RecordBatch) -> Values:
    named = zip(batch.schema.names, batch.columns, strict=True)
    return {name: _plain(column) for name, column in named if name != "epoch"}  # which only sorts


def _unfit(work: Work, batch: pa.RecordBatch) -> dict[int, str]:
    """Why rows of a batch cannot be given to the class, by position."""
    found: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for i, one in enumerate(_rows(column)):
            problem = _problem(one)
            if problem is not None and i not in found:
                found[i] = _lacking(work.layout, batch, i, name, problem)
                if not (work.rejects and batch["waits"][i].as_py()):
                    raise ProcessFault(
                        f"{found[i]}. Quarantine such rows with `on_error: dead` in the rule file; no reset is needed"
                    )
    return found


def _records(layout: Layout, batches: Iterator[Values]) -> Iterator[tuple[Any, ...]]:
    """(key, waits, part, time, values…) of each row, in the order of the partition."""
    for columns in batches:
        heads = [columns[name] for name in ("waits", "part", "time", "name", "number", "gone")]
        keys = _zipped(columns, layout.key_columns)
        rows = [_zipped(columns, layout.row_columns(i)) for i in range(len(layout.streams))]
        states = [_zipped(columns, layout.state_columns(i)) for i in range(len(layout.states))]
        for i, (key, (waits, part, time, name, number, gone)) in enumerate(
            zip(keys, zip(*heads, strict=True), strict=True)
        ):
            if waits:
                yield key, True, part, time, rows[part][i]
            else:
                value = states[part][i] if part < len(states) else number
                yield key, False, part, time, value, name, gone


def _plain(column: pa.Array) -> list[Any]:
    """Python's values. Times with a zone are in UTC, because Python computes within a zone by wall-clock time.

    Two kinds avoid pyarrow's slow conversions: times, and values that are not nested, for which `maps_as_pydicts` is
    not needed.
    """
    if not pa.types.is_nested(column.type):
        return _instants(column) if _has_zone(column.type) else list(column.to_pylist())
    wanted = _in_utc(column.type)
    return list((column if wanted == column.type else column.cast(wanted)).to_pylist(maps_as_pydicts="strict"))


def _has_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _instants(column: pa.Array) -> list[datetime | None]:
    micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [None if at is None else ORIGIN + timedelta(microseconds=at) for at in micros]


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC") if kind.tz else kind
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    return kind


def _zipped(columns: Values, names: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[name] for name in names), strict=True)) if names else [()] * len(columns["waits"])


def _lacking(layout: Layout, batch: pa.RecordBatch, row: int, column: str, problem: str) -> str:
    """The reason for a row with a value that Python lacks."""
    parts = [batch[name].slice(row, 1) for name in layout.key_columns]
    key = tuple("?" if _problem(one) else _plain(one)[0] for one in parts)
    at = batch["time"][row].as_py()
    when = "" if at is None else f", event time {far_text(at)}"
    return (
        f"{LACKS} (times from year 1 to 9999, in UTC; text that is UTF-8; maps without a key twice) "
        f"in {layout.place(column)}, for key {short(key)}{when}, found {_shown(batch[column].slice(row, 1))}: "
        f"{' '.join(problem.split())}"
    )


def _shown(one: pa.Array) -> str:
    """A value that Python lacks, as text; of one that holds others, its type."""
    if pa.types.is_date32(one.type):  # Arrow has no time for each of its days
        return far_text(one.cast(pa.int32())[0].as_py() * DAY)
    if pa.types.is_temporal(one.type):
        return far_text(one.cast(pa.timestamp("us")).cast(pa.int64())[0].as_py())
    return short(one.cast(pa.binary())[0].as_py()) if pa.types.is_string(one.type) else f"a value of type {one.type}"


def _rows(column: pa.Array) -> list[pa.Array]:
    return [column.slice(i, 1) for i in range(len(column))]


def _problem(one: pa.Array) -> str | None:
    """Why Python lacks a value; None if it has it."""
    try:
        _plain(one)
    except NOT_PYTHONS as fault:
        return str(fault)
    return None


def _split(layout: Layout, records: Iterable[tuple[Any, ...]]) -> tuple[dict[Place, Slot], Iterator[Any]]:
    """Split a key's records into its stored values, which come first (newest first), and its rows."""
    stored: dict[Place, Slot | None] = {}
    rows = iter(records)
    first = None
    for record in rows:
        if record[1]:
            first = record
            break
        _, _, part, time, value, name, gone = record
        stored.setdefault((layout.tables[part], name or ""), None if gone else Slot(value, time))
    there = {place: slot for place, slot in stored.items() if slot is not None}
    return there, _timed(layout, chain([first], rows) if first is not None else ())


def _timed(layout: Layout, records: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for _, _, part, time, values in records:
        stream, names = layout.streams[part]
        row = dict(zip(names, values, strict=True))
        row["_stream"] = stream
        yield time, row


class _Outbox:
    """Rows that wait to be sent, one list for each `part`."""

    def __init__(self, work: Work):
        self._work, self._layout = work, work.layout
        self._parts = {name: i for i, name in enumerate(work.layout.tables)}
        self._rows: dict[int, list[tuple[Any, ...]]] = {}
        self._unfit: list[pa.RecordBatch] = []
        self.waiting = 0

    def reject_unfit(self, batch: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """Send rows of a batch as they are. reasons: by position."""
        parts = batch["part"].to_pylist()
        for part in sorted({parts[i] for i in reasons}):
            places = [i for i in sorted(reasons) if parts[i] == part]
            rows = batch.take(pa.array(places))
            given = {name: rows[name] for name in self._layout.row_columns(part)}
            self._unfit.append(self._batch(REJECTED - part, len(places), given | {"why": [reasons[i] for i in places]}))
            self.waiting += len(places)

    def put(self, key: tuple[Any, ...], one: tuple[Any, ...] | Rejected | Change) -> None:
        if isinstance(one, Rejected):
            for row in one.rows:
                self._reject(row, one.reason)
        elif isinstance(one, Change):
            self._add(*self._change(key, one))
        else:
            self._add(OUTPUT, one)

    def _add(self, part: int, row: tuple[Any, ...]) -> None:
        self._rows.setdefault(part, []).append(row)
        self.waiting += 1

    def _reject(self, row: dict[str, Any], why: str) -> None:
        streams = self._layout.streams
        place = next(i for i, (stream, _) in enumerate(streams) if stream == row["_stream"])
        self._add(REJECTED - place, (why, *(row[name] for name in streams[place][1])))

    def _change(self, key: tuple[Any, ...], change: Change) -> tuple[int, tuple[Any, ...]]:
        (table, name), slot = change
        part = self._parts[table]
        states = len(self._layout.states)
        if slot is None:
            value: tuple[Any, ...] = (None,) * len(self._layout.states[part]) if part < states else (name, None)
            return part, (*key, None, True, *value)
        return part, (*key, slot.at, False, *(slot.value if part < states else (name, slot.value)))

    def sent(self) -> Iterator[pa.RecordBatch]:
        rows, self._rows, self.waiting = self._rows, {}, 0
        unfit, self._unfit = self._unfit, []
        yield from unfit
        for part, found in rows.items():
            columns = zip(self._columns(part), zip(*found, strict=True), strict=True)
            yield self._batch(part, len(found), dict(columns))

    def _batch(self, part: int, rows: int, given: Mapping[str, Any]) -> pa.RecordBatch:
        given = {**given, "part": [part] * rows}
        schema = self._work.schema
        return pa.RecordBatch.from_arrays([_column(given.get(f.name), f.type, rows) for f in schema], schema=schema)

    def _columns(self, part: int) -> list[str]:
        if part == OUTPUT:
            return self._layout.output_columns
        if part <= REJECTED:
            return ["why", *self._layout.row_columns(REJECTED - part)]
        own = self._layout.state_columns(part) if part < len(self._layout.states) else ["name", "number"]
        return [*self._layout.key_columns, "time", "gone", *own]


def _column(values: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
