"""Where the type of a column has changed, down to the fields of its structs."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from floodmark.core.sql.words.lexis import quoted


def gained_fields(there: DataType, wanted: DataType, path: str = "") -> Iterator[tuple[str, StructField]]:
    """The fields that structs in columns of a table lack: where, as SQL names it, and which."""
    for name, one, other in _inside(there, wanted):
        yield from gained_fields(one, other, f"{path}{name}.")
    if isinstance(there, StructType) and isinstance(wanted, StructType) and path:
        known = {field.name.lower() for field in there}
        yield from ((path, field) for field in wanted if field.name.lower() not in known)


def wrong_types(there: DataType, wanted: DataType, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Where a table has another type than is wanted, with both; a field that a struct lacks is none."""
    for name, one, other in _inside(there, wanted):
        yield from wrong_types(one, other, f"{path}{name}.")
    nested = there.typeName() == wanted.typeName() and isinstance(there, (StructType, ArrayType, MapType))
    if not nested and there.simpleString() != wanted.simpleString():
        yield path.rstrip("."), there.simpleString(), wanted.simpleString()


def _inside(there: DataType, wanted: DataType) -> Iterator[tuple[str, DataType, DataType]]:
    """The parts that both types have: how SQL calls each, and both its types."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower(): field for field in there}
        for field in wanted:
            if field.name.lower() in known:
                yield quoted(field.name), known[field.name.lower()].dataType, field.dataType
    elif isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        yield "element", there.elementType, wanted.elementType
    elif isinstance(there, MapType) and isinstance(wanted, MapType):
        yield from (("key", there.keyType, wanted.keyType), ("value", there.valueType, wanted.valueType))
