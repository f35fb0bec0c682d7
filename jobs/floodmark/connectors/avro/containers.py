"""Files of Avro: the schema in the head of each."""

from __future__ import annotations

from collections.abc import Container
from typing import BinaryIO

from floodmark.connectors.avro.schemas import columns_in
from floodmark.core.text.ddl import Column
from floodmark.errors import Refused


def columns_of_file(content: BinaryIO, wanted: Container[str] | None = None) -> tuple[Column, ...]:
    """The columns of a file's schema. Raises ValueError for another file, or types that no column has.

    `wanted`: as in `record_in`.
    """
    return columns_in(schema_of_file(content), wanted)


def schema_of_file(content: BinaryIO) -> str:
    """The text of a file's schema. Raises ValueError for another file."""
    try:
        from fastavro import reader
    except ImportError as fault:
        raise Refused("expected the package fastavro, found none: pip install 'FLOODMARK.whl[avro]'") from fault
    try:
        return str(reader(content).metadata["avro.schema"])
    except KeyError as fault:
        raise ValueError(f"no {fault} in its head") from None
