"""SQL that the engine's Spark part writes for a bound, evaluated by DuckDB at the bound and one unit beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StringType, StructType, TimestampType
from support.flow import HOPPING, OVER, TUMBLING, Flow

from floodmark.connectors.delta.lookups import NO_TIMES, LookupTable
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.source import DeltaSource
from floodmark.connectors.planning import checkpoint
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Counts, Pinned
from floodmark.core.rules.rule import Lookup, Stream
from floodmark.core.sql.windows import RowSpec, WindowSpec
from floodmark.errors import HistoryGone, LedgerBroken
from floodmark.spark.fold.fold import Moment
from floodmark.spark.fold.liverows import _of_own
from floodmark.spark.fold.windowrows import WindowRows
from floodmark.spark.read.batch import AHEAD, DEAD, FILTERED, FOLDED, KINDS, LATE, NO_TIME, Batch, Limits
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.lookuprows import NONE, First, first_moments
from floodmark.spark.read.shape import Shape
from floodmark.spark.rule.epochs.epoch import EpochFolder
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.replacing import Span

EVENTS = StructType().add("at", TimestampType()).add("k", StringType()).add("v", LongType()).add("n", LongType())
SESSIONS = "SELECT k, count(*) AS n FROM events GROUP BY session_window(at, '40 seconds'), k"
SECOND = 1_000_000


def holding(sql: str, times: list[int | None]) -> list[int | None]:
    """Of rows with these times `at`, those for which a condition of Spark's is true."""
    text = sqlglot.transpile(f"SELECT micros FROM t WHERE {sql}", read="spark", write="duckdb")[0]
    return [row[0] for row in _asked(text, times)]


def _asked(text: str, times: list[int | None]) -> list[Any]:
    connection = duckdb.connect()
    connection.execute('CREATE TABLE t (micros BIGINT, "at" TIMESTAMP)')
    for at in times:
        connection.execute("INSERT INTO t VALUES (?, make_timestamp(?))", [at, at])
    return connection.execute(text.replace("TIMESTAMP_MICROS", "make_timestamp")).fetchall()


def test_a_backfill_replaces_the_rows_of_its_interval_and_no_others() -> None:
    span = Span("at", "timestamp", 5, 9)
    assert holding(span.holds, [4, 5, 8, 9, None]) == [5, 8]
    assert holding(f"NOT {span.holds}", [4, 5, 8, 9, None]) == [4, 9, None]


def test_a_correction_replaces_no_rows_of_its_gaps() -> None:
    span = Span("at", "timestamp", 1, 10, gaps=((3, 5), (6, 8)))
    assert holding(span.holds, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, None]) == [1, 2, 5, 8, 9]
    assert holding(f"NOT {span.holds}", [2, 3, 4, 5, 10, None]) == [3, 4, 10, None]


def fold(place: Path, sql: str, *windows: Any, **stream: Any) -> WindowRows:
    rule = Flow(place, sql=sql, stream={"lateness": "0 seconds", **stream}).rule()
    return WindowRows(rule, Shape({"events": EVENTS}), windows)


class Asked:
    """A frame that remembers the conditions it was asked for."""

    def __init__(self) -> None:
        self.sql: list[str] = []

    def where(self, sql: str) -> Asked:
        self.sql.append(sql)
        return self


@pytest.mark.parametrize(
    ("sql", "window", "watermark", "first"),
    [
        (TUMBLING, WindowSpec(60, 60, 0), 100, 60),
        (TUMBLING, WindowSpec(60, 60, 0), 120, 120),
        (HOPPING, WindowSpec(60, 20, 0), 100, 60),
        (OVER, RowSpec(60, 1), 100, 39),
    ],
)
def test_the_row_at_the_bound_is_kept_and_stays_when_state_is_rewritten(
    tmp_path: Path, sql: str, window: Any, watermark: int, first: int
) -> None:
    folding = fold(tmp_path.resolve(), sql, window)
    kept: Any = Asked()
    folding.live("events", {"events": kept}, watermark)
    assert kept.sql and holding(kept.sql[0], [first - 1, first, first + 1, None]) == [first, first + 1]
    at = Moment(7, None, watermark, (), 0)
    for newest, keeps in ((None, False), (first - 1, False), (first, True), (first + 1, True)):
        batch: Any = SimpleNamespace(maxima={"events": newest})
        assert folding._needs_any(batch, "events", at) is keeps


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("sql", "before", "after", "first", "known", "found"),
    [
        (TUMBLING, 100, 100, 30, NONE, NONE),
        (TUMBLING, 100, 119, 30, NONE, NONE),
        (TUMBLING, 100, 120, 30, First(60, 60), First(60, 60)),
        (TUMBLING, 100, 120, 70, First(60, 60), First(70, 60)),
        (TUMBLING, None, 120, 30, First(30, 0), First(30, 0)),
        (HOPPING, None, 120, 90, First(90, 40), First(90, 40)),
        (HOPPING, 110, 120, 90, First(60, 60), First(90, 60)),
        (SESSIONS, 100, 100, 30, First(30, 30), First(30, 30)),
        (SESSIONS, None, None, 30, First(30, 30), First(30, 30)),
        (SESSIONS, None, None, None, NONE, NONE),
    ],
)
def test_versions_of_a_history_are_there_for_each_row_that_the_sql_reads(
    tmp_path: Path, sql: str, before: int | None, after: int | None, first: int | None, known: First, found: First,
    exact: bool,
) -> None:  # fmt: skip
    """Also where no result is due: compaction asks the SQL over all state which sessions are open."""
    windows = {TUMBLING: WindowSpec(60, 60, 0), HOPPING: WindowSpec(60, 20, 0)}
    window = windows.get(sql) or Flow(tmp_path, sql=sql).rule().query.windows[0]
    batch: Any = SimpleNamespace(earliest=lambda: first)
    told = fold(tmp_path.resolve(), sql, window).since(batch, {}, Moment(7, before, after, (), 0), exact)
    assert told == (found if exact else known)


