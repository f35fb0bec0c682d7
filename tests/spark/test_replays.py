"""A write that is found done is compared with what is computed again: intent, rows, files; never passed unseen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from support.flow import RUNNING, SLICED, START, STATELESS, TUMBLING, Flow, event, rows_of
from support.running import crash, run

from floodmark.audit.content import rowhash
from floodmark.audit.content.content import rows_of as audited_rows
from floodmark.audit.evidence import TableLog
from floodmark.audit.logreader import store_of
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.rules.sinks.upserts import Upsert
from floodmark.errors import HistoryGone, ReplayDiffers
from floodmark.ledger.delta import tables
from floodmark.spark.rule.epochs.intents import Intents
from floodmark.spark.write import sites
from floodmark.spark.write.sites import Attempt, Site, Work

COLUMNS = "k string, n bigint, v double"
ROWS = [("a", 1, 0.1), ("b", 2, 0.2), (None, 3, 0.3)]
FEED = {"delta.enableChangeDataFeed": "true"}
UPSERTS = {"append": None, "upsert": Upsert(("n",)), "newest": Upsert(("n",), newest="v")}


def frame(spark: SparkSession, rows: list[tuple[Any, ...]] = ROWS) -> DataFrame:
    return spark.createDataFrame(rows, COLUMNS).repartition(2)


def made(spark: SparkSession, place: Path, how: str = "append", exact: bool = False) -> Site:
    address = str(place / "table")
    tables.create(address, frame(spark).schema.json(), FEED)
    return Site("sink/table", "sink0", address, "floodmark/test", upsert=UPSERTS[how], exact=exact)


def write(site: Site, rows: DataFrame | None, attempt: int = 1, epoch: int = 1) -> Any:
    return sites.write(Work(site, rows), Attempt(epoch, attempt, f"intent {epoch}"))


def files(address: str) -> list[Path]:
    return [Path(address) / path for path in DeltaTable(address).get_add_actions()["path"].to_pylist()]


def arrow(address: str) -> pa.Table:
    """The table's rows, as the auditor reads them."""
    return pa.concat_tables(
        [audited_rows(store_of(address), file.name, TableLog(address, None)) for file in files(address)]
    )


