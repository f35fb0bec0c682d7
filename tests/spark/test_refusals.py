"""What a run refuses, with which exit code, and that nothing was written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.flow import STATELESS, Flow, event, rows_of
from support.running import crash, reset, run

from floodmark.errors import (
    HistoryGone,
    NotOwned,
    NotThereYet,
    Refused,
    ReplayDiffers,
    RuleChanged,
    SqlRefused,
    WrongColumn,
)
from floodmark.spark.session.jvm import jvm_class

EVENTS = [event(0), event(70), event(200)]


@pytest.fixture(scope="module")
def made(spark: SparkSession, root: Path) -> Flow:
    flow = Flow(root / "ran")
    flow.arrive(EVENTS)
    run(spark, flow)
    shutil.copytree(flow.root, root / "kept")
    return flow


@pytest.fixture
def ran(spark: SparkSession, made: Flow) -> Iterator[Flow]:
    """A rule that has run; whatever a test does to it is undone."""
    yield Flow(made.root)
    shutil.rmtree(made.root)
    shutil.copytree(made.root.with_name("kept"), made.root)
    jvm_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()  # of tables that are as they were again


def versions(flow: Flow) -> list[int]:
    return [DeltaTable(flow.sink(i)).version() for i in range(flow.sinks)]


def refused(spark: SparkSession, flow: Flow, error: type[Exception], match: str) -> None:
    """The run is refused with `error`, and no sink got a commit."""
    before = versions(flow)
    with pytest.raises(error, match=match):
        run(spark, flow)
    assert versions(flow) == before


def test_a_home_that_was_removed_beside_a_full_sink(spark: SparkSession, ran: Flow) -> None:
    shutil.rmtree(ran.place.path)
    refused(spark, ran, NotOwned, "belongs to another rule's ledger")
    assert not Path(ran.place.ledger).exists()


class Elsewhere(Flow):
    """The same rule and sinks with a home of its own."""

    @property
    def home(self) -> Path:
        return self.root / "elsewhere"


def test_a_second_home_with_the_same_sink(spark: SparkSession, ran: Flow) -> None:
    refused(spark, Elsewhere(ran.root), NotOwned, "second home")


def test_a_renamed_rule(spark: SparkSession, ran: Flow) -> None:
    renamed = Flow(ran.root, name="renamed")
    renamed.settings = {"streams": ran.text()["streams"], "sinks": ran.text()["sinks"]}
    before = versions(ran)
    with pytest.raises(NotOwned, match="renamed"):
        run(spark, renamed)
    assert versions(ran) == before


def test_a_sink_with_rows_that_nobody_accounts_for(spark: SparkSession, place: Path) -> None:
    other, flow = Flow(place, name="other"), Flow(place)
    flow.arrive(EVENTS)
    other.arrive(EVENTS)
    shutil.copytree(other.source, flow.sink(0))
    with pytest.raises(NotOwned, match="no ledger accounts for"):
        run(spark, flow)
    assert not flow.place.path.exists() or not Path(flow.place.ledger).exists()


def test_a_source_that_is_not_there_yet(spark: SparkSession, place: Path) -> None:
    with pytest.raises(NotThereYet, match="no Delta table"):
        run(spark, Flow(place))


@pytest.mark.parametrize(
    ("event_time", "match"), [("moment", "expected the event-time column 'moment'"), ("n", "timestamp_millis\\(n\\)")]
)
def test_an_event_time_column_that_is_missing_or_no_time(
    spark: SparkSession, place: Path, event_time: str, match: str
) -> None:
    flow = Flow(place, stream={"event_time": event_time})
    flow.sql = flow.sql.replace("window(at", f"window({event_time}")
    flow.arrive(EVENTS)
    with pytest.raises(WrongColumn, match=match):
        run(spark, flow)
    assert not Path(flow.place.ledger).exists()


def test_a_column_that_spark_does_not_find(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT at, nothing FROM events")
    flow.arrive(EVENTS)
    with pytest.raises(SqlRefused, match="nothing"):
        run(spark, flow)
    assert not Path(flow.place.ledger).exists()


def test_a_windowed_rule_whose_sql_changed(spark: SparkSession, ran: Flow) -> None:
    ran.sql = ran.sql.replace("1 minute", "2 minutes")
    refused(spark, ran, RuleChanged, "floodmark reset counted")


def test_a_stateless_rule_whose_columns_changed(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS, sinks=1)
    flow.arrive(EVENTS)
    run(spark, flow)
    flow.sql = "SELECT at, k FROM events"
    flow.arrive(EVENTS)
    refused(spark, flow, WrongColumn, "reset")


def test_a_sink_that_was_deleted(spark: SparkSession, ran: Flow) -> None:
    shutil.rmtree(ran.sink(1))
    ran.arrive(EVENTS)
    with pytest.raises(HistoryGone, match="is gone"):
        run(spark, ran)


@pytest.mark.prove
def test_an_added_sink_that_is_deleted_or_torn_while_its_first_epoch_is_open(spark: SparkSession, ran: Flow) -> None:
    ran.sinks = 3
    ran.arrive([event(400)])
    assert crash(spark, ran, "sink2.after")
    entry = max(Path(ran.sink(2), "_delta_log").glob("*.json"))
    entry.write_bytes(entry.read_bytes()[:99])
    run(spark, ran)
    assert [len(rows_of(ran.sink(number))) for number in range(3)] == [3, 3, 1]
    ran.sinks = 4
    ran.arrive([event(600)])
    assert crash(spark, ran, "sink3.before")
    shutil.rmtree(ran.sink(3))
    said = rf"sink counted_out3: epoch 3 is open .* `floodmark reset`\. Table: {ran.sink(3)}"
    with pytest.raises(HistoryGone, match=said):
        run(spark, ran)


def test_a_source_that_was_made_anew(spark: SparkSession, ran: Flow) -> None:
    shutil.rmtree(ran.source)
    ran.arrive(EVENTS)
    refused(spark, ran, HistoryGone, "recreated or cloned")


def test_a_source_from_which_rows_were_deleted(spark: SparkSession, ran: Flow) -> None:
    spark.sql(f"DELETE FROM delta.`{ran.source}` WHERE k = 'a'")
    refused(spark, ran, HistoryGone, "existing rows of a source changed")


def test_a_source_whose_unread_commits_are_gone(spark: SparkSession, ran: Flow) -> None:
    ran.arrive(EVENTS)
    ran.arrive(EVENTS)
    table = DeltaTable(ran.source)
    table.create_checkpoint()
    for entry in Path(ran.source, "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()
    refused(spark, ran, HistoryGone, "commits of a source that are still to be read no longer exist")


def test_a_replay_that_differs(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive(EVENTS)
    assert crash(spark, flow, "sink0.after")
    for file in Path(flow.source).glob("*.parquet"):
        file.unlink()
    shutil.rmtree(flow.source + "/_delta_log", ignore_errors=True)
    original = Flow(place, name="original")
    original.arrive([*EVENTS, event(10)])
    _replace_content(original.source, flow)
    with pytest.raises((ReplayDiffers, HistoryGone)):
        run(spark, flow)


def _replace_content(other: str, flow: Flow) -> None:
    """Another file under the same table id: what a careless copy over a source looks like."""
    known = flow.ledger().head
    assert known is not None
    from floodmark.connectors.delta.offsets import DeltaOffset

    table_id = DeltaOffset.parse(known.entry.offsets[0]).table_id
    shutil.copytree(other, flow.source, dirs_exist_ok=True)
    for log in Path(flow.source, "_delta_log").glob("*.json"):
        log.write_text(log.read_text().replace(DeltaTable(other).metadata().id, table_id))


def test_reset_begins_anew_and_empties_the_sinks(spark: SparkSession, ran: Flow) -> None:
    ran.sql = ran.sql.replace("1 minute", "2 minutes").replace("count(*) AS c", "count(*) AS c, min(n) AS least")
    reset(spark, ran)
    assert len(rows_of(ran.sink())) == 0
    run(spark, ran)
    rows = rows_of(ran.sink())
    assert [(row["c"], row["least"]) for row in rows] == [(2, 0)]


def test_reset_can_keep_the_output(spark: SparkSession, ran: Flow) -> None:
    rows = len(rows_of(ran.sink()))
    reset(spark, ran, keep_output=True)
    run(spark, ran)
    assert len(rows_of(ran.sink())) == 2 * rows
    head = ran.ledger().head
    assert head is not None
    assert head.kept_output


@pytest.mark.prove
def test_a_sink_that_missed_a_reset_is_not_taken_back_with_its_rows(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=2)
    both = [{"delta": flow.sink(0)}, {"delta": flow.sink(1)}]
    flow.arrive([event(0), event(400)])
    run(spark, flow)
    flow.settings["sinks"] = both[:1]
    reset(spark, flow)
    run(spark, flow)
    flow.settings["sinks"] = both
    refused(spark, flow, Refused, "found rows from before the last reset.* `floodmark reset counted`")
    reset(spark, flow)
    run(spark, flow)
    assert [DeltaTable(flow.sink(i)).to_pyarrow_table().num_rows for i in range(2)] == [1, 1]


@pytest.mark.prove  # `unit/test_takings.py`
def test_a_struct_of_kept_rows_that_gained_a_field_is_refused_with_no_epoch_open(
    spark: SparkSession, place: Path
) -> None:
    sql = "SELECT window.start AS start, count(DISTINCT s) AS c FROM events GROUP BY window(at, '1 minute')"
    flow = Flow(place, sql=sql, sinks=1)
    rows = spark.sql("SELECT timestamp'2001-01-01 00:00:00' AS at, named_struct('a', 1) AS s")
    rows.write.format("delta").save(flow.source)
    run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` ADD COLUMNS (s.b INT)")
    more = spark.sql("SELECT timestamp'2001-01-01 00:00:01' AS at, named_struct('a', 1, 'b', 2) AS s")
    more.write.format("delta").mode("append").save(flow.source)
    refused(
        spark, flow, WrongColumn, r"events\.s: kept as struct<a:int>, found struct<a:int,b:int>.*reset counted --keep"
    )
    head = flow.ledger().head
    assert head is not None and head.open is None
