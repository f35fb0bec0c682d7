"""Upserts: a table always holds one row for each key, whatever the epochs, retries and writers that come between."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from support.flow import Flow, event, rows_of
from support.running import crash, reset, run

from floodmark.core.protocol.recovery import ATTEMPTS, SEAL
from floodmark.core.rules.sinks import upserts
from floodmark.core.rules.sinks.upserts import Upsert
from floodmark.errors import (
    Fenced,
    InputFault,
    LedgerBroken,
    Refused,
    ReplayDiffers,
    RuleChanged,
    Sealed,
    SqlRefused,
    WrongColumn,
)
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.spark.write import sites
from floodmark.spark.write.sites import Attempt, Site, Work

APP = "floodmark/test"
COLUMNS = "k string, n bigint, t timestamp_ntz, v double"
PLAIN = Upsert(("k", "n"))
VECTORS = {"delta.enableDeletionVectors": "true"}
Rows = Iterable[tuple[Any, ...]]


def made(spark: SparkSession, place: Path, upsert: Upsert, properties: dict[str, str] | None = None) -> Site:
    address = str(place / "table")
    tables.create(address, frame(spark, []).schema.json(), properties or {})
    return Site("sink/table", "sink0", address, APP, upsert=upsert)


@pytest.fixture
def site(spark: SparkSession, place: Path) -> Site:
    return made(spark, place, PLAIN)


def frame(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows (k, n) or (k, n, v)."""
    wide = [(k, n, None, rest[0] if rest else None) for k, n, *rest in rows]
    return spark.createDataFrame(wide, COLUMNS).repartition(2)


def write(spark: SparkSession, site: Site, epoch: int, *rows: tuple[Any, ...], attempt: int = 1) -> Any:
    return sites.write(Work(site, frame(spark, rows)), Attempt(epoch, attempt, f"intent {epoch}"))


def held(site: Site) -> list[tuple[Any, ...]]:
    return sorted(((row["k"], row["n"], row["v"]) for row in rows_of(site.address)), key=repr)


def version(site: Site) -> int:
    found = tables.open_table(site.address)
    assert found is not None
    return found.version()


def effect(site: Site) -> tuple[int, ...]:
    """(rows, inserted, updated, deleted, copied) of the newest commit, by its metadata."""
    found = tables.open_table(site.address)
    assert found is not None
    said = json.loads(found.history(1)[0]["userMetadata"])
    return tuple(said[name] for name in ("rows", "inserted", "updated", "deleted", "copied"))


def test_a_later_epochs_row_replaces_the_row_of_its_key_and_null_equals_null(spark: SparkSession, site: Site) -> None:
    written = write(spark, site, 1, ("a", 1, 1.0), (None, 1, 1.0), ("a", None, 1.0), (None, None, 1.0))
    assert written is not None and (written.rows, written.commit, written.version) == (4, 1, ATTEMPTS)

    write(spark, site, 2, ("a", 1, 2.0), (None, None, 2.0), ("b", 1, 2.0), ("b", None, None))

    assert held(site) == sorted(
        [("a", 1, 2.0), (None, 1, 1.0), ("a", None, 1.0), (None, None, 2.0), ("b", 1, 2.0), ("b", None, None)], key=repr
    )
    assert effect(site) == (4, 2, 2, 0, 2)


def test_a_null_key_is_found_in_a_file_whose_other_keys_are_out_of_reach(spark: SparkSession, place: Path) -> None:
    """Statistics do not count null, so a null among the keys looks into every file."""
    site = made(spark, place, Upsert(("k",)))
    sites.write(Work(site, frame(spark, [("a", 1, 1.0), (None, 1, 1.0)]).coalesce(1)), Attempt(1, 1, "intent 1"))
    assert len(DeltaTable(site.address).file_uris()) == 1

    write(spark, site, 2, ("z", 2, 2.0), (None, 2, 2.0))

    assert held(site) == sorted([("a", 1, 1.0), (None, 2, 2.0), ("z", 2, 2.0)], key=repr)


def test_a_row_for_which_delete_is_true_takes_its_keys_row_away(spark: SparkSession, place: Path) -> None:
    site = made(spark, place, Upsert(("k", "n"), delete="v = 0 -- nothing left"))
    write(spark, site, 1, ("a", 1, 1.0), ("b", 1, 1.0), ("c", 1, 0.0))
    assert held(site) == [("a", 1, 1.0), ("b", 1, 1.0)]

    write(spark, site, 2, ("a", 1, 0.0), ("b", 1, None), ("d", 1, 0.0))
    assert held(site) == [("b", 1, None)]
    assert effect(site) == (3, 0, 1, 1, 0)

    write(spark, site, 3, ("b", 1, 0.0))
    assert held(site) == []


