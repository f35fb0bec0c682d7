"""The records of rows: key, value and headers. Pure but for Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.targets.values.jsonvalues import json_rows, json_text, row_of
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column

LEDGER, GENERATION, EPOCH, ROW = (f"floodmark.{name}" for name in ("ledger", "generation", "epoch", "row"))


@dataclass(frozen=True)
class Record:
    """One row. `value`: None in a tombstone, which takes the key's row away. row: its token."""

    key: bytes | None
    value: bytes | None
    row: str
    headers: Sequence[tuple[str, str | bytes | None]]


def records_of(one: Operation, layout: Layout, key: Sequence[str]) -> Iterator[Record]:
    """The rows of a portion, in their order. `key`: the columns of the records' key."""
    position = one.position
    said = {LEDGER: position.ledger, GENERATION: str(position.generation), EPOCH: str(position.epoch)}
    headers: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in said.items()]
    number = 0
    for batch in one.rows():
        gone = batch.column(DELETE_COLUMN).to_pylist() if layout.key else [False] * batch.num_rows
        for row, away in zip(json_rows(batch, layout.columns), gone, strict=True):
            token = f"{one.token}/{number}"
            value = None if away else json_text(row).encode()
            yield Record(key_of(row, key, layout.columns), value, token, [*headers, (ROW, token.encode())])
            number += 1


def key_of(row: Mapping[str, Any], key: Sequence[str], columns: Sequence[Column]) -> bytes | None:
    """The record's key: the text of a single text column; else, and if that is null, a JSON object of the columns."""
    if not key:
        return None
    kinds = {column.name: column.type.name for column in columns}
    if len(key) == 1 and kinds[key[0]] == "string" and row[key[0]] is not None:
        return str(row[key[0]]).encode()
    return json_text({name: row[name] for name in key}).encode()


def row_in(value: bytes, columns: Sequence[Column]) -> dict[str, Any]:
    """The row of a record's value. Raises ValueError for a value of another form."""
    found = json.loads(value)
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {value[:60]!r}")
    return row_of(found, columns)