@pytest.mark.parametrize(
    ("folded", "first", "since"),
    [((0, 0), None, NONE), ((0, 3), None, First(NO_TIMES, NO_TIMES)), ((2, 3), 30, First(30, 30))],
)
def test_rows_without_event_time_are_rows(
    tmp_path: Path, folded: tuple[int, int], first: int | None, since: First
) -> None:
    """Of two streams only the first has an event time. Without NO_TIMES, no version but the newest is read."""
    flow = Flow(tmp_path.resolve(), sql="SELECT k FROM events UNION ALL SELECT k FROM others")
    flow.settings["streams"] = {**flow.text()["streams"], "others": {"delta": flow.source}}
    counts = {name: Counts(read=3, folded=rows) for name, rows in zip(("events", "others"), folded, strict=True)}
    shape = Shape({"events": EVENTS, "others": EVENTS})
    batch: Any = SimpleNamespace(rule=flow.rule(), shape=shape, counts=counts, earliest=lambda: first)
    assert first_moments(batch) == since


def test_rows_are_cut_before_the_first_window_that_is_open(tmp_path: Path) -> None:
    folding = fold(tmp_path.resolve(), TUMBLING, WindowSpec(60, 60, 0))
    assert [folding._cut(at) for at in (119, 120, 121)] == [60, 120, 120]
    assert holding(folding._before("events", 120), [119, 120, 121]) == [119]
    assert fold(tmp_path.resolve(), HOPPING, WindowSpec(60, 20, 0))._cut(119) == 119


def kinds(place: Path, watermark: int | None, latest: int, rows: list[tuple[bool, int | None]]) -> list[str]:
    """What READ makes of rows (kept by `where`, event time)."""
    batch = object.__new__(Batch)
    batch.rule = Flow(place.resolve()).rule()
    batch.shape, batch._limits = Shape({"events": EVENTS}), Limits(watermark, {"events": latest})
    told = sqlglot.transpile(f"SELECT {batch._kind()} FROM r", read="spark", write="duckdb")[0]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE r (_s INT, _k BOOLEAN, _t BIGINT, _e INT, _x BIGINT)")
    for kept, at in rows:
        connection.execute("INSERT INTO r VALUES (0, ?, ?, NULL, NULL)", [kept, at])
    return [KINDS[row[0]] for row in connection.execute(told).fetchall()]


def test_a_row_at_the_watermark_and_one_as_far_ahead_as_allowed_are_folded(tmp_path: Path) -> None:
    rows = [(True, at) for at in (99, 100, 101, 199, 200, 201, None)] + [(False, 99), (False, None)]
    late, folded, ahead, none, out = (KINDS[kind] for kind in (LATE, FOLDED, AHEAD, NO_TIME, FILTERED))
    assert kinds(tmp_path, 100, 200, rows) == [late, folded, folded, folded, folded, ahead, none, out, out]
    assert kinds(tmp_path, None, 200, rows[:2]) == [folded, folded]
    assert set(DEAD) > {NO_TIME, AHEAD} and not {LATE, FOLDED, FILTERED} & set(DEAD)


class Selected(Asked):
    def selectExpr(self, *_: str) -> Selected:  # noqa: N802 - Spark's name
        return self


