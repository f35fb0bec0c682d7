"""Digests of rows, by Spark's own xxhash64, in the pass that writes or counts them anyway.

A row's hash goes through its columns, by name. A column that is not null adds its name's hash, then its value; one that
is null adds nothing, so a column that joins the table later leaves the digests of older rows as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
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

from floodmark.core.digests import QUARTER, Digest, Floats, digest_of

SEED = 42  # what xxhash64 begins with
HASH = "_floodmark_row"  # the column that holds a row's hash while its digest is taken
_AS_THEY_ARE = (IntegralType, BooleanType, DateType, DecimalType, TimestampType, TimestampNTZType, BinaryType)


@dataclass(frozen=True)
class Digesting:
    """How the digest of frames with this schema is taken.

    `exact`: its floating point is a copy of the input; else it is computed, and enters as a sum. `before`: SQL before
    each column's name, its quote included; `column`: holds the hash; `only`: SQL, of rows that count (None: all).
    """

    schema: StructType
    exact: bool = False
    before: str = "`"
    column: str = HASH
    only: str | None = None

    def hashed(self, frame: DataFrame) -> DataFrame:
        """The frame with one column more: the hash of each row that counts."""
        steps = ", ".join(self._fields(self.schema, self.before, 0))
        found = f"xxhash64({steps})" if steps else f"{SEED}L"
        if self.only is not None:
            found = f"CASE WHEN {self.only} THEN {found} END"
        return frame.selectExpr("*", f"{found} AS {self.column}")

    def measures(self) -> list[Column]:
        """Aggregates over the frame that `hashed` gives."""
        found = [f"count({self.column}) AS {self.column}_rows"]
        for place in range(4):
            bits = f"shiftrightunsigned({self.column}, {(3 - place) * QUARTER}) & {(1 << QUARTER) - 1}L"
            found.append(f"sum({bits}) AS {self.column}_{place}")
        for place, value in enumerate(self._floats.values()):
            counts = value if self.only is None else f"CASE WHEN {self.column} IS NOT NULL THEN {value} END"
            known, name = f"nullif({counts}, double('NaN'))", f"{self.column}_f{place}"
            found += [f"count({counts}) AS {name}_count", f"count({known}) AS {name}_known"]
            found += [f"sum({known}) AS {name}_sum", f"sum(abs({known})) AS {name}_size"]
        return [F.expr(measure) for measure in found]

    def digest(self, found: Mapping[str, Any]) -> Digest:
        """The digest, from the values of the measures by name."""
        rows = found[f"{self.column}_rows"]
        floats = {path: self._summed(f"{self.column}_f{i}", rows, found) for i, path in enumerate(self._floats)}
        return digest_of(rows, [found[f"{self.column}_{place}"] for place in range(4)], floats)

    def of(self, frame: DataFrame) -> Digest:
        """The digest of a frame, in a pass of its own."""
        found = self.hashed(frame).agg(*self.measures()).head()
        assert found is not None
        return self.digest(found.asDict())

    @staticmethod
    def _summed(name: str, rows: int, found: Mapping[str, Any]) -> Floats:
        count, known = found[f"{name}_count"], found[f"{name}_known"]
        total, size = (repr(float(found[f"{name}_{what}"] or 0.0)) for what in ("sum", "size"))
        return Floats(nulls=rows - count, nans=count - known, sum=total, size=size)

    @property
    def _floats(self) -> dict[str, str]:
        """SQL of one number for each row, for every path to computed floating point."""
        return {} if self.exact else dict(_in_fields(self.schema, "", self.before, 0))

    def _fields(self, schema: StructType, before: str, depth: int) -> Iterator[str]:
        for field in _by_name(schema):
            value = _named(before, field.name)
            yield f"IF({value} IS NULL, NULL, {_tag(field.name)})"
            yield from self._value(value, field.dataType, depth)

    def _value(self, value: str, kind: DataType, depth: int) -> Iterator[str]:
        """What a value adds to the hash, as SQL; nothing of it where it is null."""
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
            return f"to_json({value})"
        return value if isinstance(kind, _AS_THEY_ARE) else f"CAST({value} AS STRING)"


def _paths(kind: DataType, path: str, value: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every way to a value of floating point in `value`: its path, and SQL of one number for each row.

    In an array or map the number is the sum of its values, null and NaN left out.
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
    """SQL for the hash of a column's name, a constant. As bytes in hexadecimal, for any character may be in it."""
    return f"xxhash64(X'{name.lower().encode().hex()}')"


def _named(before: str, name: str) -> str:
    return f"{before}{name.replace('`', '``')}`"
