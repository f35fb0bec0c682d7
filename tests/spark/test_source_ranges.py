"""Every kind of source gives exactly the rows of a range, and the same again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.sourcekinds import KINDS, Growing, changes_promised, rows_promised

from floodmark.core.rules import kinds


@pytest.mark.parametrize("name", KINDS)
def test_a_range_has_its_rows(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kind = KINDS[name]
    if kind.registered is not None:
        monkeypatch.setitem(kinds.SOURCES, name, kind.registered)
    rows_promised(Growing(kind, place / "rows"), spark)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.remove is not None])
def test_what_a_rewrite_changes_is_told(spark: SparkSession, place: Path, name: str) -> None:
    changes_promised(Growing(KINDS[name], place / "rows"), spark)
