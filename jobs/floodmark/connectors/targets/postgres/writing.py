"""Rows as CSV for COPY."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from floodmark.connectors.targets.postgres.sessions import Swallowed
from floodmark.connectors.targets.postgres.statements import copy_into
from floodmark.connectors.targets.postgres.types import LEAST, pg_type
from floodmark.connectors.targets.values.jsonvalues import json_value
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column, Type

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa


_YEAR = re.compile(r"^(-\d+|0000)(-.*)$")


def copy_rows(
    session: psycopg.Connection[Any],
    table: str,
    columns: tuple[Column, ...],
    batches: Iterable[pa.RecordBatch],
    more: tuple[str, ...] = (),
) -> None:
    """Add rows to a table by COPY. `table`: quoted; more: as of `copied`. Raises Swallowed."""
    cursor, sent = session.cursor(), 0
    with cursor.copy(copy_into(table, [*(one.name for one in columns), *more])) as copy:
        for batch in batches:
            copy.write(copied(batch, columns, more))
            sent += batch.num_rows
    if cursor.rowcount != sent:
        raise Swallowed(sent, cursor.rowcount)


def copied(batch: pa.RecordBatch, columns: tuple[Column, ...], more: tuple[str, ...] = ()) -> bytes:
    """The rows as CSV for COPY, with `columns` and then the boolean columns `more`: null is empty, text is quoted."""
    import pyarrow as pa
    import pyarrow.csv as pc

    arrays = [_written(batch.column(one.name), one.type) for one in columns]
    arrays += [batch.column(name) for name in more]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
    pc.write_csv(table, sink, pc.WriteOptions(include_header=False))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def coming(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those rows of a portion with a key that take no row away."""
    import pyarrow.compute as pc

    return batch.filter(pc.invert(batch.column(DELETE_COLUMN)))


def _written(array: pa.Array, kind: Type) -> pa.Array:
    """The column as what CSV can write."""
    import pyarrow as pa

    if kind.name == "timestamp":
        return _by_era(_zoned_text(array))
    if kind.name in ("timestamp_ntz", "date") and _has_before_christ(array):
        return _by_era(array.cast(pa.string()))
    if kind.name == "binary":
        return pa.array((None if one is None else rf"\x{one.hex()}" for one in array.to_pylist()), pa.string())
    if kind.name in ("array", "map", "struct"):
        text = _array_text if pg_type(kind).endswith("[]") else _json_text
        return pa.array((None if one is None else text(one, kind) for one in array.to_pylist()), pa.string())
    return array


def _zoned_text(array: pa.Array) -> pa.Array:
    """Instants as text in UTC, with a Z. Arrow's own writer of CSV needs ten times as long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = array.cast(pa.timestamp("us")).cast(pa.string())
    return pc.binary_join_element_wise(texts, "Z", "")


def _has_before_christ(array: pa.Array) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    least = pc.min(array.cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    return least is not None and least < LEAST


def _by_era(texts: pa.Array) -> pa.Array:
    """The times with their years as PostgreSQL has them: `0044-03-15 BC` is Arrow's `-0043-03-15`, and 1 BC its 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring_regex(texts, "^(-|0000)")).as_py():
        return texts
    return pa.array([one and _YEAR.sub(_era, one) for one in texts.to_pylist()], pa.string())


def _era(found: re.Match[str]) -> str:
    return f"{1 - int(found[1]):04}{found[2]} BC"


def _array_text(values: list[Any], kind: Type) -> str:
    """A literal of PostgreSQL's arrays."""
    element = kind.parts[0].type
    return "{" + ",".join("NULL" if one is None else _quoted(_text(one, element)) for one in values) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(value: Any, kind: Type) -> str:
    if kind.name == "binary":
        return rf"\x{value.hex()}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def _json_text(value: Any, kind: Type) -> str:
    return json.dumps(json_value(value, kind), ensure_ascii=False)
