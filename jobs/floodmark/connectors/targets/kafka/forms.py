"""The forms of records' values: a row in JSON or Avro, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.connectors.avro import values as avro
from floodmark.connectors.avro.schemas import schema_of
from floodmark.connectors.targets.values.jsonvalues import json_lines, row_of
from floodmark.core.text.ddl import Column

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "floodmark.schema"  # the header with the schema's fingerprint
Columns = tuple[Column, ...]


class Form(Protocol):
    """A form of values."""

    def check(self, columns: Columns) -> None:
        """Raise ValueError for columns that no value of the form has."""
        ...

    def headers(self, columns: Columns) -> Mapping[str, str]:
        """Further headers of each record."""
        ...

    def values(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[bytes]:
        """The rows of a batch."""
        ...

    def row_in(self, value: bytes, headers: Mapping[str, bytes], columns: Columns) -> dict[str, Any]:
        """The row of a value; columns that were added later are null. Raises ValueError for one of another form."""
        ...


class JsonForm:
    """An object of the columns."""

    def check(self, columns: Columns) -> None:
        """Each type has a form in JSON."""

    def headers(self, columns: Columns) -> Mapping[str, str]:
        return {}

    def values(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[bytes]:
        return json_lines(batch, columns)

    def row_in(self, value: bytes, headers: Mapping[str, bytes], columns: Columns) -> dict[str, Any]:
        found = json.loads(value)
        if not isinstance(found, dict):
            raise ValueError(f"expected an object, found {value[:60]!r}")
        return row_of(found, columns)


class AvroForm:
    """A record of the schema that follows from the columns. A header tells the schema, since columns may be added."""

    def check(self, columns: Columns) -> None:
        schema_of(columns)

    def headers(self, columns: Columns) -> Mapping[str, str]:
        return {SCHEMA: avro.fingerprint(columns)}

    def values(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> Iterator[bytes]:
        return avro.records(batch, columns)

    def row_in(self, value: bytes, headers: Mapping[str, bytes], columns: Columns) -> dict[str, Any]:
        written = avro.columns_by(headers.get(SCHEMA, b"").decode(), columns)
        return {**dict.fromkeys(column.name for column in columns), **avro.row_in(value, written)}


FORMS: dict[str, Form] = {"json": JsonForm(), "avro": AvroForm()}
