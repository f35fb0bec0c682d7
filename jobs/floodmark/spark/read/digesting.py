"""Digests of rows, by Spark's own xxhash64, in the pass that writes or counts them anyway.

A row's hash covers its columns, sorted by name. A non-null column adds the hash of its name, then its value. A null
column adds nothing, so a column that is added to the table later does not change the digests of older rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from floodmark.core.protocol.digests import LOW, MIDDLE, Digest, Floats, digest_of

SEED = 42  # the seed of xxhash64
HASH = "_floodmark_row"  # the column that holds a row's hash while its digest is taken
_AS_THEY_ARE = (IntegralType, BooleanType, DateType, DecimalType, TimestampType, TimestampNTZType, BinaryType)


@dataclass(frozen=True)
class Digesting:
    """Computes digests of frames with this schema.

    `exact`: its floating point is a copy of the input; otherwise it is computed, and enters as a sum. `before`: SQL
    before each column's name, with the opening quote; `column`: holds the hash; `only`: SQL condition of the rows that
    count (None: all).
    """

    schema: StructType
    exact: bool = False
    before: str = "`"
    column: str = HASH
    only: str | None = None

    def hashed(self, frame: DataFrame) -> DataFrame:
        """The frame plus the hash of each row that counts, and the numbers of `_floats`."""
        steps = ", ".join(self._fields(self.schema, self.before, 0))
        found = f"xxhash64({steps})" if steps else f"{SEED}L"
        if self.only is not None:
            found = f"CASE WHEN {self.only} THEN {found} END"
        numbers = (f"{value} AS {self._number(i)}" for i, value in enumerate(self._floats.values()))
        return frame.selectExpr("*", f"{found} AS {self.column}", *numbers)

    def without(self, frame: DataFrame) -> DataFrame:
        """Remove the columns that `hashed` added."""
        return frame.drop(self.column, *(self._number(i) for i in range(len(self._floats))))

    def measures(self) -> list[str]:
        """Aggregates over the frame that `hashed` returns, as SQL."""
        found = [f"count({self.column}) AS {self.column}_rows"]
        for half, bits in (("high", f"shiftrightunsigned({self.column}, 32)"), ("low", f"{self.column} & {LOW}L")):
            found.append(f"sum(({bits}) - {MIDDLE}L) AS {self.column}_{half}")
        for name in map(self._number, range(len(self._floats))):
            number = name if self.only is None else f"CASE WHEN {self.column} IS NOT NULL THEN {name} END"
            known = f"nanvl({number}, 0D)"
            found += [f"count({number}) AS {name}_count", f"count_if(isnan({number})) AS {name}_nans"]
            found += [f"sum({known}) AS {name}_sum", f"sum(abs({known})) AS {name}_size"]
        return found

    def digest(self, found: Mapping[str, Any]) -> Digest:
        """The digest, from the values of the measures by name."""
        rows = found[f"{self.column}_rows"]
        floats = {path: _summed(self._number(i), rows, found) for i, path in enumerate(self._floats)}
        return digest_of(rows, found[f"{self.column}_high"], found[f"{self.column}_low"], floats)

    def of(self, frame: DataFrame) -> Digest:
        """The digest of a frame, computed in a separate pass."""
        found = self.hashed(frame).selectExpr(*self.measures()).head()
        assert found is not None
        return self.digest(found.asDict())

    def _number(self, place: int) -> str:
        """The column that holds the number at this position of `_floats`."""
        return f"{self.column}_f{place}"

    @property
    def _floats(self) -> dict[str, str]:
        """For every path to computed floating point, SQL of one number for each row."""
        return {} if self.exact else dict(_in_fields(self.schema, "", self.before, 0))

    def _fields(self, schema: StructType, before: str, depth: int) -> Iterator[str]:
        for field in _by_name(schema):
            value = _named(before, field.name)
            yield f"IF({value} IS NULL, NULL, {_tag(field.name)})"
            yield from self._value(value, field.dataType, depth)

    def _value(self, value: str, kind: DataType, depth: int) -> Iterator[str]:
        """SQL of what a value adds to the hash; a null adds nothing."""
        if isinstance(kind, StructType):
            yield from self._fields(kind, f"{value}.`", depth)
        elif isinstance(kind, ArrayType):
            yield f"array_size({value})"
            yield f"transform({value}, e{depth} -> struct({self._element(f'e{depth}', kind.elementType, depth)}))"
        elif isinstance(kind, MapType):
            yield f"array_size(map_keys({value}))"
            yield f"sort_array(transform(map_entries({value}), e{depth} -> xxhash64({self._entry(kind, depth)})))"
        else:
            yield self._atom(value, kind)

    def _element(self, value: str, kind: DataType, depth: int) -> str:
        return ", ".join([f"{value} IS NULL", *self._value(value, kind, depth + 1)])

    def _entry(self, kind: MapType, depth: int) -> str:
        key, value = f"e{depth}.key", f"e{depth}.value"
        return f"{self._element(key, kind.keyType, depth)}, {self._element(value, kind.valueType, depth)}"

    def _atom(self, value: str, kind: DataType) -> str:
        if isinstance(kind, (FloatType, DoubleType)):
            return value if self.exact else f"CASE WHEN {value} IS NOT NULL THEN isnan({value}) END"
        if isinstance(kind, StringType):
            return value if kind == StringType() else f"CAST({value} AS STRING) COLLATE UTF8_BINARY"
        if isinstance(kind, VariantType):
            return f"to_json({value}, map('timeZone', 'UTC'))"  # times in it are printed in one zone
        return value if isinstance(kind, _AS_THEY_ARE) else f"CAST({value} AS STRING)"


def _summed(name: str, rows: int, found: Mapping[str, Any]) -> Floats:
    total, size = (repr(float(found[f"{name}_{what}"] or 0.0)) for what in ("sum", "size"))
    return Floats(nulls=rows - found[f"{name}_count"], nans=found[f"{name}_nans"], sum=total, size=size)


def _paths(kind: DataType, path: str, value: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every path to floating point in `value`, and SQL of one number for each row.

    In an array or map the number is the sum of its values, without null and NaN.
    """
    if isinstance(kind, (FloatType, DoubleType)):
        yield path, f"CAST({value} AS DOUBLE)"
    elif isinstance(kind, StructType):
        yield from _in_fields(kind, f"{path}.", f"{value}.`", depth)
    elif isinstance(kind, ArrayType):
        yield from _inside(kind.elementType, f"{path}[]", value, depth)
    elif isinstance(kind, MapType):
        yield from _inside(kind.keyType, f"{path}{{key}}", f"map_keys({value})", depth)
        yield from _inside(kind.valueType, f"{path}{{value}}", f"map_values({value})", depth)


def _in_fields(schema: StructType, path: str, before: str, depth: int) -> Iterator[tuple[str, str]]:
    for field in _by_name(schema):
        yield from _paths(field.dataType, f"{path}{field.name}", _named(before, field.name), depth)


def _inside(kind: DataType, path: str, values: str, depth: int) -> Iterator[tuple[str, str]]:
    for found, number in _paths(kind, path, f"e{depth}", depth + 1):
        yield found, f"aggregate({values}, 0D, (s{depth}, e{depth}) -> s{depth} + coalesce(nanvl({number}, 0D), 0D))"


def _by_name(schema: StructType) -> list[StructField]:
    return sorted(schema, key=lambda field: field.name.lower())


def _tag(name: str) -> str:
    """SQL for the hash of a column's name, a constant. Hexadecimal bytes, because a name may hold any character."""
    return f"xxhash64(X'{name.lower().encode().hex()}')"


def _named(before: str, name: str) -> str:
    return f"{before}{name.replace('`', '``')}`"