def test_a_row_written_then_deleted_stays_away_when_both_epochs_are_replayed(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT k, n FROM events", settings={"epoch": {"max_files": 1}})
    flow.stream = {"start": {"version": 0}}
    flow.settings["sinks"] = [{"delta": flow.sink(0), "key": ["k"], "delete": "n = 0"}]
    flow.arrive([event(0, "a", n=1), event(0, "b", n=1)])
    assert crash(spark, flow, "sink0.after")
    assert crash(spark, flow, "commit.before")
    flow.arrive([event(1, "a", n=0)])
    assert crash(spark, flow, "commit.before", 2)
    run(spark, flow)
    assert [(row["k"], row["n"]) for row in rows_of(flow.sink(0))] == [("b", 1)]
    commits = [entry["operation"] for entry in tables.open_table(flow.sink(0)).history()]  # type: ignore[union-attr]
    assert len(commits) == 3, "each epoch wrote once, whatever its attempts"


def test_only_files_that_hold_a_changed_key_are_written_anew(spark: SparkSession, site: Site) -> None:
    for epoch, first in ((1, 0), (2, 100), (3, 200)):
        write(spark, site, epoch, *(("a", n, 1.0) for n in range(first, first + 100)))

    write(spark, site, 4, ("a", 150, 2.0), ("b", 150, 2.0), ("a", 300, 2.0))

    assert effect(site) == (3, 2, 1, 0, 99)
    assert len(held(site)) == 302


def test_without_a_checksum_the_files_are_found_in_the_log(spark: SparkSession, site: Site) -> None:
    write(spark, site, 1, *(("a", n, 1.0) for n in range(100)))
    write(spark, site, 2, *(("b", n, 1.0) for n in range(100)))
    for checksum in Path(site.address, "_delta_log").glob("*.crc"):
        checksum.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    write(spark, site, 3, ("b", 5, 2.0), ("c", 5, 2.0))

    assert effect(site) == (2, 1, 1, 0, 99)
    assert len(held(site)) == 201


def test_two_rows_of_one_key_are_refused_before_anything_is_written(spark: SparkSession, site: Site) -> None:
    write(spark, site, 1, ("a", 1, 1.0))
    before = version(site), sorted(Path(site.address).glob("*.parquet"))

    with pytest.raises(InputFault, match=r'sink table, epoch 2: .* found 2 for \{"k":"b","n":7\}.*newest'):
        write(spark, site, 2, ("a", 1, 2.0), ("b", 7, 1.0), ("b", 7, 2.0))
    assert (version(site), sorted(Path(site.address).glob("*.parquet"))) == before


def test_what_is_there_is_compared_and_not_written_again(spark: SparkSession, site: Site) -> None:
    first = write(spark, site, 1, ("a", 1), ("b", 1))

    assert write(spark, site, 1, ("a", 1), ("b", 1), attempt=2) == first
    with pytest.raises(ReplayDiffers, match="wrote 2 rows; computed again, it has 1"):
        write(spark, site, 1, ("a", 1), attempt=2)
    with pytest.raises(ReplayDiffers):
        sites.write(Work(site, None), Attempt(1, 2, "intent 1"))
    assert version(site) == 1


def test_rows_that_change_nothing_are_recorded_all_the_same(spark: SparkSession, place: Path) -> None:
    site = made(spark, place, Upsert(("k",), newest="n"))
    write(spark, site, 1, ("a", 5))
    for epoch in (2, 3):
        written = write(spark, site, epoch, ("a", 4), ("a", 3))
        assert written is not None and (written.rows, written.commit) == (2, epoch)
        assert effect(site) == (2, 0, 0, 0, 0)
    assert write(spark, site, 3, ("a", 4), ("a", 3), attempt=2) is not None
    assert (held(site), version(site)) == ([("a", 5, None)], 3)
    assert len(list(Path(site.address).glob("*.parquet"))) == 1


@pytest.mark.parametrize("nothing", [True, False])
def test_without_rows_there_is_no_commit(spark: SparkSession, site: Site, nothing: bool) -> None:
    assert sites.write(Work(site, None if nothing else frame(spark, [])), Attempt(1, 1, "i")) is None
    assert (version(site), tablelog.recorded_version(site.address, APP)) == (0, None)


def test_at_qos_1_a_retry_writes_the_same_rows_again(spark: SparkSession, place: Path) -> None:
    plain = made(spark, place, PLAIN)
    site = Site(plain.name, plain.role, plain.address, APP, writes_again=True, upsert=PLAIN)
    for attempt in (1, 2):
        write(spark, site, 1, ("a", 1, 1.0), ("b", 1, 1.0), attempt=attempt)
    assert (held(site), version(site)) == ([("a", 1, 1.0), ("b", 1, 1.0)], 2)
    with pytest.raises(Fenced):
        write(spark, site, 1, ("a", 1, 9.0), attempt=1)


@pytest.mark.parametrize(
    ("epoch", "rows", "wanted"), [(1, 1, None), (1, 2, ReplayDiffers), (2, 1, Fenced)], ids=["twin", "differs", "newer"]
)
def test_a_twin_that_commits_between_the_look_and_the_commit(
    spark: SparkSession, site: Site, epoch: int, rows: int, wanted: type[Exception] | None
) -> None:
    mine = Attempt(1, 1, "intent 1")
    written = frame(spark, [("k", 0)])
    begun = site.writer.begin(written, "w")
    begun.write(written)
    twin = sites.write(Work(site, frame(spark, [("k", n) for n in range(rows)])), Attempt(epoch, 2, "intent 1"))

    if wanted is None:
        assert sites._committed(begun, site, mine, 1) == twin
    else:
        with pytest.raises(wanted):
            sites._committed(begun, site, mine, 1)
    assert len(held(site)) == rows


def test_whoever_else_writes_meanwhile_makes_it_begin_again(spark: SparkSession, site: Site) -> None:
    written = frame(spark, [("a", 1)])
    begun = site.writer.begin(written, "w")
    begun.write(written)
    frame(spark, [("a", 1)]).write.format("delta").mode("append").save(site.address)
    with pytest.raises(Fenced):
        sites._committed(begun, site, Attempt(1, 1, "i"), 1)
    assert len(held(site)) == 1


def test_a_seal_stops_an_upsert_that_had_begun_and_every_later_one(spark: SparkSession, site: Site) -> None:
    written = frame(spark, [("a", 1)])
    begun = site.writer.begin(written, "w")
    begun.write(written)
    sites.seal(spark, site)

    with pytest.raises(Fenced):
        sites._committed(begun, site, Attempt(1, 1, "i"), 1)
    with pytest.raises(Sealed):
        write(spark, site, 1, ("a", 1))
    assert (held(site), tablelog.recorded_version(site.address, APP)) == ([], SEAL)


def test_a_table_with_several_rows_of_a_key_is_not_guessed_about(spark: SparkSession, site: Site) -> None:
    frame(spark, [("a", 1), ("a", 1)]).write.format("delta").mode("append").save(site.address)
    with pytest.raises(LedgerBroken, match="keep-output"):
        write(spark, site, 1, ("a", 1))


def test_a_commit_whose_files_tell_another_story_is_found(spark: SparkSession, site: Site) -> None:
    attempt = Attempt(1, 1, "i")
    written = frame(spark, [("a", 1), ("b", 1)])
    begun = site.writer.begin(written, "w")
    begun.write(written)
    begun._files = begun._seq()
    with pytest.raises(ReplayDiffers, match="added 0 rows"):
        sites._committed(begun, site, attempt, 2)


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableChangeDataFeed": "true"},
        pytest.param({"delta.enableDeletionVectors": "true"}, marks=pytest.mark.prove),  # rows are marked below
    ],
    ids=["feed", "vectors"],
)
def test_a_table_with_a_change_feed_or_deletion_vectors(
    spark: SparkSession, place: Path, properties: dict[str, str]
) -> None:
    site = made(spark, place, Upsert(("k", "n"), delete="v = 0"), properties)
    write(spark, site, 1, *(("a", n, 1.0) for n in range(10)))
    if "delta.enableDeletionVectors" in properties:
        spark.sql(f"DELETE FROM delta.`{site.address}` WHERE n = 9")
    write(spark, site, 2, ("a", 0, 2.0), ("a", 1, 0.0), ("b", 0, 3.0))

    found = spark.read.format("delta").load(site.address)
    kept = {("a", n, 1.0) for n in range(2, 9)} | {("a", 0, 2.0), ("b", 0, 3.0)}
    last = set() if "delta.enableDeletionVectors" in properties else {("a", 9, 1.0)}
    assert sorted((row["k"], row["n"], row["v"]) for row in found.collect()) == sorted(kept | last)
    if "delta.enableChangeDataFeed" in properties:
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
        told = sorted((r["_change_type"], r["k"], r["n"], r["v"]) for r in feed.load(site.address).collect())
        assert told == [
            ("delete", "a", 1, 1.0),
            ("insert", "b", 0, 3.0),
            ("update_postimage", "a", 0, 2.0),
            ("update_preimage", "a", 0, 1.0),
        ]


