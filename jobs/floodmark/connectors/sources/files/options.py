"""The keys of files as a source."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from floodmark.connectors.avro.schemas import check_read
from floodmark.core.rules.file.fields import Address, Filled, Text, Written, declared_columns
from floodmark.core.text.ddl import Column, columns_of
from floodmark.core.text.durations import parse_duration

Format: TypeAlias = Literal["json", "csv", "parquet", "avro", "text"]
_TEXTS = ("json", "csv")  # formats whose records can be malformed
_ONLY = {
    "header": ("csv",),
    "delimiter": ("csv",),
    "quote": ("csv",),
    "escape": ("csv",),
    "comment": ("csv",),
    "null_value": ("csv",),
    "multiline": _TEXTS,
    "timestamp_format": _TEXTS,
    "date_format": _TEXTS,
    "infer": (*_TEXTS, "avro"),
    "schema": ("json", "csv", "parquet", "avro"),
}
_FOR_SPARK = {
    "header": "header",
    "delimiter": "delimiter",
    "quote": "quote",
    "escape": "escape",
    "comment": "comment",
    "null_value": "nullValue",
    "multiline": "multiLine",
    "timestamp_format": "timestampFormat",
    "date_format": "dateFormat",
}
_ATOMIC = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "date",
           "timestamp", "timestamp_ntz")  # fmt: skip


def _format(value: object) -> object:
    if value not in ("json", "csv", "parquet", "avro", "text"):
        raise ValueError("expected json, csv, parquet, avro or text")
    return value


def _readable(value: str) -> str:
    if "://" in value and not value.startswith(("file://", "s3://", "s3a://")):
        raise ValueError(
            "expected a folder of this machine's file system, or of an object store that speaks S3 "
            "(s3a://BUCKET/FOLDER); files of other stores cannot be read yet. Mount the store, or write its files to a "
            "Delta table"
        )
    return value


def _partitions(value: str) -> str:
    declared = declared_columns(value)
    columns = columns_of(declared)
    nested = [column.name for column in columns if column.type.name not in _ATOMIC]
    if nested:
        raise ValueError(f"expected types that a folder's name can have, found another at {nested[0]}")
    hidden = [column.name for column in columns if column.name.startswith(("_", "."))]
    if hidden:
        raise ValueError(f"expected names without _ or . in front, whose folders are not read, found {hidden[0]}")
    return declared


def _settle(value: str) -> str:
    if parse_duration(value) < 0:
        raise ValueError("expected a duration of at least zero")
    return value


def _once(value: object) -> object:
    if value not in (None, "once"):
        raise ValueError("expected once: the first run infers the columns, and later runs keep them")
    return value


def _overwritten(value: object) -> object:
    if value not in ("stop", "skip"):
        raise ValueError(
            "expected stop (a run stops if a file was changed after it was read) or skip (the change is passed over)"
        )
    return value


def _done(value: str) -> str:
    if "/" in value or value == ".":
        raise ValueError("expected a suffix such as .done, or a name such as _SUCCESS")
    return value


def _character(value: str) -> str:
    if len(value) != 1:
        raise ValueError(f"expected one character, found {value!r}")
    return value


Character: TypeAlias = Annotated[Text, AfterValidator(_character)]
Columns: TypeAlias = Annotated[Filled, AfterValidator(declared_columns)]


class WrittenFiles(Written):
    """Files of one format in a folder. Each is read once, and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    path: Annotated[Address, AfterValidator(_readable), Field(description="the folder, local or s3a://BUCKET/FOLDER")]
    format: Annotated[Format, BeforeValidator(_format), Field(description="what the files hold")]
    declared: Annotated[Columns | None, Field(alias="schema", description="the columns, as in CREATE TABLE")] = None
    infer: Annotated[
        Literal["once"] | None, BeforeValidator(_once), Field(description="the first run infers the columns")
    ] = None
    partitions: Annotated[
        Filled | None,
        AfterValidator(lambda value: value and _partitions(value)),
        Field(description="columns from names of folders, such as day=2026-01-01"),
    ] = None
    glob: Annotated[Filled, Field(description="pattern of the files' names, such as *.json.gz")] = "*"
    recursive: Annotated[bool, Field(description="read files of folders below, too")] = False
    settle: Annotated[
        Filled, AfterValidator(_settle), Field(description="a file that was modified later than that ago is not read")
    ] = "10 seconds"
    done: Annotated[
        Filled | None,
        AfterValidator(lambda value: value and _done(value)),
        Field(description="a file is read once FILE.done exists, or _SUCCESS in its folder or in one above"),
    ] = None
    overwritten: Annotated[
        Literal["stop", "skip"],
        BeforeValidator(_overwritten),
        Field(description="what a run does if a file was changed after it was read"),
    ] = "stop"
    header: Annotated[bool, Field(description="the first line of a CSV file has the names of the columns")] = False
    delimiter: Annotated[
        Character | None, Field(description="what separates the values of a CSV record; default: a comma")
    ] = None
    quote: Annotated[Character | None, Field(description="what encloses a CSV value; default: a double quote")] = None
    escape: Annotated[
        Character | None, Field(description="what escapes a quote in a CSV value; default: another quote (RFC 4180)")
    ] = None
    comment: Annotated[Character | None, Field(description="CSV lines that start with this character are left out")] = (
        None
    )
    null_value: Annotated[Text | None, Field(description="the text of a CSV value that is NULL; default: nothing")] = (
        None
    )
    multiline: Annotated[bool, Field(description="a record may span lines")] = False
    timestamp_format: Annotated[
        Filled | None, Field(description="Spark's pattern for times, such as yyyy-MM-dd HH:mm; default: ISO 8601")
    ] = None
    date_format: Annotated[Filled | None, Field(description="Spark's pattern for dates; default: ISO 8601")] = None

    @model_validator(mode="after")
    def _fits(self) -> WrittenFiles:
        for key, formats in _ONLY.items():
            if self.format not in formats and getattr(self, "declared" if key == "schema" else key):
                raise ValueError(f"expected `{key}` only with the format {' or '.join(formats)}, found {self.format}")
        if self.format in _TEXTS and (self.declared is None) == (self.infer is None):
            raise ValueError(
                f"expected `schema: k STRING, n BIGINT` or `infer: once` with the format {self.format}, found "
                f"{'neither' if self.declared is None else 'both'}"
            )
        if self.format == "avro" and self.declared is not None:
            if self.infer is not None:
                raise ValueError("expected `schema` or `infer: once`, found both")
            check_read(self.columns)
        doubled = {one.name.lower() for one in self.columns} & {one.name.lower() for one in self.folders}
        if doubled:
            raise ValueError(f"expected each column in `schema` or in `partitions`, found {doubled.pop()} in both")
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The declared columns of the files; none if they are to be found in the files."""
        if self.format == "text":
            return columns_of("value STRING")
        return columns_of(self.declared) if self.declared else ()

    @property
    def folders(self) -> tuple[Column, ...]:
        """The columns that names of folders have."""
        return columns_of(self.partitions) if self.partitions else ()

    @property
    def for_spark(self) -> dict[str, str]:
        """The dialect, as options of Spark's reader."""
        doubled = {"escape": self.quote or '"'} if self.format == "csv" and not self.escape else {}
        given = [*((name, getattr(self, key)) for key, name in _FOR_SPARK.items()), *doubled.items()]
        return {name: str(value).lower() if value is True else value for name, value in given if value}