@pytest.mark.parametrize(
    ("streams", "folded", "sql"),
    [
        (["events"], 3, []),
        (["events"], 2, [f"_kind = {FOLDED}"]),
        (["events", "other"], 3, ["_s = 0"]),
        (["events", "other"], 2, ["_s = 0", f"_kind = {FOLDED}"]),
    ],
    ids=["all", "some", "two streams, all", "two streams, some"],
)
def test_rows_that_are_not_folded_stay_out_of_the_results(streams: list[str], folded: int, sql: list[str]) -> None:
    batch = object.__new__(Batch)
    frame: Any = Selected()
    batch._frame, batch.shape = frame, Shape(dict.fromkeys(streams, EVENTS))
    batch.counts = {"events": Counts(read=3, folded=folded, late=3 - folded)}
    batch.folded("events")
    assert frame.sql == sql


def test_what_an_open_session_began_with_is_kept() -> None:
    found = _of_own("v", ["k"], "`at`")
    assert (
        found.startswith("EXISTS (SELECT 1 FROM v WHERE ") and "since <= `at` AND " in found and "key0 <=> `k`" in found
    )


def test_a_digest_is_of_names_and_values_of_both_halves_and_only_of_rows_that_count() -> None:
    digesting = Digesting(StructType().add("B", LongType()).add("a", StringType()), column="h", only="_kind = 4")

    class Frame:
        asked: tuple[str, ...] = ()

        def selectExpr(self, *sql: str) -> Frame:  # noqa: N802 - Spark's name
            self.asked = sql
            return self

    frame: Any = Frame()
    digesting.hashed(frame)
    assert frame.asked == (
        "*",
        "CASE WHEN _kind = 4 THEN xxhash64(IF(`a` IS NULL, NULL, xxhash64(X'61')), `a`, "
        "IF(`B` IS NULL, NULL, xxhash64(X'62')), `B`) END AS h",
    )
    assert digesting.measures() == [
        "count(h) AS h_rows",
        "sum((shiftrightunsigned(h, 32)) - 2147483648L) AS h_high",
        "sum((h & 4294967295L) - 2147483648L) AS h_low",
    ]


# --- tables that are read at a version


def test_a_stream_begins_where_its_start_says(place: Path) -> None:
    address = str(place / "t")
    for _ in range(3):
        write_deltalake(address, pa.table({"n": [1]}), mode="append")

    def start(**how: Any) -> tuple[int, int, bool]:
        source = DeltaSource("s", Stream(kind="delta", address=address, **how))
        found = DeltaOffset.parse(source.start())
        return found.version, found.index, found.snapshot

    assert start(start="latest") == (3, -1, False)
    assert start(start="earliest") == (2, -1, True)


def test_a_lookup_that_was_put_back_or_made_anew_is_refused(place: Path) -> None:
    address = str(place / "t")
    for _ in range(3):
        write_deltalake(address, pa.table({"n": [1]}), mode="append")
    table, known = LookupTable("l", Lookup(kind="delta", address=address)), str(DeltaTable(address).metadata().id)
    for version in (0, 2):
        table.check(Pinned(table=known, version=version))
    for pinned in (Pinned(table=known, version=3), Pinned(table="other", version=2)):
        with pytest.raises(HistoryGone, match="it was recreated or restored"):
            table.check(pinned)


def test_a_batch_is_folded_only_where_it_starts_at_the_ledgers_head(tmp_path: Path) -> None:
    first, second, other = (Entry(1000, (text,)) for text in ('{"at":1}', '{"at":2}', '{"at":3}'))
    folder: Any = object.__new__(EpochFolder)
    folder._directory = checkpoint.make_checkpoint(tmp_path, first, second, 2)
    folder._plan, folder._gate = SimpleNamespace(rule=SimpleNamespace(rule="r")), 4
    for epoch, entry in ((4, other), (3, first), (5, first)):
        folder._ledger = SimpleNamespace(begun=SimpleNamespace(epoch=epoch, entry=entry))
        with pytest.raises(LedgerBroken, match=r"rule r: Spark's batch 2 starts at"):
            folder._planned(checkpoint.HEAD + 1)
    folder._ledger = SimpleNamespace(begun=SimpleNamespace(epoch=4, entry=first))
    assert folder._planned(checkpoint.HEAD + 1).offsets == second.offsets


MB, MANY = 1 << 20, 500_000


@pytest.mark.parametrize(
    ("rows", "size", "cores", "files"),
    [
        (MANY - 1, 0, 2, 1),
        (MANY, 0, 2, 2),
        (2 * MANY, 0, 1, 3),
        (10, 4 * MB - 1, 2, 1),
        (10, 4 * MB, 2, 2),
        (10, 12 * MB, 2, 2),
        (10, 12 * MB, 8, 4),
        (10, 1 << 62, 8, 8),
        (2 * MANY, 1 << 62, 2, 3),
    ],
)
def test_each_core_writes_a_file_if_it_has_enough_and_no_file_grows_too_large(
    rows: int, size: int, cores: int, files: int
) -> None:
    assert files_for(rows, size, cores) == files
