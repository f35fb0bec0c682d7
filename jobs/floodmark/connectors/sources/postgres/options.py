"""The keys of a stream of PostgreSQL in a rule file."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from floodmark.core.rules.file.fields import Written, as_text, column_name, connection_name
from floodmark.core.text.ddl import Column, Type

MOST = 63  # bytes of a name
# What a change has beside the row: its kind, where its transaction was committed, its place in there, and when.
METADATA = {
    "change": Type("string"),
    "lsn": Type("bigint"),
    "seq": Type("bigint"),
    "committed": Type("timestamp"),
}
_NAMES = {one: f"_{one}" for one in METADATA}


def _table(value: str) -> str:
    parts = value.split(".")
    if len(parts) > 2 or not all(re.fullmatch(r'[^".\s\0][^".\0]*', part) for part in parts):
        raise ValueError("expected a table as SCHEMA.TABLE or TABLE, as it is stored: without quotes and further dots")
    if any(len(part.encode()) > MOST for part in parts):
        raise ValueError(f"expected names of at most {MOST} bytes")
    return value if len(parts) == 2 else f"public.{value}"


def _by(value: object) -> object:
    if value not in ("slot", "snapshots"):
        raise ValueError("expected slot (every change) or snapshots (new rows of an append-only table)")
    return value


def _slot(value: str) -> str:
    if not re.fullmatch(rf"[a-z0-9_]{{1,{MOST}}}", value):
        raise ValueError(f"expected the name of a slot: at most {MOST} lowercase letters, digits and _")
    return value


def _publication(value: str) -> str:
    if not value or '"' in value or "\0" in value or len(value.encode()) > MOST:
        raise ValueError(f"expected the name of a publication: at most {MOST} bytes, without quotes")
    return value


def _metadata(value: object) -> object:
    """As a mapping: from what a change has to the column's name."""
    if isinstance(value, list):
        value = {str(one): _NAMES.get(str(one), "") for one in value}
    if not isinstance(value, dict):
        raise ValueError("expected a list such as [change, lsn], or names for them: {change: kind}")
    unknown = [one for one in value if one not in METADATA]
    if unknown:
        raise ValueError(f"expected {', '.join(METADATA)}, found {unknown[0]!r}")
    return {one: column_name(str(as_text(name))) for one, name in value.items()}


class WrittenPostgres(Written):
    """One table of a database, and how it is read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: Annotated[
        str, AfterValidator(connection_name), BeforeValidator(as_text), Field(description="name of the connection")
    ]
    table: Annotated[
        str, AfterValidator(_table), BeforeValidator(as_text), Field(description="the table, as SCHEMA.TABLE")
    ]
    by: Annotated[
        Literal["slot", "snapshots"],
        BeforeValidator(_by),
        Field(description="slot: every change, by a replication slot; snapshots: new rows of an append-only table"),
    ] = "slot"
    slot: Annotated[
        str | None, AfterValidator(lambda one: None if one is None else _slot(one)),
        Field(description="name of the replication slot; an existing one is read from where it is"),
    ] = None  # fmt: skip
    publication: Annotated[
        str | None, AfterValidator(lambda one: None if one is None else _publication(one)),
        Field(description="name of an existing publication with the table"),
    ] = None  # fmt: skip
    metadata: Annotated[
        dict[str, str] | None, BeforeValidator(lambda one: one if one is None else _metadata(one)),
        Field(description="columns beside the table's: change, lsn, seq, committed; a list, or with names"),
    ] = None  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> WrittenPostgres:
        given = [name for name in ("slot", "publication", "metadata") if getattr(self, name) is not None]
        if self.by == "snapshots" and given:
            raise ValueError(
                f"expected no `{given[0]}` beside `by: snapshots`, which reads the table itself, found one"
            )
        names = [name.lower() for name in self.added.values()]
        doubled = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if doubled:
            raise ValueError(f"expected each column once, found {doubled} twice in `metadata`")
        return self

    @property
    def added(self) -> dict[str, str]:
        """From what a change has to the name of its column."""
        if self.by == "snapshots":
            return {}
        return dict(_NAMES) if self.metadata is None else self.metadata

    def more_columns(self) -> tuple[Column, ...]:
        """The columns beside the table's."""
        return tuple(Column(name, METADATA[one]) for one, name in self.added.items())

    def address(self) -> str:
        """One text for one place."""
        return f"postgres://{self.connection}/{self.table}"
