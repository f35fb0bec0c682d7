"""The kind of source that reads files of a folder: its keys in a rule file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from floodmark.core.rules.file.fields import Address, Filled, Text, Written
from floodmark.core.rules.kinds import SourceCan, SourceKind
from floodmark.core.text.ddl import Column, columns_of, text_of
from floodmark.core.text.durations import parse_duration

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream

Format: TypeAlias = Literal["json", "csv", "parquet", "text"]
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
    "infer": _TEXTS,
    "schema": ("json", "csv", "parquet"),
}
_ATOMIC = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "date",
           "timestamp", "timestamp_ntz")  # fmt: skip


def _format(value: object) -> object:
    if value == "avro":
        raise ValueError(
            "expected json, csv, parquet or text, found avro: no Avro reader exists for this version of Spark. "
            "Convert the files to Parquet"
        )
    if value not in ("json", "csv", "parquet", "text"):
        raise ValueError("expected json, csv, parquet or text")
    return value


def _local(value: str) -> str:
    if "://" in value and not value.startswith("file://"):
        raise ValueError(
            "expected a folder of this machine's file system; stores of objects cannot be read as files yet. Mount "
            "the store, or write its files to a Delta table"
        )
    return value


def _columns(value: str) -> str:
    try:
        return text_of(columns_of(value))
    except ValueError as fault:
        raise ValueError(f"expected columns as in CREATE TABLE, such as `k STRING, n BIGINT`: {fault}") from None


def _partitions(value: str) -> str:
    nested = [column.name for column in columns_of(_columns(value)) if column.type.name not in _ATOMIC]
    if nested:
        raise ValueError(f"expected types that a folder's name can have, found another at {nested[0]}")
    return _columns(value)


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


Columns: TypeAlias = Annotated[Filled, AfterValidator(_columns)]


class WrittenFiles(Written):
    """Files of one format in a folder. Each is read once, and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    path: Annotated[Address, AfterValidator(_local), Field(description="the folder")]
    format: Annotated[Format, BeforeValidator(_format)]
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
        Field(description="a file is read once FILE.done, or _SUCCESS in its folder, exists"),
    ] = None
    overwritten: Annotated[
        Literal["stop", "skip"],
        BeforeValidator(_overwritten),
        Field(description="what a run does if a file was changed after it was read"),
    ] = "stop"
    header: Annotated[bool, Field(description="the first line of a CSV file has the names of the columns")] = False
    delimiter: Text | None = None
    quote: Text | None = None
    escape: Text | None = None
    comment: Text | None = None
    null_value: Text | None = None
    multiline: Annotated[bool, Field(description="a record may span lines")] = False
    timestamp_format: Filled | None = None
    date_format: Filled | None = None

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
    def can_be_malformed(self) -> bool:
        return self.format in _TEXTS or bool(self.folders)


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    from floodmark.connectors.files.source import FilesSource

    return FilesSource(name, stream, keep)


SOURCE = SourceKind(
    written=WrittenFiles,
    summary="files that somebody drops into a folder",
    can=SourceCan(rereads=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_files", "max_bytes"})),
    address=lambda said: str(said.path),
    open=_open,
)