@pytest.fixture
def marked(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A table with deletion vectors, in which small files are marked, too."""
    monkeypatch.setattr(upserts, "FEW_TIMES", 0)
    return made(spark, place, Upsert(("k", "n"), delete="v = 0"), VECTORS)


def names(site: Site) -> set[str]:
    """The files of the newest version."""
    return {Path(file.path).name for file in datafiles.files_of(tables.open_table(site.address))}  # type: ignore[arg-type]


def test_rows_are_marked_in_a_files_deletion_vector_until_most_of_it_is_gone(spark: SparkSession, marked: Site) -> None:
    write(spark, marked, 1, *(("a", n, 1.0) for n in range(10)))
    (first,) = names(marked)

    write(spark, marked, 2, ("a", 0, 2.0), ("a", 1, 0.0), ("b", 0, 3.0))
    assert effect(marked) == (3, 1, 1, 1, 8)
    assert first in names(marked) and len(names(marked)) == 2
    write(spark, marked, 3, ("a", 2, 2.0), ("a", 3, 0.0))
    assert first in names(marked), "six of its ten rows are left"
    kept = [("a", n, 1.0) for n in range(4, 10)]
    assert held(marked) == sorted([*kept, ("a", 0, 2.0), ("b", 0, 3.0), ("a", 2, 2.0)])

    write(spark, marked, 4, *(("a", n, 0.0) for n in (4, 5)))
    assert first not in names(marked), "four of its ten rows are left"
    assert held(marked) == sorted([*kept[2:], ("a", 0, 2.0), ("b", 0, 3.0), ("a", 2, 2.0)])


def test_a_commit_that_marks_is_compared_by_the_rows_that_it_brought(spark: SparkSession, marked: Site) -> None:
    write(spark, marked, 1, *(("a", n, 1.0) for n in range(10)))
    second = write(spark, marked, 2, ("a", 0, 2.0), ("b", 0, 3.0))

    assert write(spark, marked, 2, ("a", 0, 2.0), ("b", 0, 3.0), attempt=2) == second
    with pytest.raises(ReplayDiffers, match="computed again"):
        write(spark, marked, 2, ("a", 0, 2.5), ("b", 0, 3.0), attempt=2)


@pytest.mark.prove
def test_files_with_few_rows_are_written_anew_rather_than_marked(spark: SparkSession, place: Path) -> None:
    site = made(spark, place, PLAIN, VECTORS)
    write(spark, site, 1, *(("a", n, 1.0) for n in range(100)))
    for epoch in range(2, 8):
        write(spark, site, epoch, *(("a", n, float(epoch)) for n in range(epoch, epoch + 10)))
    assert len(names(site)) <= 3
    assert len(held(site)) == 100


@pytest.mark.prove
@given(data=st.data())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_marked_or_written_anew_a_table_holds_the_same(spark: SparkSession, data: st.DataObject) -> None:
    place = Path(__file__).parents[2] / ".cache" / "tests" / uuid4().hex
    place.mkdir(parents=True)
    rows = st.dictionaries(st.integers(0, 30), st.sampled_from([0.0, 1.5, -2.0]), min_size=1, max_size=8)
    epochs = data.draw(st.lists(rows, min_size=2, max_size=4))
    try:
        site = made(spark, place, Upsert(("k", "n"), delete="v = 0"), VECTORS)
        right = dict.fromkeys(range(20), 1.0)
        write(spark, site, 1, *(("a", n, v) for n, v in right.items()))
        with patch.object(upserts, "FEW_TIMES", 0):
            for number, changed in enumerate(epochs, 2):
                write(spark, site, number, *(("a", n, v) for n, v in changed.items()))
                right = {n: v for n, v in (right | changed).items() if v != 0}
                assert held(site) == sorted((("a", n, v) for n, v in right.items()), key=repr)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_the_tables_properties_are_the_rules(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT k, n FROM events")
    flow.settings["sinks"] = [
        {"delta": flow.sink(0), "key": ["k"], "newest": "n", "properties": {"team": "it's \\ ours"}}
    ]
    flow.arrive([event(0, "a", n=1)])
    run(spark, flow)
    assert tables.properties_of(flow.sink(0))["team"] == "it's \\ ours"

    flow.settings["sinks"][0]["properties"] = VECTORS
    flow.arrive([event(0, "a", n=2)])
    run(spark, flow)
    assert tables.properties_of(flow.sink(0)).items() >= {"team": "it's \\ ours", **VECTORS}.items()
    assert [row["n"] for row in rows_of(flow.sink(0))] == [2]

    flow.settings["sinks"][0]["properties"] = {"delta.enableDeletionVector": "true"}
    flow.arrive([event(0, "a", n=3)])
    with pytest.raises(Refused, match=r"Delta 4.4 knows no such property; did you mean delta.enableDeletionVectors\?"):
        run(spark, flow)


KEYS = st.sampled_from(["a", "b", None])
VALUES = st.tuples(KEYS, st.none() | st.integers(0, 3), st.none() | st.sampled_from([0.0, 1.5, -2.0]))


def _largest(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """For each key the largest row by n, then all columns, nulls smallest; in plain Python."""

    def order(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple((value is not None, value if value is not None else 0) for value in (row[1], row[2]))

    best: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        if row[0] not in best or order(row) > order(best[row[0]]):
            best[row[0]] = row
    return sorted(best.values(), key=repr)


@pytest.mark.prove
@given(epochs=st.lists(st.lists(VALUES, min_size=1, max_size=6), min_size=2, max_size=3))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
def test_newest_wins_however_rows_are_divided_into_epochs(spark: SparkSession, epochs: list[Any]) -> None:
    place = Path(__file__).parents[2] / ".cache" / "tests" / uuid4().hex
    place.mkdir(parents=True)
    try:
        site = made(spark, place, Upsert(("k",), newest="n"))
        for number, rows in enumerate(epochs, 1):
            write(spark, site, number, *rows)
            assert held(site) == _largest([row for part in epochs[:number] for row in part])
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.prove
def test_an_append_and_an_upsert_of_the_same_results_side_by_side(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT k, at, n FROM events", settings={"epoch": {"max_files": 1}})
    flow.stream = {"start": {"version": 0}}
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "key": ["K"], "newest": "At"}]
    flow.arrive([event(0, "a", n=1), event(10, "a", n=2), event(0, None, n=3)])
    flow.arrive([event(5, "a", n=4), event(20, None, n=5), event(0, "b", n=6)])
    report = run(spark, flow)
    assert [epoch.output for epoch in report.epochs] == [3, 3]
    assert sorted(row["n"] for row in rows_of(flow.sink(0))) == [1, 2, 3, 4, 5, 6]
    assert sorted(row["n"] for row in rows_of(flow.sink(1))) == [2, 5, 6]

    flow.sql = (
        "SELECT n, at, k FROM events"  # of two rows with one `at` the largest stays, whatever the columns' places
    )
    flow.arrive([event(10, "a", n=7), event(20, None, n=0)])
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink(1))) == [5, 6, 7]

    flow.settings["sinks"][1]["newest"] = "n"
    flow.arrive([event(0)])
    with pytest.raises(RuleChanged, match=r"key, newest or delete of a sink.*reset"):
        run(spark, flow)
    reset(spark, flow)
    assert rows_of(flow.sink(1)) == []
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink(1))) == [5, 6, 7]


@pytest.mark.parametrize(
    ("sink", "error", "match"),
    [
        (
            {"key": ["kk"]},
            WrongColumn,
            "key: expected one of the result columns k, n, v, at, found kk; did you mean k?",
        ),
        ({"key": ["k", "v"]}, WrongColumn, "key: .*found column v of type double"),
        ({"key": ["k"], "newest": "att"}, WrongColumn, "newest: .*did you mean at?"),
        ({"key": ["k"], "delete": "n"}, SqlRefused, "delete: expected a condition"),
        ({"key": ["k"], "delete": "m = 0"}, SqlRefused, "delete: .*m.*may name the result's columns"),
    ],
)
def test_a_sink_that_the_result_does_not_fit(
    spark: SparkSession, place: Path, sink: dict[str, Any], error: type[Exception], match: str
) -> None:
    flow = Flow(place, sql="SELECT k, n, v, at FROM events")
    flow.settings = {"sinks": [{"delta": flow.sink(0), **sink}]}
    flow.arrive([event(0)])
    with pytest.raises(error, match=match):
        run(spark, flow)
    assert not Path(flow.sink(0)).exists()
    assert not flow.place.path.exists() or not Path(flow.place.ledger).exists()
