"""The keys of a target of files in a rule file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from floodmark.core.rules.file.fields import Address, Written
from floodmark.core.text.addresses import FILES, location


def _writable(value: str) -> str:
    if "://" in value and not value.startswith(("file://", "s3://", "s3a://")):
        raise ValueError(
            "expected a folder of this machine's file system, or of an object store that speaks S3 "
            "(s3a://BUCKET/FOLDER); files cannot be written to other stores yet. Mount the store, or write a delta sink"
        )
    return value


def _format(value: object) -> object:
    if value not in ("parquet", "json", "csv"):
        raise ValueError("expected parquet, json (an object on each line) or csv (with a line of names)")
    return value


class WrittenFolder(Written):
    """A folder, and what its files hold."""

    model_config = ConfigDict(json_schema_extra={"required": ["path"]})

    path: Annotated[
        Address,
        AfterValidator(_writable),
        Field(description="the folder, local or s3a://BUCKET/FOLDER; the relay makes it"),
    ]
    format: Annotated[
        Literal["parquet", "json", "csv"], BeforeValidator(_format), Field(description="what the files hold")
    ] = "parquet"

    @property
    def place(self) -> str:
        """The address of the folder."""
        return location(self.path)

    def address(self) -> str:
        return f"{FILES}://{self.place}"
