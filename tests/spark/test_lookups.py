"""Lookup tables: each epoch reads the version that its intent names, whatever becomes of the table until a retry."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.aged import age
from support.corrected import proven
from support.crash import Crash, crash_at
from support.flow import START, Flow, event, rows_of
from support.running import backfill, crash, run

from floodmark.errors import HistoryGone, NotThereYet
from floodmark.ledger.delta import tablelog
from floodmark.ledger.delta.committimes import commit_times

CITIES = pa.schema([("k", pa.string()), ("city", pa.string())])
JOINED = "SELECT at, e.k, c.city FROM events e LEFT JOIN cities c ON e.k = c.k"


def _flow(root: Path, sql: str, **lookup: Any) -> Flow:
    settings = {"lookups": {"cities": {"delta": str(root / "lake" / "cities"), **lookup}}}
    return Flow(root, sql=sql, settings=settings, sinks=1)


def _cities(flow: Flow, mode: str = "overwrite", **cities: str) -> None:
    rows = [{"k": key, "city": city} for key, city in cities.items()]
    write_deltalake(str(flow.root / "lake" / "cities"), pa.Table.from_pylist(rows, schema=CITIES), mode=mode)


def _pinned(flow: Flow) -> list[int]:
    bodies = [json.loads(row.body) for row in flow.ledger().rows if row.kind == "intent"]
    return [body["lookups"]["cities"]["version"] for body in bodies]


def _values(flow: Flow, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows_of(flow.sink()))


@pytest.mark.parametrize("point", ["intent.after", pytest.param("sink0.after", marks=pytest.mark.prove)])
def test_a_retry_reads_the_version_of_the_first_attempt(spark: SparkSession, place: Path, point: str) -> None:
    flow = _flow(place, JOINED)
    _cities(flow, a="Aachen")
    flow.arrive([event(1, "a"), event(2, "b")])
    run(spark, flow)
    _cities(flow, a="Amsterdam", b="Bern")
    age(flow.settings["lookups"]["cities"]["delta"], 8)  # days; Delta lets nobody else read such a version
    flow.arrive([event(3, "a"), event(4, "b")])
    assert crash(spark, flow, point)
    _cities(flow, a="Athens")
    run(spark, flow)
    flow.arrive([event(5, "a"), event(6, "b")])
    run(spark, flow)
    seconds = [(at - START).total_seconds() for at, _ in _values(flow, "at", "k")]
    assert seconds == [1, 2, 3, 4, 5, 6]
    assert [city for _, city in _values(flow, "at", "city")] == ["Aachen", None, "Amsterdam", "Bern", "Athens", None]
    assert _pinned(flow) == [0, 1, 1, 2]
    sums = [json.loads(row.body).get("log_sums", {}) for row in flow.ledger().rows if row.kind == "commit"]
    assert [{name for name in each if "@" in name} for each in sums] == [set(), *({f"cities@{n}"} for n in range(3))]


def test_a_table_made_anew_is_not_the_one_of_the_intent(spark: SparkSession, place: Path) -> None:
    flow = _flow(place, JOINED)
    flow.arrive([event(1, "a")])
    with pytest.raises(NotThereYet, match="lookup cities: no Delta table"):
        run(spark, flow)
    _cities(flow, a="Aachen")
    assert crash(spark, flow, "intent.after")
    kept = (flow.root / "lake" / "cities").rename(flow.root / "kept")
    _cities(flow, a="Amsterdam")
    with pytest.raises(HistoryGone, match=r"lookup cities: expected version 0 of the table .*`floodmark abandon`"):
        run(spark, flow)
    (flow.root / "lake" / "cities").rename(flow.root / "gone")
    kept.rename(flow.root / "lake" / "cities")
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{flow.root}/lake/cities` USING delta AS SELECT 'a' AS k, 'Athens' AS city"
    )
    run(spark, flow)
    assert _values(flow, "city") == [("Aachen",)]


def test_a_window_is_joined_when_it_is_final(spark: SparkSession, place: Path) -> None:
    flow = _flow(
        place,
        "SELECT window.start AS start, city, count(*) AS n FROM events e JOIN (SELECT DISTINCT k, city FROM cities) c "
        "ON e.k = c.k GROUP BY window(at, '1 minute'), city",
    )
    _cities(flow, a="Aachen")
    flow.arrive([event(1, "a"), event(61, "a"), event(2, "b")])
    run(spark, flow)
    _cities(flow, a="Amsterdam")
    flow.arrive([event(100, "a")])
    run(spark, flow)
    _cities(flow, a="Athens")
    flow.arrive([event(200, "a")])
    run(spark, flow)
    minute = [(start - START).total_seconds() for start, _, _ in _values(flow, "start", "city", "n")]
    assert minute == [0, 60]
    assert [row[1:] for row in _values(flow, "start", "city", "n")] == [("Amsterdam", 1), ("Athens", 2)]


BY_CITY = """SELECT window.start AS start, city, count(*) AS n FROM events e JOIN cities c ON e.k = c.k
             GROUP BY window(at, '1 minute'), city"""


def _first_hours(spark: SparkSession, place: Path) -> Flow:
    """A rule that corrects, after some windows that were joined with one version of the cities."""
    flow = _flow(place, BY_CITY)
    flow.stream = {"on_rewrite": "correct"}
    _cities(flow, a="Aachen", b="Bern")
    flow.arrive([event(1, "a"), event(2, "b"), event(61, "a"), event(62, "b", n=5)])
    flow.arrive([event(200, "a"), event(220, "b")])
    run(spark, flow)
    _cities(flow, a="Amsterdam", b="Bern")
    return flow


def _by_minute(flow: Flow) -> list[tuple[Any, ...]]:
    return [((start - START).total_seconds() / 60, *row) for start, *row in _values(flow, "start", "city", "n")]


@pytest.mark.parametrize(
    "point",
    ["backfill.intent.after", *(pytest.param(one, marks=pytest.mark.prove) for one in (None, "backfill.sink.after"))],
)
def test_what_is_corrected_is_joined_with_the_tables_as_they_are(
    spark: SparkSession, place: Path, point: str | None
) -> None:
    """A kill in between, and a table that has changed once more, change nothing: the ledger names the version."""
    flow = _first_hours(spark, place)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 5")
    if point is not None:
        assert crash(spark, flow, point)
        _cities(flow, a="Athens", b="Athens")
        head = flow.ledger().head
        assert head is not None and head.pinned["cities"].version == 1
    run(spark, flow)
    assert _by_minute(flow) == [(0, "Aachen", 1), (0, "Bern", 1), (1, "Amsterdam", 1)]
    proven(flow)


@pytest.mark.prove
def test_what_is_backfilled_is_joined_with_the_tables_as_they_are(spark: SparkSession, place: Path) -> None:
    flow, first = _first_hours(spark, place), round(START.timestamp()) * 1_000_000
    backfill(spark, flow, first, first + 60_000_000)
    assert _by_minute(flow) == [(0, "Amsterdam", 1), (0, "Bern", 1), (1, "Aachen", 1), (1, "Bern", 1)]
    proven(flow)


@pytest.mark.prove
def test_a_backfill_that_was_left_open_is_no_answer_once_the_table_was_corrected(
    spark: SparkSession, place: Path
) -> None:
    flow, first = _first_hours(spark, place), round(START.timestamp()) * 1_000_000
    with crash_at("backfill.intent.after") as planned, pytest.raises(Crash):
        backfill(spark, flow, first, first + 60_000_000)
    assert planned.fired
    _cities(flow, a="Athens", b="Bern")
    found = backfill(spark, flow, first, first + 60_000_000)
    assert (found.intent.number, found.intent.lookups["cities"].version) == (2, 2)
    assert _by_minute(flow) == [(0, "Athens", 1), (0, "Bern", 1), (1, "Aachen", 1), (1, "Bern", 1)]
    proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize(("listed", "grouped"), [("city", "city"), ("c.city", "city"), ("c.city", "c.city")])
def test_totals_are_joined_row_by_row_as_they_come(spark: SparkSession, place: Path, listed: str, grouped: str) -> None:
    sql = f"SELECT {listed}, count(*) AS n FROM events e JOIN cities c ON e.k = c.k GROUP BY {grouped}"
    flow = _flow(place, sql)
    flow.settings |= {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["city"]}]}
    _cities(flow, a="Aachen", b="Aachen")
    flow.arrive([event(1, "a"), event(1, "b"), event(1, "c")])
    run(spark, flow)
    _cities(flow, a="Athens", b="Aachen", c="Cork")
    flow.arrive([event(2, "a"), event(2, "b"), event(2, "b")])
    run(spark, flow)
    assert _values(flow, "city", "n") == [("Aachen", 4), ("Athens", 1)]


def test_rows_are_kept_or_left_out_by_a_lookup_table(spark: SparkSession, place: Path) -> None:
    flow = _flow(
        place,
        "SELECT at, k FROM events e LEFT SEMI JOIN cities c ON e.k = c.k WHERE n = 0 "
        "UNION ALL SELECT at, upper(k) FROM events e LEFT ANTI JOIN cities c ON e.k = c.k",
    )
    _cities(flow, a="Aachen")
    flow.arrive([event(1, "a"), event(2, "a", n=1), event(3, "b")])
    run(spark, flow)
    assert _values(flow, "k") == [("B",), ("a",)]


AS_OF = """SELECT at, e.k, city FROM events e LEFT JOIN cities c
           ON e.k = c.k AND e.at >= c._valid_from AND e.at < c._valid_to"""


def test_a_row_is_joined_as_of_its_event_time(spark: SparkSession, place: Path) -> None:
    flow = _flow(place, AS_OF, history=True)
    _cities(flow, a="Aachen")
    _cities(flow, a="Amsterdam", b="Bern")
    _cities(flow, b="Basel")
    DeltaTable(str(place / "lake" / "cities")).optimize.compact()
    _cities(flow, "append", a="Athens")
    age(flow.settings["lookups"]["cities"]["delta"], 8)
    _arrive_around(flow, _stamps(flow)[:3])
    assert crash(spark, flow, "intent.after")
    _cities(flow, a="Arles")
    run(spark, flow)
    _arrive_around(flow, _stamps(flow))
    run(spark, flow)
    found = {(row["at"], row["k"]): row["city"] for row in rows_of(flow.sink())}
    assert len(found) == 2 * 3 * len(_stamps(flow)), "every event, once"
    cities = {at: {key: found[at, key] for key in ("a", "b")} for at, _ in found}
    micro, stamps = timedelta(microseconds=1), _stamps(flow)
    for stamp in stamps:
        assert cities[stamp + micro] == cities[stamp] == _as_of(spark, flow, stamp), stamp
        assert cities[stamp - micro] == _as_of(spark, flow, stamp - micro), stamp
    assert set(found.values()) == {None, "Aachen", "Amsterdam", "Bern", "Basel", "Athens", "Arles"}


def _stamps(flow: Flow) -> list[datetime]:
    address = str(flow.root / "lake" / "cities")
    stamps = commit_times(DeltaTable(address), address)
    written = [
        entry["version"] for entry in tablelog.commit_infos(address) if entry.get("operation", "WRITE") == "WRITE"
    ]
    return [datetime.fromtimestamp(stamps[version] / 1000, UTC) for version in reversed(written)]


def _arrive_around(flow: Flow, stamps: list[datetime]) -> None:
    """Events just before, at and just after these moments that have not come yet."""
    known = set()
    if Path(flow.source).exists():
        known = {row["at"] for row in rows_of(flow.source)}
    micro = timedelta(microseconds=1)
    moments = [stamp + by for stamp in stamps for by in (-micro, timedelta(0), micro)]
    rows = [{"at": at, "k": key, "v": 1.0, "n": 0} for at in moments if at not in known for key in ("a", "b")]
    flow.arrive(rows)


def _as_of(spark: SparkSession, flow: Flow, at: datetime) -> dict[str, str | None]:
    """The city of each key, by Spark's own `timestampAsOf`, which knows nothing before the first version."""
    stamps = _stamps(flow)
    if at < stamps[0]:
        return {"a": None, "b": None}
    reader = spark.read.format("delta")
    if at < stamps[-1]:
        reader = reader.option("timestampAsOf", at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"))
    rows = reader.load(str(flow.root / "lake" / "cities")).collect()
    return {"a": None, "b": None, **{row["k"]: row["city"] for row in rows}}


def test_a_row_is_joined_as_of_another_time(spark: SparkSession, place: Path) -> None:
    """Then its event time says nothing of the versions that it meets."""
    flow = _flow(
        place,
        AS_OF.replace("e.at <", "e.at - INTERVAL '1' HOUR <").replace("e.at >", "e.at - INTERVAL '1' HOUR >"),
        history=True,
    )
    for city in ("Aachen", "Amsterdam", "Athens"):
        _cities(flow, a=city)
        age(flow.settings["lookups"]["cities"]["delta"], 1)
    stamps = _stamps(flow)
    _arrive_around(flow, [stamp + timedelta(hours=1) for stamp in stamps[1:]])
    run(spark, flow)
    found = {row["at"] - timedelta(hours=1): row["city"] for row in rows_of(flow.sink()) if row["k"] == "a"}
    assert found == {at: _as_of(spark, flow, at)["a"] for at in found}
    assert set(found.values()) == {"Aachen", "Amsterdam", "Athens"}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_times_without_a_zone_are_joined_as_of_those_of_the_rule(spark: SparkSession, place: Path, zone: str) -> None:
    flow = _flow(place, AS_OF.replace("e.at", "e.local"), history=True)
    flow.settings["timezone"] = zone
    flow.stream = {"event_time": {"name": "local", "expr": "CAST(at AS TIMESTAMP_NTZ)"}}
    for city in ("Aachen", "Amsterdam", "Athens"):
        _cities(flow, a=city)
        DeltaTable(flow.settings["lookups"]["cities"]["delta"]).create_checkpoint()
    stamps = _stamps(flow)
    _cut(flow, 1)
    _arrive_around(flow, [stamp + timedelta(microseconds=1) for stamp in stamps[1:]])
    run(spark, flow)
    assert sorted(row["city"] for row in rows_of(flow.sink()) if row["k"] == "a") == ["Amsterdam"] * 3 + ["Athens"] * 3


@pytest.mark.parametrize("function", ["window(at, '1 minute')", "session_window(at, '1 minute')"])
def test_windows_begin_where_the_log_of_a_history_is_cut_off(spark: SparkSession, place: Path, function: str) -> None:
    """Their rows do, and the SQL compares those: the first window may begin before."""
    join = "JOIN cities c ON e.k = c.k AND at >= c._valid_from AND at < c._valid_to"
    sql = f"SELECT {function}.start AS start, city, count(*) AS n FROM events e {join} GROUP BY {function}, city"
    flow = _flow(place, sql, history=True)
    for city in ("Aachen", "Amsterdam", "Athens"):
        _cities(flow, a=city)
        DeltaTable(flow.settings["lookups"]["cities"]["delta"]).create_checkpoint()
    newest = _stamps(flow)[-1]
    _cut(flow, 2)
    for micros in ((1,), (2, 3_600_000_000)):
        flow.arrive([{"at": newest + timedelta(microseconds=by), "k": "a", "v": 1.0, "n": 0} for by in micros])
        run(spark, flow)
    assert _values(flow, "city", "n") == [("Athens", 2)]


def _cut(flow: Flow, first: int) -> None:
    """Remove the log entries before a version that has a checkpoint, as Delta does after 30 days."""
    for version in range(first):
        for entry in (flow.root / "lake" / "cities" / "_delta_log").glob(f"{version:020}.*"):
            entry.unlink()


def test_a_history_that_is_cut_off_is_not_guessed_at(spark: SparkSession, place: Path) -> None:
    flow = _flow(place, AS_OF, history=True)
    for city in ("Aachen", "Amsterdam", "Athens"):
        _cities(flow, a=city)
    table = DeltaTable(str(place / "lake" / "cities"))
    table.create_checkpoint()
    second = _stamps(flow)[1]
    for version in (0, 1):
        (place / "lake" / "cities" / "_delta_log" / f"{version:020}.json").unlink()
    flow.arrive([{"at": second, "k": "a", "v": 1.0, "n": 0}])
    with pytest.raises(HistoryGone, match=r"lookup cities: expected the table's log back to .*, the rows' event times"):
        run(spark, flow)


def test_a_history_has_the_values_of_a_column_that_was_renamed(spark: SparkSession, place: Path) -> None:
    flow, table = _flow(place, AS_OF, history=True), f"delta.`{place / 'lake' / 'cities'}`"
    spark.sql(f"CREATE TABLE {table} (k STRING, town STRING) USING delta "
              "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")  # fmt: skip
    for statement in ("INSERT INTO {} VALUES ('a', 'Aachen')", "ALTER TABLE {} RENAME COLUMN town TO city",
                      "INSERT OVERWRITE {} VALUES ('a', 'Athens')"):  # fmt: skip
        spark.sql(statement.format(table))
    _arrive_around(flow, _stamps(flow))
    run(spark, flow)
    cities = {row["at"]: row["city"] for row in rows_of(flow.sink()) if row["k"] == "a"}
    first, second = _stamps(flow)
    assert cities[first] == "Aachen" == cities[second - timedelta(microseconds=1)]
    assert cities[second] == "Athens"
