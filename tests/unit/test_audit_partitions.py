"""Values of partition columns, from the text in a log, are those that the rows had."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from floodmark.audit.content.content import _of_table
from floodmark.audit.effects.partitions import constant
from floodmark.audit.evidence import File, TableLog
from floodmark.audit.logreader import store_of

LOG = TableLog("t", "id", types={"k": "string", "n": "long"})


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("b c/d", "string", "b c/d"),
        ("", "string", None),
        (None, "long", None),
        ("-7", "long", -7),
        ("127", "byte", 127),
        ("true", "boolean", True),
        ("false", "boolean", False),
        ("2001-02-03", "date", date(2001, 2, 3)),
        ("1.50", "decimal(10,2)", Decimal("1.50")),
        ("2001-02-03T04:05:06.123456Z", "timestamp", datetime(2001, 2, 3, 4, 5, 6, 123456, UTC)),
        ("2001-02-03 04:05:06.1", "timestamp_ntz", datetime(2001, 2, 3, 4, 5, 6, 100000)),
        ("1969-12-31T23:59:59.000000Z", "timestamp", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_text_of_the_log_is_the_value_that_delta_means(text: str | None, kind: str, value: Any) -> None:
    assert constant(text, kind, 2).to_pylist() == [value, value]


def test_a_type_that_cannot_be_told_is_not_guessed() -> None:
    with pytest.raises(NotImplementedError, match="partitions by a column of type double"):
        constant("1.5", "double", 1)


def test_a_time_without_a_zone_is_not_guessed_either() -> None:
    """As older versions of Delta wrote it, in the session's zone, and delta-rs does, in UTC."""
    with pytest.raises(NotImplementedError, match="the time 2001-02-03 04:05:06 of a partition without a zone"):
        constant("2001-02-03 04:05:06", "timestamp", 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("+10000-01-01", "date"), ("0000-12-31", "date"), ("-0044-03-15 00:00:00", "timestamp_ntz"),
     ("+10000-01-01T00:00:00.000000Z", "timestamp")],
)  # fmt: skip
def test_a_year_that_python_has_not_is_unknown_and_no_harm(text: str, kind: str) -> None:
    with pytest.raises(NotImplementedError, match="a year that is not read here"):
        constant(text, kind, 1)


@pytest.mark.parametrize("names", [["n"], ["k", "n"]])
def test_a_partition_is_what_the_log_says_whether_the_file_has_the_column_or_not(
    tmp_path: Path, names: list[str]
) -> None:
    write_deltalake(tmp_path, pa.table({"n": [0]}))  # a store is that of a table
    pq.write_table(pa.table({"k": ["", ""], "n": [1, 2]}).select(names), tmp_path / "one.parquet")
    file = File("one.parquet", 0, 2, partition={"k": None})
    rows = _of_table(store_of(str(tmp_path)), file, LOG)
    assert rows.select(["k", "n"]).to_pylist() == [{"k": None, "n": 1}, {"k": None, "n": 2}]
