"""The keys of an Iceberg table in a rule file, as a stream and as a sink."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from floodmark.core.rules.file.fields import Filled, Written, as_text, connection_name

_PART = r"[A-Za-z_][A-Za-z0-9_]*"


def _table(value: str) -> str:
    if not re.fullmatch(rf"{_PART}(\.{_PART})+", value):
        raise ValueError("expected a table with its namespace, such as shop.totals")
    return value


class WrittenIceberg(Written):
    """`table`: with its namespace. Names keep their case."""

    model_config = ConfigDict(json_schema_extra={"required": ["connection", "table"]})

    connection: Annotated[
        str, AfterValidator(connection_name), BeforeValidator(as_text), Field(description="the catalogue's name")
    ]
    table: Annotated[
        Filled,
        AfterValidator(_table),
        Field(description="NAMESPACE.TABLE; of a sink, the relay makes it, or takes over an empty one"),
    ]

    @property
    def place(self) -> tuple[str, ...]:
        """The parts of its name."""
        return tuple(self.table.split("."))

    def address(self) -> str:
        return f"iceberg://{self.connection}/{self.table}"
