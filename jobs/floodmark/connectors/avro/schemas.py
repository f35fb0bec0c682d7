"""Avro's schemas as columns, and columns as a schema. Pure.

| column | Avro |
|---|---|
| BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, STRING, BINARY | boolean, int, long, float, double, string, bytes |
| TINYINT, SMALLINT | int |
| DECIMAL | bytes with `decimal` |
| DATE | int with `date` |
| TIMESTAMP, TIMESTAMP_NTZ | long with `timestamp-micros`, `local-timestamp-micros` |
| ARRAY, MAP with STRING keys, STRUCT | array, map, record |

Each value may be null: its type is a union, `["null", TYPE]`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from floodmark.core.text.ddl import Column, Type, columns_of, text_of

_PLAIN = {"boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
          "string": "string", "bytes": "binary"}  # fmt: skip
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
# Types of Avro that no column has. Any other logical type that is not known leaves its value as it is, as Avro says.
_NONE = ("time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos", "duration", "big-decimal")
_TO_AVRO: dict[str, Any] = {
    **{kind: name for name, kind in _PLAIN.items()},
    "tinyint": "int",
    "smallint": "int",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_DEEPEST = 100  # types within types; Python's own limit is not far


@dataclass(frozen=True)
class Part:
    """A field of a record, or what an array or a map holds."""

    name: str
    node: Node
    has_default: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Named:
    """What Avro compares of a record, an enum or a fixed beside its fields. Names are full ones."""

    name: str = ""
    aliases: tuple[str, ...] = ()
    size: object = None
    symbols: tuple[str, ...] = ()
    has_default: bool = False


@dataclass(frozen=True)
class Node:
    """A type of a schema, without null. `type`: of its column; `logical`: Avro's logical type, if a column has it.

    in_union: whether null stands beside it.
    """

    kind: str
    type: Type
    logical: str = ""
    parts: tuple[Part, ...] = ()
    named: Named = Named()
    in_union: bool = False


def schema_of(columns: Sequence[Column]) -> dict[str, Any]:
    """The schema that follows from columns. Raises ValueError for a type that Avro has not."""
    return _record("row", "", columns)


def _record(name: str, namespace: str, columns: Sequence[Column]) -> dict[str, Any]:
    """A record is named after its column. Its namespace is the way there, so no two have one name."""
    way = f"{namespace}.{name}" if namespace else name
    fields = [{"name": one.name, "type": ["null", _avro(one, way)], "default": None} for one in columns]
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}


def _avro(column: Column, way: str) -> Any:
    kind, inner = column.type, f"{way}.{column.name}"
    if kind.name == "struct":
        return _record(column.name, way, kind.parts)
    if kind.name == "array":
        return {"type": "array", "items": ["null", _avro(kind.parts[0], inner)]}
    if kind.name == "map":
        if kind.parts[0].type.name != "string":
            raise ValueError(f"expected STRING for the keys of {column.name}, as Avro's maps have, found {kind}")
        return {"type": "map", "values": ["null", _avro(kind.parts[1], inner)]}
    if kind.name == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _TO_AVRO[kind.name]


def check_read(columns: Sequence[Column]) -> None:
    """Raise ValueError for columns that no Avro value is read as."""
    schema_of(columns)
    for column in columns:
        for kind in _within(column.type):
            if kind.name in ("tinyint", "smallint"):
                raise ValueError(f"expected INT for {column.name}, Avro's smallest type, found {kind.name.upper()}")


def _within(kind: Type) -> list[Type]:
    return [kind, *(one for part in kind.parts for one in _within(part.type))]


def record_in(text: str, wanted: Container[str] | None = None) -> Node:
    """The record of a schema's text, with its columns as parts. Raises ValueError: what was expected, and found.

    wanted: of columns, in lower case; those beside them may be of any type, and are left out.
    """
    try:
        found = _Reader(wanted).node(parsed(text), "", "the schema")
        if _depth(found.type) > _DEEPEST:
            raise RecursionError
    except RecursionError:
        raise ValueError(f"expected types within types up to {_DEEPEST} levels, found more") from None
    if found.kind != "record":
        raise ValueError(f"expected a record, whose fields are columns, found {found.kind}")
    if found.parts:
        columns_of(text_of(found.type.parts))  # names that differ by case alone
    return found


def parsed(text: str) -> Any:
    """The schema as JSON has it. Raises ValueError for a text that is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as fault:
        raise ValueError(f"expected a schema of Avro in JSON: {fault}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'found {name}, which JSON has not; write "{name}"')


def _depth(kind: Type) -> int:
    return 1 + max((_depth(part.type) for part in kind.parts), default=0)


def columns_in(text: str, wanted: Container[str] | None = None) -> tuple[Column, ...]:
    """The columns of a schema's text. `wanted`: as in `record_in`."""
    return record_in(text, wanted).type.parts


def newest(texts: Mapping[str, str]) -> str:
    """The schema, of several by id, that values are read as: that of the largest id."""
    return texts[max(texts, key=lambda id: int(id or 0))]


class _Reader:
    """Reads one schema; a named type may be used again by its name."""

    def __init__(self, wanted: Container[str] | None) -> None:
        self._named: dict[str, Node | None] = {}
        self._wanted = wanted

    def node(self, schema: Any, namespace: str, what: str) -> Node:
        if isinstance(schema, list):
            return replace(self.node(_beside_null(schema, what), namespace, what), in_union=True)
        if isinstance(schema, str):
            return self._by_name(schema, namespace, what)
        if not isinstance(schema, dict) or "type" not in schema:
            raise ValueError(f"expected a type of Avro for {what}, found {_shown(schema)}")
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.node(kind, namespace, what)
        if not isinstance(kind, str):
            raise ValueError(f"expected a type of Avro for {what}, found {_shown(kind)}")
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(schema, namespace, what)
        if kind in ("array", "map"):
            return self._holding(schema, namespace, what)
        return _logical(schema, self._by_name(kind, namespace, what), what)

    def _by_name(self, name: str, namespace: str, what: str) -> Node:
        if name in _PLAIN:
            return Node(name, Type(_PLAIN[name]))
        full = _full(name, namespace) if _full(name, namespace) in self._named else name
        if full not in self._named:
            raise ValueError(f"expected a type of Avro for {what}, found {name!r}")
        found = self._named[full]
        if found is None:
            raise ValueError(f"expected types that end, found {what}: {name} contains itself")
        return found

    def _defined(self, schema: Mapping[str, Any], namespace: str, what: str) -> Node:
        full = _full(str(schema.get("name", "")), str(schema.get("namespace", namespace)))
        self._named[full] = None
        body = self._body(schema, full.rpartition(".")[0], what)
        self._named[full] = found = replace(body, named=_named(schema, full))
        return found

    def _body(self, schema: Mapping[str, Any], namespace: str, what: str) -> Node:
        if schema["type"] == "enum":
            return Node("enum", Type("string"))
        if schema["type"] == "fixed":
            return _logical(schema, Node("fixed", Type("binary")), what)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields or not all(_is_field(one) for one in fields):
            raise ValueError(f"expected fields, each with a name and a type, in {what}")
        wanted, self._wanted = self._wanted, None  # of the outermost record alone
        found = (self._field_if(one, namespace, wanted) for one in fields)
        parts = tuple(one for one in found if one is not None)
        return Node("record", Type("struct", parts=tuple(Column(p.name, p.node.type) for p in parts)), parts=parts)

    def _field_if(self, field: Mapping[str, Any], namespace: str, wanted: Container[str] | None) -> Part | None:
        """None for a field that is not wanted. It may still define a type that others name."""
        if wanted is None or field["name"].lower() in wanted:
            return self._field(field, namespace)
        with suppress(ValueError, RecursionError):
            self._field(field, namespace)
        return None

    def _field(self, field: Mapping[str, Any], namespace: str) -> Part:
        node = self.node(field["type"], namespace, f"field {field['name']}")
        aliases = field.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
            raise ValueError(f"expected a list of names as aliases of field {field['name']}, found {_shown(aliases)}")
        return Part(str(field["name"]), node, "default" in field, tuple(aliases))

    def _holding(self, schema: Mapping[str, Any], namespace: str, what: str) -> Node:
        name, key = ("element", "items") if schema["type"] == "array" else ("value", "values")
        node = self.node(schema.get(key), namespace, what)
        held = Column(name, node.type)
        parts = (held,) if name == "element" else (Column("key", Type("string")), held)
        return Node(schema["type"], Type(schema["type"], parts=parts), parts=(Part(name, node),))


def _named(schema: Mapping[str, Any], full: str) -> Named:
    aliases, symbols = (tuple(map(str, schema.get(key) or ())) for key in ("aliases", "symbols"))
    whole = tuple(_full(one, full.rpartition(".")[0]) for one in aliases)
    return Named(full, whole, schema.get("size"), symbols, "default" in schema)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _is_field(one: object) -> bool:
    return isinstance(one, dict) and isinstance(one.get("name"), str) and "type" in one


def _beside_null(union: list[Any], what: str) -> Any:
    others = [one for one in union if one != "null"]
    if len(others) != 1:
        raise ValueError(f"expected one type beside null for {what}, which one column can have, found {_shown(union)}")
    return others[0]


def _shown(value: object) -> str:
    return json.dumps(value)[:60]


def _decimal(schema: Mapping[str, Any], what: str) -> Type:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int:
        found = "none" if precision is None else _shown(precision)
        raise ValueError(f"expected a precision of the decimal for {what}, found {found}")
    (column,) = columns_of(f"d DECIMAL({precision}, {scale})")
    return column.type


def _logical(schema: Mapping[str, Any], plain: Node, what: str) -> Node:
    logical = str(schema.get("logicalType", ""))
    if logical in _NONE:
        raise ValueError(f"expected a type that a column can have for {what}, found {logical}")
    if logical == "decimal" and plain.kind in ("bytes", "fixed"):
        return Node(plain.kind, _decimal(schema, what), logical)
    known = _LOGICAL.get((plain.kind, logical))
    return plain if known is None else Node(plain.kind, Type(known), logical)
