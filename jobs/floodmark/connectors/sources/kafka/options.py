"""The keys of a stream of Kafka in a rule file, and the columns that they declare."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from floodmark.connectors.avro.resolving import check_resolves
from floodmark.connectors.avro.schemas import check_read, columns_in, newest, parsed, record_in
from floodmark.connectors.avro.wellformed import check_well_formed
from floodmark.core.rules.file.fields import Filled, Written, as_text, column_name, connection_name
from floodmark.core.text.ddl import Column, Type, columns_of
from floodmark.core.text.files import read_plain

_FORMATS = ("json", "avro", "text", "binary")
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
    if value not in _FORMATS:
        raise ValueError(
            "expected json (with `schema`), avro (with `schema` or `avro_schema`), text (a column value STRING) or "
            "binary (value BINARY)"
        )
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


def _files(value: object) -> object:
    """A file, or files by the ids that records have in Confluent's wire format."""
    files = list(value.values()) if isinstance(value, dict) else [value]
    if not files or not all(isinstance(one, str) and one for one in files):
        raise ValueError("expected a file beside the rule, such as orders.avsc, or files by id: {7: orders.avsc}")
    if not isinstance(value, dict):
        return value
    ids = [str(one) for one in value]
    wrong = next((one for one in ids if not one.isdecimal() or int(one) >= 1 << 31), None)
    if wrong is not None:
        raise ValueError(f"expected ids of schemas, which are whole numbers such as 7, found {wrong}")
    return {str(int(one)): file for one, file in value.items()}


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
        Literal["json", "avro", "text", "binary"], BeforeValidator(_format),
        Field(description="json: columns by `schema`; avro: by `schema` or `avro_schema`; text, binary: `value`"),
    ] = "json"  # fmt: skip
    ddl: Annotated[
        Filled | None, AfterValidator(lambda one: one and _schema(one)),
        Field(alias="schema", description="columns of the values, as in CREATE TABLE: `id BIGINT, at TIMESTAMP`"),
    ] = None  # fmt: skip
    avro_schema: Annotated[
        str | dict[str, str] | None, BeforeValidator(lambda value: None if value is None else _files(value)),
        Field(description="file beside the rule with the schema of Avro values; or files by Confluent's schema id"),
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
        self._check_schema()
        if self.avro_schema is None:
            _refuse_doubled(self.columns())
        return self

    def _check_schema(self) -> None:
        if self.format == "avro":
            if (self.ddl is None) == (self.avro_schema is None):
                found = "none" if self.ddl is None else "both"
                raise ValueError(
                    "expected one of `schema: id BIGINT, at TIMESTAMP` and `avro_schema: FILE.avsc` for Avro values, "
                    f"found {found}"
                )
            if self.ddl is not None:
                check_read(columns_of(self.ddl))
        elif self.avro_schema is not None:
            raise ValueError(f"expected `avro_schema` only with `format: avro`, found it with {self.format}")
        elif (self.format == "json") != (self.ddl is not None):
            raise ValueError(
                "expected `schema` for JSON values, such as `schema: id BIGINT, at TIMESTAMP`, found none"
                if self.format == "json"
                else f"expected no `schema` beside `format: {self.format}`, whose values are one column, found one"
            )

    def values(self, texts: Mapping[str, str] = {}) -> tuple[Column, ...]:
        """The columns that come from the records' values. `texts`: of the schemas in files (`texts_of`)."""
        if self.avro_schema is not None:
            return columns_in(newest(texts))
        if self.ddl is not None:
            return columns_of(self.ddl)
        return (Column("value", _STRING if self.format == "text" else _BINARY),)

    def columns(self, texts: Mapping[str, str] = {}) -> tuple[Column, ...]:
        """All columns of the stream."""
        key = _BINARY if self.format == "binary" else _STRING
        kinds: Mapping[str, Type] = {**METADATA, "key": key}
        return (*self.values(texts), *(Column(name, kinds[one]) for one, name in self.metadata.items()))

    @property
    def files(self) -> dict[str, str]:
        """The files with schemas, by id; a single one by an empty text."""
        named = self.avro_schema
        return named if isinstance(named, dict) else {} if named is None else {"": named}

    def address(self) -> str:
        """One text for one place."""
        named = self.topic or ",".join(sorted(self.topics or ())) or f"pattern:{self.pattern}"
        return f"kafka://{self.connection}/{named}"


def _refuse_doubled(columns: tuple[Column, ...]) -> None:
    names = [column.name.lower() for column in columns]
    doubled = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if doubled:
        raise ValueError(f"expected each column once, found {doubled} twice: give one another name in `metadata`")


# --- Schemas in files


def schemas_of(said: Any, folder: Path, env: Mapping[str, str]) -> str | None:
    """The texts of the schemas beside a rule, as one text; None if it names none. Raises ValueError and OSError."""
    written = Kafka.model_validate(said)
    texts = {id: _text(name, folder) for id, name in written.files.items()}
    if not texts:
        return None
    for id, name in written.files.items():
        _check_text(name, texts[id], newest(texts))
    _refuse_doubled(written.columns(texts))
    return json.dumps(texts)


def _text(name: str, folder: Path) -> str:
    try:
        return read_plain(folder / name, folder)
    except FileNotFoundError:
        raise ValueError(f"expected a file {name} beside the rule, found none") from None


def _check_text(name: str, text: str, read_as: str) -> None:
    try:
        record = record_in(text)
        check_well_formed(parsed(text))
        check_resolves(record, record_in(read_as))
    except ValueError as fault:
        raise ValueError(f"{name}: {fault}") from None


@lru_cache(maxsize=64)
def texts_of(code: str | None) -> Mapping[str, str]:
    """What `schemas_of` made."""
    return {} if code is None else dict(json.loads(code))
