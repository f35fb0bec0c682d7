"""Variants as the auditor reads them, without Spark: bytes made by hand; the rest is compared with Spark's own text."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest

from floodmark.audit.content.content import _refuse_unsure
from floodmark.audit.content.variants import SPARKS, as_texts, is_unsure

NO_NAMES = b"\x01\x00\x00"
NAMES = b"\x01\x02\x00\x01\x03abc"  # "a" and "bc"
PARTS = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])


def variants(*values: tuple[bytes, bytes] | None) -> pa.Table:
    rows = [None if one is None else {"value": one[0], "metadata": one[1]} for one in values]
    return pa.table({"v": pa.array(rows, PARTS)})


def plain(kind: int, value: bytes = b"") -> tuple[bytes, bytes]:
    return bytes([kind << 2]) + value, NO_NAMES


def texts(rows: pa.Table, kind: Any = "variant") -> list[Any]:
    return [one if one is None else one.decode() for one in as_texts(rows, {"v": kind})["v"].to_pylist()]


def test_values_are_told_as_spark_tells_them() -> None:
    given = {
        plain(0): "null",
        plain(1): "true",
        plain(3, b"\xff"): "-1",
        plain(8, b"\x02" + struct.pack("<i", -5)): "-0.05",
        plain(8, b"\x02" + struct.pack("<i", 100)): "1",
        plain(11, struct.pack("<i", -719528)): '"0000-01-01"',
        plain(12, struct.pack("<q", -1)): '"1969-12-31 23:59:59.999999+00:00"',
        plain(13, struct.pack("<q", 100_000)): '"1970-01-01 00:00:00.1"',
        (bytes([5 << 2 | 1]) + "é\n€".encode()[:5], NO_NAMES): '"é\\n\ufffd"',
        (b"\x03\x02\x00\x01\x03\x00\x0c\x07", NO_NAMES): "[null,7]",
        (b"\x02\x02\x01\x00\x00\x01\x02\x04\x08", NAMES): '{"bc":true,"a":false}',
    }
    assert texts(variants(*given, None)) == [*given.values(), None]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (0.001, "0.001"), (0.00099, "9.9E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"),
     (123456.5, "123456.5"), (1.5e300, "1.5E300"), (float("nan"), '"NaN"'), (float("-inf"), '"-Infinity"')],
)  # fmt: skip
def test_floating_point_is_told_as_java_tells_it_and_may_be_told_otherwise(number: float, text: str) -> None:
    rows = variants(plain(7, struct.pack("<d", number)))
    assert texts(rows) == [text]
    assert is_unsure(as_texts(rows, {"v": "variant"}))
    with pytest.raises(NotImplementedError, match="versions of Java"):
        _refuse_unsure([rows, as_texts(rows, {"v": "variant"})])
    _refuse_unsure([rows, as_texts(variants(plain(1)), {"v": "variant"})])


def test_what_the_file_says_of_its_types_comes_before_the_tables() -> None:
    rows = variants(plain(1))
    said = {"fields": [{"name": "v", "type": {"type": "struct", "fields": []}}]}
    told = as_texts(rows.replace_schema_metadata({SPARKS: json.dumps(said)}), {"v": "variant"})
    assert told.column("v").type == PARTS
    said["fields"][0]["type"] = "variant"
    assert texts(rows.replace_schema_metadata({SPARKS: json.dumps(said)}), "string") == ["true"]


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(NotImplementedError, match="value of kind 20"):
        as_texts(variants(plain(20, bytes(16))), {"v": "variant"})
    shredded = pa.table({"v": pa.array([{"value": b"", "metadata": b"", "typed_value": 1}])})
    with pytest.raises(NotImplementedError, match="typed_value"):
        as_texts(shredded, {"v": "variant"})
