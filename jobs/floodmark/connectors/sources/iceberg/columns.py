"""Columns of Iceberg tables, from and to columns of rules.

| Spark | Iceberg |
|---|---|
| BOOLEAN | boolean |
| TINYINT, SMALLINT, INT | int |
| BIGINT | long |
| FLOAT, DOUBLE | float, double |
| DECIMAL(p,s) | decimal(p, s) |
| STRING | string |
| BINARY | binary |
| DATE | date |
| TIMESTAMP | timestamptz |
| TIMESTAMP_NTZ | timestamp |
| ARRAY, MAP, STRUCT | list, map, struct |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count

from pyiceberg import types as t
from pyiceberg.schema import Schema, index_by_name

from floodmark.core.text.ddl import Column, Type

_PLAIN: dict[str, t.PrimitiveType] = {
    "boolean": t.BooleanType(),
    "tinyint": t.IntegerType(),
    "smallint": t.IntegerType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestamptzType(),
    "timestamp_ntz": t.TimestampType(),
}
_NARROW = ("tinyint", "smallint")  # of Spark alone
# Types that hold all values of another.
_ALSO: dict[t.PrimitiveType, t.PrimitiveType] = {t.IntegerType(): t.LongType(), t.FloatType(): t.DoubleType()}


def schema_with(columns: Iterable[Column]) -> Schema:
    """The schema of a new table; no column has to have a value. Its catalogue gives the fields their final ids."""
    ids = count(1)
    return Schema(*[_field(one, ids) for one in columns])


def type_of(kind: Type) -> t.IcebergType:
    """A column's type, with ids that count from 1."""
    return _type(kind, count(1))


def _field(column: Column, ids: Iterator[int]) -> t.NestedField:
    return t.NestedField(next(ids), column.name, _type(column.type, ids), required=False)


def _type(kind: Type, ids: Iterator[int]) -> t.IcebergType:
    if kind.name == "decimal":
        return t.DecimalType(kind.precision, kind.scale)
    if kind.name == "struct":
        return t.StructType(*[_field(part, ids) for part in kind.parts])
    if kind.name == "array":
        return t.ListType(next(ids), _type(kind.parts[0].type, ids), element_required=False)
    if kind.name == "map":
        key, value = (part.type for part in kind.parts)
        return t.MapType(next(ids), _type(key, ids), next(ids), _type(value, ids), value_required=False)
    return _PLAIN[kind.name]


def holds(there: t.IcebergType, wanted: t.IcebergType) -> bool:
    """Whether a column of type `there` takes every value of type `wanted`, whatever the ids of their fields are."""
    match there, wanted:
        case t.StructType(), t.StructType():
            return len(there.fields) == len(wanted.fields) and all(map(_field_holds, there.fields, wanted.fields))
        case t.ListType(), t.ListType():
            return not there.element_required and holds(there.element_type, wanted.element_type)
        case t.MapType(), t.MapType():
            held = holds(there.key_type, wanted.key_type) and holds(there.value_type, wanted.value_type)
            return held and not there.value_required
        case t.DecimalType(), t.DecimalType():
            return there.scale == wanted.scale and there.precision >= wanted.precision
        case t.PrimitiveType(), t.PrimitiveType():
            return there in (wanted, _ALSO.get(wanted))
    return False


def _field_holds(there: t.NestedField, wanted: t.NestedField) -> bool:
    return there.name == wanted.name and not there.required and holds(there.field_type, wanted.field_type)


def words(schema: Schema) -> str:
    """The names of a table's columns."""
    return ", ".join(one.name for one in schema.fields) or "no columns"


def fields_named(schema: Schema, names: Sequence[str]) -> list[t.NestedField | None]:
    """The table's own field for each name; None: it has none."""
    there = {one.name: one for one in schema.fields}
    return [there.get(name) for name in names]


def replaced(before: Schema, now: Schema, columns: Collection[str]) -> str | None:
    """The first column, or field of one, whose name is that of another one by now. `columns`: in lower case."""
    known, found = _ids(before), _ids(now)
    both = (name for name in known if name in found and name.split(".")[0] in columns)
    return next((name for name in both if known[name] != found[name]), None)


def _ids(schema: Schema) -> dict[str, int]:
    """By the paths of columns and fields, in lower case."""
    return {name.lower(): number for name, number in index_by_name(schema).items()}


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """A table's columns as Spark has them. Those of types that Spark lacks (time, uuid, fixed, nanoseconds) are left
    out."""
    found = ((one.name, _kind(one.field_type)) for one in schema.fields)
    return tuple(Column(name, kind) for name, kind in found if kind is not None)


def _kind(there: t.IcebergType) -> Type | None:
    match there:
        case t.DecimalType():
            return Type("decimal", there.precision, there.scale)
        case t.StructType():
            return _nested("struct", [(one.name, one.field_type) for one in there.fields])
        case t.ListType():
            return _nested("array", [("element", there.element_type)])
        case t.MapType():
            return _nested("map", [("key", there.key_type), ("value", there.value_type)])
    return next((Type(name) for name, one in _PLAIN.items() if one == there and name not in _NARROW), None)


def _nested(name: str, parts: Sequence[tuple[str, t.IcebergType]]) -> Type | None:
    found = [Column(part, kind) for part, there in parts if (kind := _kind(there)) is not None]
    return Type(name, parts=tuple(found)) if len(found) == len(parts) else None
