"""An audit beside a rule that works: what comes while it reads is no fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.audited import Made

from floodmark.audit import certificate, logreader


def before(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object], times: int = 1) -> None:
    """Have the reader's function do this first, as often."""
    then, left = getattr(logreader, name), iter(range(times))

    def acting(*given: Any) -> Any:
        if next(left, None) is not None:
            act()
        return then(*given)

    monkeypatch.setattr(logreader, name, acting)


def test_an_epoch_that_comes_between_ledger_and_logs_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, 2)
    before(monkeypatch, "read_table", lambda: made.more(3))
    assert made.verdicts(deep=True) == []


def test_a_rule_that_works_all_the_time_is_unknown_and_harm_is_still_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, numbers = Made(tmp_path, 2), iter(range(3, 100))
    before(monkeypatch, "read_table", lambda: made.more(next(numbers)), 100)
    found = made.verdicts()
    assert {verdict for verdict, _ in found} == {"unknown"}
    assert f"has worked on while its tables were read, {certificate.LOOKS} times" in found[0][1]
    (made.sink / "1.parquet").unlink()
    assert "broken" in {verdict for verdict, _ in made.verdicts()}


def test_a_table_is_read_as_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = str(Made(tmp_path, 2).sink)
    before(monkeypatch, "_entries", DeltaTable(sink).optimize.compact)
    found = logreader.read_table(sink)
    assert (found.version, found.last, len(found.live)) == (3, 3, 1)


def test_a_file_that_is_removed_while_it_is_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path, 2)
    before(monkeypatch, "counted_in", (made.sink / "1.parquet").unlink)
    found = made.verdicts(deep=True)
    assert {verdict for verdict, _ in found} == {"unknown"}
    assert all("was removed while the tables were read" in what for _, what in found)
