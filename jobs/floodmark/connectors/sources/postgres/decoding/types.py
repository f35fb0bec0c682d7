"""Types of PostgreSQL as types of columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.core.text.ddl import Column, Type

_PLAIN = {
    "bool": "boolean", "int2": "smallint", "int4": "int", "int8": "bigint", "oid": "bigint", "float4": "float",
    "float8": "double", "bytea": "binary", "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp",
}  # fmt: skip
STRING = Type("string")
_MOST_DIGITS = 38


@dataclass(frozen=True)
class Known:
    """A type of the catalog. base, base_mod: of a domain. element: of an array, else 0."""

    name: str
    base: int
    base_mod: int
    element: int
    delimiter: str = ","


def column_type(oid: int, mod: int, known: Mapping[int, Known]) -> Type:
    """`mod`: the type's modifier, such as a precision; -1 without one.

    Everything that has no type of its own there is text, as PostgreSQL prints it: so are numbers of any precision.
    """
    one = known[oid]
    if one.base:
        return column_type(one.base, one.base_mod if mod < 0 else mod, known)
    if one.element and known[one.element].delimiter == ",":
        return Type("array", parts=(Column("element", column_type(one.element, mod, known)),))
    if one.name == "numeric":
        return _decimal(mod)
    return Type(_PLAIN[one.name]) if one.name in _PLAIN else STRING


def _decimal(mod: int) -> Type:
    precision, scale = (mod - 4) >> 16 & 0xFFFF, (mod - 4) & 0x7FF
    fits = mod >= 0 and scale <= precision <= _MOST_DIGITS
    return Type("decimal", precision, scale) if fits else STRING
