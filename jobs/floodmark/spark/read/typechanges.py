"""Where the type of a column has changed, down to the fields of its structs."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from floodmark.core.sql.words.lexis import quoted


def gained_fields(present: DataType, wanted: DataType, path: str = "") -> Iterator[tuple[str, StructField]]:
    """The fields that structs in a table's columns lack: the path in SQL, and the field."""
    for name, one, other in _inside(present, wanted):
        yield from gained_fields(one, other, f"{path}{name}.")
    if isinstance(present, StructType) and isinstance(wanted, StructType) and path:
        known = {field.name.lower() for field in present}
        yield from ((path, field) for field in wanted if field.name.lower() not in known)


def wrong_types(present: DataType, wanted: DataType, path: str = "") -> Iterator[tuple[str, str, str]]:
    """The paths at which a table's type differs from the wanted one, with both types; missing fields don't count."""
    for name, one, other in _inside(present, wanted):
        yield from wrong_types(one, other, f"{path}{name}.")
    nested = present.typeName() == wanted.typeName() and isinstance(present, (StructType, ArrayType, MapType))
    if not nested and present.simpleString() != wanted.simpleString():
        yield path.rstrip("."), present.simpleString(), wanted.simpleString()


def _inside(present: DataType, wanted: DataType) -> Iterator[tuple[str, DataType, DataType]]:
    """The parts that both types have: each part's name in SQL, and both its types."""
    if isinstance(present, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower(): field for field in present}
        for field in wanted:
            if field.name.lower() in known:
                yield quoted(field.name), known[field.name.lower()].dataType, field.dataType
    elif isinstance(present, ArrayType) and isinstance(wanted, ArrayType):
        yield "element", present.elementType, wanted.elementType
    elif isinstance(present, MapType) and isinstance(wanted, MapType):
        yield from (("key", present.keyType, wanted.keyType), ("value", present.valueType, wanted.valueType))
