"""A table as an earlier epoch saw it: the newest version that holds all of that, or an error that says it is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from floodmark.errors import HistoryGone
from floodmark.ledger.delta.datafiles import as_of, holding_from, query


def append(table: Path, epoch: int) -> None:
    write_deltalake(table, pa.table({"_epoch": [epoch]}), mode="append")


def rewrite(table: Path, epoch: int, said: str | None) -> None:
    more = CommitProperties(custom_metadata={"userMetadata": said} if said else None)
    write_deltalake(table, pa.table({"_epoch": [epoch]}), mode="overwrite", commit_properties=more)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Epochs 0 to 3 are versions 0 to 3; after epoch 3 a rewrite, then epochs 4 and 5, another rewrite, and epoch 6."""
    path = tmp_path / "a table with blanks"
    for epoch in range(4):
        append(path, epoch)
    rewrite(path, 3, json.dumps(holding_from(3)))  # version 4
    for epoch in (4, 5):
        append(path, epoch)
    rewrite(path, 5, json.dumps(holding_from(5)))  # version 7
    append(path, 6)
    return path


@pytest.mark.parametrize(("epoch", "version"), [(0, 3), (2, 3), (3, 6), (4, 6), (5, 8), (6, 8)])
def test_the_newest_version_that_holds_what_an_epoch_saw(table: Path, epoch: int, version: int) -> None:
    written = {3: 3, 4: 5, 5: 6, 6: 8}.get(epoch, epoch)
    found = as_of(str(table), written, epoch)
    assert found.version() == version
    assert epoch in [row["_epoch"] for row in query(found, "SELECT _epoch FROM t")]


def test_a_rewrite_that_does_not_say_what_it_left_ends_all_that_was(table: Path) -> None:
    rewrite(table, 6, None)
    assert as_of(str(table), 8, 6).version() == 8


def test_files_that_are_gone_are_an_error_not_a_gap(table: Path) -> None:
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    for epoch, written in ((2, 2), (4, 5)):
        with pytest.raises(HistoryGone, match=f"files that epoch {epoch} saw"):
            as_of(str(table), written, epoch)
    assert as_of(str(table), 6, 5).version() == DeltaTable(table).version()


def test_a_log_that_was_cleaned_up_is_an_error_not_a_guess(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    for version in range(6):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    for epoch, written in ((1, 1), (3, 3), (4, 5)):
        with pytest.raises(HistoryGone, match=f"no longer reaches back to epoch {epoch}"):
            as_of(str(table), written, epoch)
    assert as_of(str(table), 6, 5).version() == 8
