"""Convert columns between a Delta table's schema (JSON that Spark and delta-rs share) and declarations."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from floodmark.core.text.ddl import Column, Type, columns_of

_SHORT = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def declared(schema: str, names: Collection[str] | None = None) -> tuple[Column, ...]:
    """The columns of a table's schema, or those of these names, in any case.

    Raises ValueError for a type without a declaration.
    """
    wanted = None if names is None else {name.lower() for name in names}
    fields = (field for field in json.loads(schema)["fields"] if wanted is None or field["name"].lower() in wanted)
    return tuple(Column(field["name"], _type(field["name"], field["type"])) for field in fields)


def schema_of(columns: tuple[Column, ...]) -> str:
    """The schema of a table of these columns, each of which may be null."""
    return json.dumps(_struct(columns))


def _type(column: str, kind: Any) -> Type:
    if isinstance(kind, str):
        return _plain(column, kind)
    if kind["type"] == "struct":
        return Type("struct", parts=tuple(Column(one["name"], _type(column, one["type"])) for one in kind["fields"]))
    if kind["type"] == "array":
        return Type("array", parts=(Column("element", _type(column, kind["elementType"])),))
    parts = ("key", "value")
    return Type("map", parts=tuple(Column(part, _type(column, kind[f"{part}Type"])) for part in parts))


def _plain(column: str, kind: str) -> Type:
    try:
        return columns_of(f"x {kind}")[0].type
    except ValueError as fault:
        raise ValueError(f"column {column}: {fault}") from None


def _struct(columns: tuple[Column, ...]) -> dict[str, Any]:
    fields = [{"name": one.name, "type": _json(one.type), "nullable": True, "metadata": {}} for one in columns]
    return {"type": "struct", "fields": fields}


def _json(kind: Type) -> Any:
    if kind.name == "struct":
        return _struct(kind.parts)
    if kind.name == "array":
        return {"type": "array", "elementType": _json(kind.parts[0].type), "containsNull": True}
    if kind.name == "map":
        key, value = (_json(part.type) for part in kind.parts)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return str(kind).replace(" ", "") if kind.name == "decimal" else _SHORT.get(kind.name, kind.name)