def edit(file: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Other rows in the same file, and no checksum that would tell."""
    table = pq.ParquetFile(file).read()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(table.from_pylist(change(table.to_pylist()), table.schema), file)


@pytest.mark.parametrize("how", UPSERTS)
def test_the_same_rows_in_another_order_pass(spark: SparkSession, place: Path, how: str) -> None:
    site = made(spark, place, how)
    first = write(site, frame(spark))
    assert write(site, frame(spark, ROWS[::-1]).coalesce(1), attempt=2) == first
    assert DeltaTable(site.address).version() == 1


@pytest.mark.parametrize("how", UPSERTS)
@pytest.mark.parametrize(
    ("row", "what"),
    [(("z", 1, 0.1), "hash of the rows"), (("a", 7, 0.1), "hash of the rows"), (("a", 1, 0.1001), "column v"),
     (("a", 1, None), "hash of the rows")],
)  # fmt: skip
def test_as_many_rows_with_another_value_are_found_out(
    spark: SparkSession, place: Path, how: str, row: tuple[Any, ...], what: str
) -> None:
    site = made(spark, place, how)
    write(site, frame(spark))
    with pytest.raises(ReplayDiffers, match=f"^sink table: epoch 1, commit 1: computed again.*{what}"):
        write(site, frame(spark, [row, *ROWS[1:]]), attempt=2)


def test_computed_floating_point_may_differ_in_its_last_digits_and_copied_may_not(
    spark: SparkSession, place: Path
) -> None:
    nearly = [("a", 1, 0.1 + 1e-15), *ROWS[1:]]
    for exact in (False, True):
        site = made(spark, place / str(exact), exact=exact)
        write(site, frame(spark))
        if exact:
            with pytest.raises(ReplayDiffers, match="hash of the rows"):
                write(site, frame(spark, nearly), attempt=2)
        else:
            assert write(site, frame(spark, nearly), attempt=2) is not None


@pytest.mark.parametrize("how", UPSERTS)
def test_files_that_were_edited_are_found_out(spark: SparkSession, place: Path, how: str) -> None:
    site = made(spark, place, how)
    write(site, frame(spark).coalesce(1))
    edit(files(site.address)[0], lambda rows: [{**rows[0], "k": "forged"}, *rows[1:]])
    with pytest.raises(ReplayDiffers, match=r"its files contain other rows than it wrote .hash of the rows"):
        write(site, frame(spark), attempt=2)


def test_where_a_file_is_gone_the_comparison_is_refused(spark: SparkSession, place: Path) -> None:
    site = made(spark, place)
    write(site, frame(spark))
    files(site.address)[0].unlink()
    with pytest.raises(HistoryGone, match="the file"):
        write(site, frame(spark), attempt=2)


def test_rows_of_other_epochs_and_of_the_change_feed_are_left_out(spark: SparkSession, place: Path) -> None:
    site = made(spark, place, "upsert")
    write(site, frame(spark))
    second = write(site, frame(spark, [("b", 2, 9.0), ("d", 4, 9.0)]), epoch=2)

    assert write(site, frame(spark, [("d", 4, 9.0), ("b", 2, 9.0)]), attempt=2, epoch=2) == second
    assert (second.results.rows, second.results.floats["v"].sum) == (2, "18.0")
    held = rowhash.digest(arrow(site.address), computed=True)
    assert (second.digest.rows, int(second.digest.high), int(second.digest.low)) == (4, held.high, held.low)


def test_tables_with_renamed_columns_and_partitions_are_read_as_delta_reads_them(
    spark: SparkSession, place: Path
) -> None:
    address = str(place / "table")
    spark.sql(
        f"CREATE TABLE delta.`{address}` ({COLUMNS}) USING delta PARTITIONED BY (n) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    site = Site("sink/table", "sink0", address, "floodmark/test")
    first = write(site, frame(spark))
    assert write(site, frame(spark), attempt=2) == first
    with pytest.raises(ReplayDiffers):
        write(site, frame(spark, [("a", 9, 0.1), *ROWS[1:]]), attempt=2)


SQL = {"tumbling": TUMBLING, "stateless": STATELESS, "sliced": SLICED}
EVENTS = [event(s, k, v, n) for s, k, v, n in ((0, "a", 0.1, 1), (10, "b", 0.2, 4), (100, "a", None, 3))]
LATER = [event(s, k, v, n) for s, k, v, n in ((150, "a", 0.7, 1), (5, "b", 1.0, 4), (400, "b", 0.3, 0))]


@pytest.mark.parametrize(
    "sql", ["tumbling", *(pytest.param(sql, marks=pytest.mark.prove) for sql in ("stateless", "sliced"))]
)
def test_the_ledger_has_the_digest_of_every_table_and_stream(spark: SparkSession, place: Path, sql: str) -> None:
    flow = Flow(place, sql=SQL[sql], settings={"epoch": {"max_files": 1}, "windows": "slices"}, sinks=1)
    flow.stream["start"] = {"version": 0}
    if sql != "sliced":
        flow.settings.pop("windows")
    for portion in (EVENTS, LATER):
        flow.arrive(portion)
    assert crash(spark, flow, "commit.before", 2)
    run(spark, flow)

    commits = [Commit.model_validate_json(row.body) for row in flow.ledger().rows if row.kind == "commit"][1:]
    assert [commit.digests["events"].rows for commit in commits] == [3, 2]
    for name, address in {"late": flow.place.late, f"sink/{Path(flow.sink()).resolve()}": flow.sink()}.items():
        found = [commit.tables[name].digest for commit in commits if name in commit.tables]
        rows = arrow(address)
        expected = rowhash.digest(rows, computed=name != "late")
        assert sum(int(one.low) for one in found if one) == expected.low, name
        assert sum(one.rows for one in found if one) == rows.num_rows
    assert all(written.digest for commit in commits for written in commit.tables.values())


def test_a_source_rewritten_under_an_open_epoch_is_found_out_when_it_is_read(spark: SparkSession, place: Path) -> None:
    flow = Flow(place)
    flow.arrive([event(0, "a", 1.0), event(400, "b", 1.0)])
    assert crash(spark, flow, "intent.after")
    edit(files(flow.source)[0], lambda rows: [{**rows[0], "at": START + timedelta(seconds=1)}, *rows[1:]])
    with pytest.raises(ReplayDiffers, match=r"epoch 1: read again.*digests"):
        run(spark, flow)


def test_an_epoch_whose_sink_was_edited_between_two_attempts_stops(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive([event(0, "a", 1.0), event(400, "b", 1.0)])
    assert crash(spark, flow, "sink0.after")
    edit(files(flow.sink())[0], lambda rows: [{**row, "c": row["c"] + 1} for row in rows])
    with pytest.raises(ReplayDiffers, match="_out0: epoch 1, commit 1: its files contain other rows") as told:
        run(spark, flow)
    assert told.value.exit_code == 3


def test_running_totals_of_floating_point_survive_a_retry(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=RUNNING, settings={"unbounded": True}, stream={"lateness": None})
    flow.settings["sinks"] = [{"delta": flow.sink(0), "key": ["k"]}]
    for seed in range(3):
        flow.arrive([event(i, f"k{i % 3}", 0.1 * i + seed, i) for i in range(50)])
    assert crash(spark, flow, "commit.before")
    run(spark, flow)
    assert len(rows_of(flow.sink(0))) == 3


@pytest.mark.prove  # `test_older_homes.py` has one
def test_an_intent_from_before_there_were_digests_is_finished(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow(place)
    flow.arrive([event(0), event(400)])
    now = Intents.of
    with monkeypatch.context() as former:
        older = {"format": 1, "digests": {}}
        former.setattr(Intents, "of", lambda *given: now(*given).model_copy(update=older))
        assert crash(spark, flow, "sink1.after")
    run(spark, flow)
    assert [row.kind for row in flow.ledger().rows] == ["commit", "intent", "intent", "commit"]
    assert len(rows_of(flow.sink())) == 1
