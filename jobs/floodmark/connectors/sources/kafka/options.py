"""The keys of a stream of Kafka in a rule file, and the columns that they declare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from floodmark.core.rules.file.fields import Filled, Written, as_text, column_name, connection_name
from floodmark.core.text.ddl import Column, Type, columns_of

_FORMATS = ("json", "text", "binary")
_STRING, _BINARY = Type("string"), Type("binary")
_HEADERS = Type(
    "array", parts=(Column("element", Type("struct", parts=(Column("key", _STRING), Column("value", _BINARY)))),)
)
# What a record has beside its value. The key is text, except beside values that are bytes.
METADATA = {
    "key": _STRING,
    "topic": _STRING,
    "partition": Type("int"),
    "offset": Type("bigint"),
    "timestamp": Type("timestamp"),
    "headers": _HEADERS,
}


def _format(value: object) -> object:
    if value == "avro":
        raise ValueError("expected json, text or binary: Spark's Avro reader is not published for Spark 4.2 yet")
    if value not in _FORMATS:
        raise ValueError("expected json (with `schema`), text (a column value STRING) or binary (value BINARY)")
    return value


def _topic(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value):
        raise ValueError("expected the name of a topic: letters, digits, `.`, `_` and `-`")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as fault:
        raise ValueError(f"expected a regular expression for whole names of topics, found {fault}") from None
    return value


def _schema(value: str) -> str:
    columns_of(value)
    return value


def _metadata(value: object) -> object:
    """As a mapping: from what a record has to the column's name."""
    if isinstance(value, list):
        value = {str(one): str(one) for one in value}
    if not isinstance(value, dict):
        raise ValueError("expected a list such as [partition, offset], or names for them: {offset: at_offset}")
    unknown = [one for one in value if one not in METADATA]
    if unknown:
        raise ValueError(f"expected {', '.join(METADATA)}, found {unknown[0]!r}")
    return {one: column_name(str(as_text(name))) for one, name in value.items()}


Topic = Annotated[str, AfterValidator(_topic), BeforeValidator(as_text)]


class Kafka(Written):
    """Topics of one connection, and how their records become rows."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    connection: Annotated[
        str, AfterValidator(connection_name), BeforeValidator(as_text), Field(description="name of the connection")
    ]
    topic: Annotated[Topic | None, Field(description="the topic; or `topics`, or `pattern`")] = None
    topics: Annotated[list[Topic] | None, Field(min_length=1, description="several topics, as one stream")] = None
    pattern: Annotated[
        Filled | None, AfterValidator(lambda one: one and _pattern(one)),
        Field(description="regular expression for whole names of topics; new ones are read from their first record"),
    ] = None  # fmt: skip
    format: Annotated[
        Literal["json", "text", "binary"], BeforeValidator(_format),
        Field(description="json: columns by `schema`; text, binary: one column, `value`"),
    ] = "json"  # fmt: skip
    ddl: Annotated[
        Filled | None, AfterValidator(lambda one: one and _schema(one)),
        Field(alias="schema", description="columns of JSON values, as in CREATE TABLE: `id BIGINT, at TIMESTAMP`"),
    ] = None  # fmt: skip
    metadata: Annotated[
        dict[str, str], BeforeValidator(_metadata),
        Field(description="more columns: key, topic, partition, offset, timestamp, headers; a list, or with names"),
    ] = {}  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Kafka:
        given = [name for name in ("topic", "topics", "pattern") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of topic, topics or pattern, found {' and '.join(given) or 'none'}")
        if (self.format == "json") != (self.ddl is not None):
            raise ValueError(
                "expected `schema` for JSON values, such as `schema: id BIGINT, at TIMESTAMP`, found none"
                if self.format == "json"
                else f"expected no `schema` beside `format: {self.format}`, whose values are one column, found one"
            )
        names = [column.name.lower() for column in self.columns()]
        doubled = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if doubled:
            raise ValueError(f"expected each column once, found {doubled} twice: give one another name in `metadata`")
        return self

    def values(self) -> tuple[Column, ...]:
        """The columns that come from the records' values."""
        if self.ddl is not None:
            return columns_of(self.ddl)
        return (Column("value", _STRING if self.format == "text" else _BINARY),)

    def columns(self) -> tuple[Column, ...]:
        """All columns of the stream."""
        key = _BINARY if self.format == "binary" else _STRING
        kinds: Mapping[str, Type] = {**METADATA, "key": key}
        return (*self.values(), *(Column(name, kinds[one]) for one, name in self.metadata.items()))

    def address(self) -> str:
        """One text for one place."""
        named = self.topic or ",".join(sorted(self.topics or ())) or f"pattern:{self.pattern}"
        return f"kafka://{self.connection}/{named}"
