"""What upkeep may take away, and when: the pure part."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.core.lifecycle.cleanup import Need, hours, is_due, is_plain, log_begins, readable, strange_partitions
from floodmark.core.rules.model import CleanUp
from floodmark.ledger.delta.damage import listed, unreadable_checkpoint

DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("checkpoints", "young", "need", "begins"),
    [
        ([], 9, Need(), 0),  # nothing repeats the entries
        ([5], 9, Need(), 5),
        ([5], 6, Need(), 5),
        ([5], 5, Need(), 5),
        ([5], 4, Need(), 0),  # the checkpoint is younger than what is to stay
        ([3, 8], 9, Need(), 8),
        ([3, 8], 9, Need(since=7), 3),
        ([3, 8], 9, Need(versions=frozenset({2})), 0),
        ([3, 8], 9, Need(all_versions=True), 0),
    ],
)
def test_a_log_begins_with_a_checkpoint_before_all_that_is_young_or_needed(
    checkpoints: list[int], young: int, need: Need, begins: int
) -> None:
    entries = {version: float(version) for version in range(10)}
    found = log_begins(checkpoints, entries, float(young), need)
    assert found == begins


def test_what_two_readers_need_is_what_both_need() -> None:
    both = Need(since=7, readers=("a",)).merged(Need(versions=frozenset({4}), readers=("b",)))
    assert (both.since, both.oldest, both.readers) == (7, 4, ("a", "b"))
    assert Need().oldest is None and Need().merged(Need(all_versions=True)).oldest == 0


def test_nothing_goes_before_its_time() -> None:
    assert [hours(us) for us in (0, 1, DAY // 24, DAY)] == [0, 1, 1, 24]


def test_upkeep_is_due_when_its_time_has_passed() -> None:
    now, how = datetime(2001, 1, 2, tzinfo=UTC), CleanUp(every_us=DAY)
    ago = [None, *((now - timedelta(hours=hours)).isoformat() for hours in (24, 22, 21, -1))]
    assert [is_due(at, how, now) for at in ago] == [True, True, True, False, True], "the last is of a clock ahead"


def test_a_table_that_asks_more_of_its_writers_is_left_to_spark() -> None:
    assert is_plain(2, None) and is_plain(7, ["appendOnly", "timestampNtz"])
    assert not is_plain(7, ["appendOnly", "deletionVectors"]) and not is_plain(5, None)


def test_partitions_whose_values_others_would_write_differently_are_left_to_spark() -> None:
    columns = {"k": "string", "at": "timestamp", "day": "date", "cost": "decimal(10,2)", "local": "timestamp_ntz"}
    assert strange_partitions(columns, ["k", "day", "local"]) == strange_partitions(columns, []) == ""
    told = "partitions by at, a timestamp, partitions by cost, a decimal(10,2)"
    assert strange_partitions(columns, ["at", "k", "cost"]) == told


def test_a_version_can_be_told_from_the_beginning_or_a_checkpoint() -> None:
    assert readable(3, [], [0, 1, 2, 3]) and readable(7, [5], [5, 6, 7])
    assert not readable(3, [5], [4, 5, 6])


def test_a_checkpoint_counts_once_all_of_its_parts_are_there() -> None:
    one, other, lone = (f"{1:020}.checkpoint.{part:010}.{of:010}.parquet" for part, of in ((1, 2), (2, 2), (1, 3)))
    whole, named = f"{2:020}.checkpoint.parquet", f"{2:020}.checkpoint.0b2a.json"
    assert listed([one]).checkpoints == {}
    assert listed([one, lone]).base == -1
    assert listed([other, one, lone, whole, named]).checkpoints == {1: [one, other], 2: [named, whole]}


def test_no_log_is_cut_up_to_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    assert unreadable_checkpoint(str(tmp_path), 3) == "there is no checkpoint of version 3"
    checkpoint = log / f"{3:020}.checkpoint.parquet"
    checkpoint.write_bytes(b"PAR1 torn PAR1")
    assert unreadable_checkpoint(str(tmp_path), 3) == f"the checkpoint {checkpoint} cannot be read"
    pq.write_table(pa.table({"add": [1]}), checkpoint)
    assert unreadable_checkpoint(str(tmp_path), 3) is None
