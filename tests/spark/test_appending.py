"""Appends under an app transaction: each has its effect once, and nobody comes between unseen."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.flow import rows_of

from floodmark.core.protocol.recovery import ATTEMPTS, SEAL
from floodmark.errors import Fenced, InputFault, ReplayDiffers, Sealed
from floodmark.ledger.delta import tablelog, tables
from floodmark.spark.write import sites, tablesink
from floodmark.spark.write.appending import Appending
from floodmark.spark.write.sites import Attempt, Site, Work

APP = "floodmark/test"
FIRST = Attempt(1, 1, "the intent")


@pytest.fixture
def site(spark: SparkSession, place: Path) -> Site:
    address = str(place / "table")
    tables.create(address, spark.range(0).schema.json(), {})
    return Site("table", "sink0", address, APP)


def numbers(spark: SparkSession, *values: int) -> DataFrame:
    return spark.createDataFrame([(value,) for value in values], "id long")


def ids(site: Site) -> list[int]:
    return sorted(row["id"] for row in rows_of(site.address))


def version(site: Site) -> int:
    found = tables.open_table(site.address)
    assert found is not None
    return found.version()


def test_rows_and_their_record_are_one_commit(spark: SparkSession, site: Site) -> None:
    written = sites.write(Work(site, numbers(spark, 1, 2, 3)), FIRST)

    assert written is not None and (written.rows, written.commit, written.version) == (3, 1, ATTEMPTS)
    assert (ids(site), version(site)) == ([1, 2, 3], 1)
    assert tablelog.recorded_version(site.address, APP) == ATTEMPTS


def test_what_is_there_is_compared_and_not_written_again(spark: SparkSession, site: Site) -> None:
    first = sites.write(Work(site, numbers(spark, 1, 2)), FIRST)

    assert sites.write(Work(site, numbers(spark, 1, 2)), Attempt(1, 2, "the intent")) == first
    for other, intent in ((numbers(spark, 1), "the intent"), (None, "the intent"), (numbers(spark, 1, 2), "another")):
        with pytest.raises(ReplayDiffers):
            sites.write(Work(site, other), Attempt(1, 2, intent))
    assert (ids(site), version(site)) == ([1, 2], 1)


def test_rows_of_another_type_than_the_tables_are_refused_before_they_are_written(
    spark: SparkSession, site: Site
) -> None:
    for kind in ("int", "string", "struct<a: int>"):
        frame = spark.createDataFrame([], f"id {kind}")
        with pytest.raises(InputFault, match=r"table: expected .* types .* \(`id`: table bigint, rows .*\).*reset"):
            sites.write(Work(site, frame), FIRST)
    assert version(site) == 0


@pytest.mark.parametrize("nothing", [True, False])
def test_without_rows_there_is_no_commit(spark: SparkSession, site: Site, nothing: bool) -> None:
    frame = None if nothing else numbers(spark, 1).where("id > 1")

    assert sites.write(Work(site, frame), FIRST) is None
    assert version(site) == 0
    assert tablelog.recorded_version(site.address, APP) is None


def test_of_two_transactions_that_began_together_one_commits(spark: SparkSession, site: Site) -> None:
    one, other = Appending(spark, site.address, APP), Appending(spark, site.address, APP)
    assert one.write(numbers(spark, 1)) == 1
    assert other.write(numbers(spark, 1)) == 1

    assert one.commit(ATTEMPTS, "{}") == 1
    assert other.commit(ATTEMPTS, "{}") is None
    assert ids(site) == [1]


def test_other_writers_of_the_table_are_no_hindrance(spark: SparkSession, site: Site) -> None:
    mine, other = Appending(spark, site.address, APP), Appending(spark, site.address, "somebody else")
    for appending, value in ((other, 5), (mine, 6)):
        appending.write(numbers(spark, value))
        assert appending.commit(ATTEMPTS, "{}") is not None

    assert ids(site) == [5, 6]


@pytest.mark.parametrize(
    ("epoch", "rows", "wanted"), [(1, 1, None), (1, 2, ReplayDiffers), (2, 1, Fenced)], ids=["twin", "differs", "newer"]
)
def test_a_twin_that_commits_between_the_look_and_the_commit(
    spark: SparkSession, site: Site, epoch: int, rows: int, wanted: type[Exception] | None
) -> None:
    begun = Appending(spark, site.address, APP)
    begun.write(numbers(spark, 1))
    twin = sites.write(Work(site, numbers(spark, *range(1, rows + 1))), Attempt(epoch, 2, "the intent"))

    if wanted is None:
        assert sites._committed(begun, site, FIRST, 1) == twin
    else:
        with pytest.raises(wanted):
            sites._committed(begun, site, FIRST, 1)
    assert len(ids(site)) == rows


def test_a_seal_stops_a_write_that_had_begun_and_every_later_one(spark: SparkSession, site: Site) -> None:
    begun = Appending(spark, site.address, APP)
    begun.write(numbers(spark, 1))
    sites.seal(spark, site)
    sites.seal(spark, site)

    with pytest.raises(Fenced):
        sites._committed(begun, site, FIRST, 1)
    with pytest.raises(Sealed):
        sites.write(Work(site, numbers(spark, 1)), FIRST)
    assert (ids(site), version(site)) == ([], 1)
    assert tablelog.recorded_version(site.address, APP) == SEAL


def test_a_seal_before_which_another_commit_comes_did_not_take(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Appending.commit

    def overtaken(self: Appending, recorded: int, metadata: str) -> int | None:
        monkeypatch.undo()
        sites.write(Work(site, numbers(spark, 1)), FIRST)
        return commit(self, recorded, metadata)

    monkeypatch.setattr(Appending, "commit", overtaken)
    with pytest.raises(Fenced, match="had no effect"):
        sites.seal(spark, site)
    assert (ids(site), tablelog.recorded_version(site.address, APP)) == ([1], ATTEMPTS)
    sites.seal(spark, site)
    assert (ids(site), tablelog.recorded_version(site.address, APP)) == ([1], SEAL)


def test_a_commit_that_another_process_has_replaced_is_no_commit_of_ours(spark: SparkSession, site: Site) -> None:
    sites.write(Work(site, numbers(spark, 1)), FIRST)
    entry = Path(site.address) / "_delta_log" / f"{1:020}.json"
    assert tablelog.commit_at(site.address, 1, APP, ATTEMPTS) is not None

    entry.write_text('{"commitInfo":{"timestamp":0,"operation":"WRITE"}}\n')

    assert tablelog.commit_at(site.address, 1, APP, ATTEMPTS) is None


def test_an_empty_tables_checksum_spares_the_first_commit_a_reconstruction(spark: SparkSession, site: Site) -> None:
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("first", "first")
    sites.write(Work(site, numbers(spark, 1).coalesce(1)), FIRST)
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    assert len(jobs.getJobIdsForGroup("first")) == 1
    checksum = Path(site.address) / "_delta_log" / f"{1:020}.crc"
    assert '"numFiles":1' in checksum.read_text()


def other_columns(spark: SparkSession, address: str) -> None:
    tablesink.create(spark, address, spark.sql("SELECT 1L AS id, 'a' AS word").schema, "me", partitions=["word"])


def test_an_empty_table_gets_the_columns_of_today(spark: SparkSession, place: Path) -> None:
    address = str(place / "empty")
    tables.create(address, spark.range(0).schema.json(), {tables.OWNER: "me"})
    before = tables.open_table(address)
    assert before is not None
    other_columns(spark, address)
    after = tables.open_table(address)
    assert after is not None
    assert (list(tables.columns_of(after)), tables.partitions_of(after)) == (["id", "word"], ["word"])
    assert (tables.table_id(after), tables.owner_of(after)) == (tables.table_id(before), "me")
    assert spark.read.format("delta").load(address).columns == ["id", "word"]


@pytest.mark.parametrize("begun", [False, True], ids=["before the transaction", "within it"])
def test_rows_of_another_writer_are_not_taken_away_with_the_columns(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    address = str(place / "raced")
    tables.create(address, spark.range(0).schema.json(), {tables.OWNER: "me"})
    before, plain = tablesink.Refitting.refit, tablesink.Refitting._commit

    def arriving() -> None:
        monkeypatch.setattr(tablesink.Refitting, "refit", before)
        monkeypatch.setattr(tablesink.Refitting, "_commit", plain)
        numbers(spark, 7).write.format("delta").mode("append").save(address)

    def refit(self: tablesink.Refitting, *how: object) -> bool:
        arriving()
        return before(tablesink.Refitting(spark, address, "me"), *how)  # type: ignore[arg-type]

    def commit(self: tablesink.Refitting, *how: object) -> int | None:
        arriving()
        return plain(self, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(tablesink.Refitting, *(("_commit", commit) if begun else ("refit", refit)))
    other_columns(spark, address)
    after = tables.open_table(address)
    assert after is not None and list(tables.columns_of(after)) == ["id"]
    assert [row["id"] for row in rows_of(address)] == [7]
