"""A write's own commit is found in a table's log, from the newest on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from support.damaging import damage

from floodmark.errors import HistoryGone, TableBroken
from floodmark.ledger.delta.tablelog import our_commit, written_for

APP = "floodmark/ledger/1/out"


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Five commits of one app, each of as many rows as its version."""
    address = str(tmp_path / "table")
    for version in range(5):
        said = {"userMetadata": json.dumps({"app": APP, "version": version, "rows": version})}
        rows = pa.table({"n": list(range(version))}, schema=pa.schema([("n", pa.int64())]))
        written = CommitProperties(custom_metadata=said, app_transactions=[Transaction(APP, version)])
        write_deltalake(address, rows, mode="append", commit_properties=written)
    return address


def entry(address: str, version: int) -> Path:
    return Path(address) / "_delta_log" / f"{version:020}.json"


def test_the_newest_and_the_oldest_are_found(table: str) -> None:
    for version in (4, 0):
        found = our_commit(table, APP, version)
        assert (found.commit, found.rows, found.added, found.removed) == (version, version, version, 0)


def test_entries_that_are_older_than_it_are_not_asked(table: str) -> None:
    """They may be harmed, or gone, below a checkpoint, and the write is compared all the same."""
    DeltaTable(table).create_checkpoint()
    damage(entry(table, 3), "flipped")
    entry(table, 1).unlink()
    found = our_commit(table, APP, 4)
    assert (found.commit, found.rows) == (4, 4)


def test_one_that_the_log_no_longer_holds_is_history_that_is_gone(table: str) -> None:
    DeltaTable(table).create_checkpoint()
    entry(table, 1).unlink()
    with pytest.raises(HistoryGone, match=r"no longer has the commit of .* version 0"):
        our_commit(table, APP, 0)


def test_a_harmed_entry_on_the_way_is_named(table: str) -> None:
    DeltaTable(table).create_checkpoint()
    damage(entry(table, 2), "truncated")
    with pytest.raises(TableBroken, match="log entry 2 is truncated"):
        our_commit(table, APP, 1)


@pytest.mark.parametrize(
    "said",
    ['{"app":"loader"}', '{"app":7}', '{"app":"floodmark/1"}', '{"app":"floodmark/1","version":"2"}', '{"app":x'],
)
def test_what_another_writer_says_of_its_commit_is_not_ours(table: str, said: str) -> None:
    others = CommitProperties(custom_metadata={"userMetadata": said})
    write_deltalake(table, pa.table({"n": [1]}), mode="append", commit_properties=others)
    assert our_commit(table, APP, 4).commit == 4
    assert written_for(table, "ledger") and not written_for(table, "1")
