"""Reads rows of a table, and changes of a slot, as Arrow batches: in the Python workers of Spark. No JVM.

Rows come as CSV, which Arrow parses. Values of both are text, and `values` converts them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from floodmark.connectors.ports.source import MALFORMED, SHOWN
from floodmark.connectors.sources.postgres.decoding.changes import Changes, Row, placed, undecoded
from floodmark.connectors.sources.postgres.decoding.values import arrow_type, converted, decoded
from floodmark.connectors.sources.postgres.options import METADATA
from floodmark.connectors.sources.postgres.server.slots import patiently
from floodmark.core.text.ddl import Column
from floodmark.errors import RunFailed

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import PQGen

PORTION = 4 << 20  # bytes of CSV at a time
ROWS = 5_000  # changes at a time
_END, _NOTHING_YET = -1, 0
_SIGNATURE, _HEADER = b"PGCOPY\n\xff\r\n\0", 19
_UNCHECKED = b"SQL_ASCII"  # encoding of a database that takes any bytes
_ONE_FIELD = 6  # bytes before the value: how many fields, and its size


@dataclass(frozen=True)
class Wanted:
    """columns: of the table. added: from what a change has to the name of its column."""

    columns: tuple[Column, ...]
    added: Mapping[str, str]

    def all_columns(self) -> tuple[Column, ...]:
        named = (Column(name, METADATA[one]) for one, name in self.added.items())
        return (*self.columns, *named, Column(MALFORMED, METADATA["change"]))

    def batch(
        self, values: Sequence[pa.Array], more: Mapping[str, Any], problems: Sequence[str | None]
    ) -> pa.RecordBatch:
        """values: of the table's columns. more: of a change, by what it has."""
        added = [pa.array(more[one], arrow_type(METADATA[one])) for one in self.added]
        shown = pa.array([one and one[:SHOWN] for one in problems], pa.string())
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in self.all_columns()])
        return pa.record_batch([*values, *added, shown], schema=schema)

    def converted(
        self, texts: Sequence[pa.Array], problems: list[str | None], say: Callable[[int, str], str]
    ) -> list[pa.Array]:
        """The values; what a type cannot hold is null, and a problem of its row, as `say` puts it. texts: or bytes."""
        found = []
        for given, column in zip(texts, self.columns, strict=True):
            array, unread = decoded(given)
            for i in unread:
                problems[i] = problems[i] or say(i, undecoded(column.name, given[i].as_py()))
            good, bad = converted(array, column.type)
            for i in bad:
                what = f"column {column.name}: expected {str(column.type).upper()}, found {array[i].as_py()!r}"
                problems[i] = problems[i] or say(i, what)
            found.append(good)
        return found


def copied(
    connection: psycopg.Connection[Any], query: str, wanted: Wanted, same: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, which gives the columns. `same`: what all rows have, as a change has it."""
    names = [column.name for column in wanted.columns]
    for portion in _portions(_sent(connection, f"COPY ({query}) TO STDOUT (FORMAT csv)")):
        for batch in _texts(portion, names).to_batches():
            problems: list[str | None] = [None] * batch.num_rows
            values = wanted.converted(batch.columns, problems, lambda _, what: f"in the table: {what}")
            yield wanted.batch(values, {one: [value] * batch.num_rows for one, value in same.items()}, problems)


def _sent(connection: psycopg.Connection[Any], command: str) -> Iterator[memoryview]:
    """What the server sends for a COPY, row by row. Its session waits, and so not for a server that hangs."""
    from psycopg import generators

    pgconn = connection.pgconn
    if pgconn.parameter_status(b"server_encoding") == _UNCHECKED:
        connection.execute(b"SET client_encoding TO SQL_ASCII")  # else one value that is not in UTF-8 ends the COPY
    pgconn.send_query(command.encode())
    _check(connection.wait(generators.execute(pgconn))[-1], "COPY_OUT")
    while True:
        count, row = pgconn.get_copy_data(1)
        if count == _END:
            break
        if count == _NOTHING_YET:
            connection.wait(_more(pgconn))
        else:
            yield row
    for result in connection.wait(generators.fetch_many(pgconn)):
        _check(result, "COMMAND_OK")


def _more(pgconn: Any) -> PQGen[None]:
    """The driver's steps until the server has sent more."""
    from psycopg.waiting import Wait

    while not (yield Wait.R):
        pass
    pgconn.consume_input()


def _check(result: Any, status: str) -> None:
    """Raise psycopg's error unless the result is as expected."""
    from psycopg import errors, pq

    if result.status != getattr(pq.ExecStatus, status):
        raise errors.error_from_result(result)


def _portions(rows: Iterator[memoryview]) -> Iterator[bytes]:
    """Whole rows, some at a time."""
    parts, size = list[bytes](), 0
    for row in rows:
        parts.append(bytes(row))
        size += len(row)
        if size >= PORTION:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _texts(text: bytes, names: Sequence[str]) -> pa.Table:
    """The values as texts; as bytes if some are not in UTF-8."""
    try:
        return _parsed(text, names, pa.string())
    except pa.ArrowInvalid:
        return _parsed(text, names, pa.binary())


def _parsed(text: bytes, names: Sequence[str], kind: pa.DataType) -> pa.Table:
    return pyarrow.csv.read_csv(
        io.BytesIO(text),
        read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, kind),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def changed(
    connection: psycopg.Connection[Any], query: str, wanted: Wanted, changes: Changes
) -> Iterator[pa.RecordBatch]:
    """The changes in the messages of a slot, which a query gives."""
    rows: list[Row] = []
    for row in changes.rows(_messages(connection, query)):
        rows.append(row)
        if len(rows) >= ROWS:
            yield _batch(rows, wanted)
            rows = []
    if rows:
        yield _batch(rows, wanted)


def _messages(connection: psycopg.Connection[Any], query: str) -> Iterator[bytes]:
    """The values of one column, once no other session uses the slot."""
    first, others = patiently(lambda: _begun(_sent(connection, f"COPY ({query}) TO STDOUT (FORMAT binary)")))
    yield from _values(first)
    for row in others:
        yield from _values(row)


def _begun(sent: Iterator[memoryview]) -> tuple[memoryview, Iterator[memoryview]]:
    """The first row of a COPY in binary form, which begins with a signature even without rows, and the others.

    A COPY that failed is at its end: asked again, it looks like one without rows.
    """
    first = next(sent, None)
    if first is None or not bytes(first).startswith(_SIGNATURE):
        raise RunFailed("expected the changes of the slot as a COPY in binary form, found none; retry")
    return first, sent


def _values(sent: memoryview) -> Iterator[bytes]:
    row = bytes(sent)
    if row.startswith(_SIGNATURE):
        row = row[_HEADER:]
    if len(row) > _ONE_FIELD:
        yield row[_ONE_FIELD:]


def _batch(rows: Sequence[Row], wanted: Wanted) -> pa.RecordBatch:
    problems = [None if row.problem is None else placed(row, row.problem) for row in rows]
    texts = [pa.array([row.values[i] for row in rows], pa.string()) for i in range(len(wanted.columns))]
    values = wanted.converted(texts, problems, lambda i, what: placed(rows[i], what))
    more = {
        "change": [row.kind for row in rows],
        "lsn": [row.lsn for row in rows],
        "seq": [row.seq for row in rows],
        "committed": [row.at_us for row in rows],
    }
    return wanted.batch(values, more, problems)
