"""Where a generation begins that starts at a moment: the first commit not before it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.connectors.delta import first_not_before
from floodmark.errors import HistoryGone, Refused

BASE = 1_000_000_000_000  # milliseconds


def _entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def _stamp(table: Path, version: int, stamp: int | None) -> None:
    actions = [json.loads(line) for line in _entry(table, version).read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"].pop("timestamp")
            action["commitInfo"].update({} if stamp is None else {"timestamp": stamp})
    _entry(table, version).write_text("\n".join(map(json.dumps, actions)) + "\n")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 5, two and two committed in one millisecond, ten milliseconds apart."""
    for version in range(6):
        write_deltalake(tmp_path, pa.table({"n": [version]}), mode="append")
        _stamp(tmp_path, version, BASE + version // 2 * 10)
    return tmp_path


def _moment(after: int) -> datetime:
    return datetime.fromtimestamp((BASE + after) / 1000, UTC)


@pytest.mark.parametrize(("after", "version"), [(-5, 0), (0, 0), (1, 2), (10, 2), (11, 4), (20, 4), (21, 6)])
def test_the_first_commit_not_before_a_moment(table: Path, after: int, version: int) -> None:
    assert first_not_before(DeltaTable(table), _moment(after)) == version


def test_a_log_that_does_not_reach_back_is_refused(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    _entry(table, 0).unlink()
    _entry(table, 1).unlink()
    assert first_not_before(DeltaTable(table), _moment(11)) == 4
    with pytest.raises(HistoryGone, match="from version 2 on"):
        first_not_before(DeltaTable(table), _moment(5))


def test_a_commit_without_a_timestamp_is_named(table: Path) -> None:
    _stamp(table, 3, None)
    with pytest.raises(Refused, match="version 3 has no timestamp"):
        first_not_before(DeltaTable(table), _moment(5))
