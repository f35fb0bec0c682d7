"""The keys of a PostgreSQL target in a rule file."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from floodmark.core.rules.file.fields import Filled, Written, as_text, connection_name

_PART = r"[A-Za-z_][A-Za-z0-9_]{0,62}"


def _table(value: str) -> str:
    if not re.fullmatch(rf"({_PART}\.)?{_PART}", value):
        raise ValueError(f"expected the name of a table, such as totals or public.totals, found {value}")
    return value if "." in value else f"public.{value}"


class WrittenPostgres(Written):
    """`table`: with its schema, else in `public`. Names keep their case."""

    model_config = ConfigDict(json_schema_extra={"required": ["connection", "table"]})

    connection: Annotated[str, AfterValidator(connection_name), BeforeValidator(as_text), Field(description="its name")]
    table: Annotated[
        Filled, AfterValidator(_table), Field(description="the table; the relay makes it, or takes over an empty one")
    ]

    @property
    def place(self) -> tuple[str, str]:
        """Schema and name."""
        schema, _, name = self.table.partition(".")
        return schema, name

    def address(self) -> str:
        return f"postgres://{self.connection}/{self.table}"
