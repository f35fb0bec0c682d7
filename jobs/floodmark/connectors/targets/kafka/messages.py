"""The records of rows: key, value and headers. Pure but for Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.targets.kafka.forms import FORMS, Form
from floodmark.connectors.targets.values.jsonvalues import json_bytes, json_rows
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column

OVERHEAD = 10  # bytes, at most, of the lengths in a record's header
LEDGER, GENERATION, EPOCH, ROW = (f"floodmark.{name}" for name in ("ledger", "generation", "epoch", "row"))


class Record(NamedTuple):
    """One row. `value`: None in a tombstone, which takes the key's row away. row: its token."""

    key: bytes | None
    value: bytes | None
    row: str
    headers: list[tuple[str, str | bytes | None]]

    @property
    def size(self) -> int:
        """Bytes, at most, of a batch with this record alone, before it is compressed."""
        named = sum(len(name) + len(value or "") + OVERHEAD for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + named + 10 * OVERHEAD


class Marker(NamedTuple):
    """A record of a position."""

    topic: str
    partition: int
    key: str
    value: str
    headers: list[tuple[str, str | bytes | None]]


def records_of(one: Operation, layout: Layout, key: Sequence[str], form: Form = FORMS["json"]) -> Iterator[Record]:
    """The rows of a portion, in their order. `key`: the columns of the records' key; form: of their values."""
    position = one.position
    said = {LEDGER: position.ledger, GENERATION: str(position.generation), EPOCH: str(position.epoch)}
    said |= form.headers(layout.columns)
    headers: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in said.items()]
    numbers, named = one.numbers(), [column for column in layout.columns if column.name in key]
    for batch in one.rows():
        gone = batch.column(DELETE_COLUMN).to_pylist() if layout.key else [False] * batch.num_rows
        keys = json_rows(batch, named) if key else repeat({}, batch.num_rows)
        for row, value, away in zip(keys, form.values(batch, layout.columns), gone, strict=True):
            token = f"{one.token}/{next(numbers)}"
            found = None if away else value
            yield Record(key_of(row, key, layout.columns), found, token, [*headers, (ROW, token.encode())])


def key_of(row: Mapping[str, Any], key: Sequence[str], columns: Sequence[Column]) -> bytes | None:
    """The record's key: the text of a single text column; else, and if that is null, a JSON object of the columns."""
    if not key:
        return None
    kinds = {column.name: column.type.name for column in columns}
    if len(key) == 1 and kinds[key[0]] == "string" and row[key[0]] is not None:
        return str(row[key[0]]).encode()
    return json_bytes({name: row[name] for name in key})
