"""The certificate of a real home, and what is planted in its ledger, its logs and its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.audited import Made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, 3)


@pytest.mark.parametrize("deep", [False, True])
def test_a_home_is_proven(made: Made, deep: bool) -> None:
    assert made.verdicts(deep) == []


def test_a_ledger_without_its_newest_row_is_broken(made: Made) -> None:
    DeltaTable(str(made.home / "ledger")).delete("seq = 7")
    assert made.verdicts()[0] == (
        "broken", "the ledger's log tells of 7 rows, found 6: rows or entries of its log were taken away"
    )  # fmt: skip


def test_a_ledger_put_back_to_an_older_version_is_broken(made: Made) -> None:
    made.put("life", 3, {"format": 5, "what": "retired"})
    made.save()
    assert made.verdicts() == []
    ledger = DeltaTable(str(made.home / "ledger"))
    ledger.restore(ledger.version() - 1)
    assert [verdict for verdict, what in made.verdicts() if "tells of 8 rows, found 7" in what] == ["broken"]
