"""Read columns of a table with the types that an earlier attempt read, after the table's owner has widened them.

Widened types and added struct fields in Delta apply to new rows: every older row fits the older type. So an epoch that
started before the change reads the same rows when it is retried (ADR 0049).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.read.typechanges import gained_fields


def older_types(recorded: Iterable[tuple[str, str]], schema: StructType) -> dict[str, DataType]:
    """The columns whose type has changed, with the type that was `recorded` (as name and type of each column)."""
    now = {field.name: field.dataType for field in schema}
    found = ((name, _parsed(kind)) for name, kind in recorded if name in now and now[name].simpleString() != kind)
    return {name: kind for name, kind in found if kind is not None and not any(gained_fields(now[name], kind, name))}


def narrowed(frame: DataFrame, types: Mapping[str, DataType]) -> DataFrame:
    """The frame with these columns cast to these types."""
    if not types:
        return frame
    now = {field.name: field.dataType for field in frame.schema}
    return frame.withColumns({name: _as(F.col(quoted(name)), now[name], kind) for name, kind in types.items()})


def _parsed(kind: str) -> DataType | None:
    """The type; None if Spark cannot parse its text, such as a struct with an odd field name."""
    try:
        return DataType.fromDDL(kind)
    except ParseException:
        return None


def _as(value: Column, now: DataType, kind: DataType) -> Column:
    if now.simpleString() == kind.simpleString():
        return value
    if isinstance(now, StructType) and isinstance(kind, StructType):
        there = {field.name.lower(): field.dataType for field in now}
        fields = [_as(value.getField(f.name), there[f.name.lower()], f.dataType).alias(f.name) for f in kind]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(now, ArrayType) and isinstance(kind, ArrayType):
        return F.transform(value, _element(now.elementType, kind.elementType))
    if isinstance(now, MapType) and isinstance(kind, MapType):
        keys = F.transform(F.map_keys(value), _element(now.keyType, kind.keyType))
        return F.map_from_arrays(keys, F.transform(F.map_values(value), _element(now.valueType, kind.valueType)))
    return value.cast(kind)


def _element(now: DataType, kind: DataType) -> Callable[[Column], Column]:
    return lambda value: _as(value, now, kind)
