"""What is decided at a bound, and one unit beside it: windows, watermarks, statistics of files, state that is kept.

Each decision is held against a model that lists what the bound is about.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, MapType, StringType, StructType
from support.beside import beside

from floodmark.core.lifecycle import cleanup
from floodmark.core.lifecycle.cleanup import MAX_FILES, WORTH_ROWS
from floodmark.core.protocol.watermark import advance, excused, hear, later, merge
from floodmark.core.sql.windows import RowSpec, SessionSpec, WindowSpec, needed_from
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.datafiles import DataFile
from floodmark.ledger.delta.keybounds import CUT, PREFIX, SUNDIALS, Bound, may_hold, not_after
from floodmark.spark.fold import state
from floodmark.spark.fold.fold import Moment
from floodmark.spark.fold.liverows import comparable
from floodmark.spark.rule.epochs.compaction import _dead, _is_due, _rows
from floodmark.spark.write.appending import files_for

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
AT = 978_307_260 * SECOND  # 2001-01-01 00:01:00


def shown(at: int) -> str:
    """A time as Delta's statistics have it: in milliseconds, cut down."""
    text = (EPOCH + timedelta(milliseconds=at // 1000)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


# --- statistics of files

TIMES = beside(AT, AT + 1000, AT + 999, AT + 60 * SECOND, others=st.integers(AT - 5000, AT + 5000))


@given(one=TIMES, other=TIMES, key=TIMES)
def test_a_file_with_a_time_is_never_passed_over_and_one_a_millisecond_away_is(one: int, other: int, key: int) -> None:
    low, high = sorted((one, other))
    stats = json.dumps({"minValues": {"at": shown(low)}, "maxValues": {"at": shown(high)}})
    held = may_hold(stats, [Bound("at", "timestamp", key, key)])
    assert held == (low // 1000 * 1000 <= key <= high // 1000 * 1000 + CUT)
    assert held or not low <= key <= high


@given(at=beside(0, -1, AT, AT + 999, SUNDIALS, SUNDIALS + 59_999_999, others=st.integers(-(10**15), 10**15)))
def test_no_row_of_a_file_is_after_what_its_statistics_say(at: int) -> None:
    """Its newest row, and the latest moment that the log's millisecond can stand for."""
    cut = at // 1000 * 1000
    off = 59_999_999 if cut < SUNDIALS else 0
    assert not_after(cut) == cut + 999 + off >= at


@given(
    length=beside(PREFIX, PREFIX + 1, others=st.integers(1, 40)),
    last=st.sampled_from("aé~\U0001f600"),
    more=st.booleans(),
)
def test_a_text_is_found_whatever_of_it_the_statistics_leave_out(length: int, last: str, more: bool) -> None:
    text = "k" * (length - 1) + last
    low, high = text[:PREFIX], text[:PREFIX] + ("\U0010ffff" if len(text) > PREFIX else "")
    stats = json.dumps({"minValues": {"k": low}, "maxValues": {"k": high}})
    key = (text + "z" * more).encode().hex().upper()
    wanted = not more or length >= PREFIX  # of a longer one, only its beginning is known
    assert may_hold(stats, [Bound("k", "string", key, key)]) == wanted


@pytest.mark.parametrize("end", ["\U0010ffff", "\U0010ffff" * 3])
def test_a_text_that_was_cut_short_may_go_on_with_any_byte(end: str) -> None:
    """Bytes that are no UTF-8 sort after the last character. The table may keep fewer characters than others."""
    stats = json.dumps({"minValues": {"k": "ab"}, "maxValues": {"k": f"ab{end}"}})
    for key, held in ((b"ab\xff", True), (b"ab", True), (b"ac", False), (b"aa", False)):
        found = key.hex().upper()
        assert may_hold(stats, [Bound("k", "string", found, found)]) is held


@pytest.mark.parametrize(("kind", "value"), [("int", 7), ("bigint", -7), ("date", "1970-01-08"), ("string", "G")])
def test_a_file_that_ends_or_begins_with_the_key_is_read(kind: str, value: Any) -> None:
    at: Any = {"date": 7, "string": "47"}.get(kind, value)
    one = json.dumps({"minValues": {"k": value}, "maxValues": {"k": value}})
    for low, high, held in ((at, at, True), *_around(kind, at)):
        assert may_hold(one, [Bound("k", kind, low, high)]) is held


def _around(kind: str, at: Any) -> list[tuple[Any, Any, bool]]:
    below, above = ("46", "48") if kind == "string" else (at - 1, at + 1)
    return [(below, at, True), (at, above, True), (below, below, False), (above, above, False)]


def test_each_bound_must_hold_and_an_unknown_one_does_not_decide() -> None:
    stats = json.dumps({"minValues": {"a": 1, "b": 5}, "maxValues": {"a": 3, "b": 9}})
    assert may_hold(stats, [Bound("a", "int", 1, 1), Bound("b", "int", 9, 9)])
    assert not may_hold(stats, [Bound("a", "int", 1, 1), Bound("b", "int", 10, 10)])
    assert not may_hold(stats, [Bound("a", "int", 4, 4), Bound("b", "int", 9, 9)])
    assert may_hold(stats, [Bound("c", "int", 4, 4)])
    assert may_hold(json.dumps({"minValues": {"a": 1}}), [Bound("a", "int", 0, 0)])
    assert may_hold(json.dumps({"maxValues": {"a": 1}}), [Bound("a", "int", 2, 2)])


def test_the_log_gives_a_files_newest_time_up_to_the_end_of_its_millisecond(place: Path) -> None:
    """As Spark writes statistics: the time is cut, and the row is after it."""
    address = str(place / "t")
    column = pa.array([datetime(2001, 1, 1, 0, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    write_deltalake(address, pa.table({"at": column}))
    entry = place / "t" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            stats = {"numRecords": 1, "maxValues": {"at": shown(AT + 999)}}
            line["add"]["stats"] = json.dumps(stats)
    entry.write_text("\n".join(map(json.dumps, lines)))
    assert [file.newest for file in datafiles.files_of(DeltaTable(address), "at")] == [AT + 999]


class Reader:
    """What `state_rows` asks Spark to read."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] = ()
        self.read = self

    def schema(self, _: Any) -> Reader:
        return self

    def parquet(self, *paths: str) -> Reader:
        self.paths = paths
        return self


def test_a_state_file_is_read_while_its_newest_row_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [DataFile(str(newest), 1, newest) for newest in (None, AT - 1, AT, AT + 1)]
    monkeypatch.setattr(tables, "open_table", lambda _: object())
    monkeypatch.setattr(datafiles, "files_of", lambda *_: files)
    for needed, found in ((AT, ["None", str(AT), str(AT + 1)]), (None, [file.path for file in files])):
        spark = Reader()
        assert state.state_rows(spark, "/t", SimpleNamespace(), "at", needed) is spark  # type: ignore[arg-type]
        assert list(spark.paths) == found
    monkeypatch.setattr(datafiles, "files_of", lambda *_: files[1:2])
    assert state.state_rows(Reader(), "/t", SimpleNamespace(), "at", AT) is None  # type: ignore[arg-type]


def test_a_file_whose_newest_row_is_needed_is_not_dead() -> None:
    files = [DataFile("a", 1, AT - 1), DataFile("b", 2, AT), DataFile("c", 4, None), DataFile("d", None, AT - 1)]
    assert (_dead(files, AT), _dead(files, AT + 1), _dead(files, None), _rows(files)) == (1, 3, 0, 7)


def test_when_state_is_rewritten() -> None:
    assert (MAX_FILES, WORTH_ROWS) == (cleanup.MAX_FILES, cleanup.WORTH_ROWS) == (24, 1_000_000)
    assert cleanup.is_rewrite_due(MAX_FILES, 1, 0) and not cleanup.is_rewrite_due(MAX_FILES - 1, 1, 0)
    assert cleanup.is_rewrite_due(1, 2 * WORTH_ROWS, WORTH_ROWS)
    assert not cleanup.is_rewrite_due(1, 2 * WORTH_ROWS + 1, WORTH_ROWS)
    assert not cleanup.is_rewrite_due(1, WORTH_ROWS, WORTH_ROWS - 1)


def test_state_whose_live_rows_fill_many_files_is_not_rewritten_by_each_epoch() -> None:
    left = files_for(20_000_000)
    assert left > MAX_FILES
    assert not cleanup.is_rewrite_due(left, 20_000_000, 0, left)
    assert not cleanup.is_rewrite_due(left + MAX_FILES - 2, 20_000_000, 0, left)
    assert cleanup.is_rewrite_due(left + MAX_FILES - 1, 20_000_000, 0, left)
    assert cleanup.is_rewrite_due(left, 2 * WORTH_ROWS, WORTH_ROWS, left), "dead rows count as before"
    assert cleanup.is_rewrite_due(MAX_FILES, 1, 0, 1) and cleanup.is_rewrite_due(MAX_FILES, 1, 0, 0)


def rewritten(address: Path, files: int) -> DeltaTable:
    """A state table that was rewritten by a watermark to so many files, each with a row."""
    rows = pa.table({"p": list(range(files)), "n": [1] * files})
    metadata = {"userMetadata": json.dumps(datafiles.holding_from(5, 5))}
    write_deltalake(address, rows, mode="overwrite", partition_by=["p"], commit_properties=CommitProperties(metadata))
    return DeltaTable(address)


def test_files_that_the_newest_rewrite_left_count_as_one(tmp_path: Path) -> None:
    rewritten(tmp_path, 2)
    table = rewritten(tmp_path, MAX_FILES + 3)
    assert datafiles.left_by_rewrite(table) == MAX_FILES + 3
    assert not _is_due(table, MAX_FILES + 3, MAX_FILES + 3, 0)
    for n in range(MAX_FILES):
        table = DeltaTable(tmp_path)
        assert _is_due(table, len(table.file_uris()), 1, 0) == (n == MAX_FILES - 1)
        write_deltalake(tmp_path, pa.table({"p": [n], "n": [1]}), mode="append")


def test_a_rewrite_too_far_back_or_without_its_entry_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten(tmp_path, 3)
    for _ in range(2):
        write_deltalake(tmp_path, pa.table({"p": [1], "n": [1]}), mode="append")
    table = DeltaTable(tmp_path)
    monkeypatch.setattr(datafiles, "LOOKED_BACK", 3)
    assert datafiles.left_by_rewrite(table) == 3
    monkeypatch.setattr(datafiles, "LOOKED_BACK", 2)
    assert datafiles.left_by_rewrite(table) == 0
    monkeypatch.undo()
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    assert datafiles.left_by_rewrite(table) == 0


class Rows:
    """A frame that remembers what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def where(self, sql: str) -> Rows:
        self.asked.append(sql)
        return self


def test_state_that_is_seen_is_of_epochs_before_and_of_none_that_was_lost() -> None:
    rows = Rows()
    Moment(7, None, None, (3, 5), 0).committed(rows)  # type: ignore[arg-type]
    assert [sql.split("[")[0] for sql in rows.asked] == ["_epoch < array(7L, 7L)", "_epoch NOT IN (3, 5)"]


# --- what is final, and what is needed


def instant(at: int, column: str) -> str:
    return f"{at}/{column}"


WINDOW, JOINED = WindowSpec(60, 20, 5), WindowSpec(60, 20, 5, before_us=7, after_us=3)


def test_what_becomes_final_in_words() -> None:
    assert WINDOW.becoming_final("e", None, 90, instant) == "e <= 90/e"
    assert JOINED.becoming_final("e", 50, 90, instant) == "e > 47/e AND e <= 87/e"
    assert SessionSpec("x").becoming_final("e", None, 90, instant) == "e < 90/e"
    assert SessionSpec("x").becoming_final("e", 50, 90, instant) == "e >= 50/e AND e < 90/e"
    assert RowSpec(7, 3).becoming_final("t", None, 90, instant) == "t < 87/t"
    assert RowSpec(7, 3).becoming_final("t", 50, 90, instant) == "t >= 47/t AND t < 87/t"
    assert WINDOW.having("x > 1") == "x > 1"
    assert SessionSpec("x").having("x > 1") == "CASE WHEN count(*) > 0 THEN x > 1 END"
    assert (WINDOW.end, SessionSpec("x").end, SessionSpec("x").start) == (
        "window.end",
        "session_window.end",
        "session_window.start",
    )


def test_a_window_stands_alone_where_nothing_else_matters_to_it() -> None:
    assert WindowSpec(60, 60, 5).tumbles and not WINDOW.tumbles
    assert not WindowSpec(60, 60, 0, before_us=1).tumbles and not WindowSpec(60, 60, 0, after_us=1).tumbles
    assert not SessionSpec("x").tumbles and not RowSpec(0, 0).tumbles


@given(
    watermark=beside(65, 85, 105, 105 - 3, 105 + 3, others=st.integers(-200, 200)),
    step=beside(0, 20, others=st.integers(0, 90)),
    before=beside(0, 7, others=st.integers(0, 40)).filter(lambda one: one >= 0),
    after=beside(0, 3, others=st.integers(0, 40)).filter(lambda one: one >= 0),
)
def test_windows_of_joined_rows_are_final_and_need_rows_by_the_reach(
    watermark: int, step: int, before: int, after: int
) -> None:
    """A window [s, s + 60) waits for rows up to `after` beyond it, and needs rows from `before` ahead of it."""
    step, spec = abs(step), WindowSpec(60, 20, 5, before, after)
    starts = range(-995, 1005, 20)
    final = [start for start in starts if watermark < start + 60 + after <= watermark + step]
    assert spec.any_becomes_final(watermark, watermark + step) == bool(final)
    assert spec.any_becomes_final(None, watermark)
    waiting = min(start for start in starts if start + 60 + after > watermark)
    assert spec.needed_from(watermark) == waiting - before


@given(low=beside(50, others=st.integers(0, 99)), high=beside(50, others=st.integers(0, 99)))
def test_sessions_and_rows_may_be_final_wherever_the_watermark_has_moved(low: int, high: int) -> None:
    for spec in (SessionSpec("x"), RowSpec(7, 3)):
        assert spec.any_becomes_final(low, high) == (low < high)
        assert spec.any_becomes_final(None, high)
    assert RowSpec(7, 3).needed_from(high) == high - 10
    assert SessionSpec("x").needed_from(high) is None


def test_of_several_the_one_that_reaches_back_furthest_decides() -> None:
    assert needed_from([RowSpec(7, 3), RowSpec(1, 1)], 50) == needed_from([RowSpec(1, 1), RowSpec(7, 3)], 50) == 40
    assert needed_from([SessionSpec("x"), RowSpec(7, 3)], 50) is None


def test_how_far_beyond_a_row_its_results_reach() -> None:
    specs = (JOINED, RowSpec(7, 3), SessionSpec("'1 second'"))
    assert [spec.extent_us for spec in specs] == [63, 4, SECOND + 1]


# --- the watermark


@given(
    tops=st.dictionaries(st.sampled_from("abc"), st.none() | beside(100, others=st.integers(0, 200)), min_size=1),
    lateness=beside(0, 10, others=st.integers(0, 50)).map(abs),
    before=st.none() | beside(90, 100, others=st.integers(0, 200)),
)
def test_the_watermark_is_that_of_the_slowest_stream_and_never_goes_back(
    tops: dict[str, int | None], lateness: int, before: int | None
) -> None:
    given_ = dict.fromkeys(tops, lateness)
    seen = [top for top in tops.values() if top is not None]
    reached = min(seen) - lateness if len(seen) == len(tops) else None
    known = [one for one in (before, reached) if one is not None]
    assert advance(before, tops, given_, in_snapshot=False) == max(known, default=None)
    assert advance(before, tops, given_, in_snapshot=True) == before
    assert advance(before, tops, {}, in_snapshot=False) == before


@given(clock=beside(150, 160, others=st.integers(100, 300)), one=beside(50, 60).map(abs), other=beside(50, 60).map(abs))
def test_a_stream_is_excused_from_its_own_moment_on(clock: int, one: int, other: int) -> None:
    heard, idle = {"a": 100, "b": 100}, {"a": one, "b": other}
    silent = {name for name in heard if clock >= heard[name] + idle[name]}
    assert excused(heard, idle, ("a", "b", "c"), clock) == silent
    assert excused(heard, idle, ("a", "b"), clock) == (set() if silent == {"a", "b"} else silent)
    assert excused({}, idle, ("a", "b", "c"), clock) == set()


def test_what_is_heard_and_what_is_later() -> None:
    assert hear({"a": 1, "b": 2}, {"a", "z"}, 9) == {"a": 9, "b": 2}
    assert (later(None, None), later(3, None), later(None, 3), later(3, 4), later(4, 3)) == (None, 3, 3, 4, 4)
    assert merge({"a": 3, "b": None}, {"a": 2, "c": 5}) == {"a": 3, "b": None, "c": 5}


def test_open_sessions_are_told_by_keys_that_spark_can_compare() -> None:
    counts = MapType(StringType(), StringType())
    inner = StructType().add("m", counts)
    kind = StructType().add("k", StringType()).add("m", counts).add("a", ArrayType(inner)).add("s", StructType())
    assert comparable(("K", "s"), kind) == ("K", "s")
    assert [comparable(keys, kind) for keys in (None, ("k", "M"), ("a",))] == [None] * 3
