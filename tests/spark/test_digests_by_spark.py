"""Digests by Spark and by Python are the same, for every type; and the vectors of the documentation hold."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.audit.content import rowhash
from floodmark.audit.content.variants import as_texts
from floodmark.core.protocol.digests import Digest
from floodmark.spark.read.digesting import HASH, Digesting

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "digests.md"
VECTORS = re.findall(r"^\| `(.+)` \| `([0-9a-f]{16})` \|$", PAGE.read_text(), re.M)

# Values of each type as SQL, one for a row; null comes by itself.
TYPES = {
    "boolean": ["true", "false"],
    "tinyint": ["0", "-128", "127"],
    "smallint": ["-1", "32767"],
    "int": ["0", "-1", "2147483647", "-2147483648"],
    "bigint": ["0", "-1", "9223372036854775807", "-9223372036854775808"],
    "decimal(9,2)": ["0", "-0.01", "1234567.89"],
    "decimal(18,0)": ["999999999999999999", "-999999999999999999"],
    "decimal(38,10)": ["0", "-1", "0.0000000001", "1234567890123456789012345678.0123456789", "-128", "25.6"],
    "string": ["''", "'a'", "'żółć 🌊 漢字'", "repeat('flood', 20)", "repeat('x', 32)", "'1234'", "'123456789012'"],
    "binary": ["X''", "X'00ff'", "X'0102030405060708090a'"],
    "date": ["'1970-01-01'", "'1582-10-04'", "'0001-01-01'", "'9999-12-31'"],
    "timestamp": ["'1970-01-01 00:00:00'", "'2001-02-03 04:05:06.789012'", "'1969-12-31 23:59:59.999999'"],
    "timestamp_ntz": ["'1970-01-01 00:00:00'", "'2001-02-03 04:05:06.789012'", "'1583-01-01 00:00:00'"],
    "float": ["0", "'-0.0'", "1.5", "'NaN'", "'Infinity'", "'-Infinity'", "1e-40"],
    "double": ["0", "'-0.0'", "0.1", "'NaN'", "'Infinity'", "-2.5", "1e300"],
    "array<int>": ["array()", "array(1, null, 3)", "array(null)"],
    "array<array<string>>": ["array(array('a'), null, array(), array('b', null))"],
    "array<double>": ["array(1.5, null, -0.5)", "array(double('NaN'), 2D)"],
    "struct<b:int,A:string>": ["named_struct('b', 1, 'A', null)", "named_struct('b', null, 'A', 'x')"],
    "struct<x:double,y:struct<z:float>>": ["named_struct('x', 1.5, 'y', named_struct('z', -2))"],
    "array<struct<n:int,v:double>>": [
        "array(named_struct('n', 1, 'v', 2.5), null, named_struct('n', null, 'v', null))"
    ],
    "map<string,int>": ["map()", "map('b', 1, 'a', null)", "map('a', null, 'b', 1)"],
    "map<int,array<double>>": ["map(2, array(1.5, null), 1, array(double('NaN')), 3, null)"],
}


def frame(spark: SparkSession, columns: dict[str, str], rows: list[dict[str, str]]) -> DataFrame:
    """`columns`: name → type; each row has SQL for some of them."""
    selects = [
        ", ".join(f"CAST({row.get(name, 'NULL')} AS {kind}) AS `{name}`" for name, kind in columns.items())
        for row in rows
    ]
    return spark.sql(" UNION ALL ".join(f"SELECT {select}" for select in selects))


def as_written(rows: DataFrame, place: Path) -> pa.Table:
    """The rows from a file that Spark has written."""
    folder = place / uuid4().hex
    rows.coalesce(1).write.parquet(str(folder))
    return pa.concat_tables([as_texts(pq.ParquetFile(file).read(), {}) for file in folder.glob("*.parquet")])


def same(found: Digest, expected: rowhash.RowDigest) -> None:
    assert (found.rows, int(found.high), int(found.low)) == (expected.rows, expected.high, expected.low)
    assert found.floats.keys() == expected.floats.keys()
    for path, sums in expected.floats.items():
        one = found.floats[path]
        assert (one.nulls, one.nans) == (sums.nulls, sums.nans), path
        assert all(map(_close, (float(one.sum), float(one.size)), (sums.sum, sums.size))), (path, one, sums)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("exact", [True, False], ids=["copied", "computed"])
def test_spark_and_python_agree_on_every_type(spark: SparkSession, place: Path, exact: bool) -> None:
    columns = {f"c {i}.x": kind for i, kind in enumerate(TYPES)}
    every = range(max(map(len, TYPES.values())))
    values = [{name: TYPES[kind][i % len(TYPES[kind])] for name, kind in columns.items()} for i in every]
    holes = [{name: value for i, (name, value) in enumerate(values[0].items()) if i % 2 == part} for part in (0, 1)]
    rows = frame(spark, columns, [*values, *holes, {}]).cache()
    same(Digesting(rows.schema, exact).of(rows.repartition(3)), rowhash.digest(as_written(rows, place), not exact))
    rows.unpersist()


def test_the_documented_vectors_hold_in_spark_and_in_python(spark: SparkSession, place: Path) -> None:
    assert len(VECTORS) > 20
    for sql, expected in VECTORS:
        rows = spark.sql(f"SELECT {sql}")
        hashed = Digesting(rows.schema, exact=True).hashed(rows).collect()[0][HASH]
        assert f"{hashed & 0xFFFFFFFFFFFFFFFF:016x}" == expected, sql
        table = as_written(rows, place)
        assert f"{rowhash.row_hashes(table.to_batches()[0], False)[0]:016x}" == expected, sql


def test_rows_that_do_not_count_leave_no_trace(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, id / 3.0D AS v FROM range(100)")
    some = Digesting(rows.schema, only="id < 10").of(rows)
    assert list(some.differences(Digesting(rows.schema).of(rows.where("id < 10")))) == []
    assert Digesting(rows.schema, only="id < 0").of(rows).rows == 0


def test_rows_without_columns_are_counted(spark: SparkSession) -> None:
    found = Digesting(StructType([])).of(spark.range(3))
    assert found == Digest(rows=3, low=str(3 * 42))


def test_digests_of_parts_add_up(spark: SparkSession) -> None:
    rows = spark.sql("SELECT id, repeat('x', CAST(id AS INT)) AS text FROM range(50)")
    parts = [Digesting(rows.schema).of(rows.where(f"id % 2 = {i}")) for i in (0, 1)]
    whole = Digesting(rows.schema).of(rows)
    for name in ("rows", "high", "low"):
        assert int(getattr(whole, name)) == sum(int(getattr(part, name)) for part in parts)


VARIANTS = [
    "parse_json('null')",
    "parse_json('[true, false, 0, -128, 32767, -2147483648, 9223372036854775807, [], {}]')",
    "parse_json('[1.5, -0.01, 100.00, 0.00, 12345678901234567890.12345, 99999999999999999999999999999999999999]')",
    "parse_json('[1e300, 1E2, -2.5e-7, 123456789.5e0, 0.001e0, 1e7, 9.99e6, 1e400, -0e0]')",
    r"""parse_json(r'{"b": "żółć 🌊", "A": "", "": "a\"\\\n\t\u0001\u007f\u2028/"}')""",
    "parse_json(concat('{\"long\": \"', repeat('flood', 100), '\"}'))",
    "parse_json(concat('[', repeat('1,', 300), '2]'))",
    """parse_json(concat('{', array_join(transform(sequence(1, 300), i -> concat('\"f', i, '\":', i)), ','), '}'))""",
    "to_variant_object(named_struct('x', X'00ff10', 'f', CAST(1.1 AS FLOAT), 'n', CAST('NaN' AS DOUBLE), 'i', "
    "CAST('-Infinity' AS FLOAT), 'z', CAST('-0.0' AS DOUBLE), 's', CAST(X'80ff41' AS STRING)))",
    "to_variant_object(array(DATE'0001-01-01', DATE'9999-12-31', DATE'+10000-01-01', DATE'-0044-03-15', NULL))",
    "to_variant_object(array(TIMESTAMP'2001-07-03 04:05:06.789012Z', timestamp_micros(-62135596800000001), "
    "timestamp_micros(9223372036854775807), timestamp_micros(-9223372036854775808), TIMESTAMP'2001-02-03 04:05:00Z'))",
    "to_variant_object(array(TIMESTAMP_NTZ'2001-02-03 04:05:06.7', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'))",
    "CAST(CAST(1 AS TINYINT) AS VARIANT)",
    "CAST(CAST('-1' AS DECIMAL(38,38)) * 0.1BD AS VARIANT)",
]


@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.prove), "America/New_York"])
def test_spark_and_python_agree_on_variants_at_any_depth(spark: SparkSession, place: Path, zone: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.sql.ansi.enabled", "false")
    rows = session.sql(
        " UNION ALL ".join(
            f"SELECT v, array(v, NULL) AS a, named_struct('n', {i}, 'V', v) AS s, map('k', v, 'l', NULL) AS m, "
            f"array(named_struct('m', map({i}, v)), NULL) AS d FROM (SELECT {value} AS v)"
            for i, value in enumerate(["NULL", *VARIANTS])
        )
        + " UNION ALL SELECT NULL, NULL, NULL, NULL, NULL"
    )
    for exact in (True, False):
        same(Digesting(rows.schema, exact).of(rows), rowhash.digest(as_written(rows, place), not exact))


def test_text_of_a_collation_has_a_digest(spark: SparkSession) -> None:
    def digest(text: str) -> Any:
        rows = spark.sql(f"SELECT '{text}' COLLATE UTF8_LCASE AS v")
        return Digesting(rows.schema).of(rows)

    assert digest("true") != digest("false")
    assert digest("true") == digest("true")
