"""Which types the tables of late and dead rows have, beside those with which rows are read today. No JVM."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegerType, LongType, MapType, StringType, StructType

from floodmark.spark.read.typechanges import gained_fields, wrong_types

INT, BIG, TEXT = IntegerType(), LongType(), StringType()


def struct(**fields: DataType) -> StructType:
    found = StructType()
    for name, kind in fields.items():
        found = found.add(name, kind)
    return found


@pytest.mark.parametrize(
    ("there", "wanted", "gained", "wrong"),
    [
        (INT, INT, [], []),
        (INT, BIG, [], [("`s`", "int", "bigint")]),
        (DecimalType(5, 2), DecimalType(6, 2), [], [("`s`", "decimal(5,2)", "decimal(6,2)")]),
        (struct(a=INT), struct(a=INT, b=TEXT), ["`s`.b"], []),
        (struct(A=INT), struct(a=INT), [], []),
        (struct(a=INT, b=TEXT), struct(a=INT), [], []),
        (struct(a=INT), struct(b=INT), ["`s`.b"], []),
        (struct(a=struct(x=INT)), struct(a=struct(x=BIG, y=INT)), ["`s`.`a`.y"], [("`s`.`a`.`x`", "int", "bigint")]),
        (ArrayType(struct(a=INT)), ArrayType(struct(a=INT, b=INT)), ["`s`.element.b"], []),
        (ArrayType(INT), ArrayType(BIG), [], [("`s`.element", "int", "bigint")]),
        (MapType(TEXT, struct(a=INT)), MapType(TEXT, struct(a=INT, b=INT)), ["`s`.value.b"], []),
        (struct(a=INT), TEXT, [], [("`s`", "struct<a:int>", "string")]),
        (TEXT, struct(a=INT), [], [("`s`", "string", "struct<a:int>")]),
    ],
)
def test_what_a_table_lacks_and_what_it_has_otherwise(
    there: DataType, wanted: DataType, gained: list[str], wrong: list[tuple[str, str, str]]
) -> None:
    one, other = struct(s=there), struct(s=wanted)
    assert [f"{path}{field.name}" for path, field in gained_fields(one, other)] == gained
    assert list(wrong_types(one, other)) == wrong
