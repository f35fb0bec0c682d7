"""When versions were committed, by Spark's rule; where a generation begins that starts at a moment."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.connectors.delta.lookups import FOR_EVER, NO_ROWS, NO_TIMES, LookupTable
from floodmark.connectors.delta.source import first_not_before, starting_version
from floodmark.connectors.sources.kafka.offsets import Ends
from floodmark.connectors.sources.kafka.source import KafkaSource
from floodmark.core.committimes import committed, copied_with, in_commit_from
from floodmark.core.rules.model import Lookup, StartAt
from floodmark.errors import HistoryGone, NotThereYet, RunFailed, TableBroken
from floodmark.ledger.delta import committimes
from floodmark.ledger.delta.committimes import commit_times
from floodmark.ledger.delta.damage import HELD
from floodmark.spark.read.lookuprows import First, _spans

BASE = 2_000_000_000_000  # milliseconds; the commits' own times are long before it or are not there


def _entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def _restate(table: Path, version: int, stamp: int, **said: int) -> None:
    """Give a log entry's file this time, and leave it of its `commitInfo` what is given; none where nothing is."""
    kept = [line for line in _entry(table, version).read_text().splitlines() if '"commitInfo"' not in line]
    _entry(table, version).write_text("\n".join([*([json.dumps({"commitInfo": said})] if said else []), *kept]) + "\n")
    os.utime(_entry(table, version), ns=(stamp * 1_000_000, stamp * 1_000_000))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 5, two and two in one millisecond, ten milliseconds apart; every other one without `commitInfo`."""
    for version in range(6):
        write_deltalake(tmp_path, pa.table({"n": [version]}), mode="append")
        stamp = BASE + version // 2 * 10
        _restate(tmp_path, version, stamp, **({"timestamp": stamp} if version % 2 else {}))
    return tmp_path


def _moment(after: float) -> datetime:
    return datetime.fromtimestamp((BASE + after) / 1000, UTC)


def _first(table: Path, after: float) -> int:
    return first_not_before(DeltaTable(table), str(table), _moment(after))


AFTER = [(-5, 0), (0, 0), (1, 1), (1.5, 1), (2, 2), (10, 2), (11, 3), (12, 4), (20, 4), (21, 5), (22, 6)]


@pytest.mark.parametrize(("after", "version"), AFTER)
def test_the_first_commit_not_before_a_moment(table: Path, after: float, version: int) -> None:
    assert _first(table, after) == version


def test_a_time_to_come_is_waited_for(table: Path) -> None:
    """Without commits since, a time that has passed starts at the next commit; one to come could be after it."""

    def begins(after: float, now: float) -> int:
        start, clock = StartAt(timestamp=_moment(after).isoformat()), _moment(now)
        return starting_version("events", DeltaTable(table), str(table), start, clock)

    assert [begins(22, 22), begins(22, 30), begins(12, 5)] == [6, 6, 4]
    with pytest.raises(
        NotThereYet, match=r"stream events: expected a `start` that has passed, found 2033-05-18T.*Wait"
    ):
        begins(30, 29)


def test_a_topic_waits_for_it_unless_each_partition_has_records_since(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {("t", 0): Ends(0, 9), ("t", 1): Ends(0, 5)}
    now: Any = SimpleNamespace(ends=lambda: ends)
    start = StartAt(timestamp=_moment(30).isoformat())
    source = KafkaSource.__new__(KafkaSource)
    source.name = "events"

    def at(first: int, second: int, clock: float) -> Mapping[Any, int]:
        asked = SimpleNamespace(offsets_at=lambda places, at_ms: {("t", 0): first, ("t", 1): second})
        monkeypatch.setattr(KafkaSource, "_brokers", asked)
        return source._at(now, start, _moment(clock))

    assert at(3, -1, clock=30) == {("t", 0): 3, ("t", 1): 5}
    assert at(3, 4, clock=29) == {("t", 0): 3, ("t", 1): 4}
    with pytest.raises(NotThereYet, match="stream events: expected a `start` that has passed"):
        at(3, -1, clock=29)


def test_a_lookup_knows_when_versions_without_commit_info_began(table: Path) -> None:
    found = LookupTable("cities", Lookup(kind="delta", address=str(table), history=True)).versions_since(5, None)
    assert [(one.version, one.begin // 1000 - BASE) for one in found] == list(
        zip(range(6), [0, 1, 10, 11, 20, 21], strict=True)
    )


def test_versions_are_read_back_to_the_event_times_if_rows_meet_them_by_these(table: Path) -> None:
    lookup = LookupTable("cities", Lookup(kind="delta", address=str(table), history=True))

    def read(since: int | None, undated: str = "") -> list[int]:
        return [one.version for one in lookup.versions_since(5, since, undated)]

    at = (BASE + 11) * 1000
    assert (read(at), read(at + 1)) == ([2, 3, 4, 5], [3, 4, 5]), "a row may be at the end of its version"
    assert read(at, "the SQL compares otherwise") == [0, 1, 2, 3, 4, 5]
    assert (read(NO_TIMES), read(NO_TIMES, "rows have no event time")) == ([5], [0, 1, 2, 3, 4, 5])
    assert read(FOR_EVER + 1) == [5]
    DeltaTable(table).create_checkpoint()
    _entry(table, 0).unlink()
    assert (read(at), read(NO_ROWS), read(NO_ROWS, "the SQL compares otherwise")) == ([2, 3, 4, 5], [5], [5])
    with pytest.raises(HistoryGone, match=r"to version 0, because the SQL.*; found it from version 1.*Write EVENT"):
        read(at, "the SQL compares otherwise")
    with pytest.raises(
        HistoryGone, match=r"back to 2033-05-18T03:33:19.999999Z, the rows'.*; found it from version 1.*Exclude"
    ):
        read(BASE * 1000 - 1)


def _history(table: Path) -> LookupTable:
    return LookupTable("cities", Lookup(kind="delta", address=str(table), history=True))


def _keeping_its_time(entry: Path, text: str) -> None:
    stamp = entry.stat().st_mtime_ns
    entry.write_text(text)
    os.utime(entry, ns=(stamp, stamp))


def test_entries_older_than_the_versions_that_rows_meet_are_not_read(table: Path) -> None:
    """They are here no log entries at all, and a read of all of them is refused."""
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        _keeping_its_time(_entry(table, version), "x")
    since = (BASE + 21) * 1000
    assert [one.version for one in _history(table).versions_since(5, since)] == [4, 5], "3 is read: 4 names no time"
    with pytest.raises(TableBroken, match="log entry 2"):
        _history(table).versions_since(5, None)


@pytest.mark.parametrize("own", [None, 0, 3])
@pytest.mark.parametrize("idle", [(), (3,), (1, 2), (5,), (4, 5), (1, 2, 3, 4, 5)])
def test_versions_since_a_moment_are_those_of_all_that_were_valid_then(
    table: Path, idle: tuple[int, ...], own: int | None
) -> None:
    """idle: versions with the rows of the one before; own: the first with an in-commit timestamp."""
    for version in idle:
        text = _entry(table, version).read_text()
        _keeping_its_time(_entry(table, version), text.replace('"dataChange":true', '"dataChange":false'))
    if own is not None:
        _stamped(table, own)
    lookup = _history(table)
    whole = lookup.versions_since(5, None)
    assert [one.version for one in whole] == [version for version in range(6) if version not in idle]
    for since in [at * 1000 + off for at in range(BASE, BASE + 30) for off in (-1, 0, 1)][1:]:
        assert lookup.versions_since(5, since) == [one for one in whole if one.end >= since]


def _stamped(table: Path, since: int) -> None:
    """Give the versions from `since` on in-commit timestamps; the times of their files say something else."""
    _enable_in_commit(
        table,
        **{
            "delta.inCommitTimestampEnablementVersion": str(since),
            "delta.inCommitTimestampEnablementTimestamp": str(BASE + since // 2 * 10 + since % 2),
        },
    )
    for version in range(since, 6):
        _restate(table, version, BASE - 1000, inCommitTimestamp=BASE + version // 2 * 10 + version % 2)


def test_entries_that_were_copied_matter_only_where_a_needed_time_depends_on_them(table: Path) -> None:
    """Put back without their times, they are as young as others, or younger: these seem to be later then, too."""
    since, copied = (BASE + 12) * 1000, BASE - 4_000_000
    for version in range(2):
        _restate(table, version, BASE + version, timestamp=copied)
    _restate(table, 2, BASE + 10, timestamp=BASE + 10)
    assert [one.version for one in _history(table).versions_since(5, since)] == [3, 4, 5]
    with pytest.raises(HistoryGone, match="log entry 0 says"):
        _history(table).versions_since(5, None)
    _restate(table, 1, BASE + 11, timestamp=copied)
    with pytest.raises(HistoryGone, match="log entry 1 says"):
        _history(table).versions_since(5, (BASE + 13) * 1000)


def test_an_older_entry_tells_of_a_copy_where_the_newest_name_no_time(table: Path) -> None:
    """Their writer may leave it out. The times of the copy would be taken for those of the versions."""
    _restate(table, 3, BASE + 11)
    _restate(table, 5, BASE + 21)
    since = (BASE + 22) * 1000
    assert [one.version for one in _history(table).versions_since(5, since)] == [5]
    _restate(table, 1, BASE, timestamp=BASE - 4_000_000)
    with pytest.raises(HistoryGone, match="log entry 1 says"):
        _history(table).versions_since(5, since)


def test_a_copy_of_long_ago_says_nothing_of_the_entries_since(table: Path) -> None:
    """Their writer names no time, and the times of their files are right."""
    _restate(table, 1, BASE, timestamp=BASE - 4_000_000)
    for version in range(2, 6):
        _restate(table, version, BASE + 60_000 + version)
    found = _history(table).versions_since(5, (BASE + 60_004) * 1000)
    assert [one.version for one in found] == [3, 4, 5]


def test_few_entries_are_asked_for_those_of_a_writer_that_names_no_times() -> None:
    files = {version: BASE + version for version in range(200)}
    assert copied_with(files, 150) == [*range(150, 86, -1)]
    assert copied_with({0: BASE, 1: BASE + 1, 2: BASE + 60_001, 3: BASE + 60_002}, 2) == [2, 1]


def test_an_entry_that_moves_a_time_and_names_none_has_an_older_one_speak_for_it(table: Path) -> None:
    _restate(table, 2, BASE + 11)
    _restate(table, 3, BASE + 11, timestamp=BASE + 11)
    _restate(table, 1, BASE, timestamp=BASE - 4_000_000)
    with pytest.raises(HistoryGone, match="log entry 1 says"):
        _history(table).versions_since(5, (BASE + 13) * 1000)


@pytest.fixture
def held(table: Path) -> Path:
    """The table while upkeep joins its files: versions 0 to 2 are not in its log, and will be again."""
    DeltaTable(table).create_checkpoint()
    shutil.copytree(table / "_delta_log", table / HELD)
    for version in range(3):
        _entry(table, version).unlink()
    return table


HELD_BACK = "log entry 2 is at .* while upkeep joins files. Retry"


def test_what_upkeep_holds_of_a_history_is_not_gone(held: Path) -> None:
    lookup = _history(held)
    assert [one.version for one in lookup.versions_since(5, (BASE + 13) * 1000)] == [3, 4, 5]
    for since in (None, BASE * 1000):
        with pytest.raises(RunFailed, match=HELD_BACK):
            lookup.versions_since(5, since)
    with pytest.raises(RunFailed, match=HELD_BACK):  # as an open epoch does that is repeated
        lookup.versions_since(2, NO_ROWS)


def test_a_start_in_what_upkeep_holds_is_not_gone(held: Path) -> None:
    assert _first(held, 12) == 4
    with pytest.raises(RunFailed, match=HELD_BACK):
        _first(held, 1)


def test_rows_are_asked_whether_they_need_what_upkeep_holds(held: Path) -> None:
    def since(exact: bool) -> First:
        return First(*[(BASE + (13 if exact else 0)) * 1000] * 2)

    assert [one.version for one in _spans(_history(held), 5, since, False, "")] == [3, 4, 5]
    with pytest.raises(RunFailed, match=HELD_BACK):
        _spans(_history(held), 5, since, False, "the SQL compares otherwise")


def _listed_before_it_leaves(table: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable(table).create_checkpoint()
    found = [*committimes._files(str(table))]
    monkeypatch.setattr(committimes, "_files", lambda _: iter(found))
    _entry(table, version).unlink()


@pytest.mark.parametrize("version", [4, 2, 0], ids=["rows meet it", "it moves another's time", "the oldest"])
def test_an_entry_that_leaves_while_the_log_is_read_is_looked_for_again(
    table: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    _restate(table, 2, BASE + 11, timestamp=BASE + 11)
    _listed_before_it_leaves(table, version, monkeypatch)
    since = None if version == 0 else (BASE + 13) * 1000
    with pytest.raises(RunFailed, match=f"log entry {version} came or went"):
        _history(table).versions_since(5, since)


def test_an_entry_that_leaves_while_a_start_is_looked_for(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _listed_before_it_leaves(table, 0, monkeypatch)
    with pytest.raises(RunFailed, match="log entry 0 came or went"):
        _first(table, 12)


def test_rows_are_asked_for_their_first_moment_only_where_the_log_is_cut_off(table: Path) -> None:
    lookup = LookupTable("cities", Lookup(kind="delta", address=str(table), history=True))
    begins, asked = [(BASE + after) * 1000 for after in (0, 1, 10, 11, 20, 21)], list[bool]()

    def since(exact: bool) -> First:
        asked.append(exact)
        return First(begins[4], begins[2]) if exact else First(begins[1], begins[0])

    def read(by_start: bool) -> list[int]:
        return [one.version for one in _spans(lookup, 5, since, by_start, "")]

    assert (read(False), read(True), asked) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [False, False])
    DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        _entry(table, version).unlink()
    assert (read(False), read(True), asked[2:]) == ([3, 4, 5], [2, 3, 4, 5], [False, True] * 2)


def test_checkpoints_and_compacted_entries_are_no_commits(table: Path) -> None:
    log = table / "_delta_log"
    for name in (f"{3:020}.checkpoint.0a.json", f"{0:020}.{3:020}.compacted.json", f"{9:020}.json.tmp", "_last"):
        (log / name).write_text("{}")
    assert list(commit_times(DeltaTable(table), str(table))) == list(range(6))


def test_a_log_that_does_not_reach_back_is_refused(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    _entry(table, 0).unlink()
    _entry(table, 1).unlink()
    assert _first(table, 11) == 3
    with pytest.raises(HistoryGone, match="from version 2 on"):
        _first(table, 5)


def test_a_log_that_was_copied_without_its_times_is_refused(table: Path) -> None:
    _restate(table, 3, BASE + 10, timestamp=BASE - 3_600_000)
    with pytest.raises(HistoryGone, match="log entry 3 says that it was written long before its file"):
        _first(table, 5)


@pytest.mark.parametrize("info", [{}, {"timestamp": None}, {"operation": "WRITE"}])
def test_an_entry_that_names_no_time_of_its_own_has_its_files(table: Path, info: object) -> None:
    _restate(table, 3, BASE + 10)
    with _entry(table, 3).open("a") as entry:
        entry.write(json.dumps({"commitInfo": info}) + "\n")
    os.utime(_entry(table, 3), ns=((BASE + 10) * 1_000_000,) * 2)
    assert _first(table, 11) == 3


def _enable_in_commit(table: Path, **facts: str) -> None:
    actions = [json.loads(line) for line in _entry(table, 0).read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"] = {"delta.enableInCommitTimestamps": "true", **facts}
    _entry(table, 0).write_text("\n".join(map(json.dumps, actions)) + "\n")


def test_in_commit_timestamps_count_where_the_table_has_them(table: Path) -> None:
    _enable_in_commit(
        table,
        **{
            "delta.inCommitTimestampEnablementVersion": "4",
            "delta.inCommitTimestampEnablementTimestamp": str(BASE + 100),
        },
    )
    for version, stamp in ((4, 100), (5, 200)):
        _restate(table, version, BASE + 999, inCommitTimestamp=BASE + stamp)
    assert [_first(table, after) for after in (12, 100, 101, 200, 201)] == [4, 4, 5, 5, 6]
    _restate(table, 5, BASE + 999)
    with pytest.raises(TableBroken, match="expected a timestamp in log entry 5"):
        _first(table, 12)


def test_a_file_that_is_younger_than_the_first_in_commit_timestamp_ends_there() -> None:
    assert in_commit_from({"delta.enableInCommitTimestamps": "TRUE"}) == (0, 0)
    assert in_commit_from({"delta.enableInCommitTimestamps": "false"}) is None
    assert committed({0: 5, 1: 90, 2: 91}, {2: 50}, (2, 50)) == {0: 5, 1: 50, 2: 50}
