"""Rows as PostgreSQL's COPY takes and gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from floodmark.connectors.targets.postgres.reading import read
from floodmark.connectors.targets.postgres.writing import coming, copied
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import columns_of


def text(kind: str, arrow: pa.DataType, *values: Any) -> list[str]:
    batch = pa.record_batch({"c": pa.array(values, arrow)})
    return copied(batch, columns_of(f"c {kind}")).decode().splitlines()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (datetime(2001, 1, 1, 12, 30, 15, 1, UTC), '"2001-01-01 12:30:15.000001Z"'),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), '"1969-12-31 23:59:59.999999Z"'),
        (datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01 00:00:00.000000Z"'),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), '"9999-12-31 23:59:59.999999Z"'),
        (None, ""),
    ],
)
def test_an_instant_is_in_utc_and_says_so(at: datetime | None, said: str) -> None:
    assert text("TIMESTAMP", pa.timestamp("us", "UTC"), at) == [said]


def test_a_time_without_a_zone_says_none() -> None:
    at = datetime(2001, 1, 1, 12, 30)
    assert text("TIMESTAMP_NTZ", pa.timestamp("us"), at, None) == ["2001-01-01 12:30:00.000000", ""]


def test_null_is_not_the_empty_text() -> None:
    assert text("STRING", pa.string(), "", None, 'a"b') == ['""', "", '"a""b"']


def test_rows_that_take_others_away_do_not_come() -> None:
    batch = pa.record_batch({"k": ["a", "b", "c"], DELETE_COLUMN: [False, True, False]})
    assert coming(batch)["k"].to_pylist() == ["a", "c"]


def test_a_row_that_is_read_may_be_long() -> None:
    """Longer than what Arrow reads of CSV at a time."""
    (found,) = read([b"a,%s\n" % (b"x" * 3_000_000), b"b,\n", b'c,""\n'], columns_of("k STRING, t STRING"))
    assert [len(text or "") for text in found["t"].to_pylist()] == [3_000_000, 0, 0]
    assert found["t"].to_pylist()[1:] == [None, ""]


@pytest.mark.parametrize(
    ("kind", "said", "number"),
    [
        ("TIMESTAMP", "10000-01-01 00:00:00+00", 253_402_300_800_000_000),
        ("TIMESTAMP", "0044-03-15 10:00:00.5+00 BC", -63_517_787_999_500_000),
        ("TIMESTAMP", "0001-12-31 23:59:59.999999+00 BC", -62_135_596_800_000_001),
        ("TIMESTAMP_NTZ", "32767-12-31 23:59:59.999999", 971_890_963_199_999_999),
        ("DATE", "10000-01-01", 2_932_897),
        ("DATE", "0001-12-31 BC", -719_163),
    ],
)
def test_a_time_of_a_year_that_arrow_does_not_read_comes_back(kind: str, said: str, number: int) -> None:
    near = {"TIMESTAMP": "1970-01-02 00:00:00+00", "TIMESTAMP_NTZ": "1970-01-02 00:00:00", "DATE": "1970-01-02"}[kind]
    (found,) = read([f"a,{said}\n".encode(), f"b,{near}\nc,\n".encode()], columns_of(f"k STRING, t {kind}"))
    (plain,) = read([f"b,{near}\n".encode()], columns_of(f"k STRING, t {kind}"))
    assert found.schema == plain.schema
    numbers = found["t"].cast(pa.int32() if kind == "DATE" else pa.int64()).to_pylist()
    assert numbers == [number, 1 if kind == "DATE" else 86_400_000_000, None]


@pytest.mark.parametrize(
    ("kind", "number", "said"),
    [
        ("TIMESTAMP", -63_517_787_999_500_000, '"0044-03-15 10:00:00.500000Z BC"'),
        ("TIMESTAMP", -62_135_596_800_000_001, '"0001-12-31 23:59:59.999999Z BC"'),
        ("TIMESTAMP", 971_890_963_199_999_999, '"32767-12-31 23:59:59.999999Z"'),
        ("TIMESTAMP_NTZ", -63_517_787_999_500_000, '"0044-03-15 10:00:00.500000 BC"'),
        ("DATE", -719_163, '"0001-12-31 BC"'),
    ],
)
def test_a_time_before_christ_has_its_era(kind: str, number: int, said: str) -> None:
    arrow = {"TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"), "DATE": pa.date32()}[kind]
    values = pa.array([number, None], pa.int32() if kind == "DATE" else pa.int64()).cast(arrow)
    assert copied(pa.record_batch({"c": values}), columns_of(f"c {kind}")).decode().splitlines() == [said, ""]
