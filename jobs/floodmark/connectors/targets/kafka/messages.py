"""The records of rows: key, value and headers. Pure but for Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.targets.kafka.forms import FORMS, Form
from floodmark.connectors.targets.values.jsonvalues import json_lines
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column

if TYPE_CHECKING:
    import pyarrow as pa

OVERHEAD = 10  # bytes, at most, of the lengths in a record's header
LEDGER, GENERATION, EPOCH, ROW = (f"floodmark.{name}" for name in ("ledger", "generation", "epoch", "row"))


class Record(NamedTuple):
    """One row. `value`: None in a tombstone, which takes the key's row away."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

    @property
    def row(self) -> str:
        """Its token."""
        return dict(self.headers)[ROW].decode()

    @property
    def least(self) -> int:
        """Bytes of its key and value."""
        return len(self.key or b"") + len(self.value or b"")

    @property
    def size(self) -> int:
        """Bytes, at most, of a batch with this record alone, before it is compressed."""
        named = sum(len(name) + len(value) + OVERHEAD for name, value in self.headers)
        return self.least + named + 10 * OVERHEAD


class Marker(NamedTuple):
    """A record of a position."""

    topic: str
    partition: int
    key: str
    value: str
    headers: list[tuple[str, str | bytes | None]]


def records_of(one: Operation, layout: Layout, key: Sequence[str], form: Form = FORMS["json"]) -> Iterator[Record]:
    """The rows of a portion, in their order. `key`: the columns of the records' key; form: of their values.

    A relay spends much of its time here, so what is the same for all records is done once.
    """
    headers, numbers = _headers(one, layout, form), one.numbers()
    for batch in one.rows():
        count = batch.num_rows
        gone = batch.column(DELETE_COLUMN).to_pylist() if layout.key else repeat(False, count)
        keys, values = keys_of(batch, key, layout.columns), form.values(batch, layout.columns)
        for at, value, away, number in zip(keys, values, gone, islice(numbers, count), strict=True):
            yield Record(at, None if away else value, [*headers, _row(one, number)])


def tombstones_of(one: Operation, layout: Layout, keys: Iterable[bytes | None], form: Form) -> Iterator[Record]:
    """Records that take the rows of these keys away. Their numbers follow those of the portion's rows."""
    headers = _headers(one, layout, form)
    for number, key in enumerate(keys, one.count):
        yield Record(key, None, [*headers, _row(one, number)])


def is_of(ledger: str, message: Any) -> bool:
    """Whether a message that was read is a record of this ledger's rule."""
    return (LEDGER, ledger.encode()) in (message.headers() or ())


def row_in(message: Any, form: Form, columns: tuple[Column, ...]) -> dict[str, Any]:
    """The row of a record that was read.

    Other writers' records that are no rows of these columns count as rows of nulls: as rows that are too many. Raises
    ValueError for such a record of a rule.
    """
    from floodmark.connectors.targets.values.rowbatches import batches_of

    headers = dict(message.headers() or ())
    if LEDGER in headers:
        return form.row_in(message.value(), headers, columns)
    try:
        found = form.row_in(message.value(), headers, columns)
        list(batches_of(iter([found]), columns))
    except Exception:  # whatever it is, it is none of ours
        return dict.fromkeys(column.name for column in columns)
    return found


def _headers(one: Operation, layout: Layout, form: Form) -> list[tuple[str, bytes]]:
    """Those that all records of a portion share."""
    position = one.position
    said = {LEDGER: position.ledger, GENERATION: str(position.generation), EPOCH: str(position.epoch)}
    said |= form.headers(layout.columns)
    return [(name, text.encode()) for name, text in said.items()]


def _row(one: Operation, number: int) -> tuple[str, bytes]:
    return ROW, f"{one.token}/{number}".encode()


def keys_of(batch: pa.RecordBatch, key: Sequence[str], columns: Sequence[Column]) -> Iterable[bytes | None]:
    """The records' keys: the text of a single text column; else, and if that is null, a JSON object of the columns."""
    if not key:
        return repeat(None, batch.num_rows)
    kinds = {column.name: column for column in columns}
    objects, first = json_lines(batch, [kinds[name] for name in key]), batch.column(key[0])
    if len(key) > 1 or kinds[key[0]].type.name != "string":
        return objects
    if not first.null_count:
        return map(str.encode, first.to_pylist())
    return (one if text is None else text.encode() for text, one in zip(first.to_pylist(), objects, strict=True))
