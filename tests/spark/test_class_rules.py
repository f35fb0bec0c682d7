"""A rule's class over random events, epochs and crashes gives what one plain fold over all rows gives."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.drawn import is_telling
from support.flow import CLASSES, START, Flow, event, rows_of
from support.oracle import ordered, totals
from support.running import crash, run

from floodmark.core.lifecycle import cleanup
from floodmark.errors import ProcessFault, RuleChanged, RuleInvalid, WrongColumn
from floodmark.spark.look.preview import preview
from floodmark.spark.session.session import HASH_SEED

CACHE = Path(__file__).parents[2] / ".cache" / "tests"
SECONDS = st.sampled_from([0, 10, 10, 20, 40, 40.000001, 50, 60, 100, 180]) | st.integers(0, 300)
EVENTS = st.builds(event, st.none() | SECONDS, st.sampled_from(["a", "b", None]), st.none() | st.floats(-9, 9),
                   st.none() | st.integers(-1, 4))  # fmt: skip
POINTS = ["intent.before", "intent.after", "state.after", "sink0.after", "commit.before", "commit.after"]
STEPS = st.lists(
    st.tuples(st.lists(EVENTS, min_size=1, max_size=12), st.none() | st.sampled_from(POINTS)), min_size=1, max_size=4
)
CASES = given(steps=STEPS, max_files=st.sampled_from([None, 1]), compacted=st.booleans())


@CASES
@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
def test_sinks_equal_one_fold_over_all_rows(spark: SparkSession, **drawn: Any) -> None:
    assume(is_telling([point for _, point in drawn["steps"]]))
    _check(spark, **drawn)


@pytest.mark.prove
@CASES
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_sinks_equal_one_fold_over_all_rows_many_times(spark: SparkSession, **drawn: Any) -> None:
    _check(spark, **drawn)


def _check(spark: SparkSession, steps: list[Any], max_files: int | None, compacted: bool) -> None:
    root = CACHE / uuid4().hex
    root.mkdir(parents=True)
    limits = {"epoch": {"max_files": max_files}} if max_files else {}
    flow = totalling(root, settings=limits)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleanup, "MAX_FILES", 2 if compacted else 24)
            for events, point in steps:
                flow.arrive(events)
                if point is not None:
                    note(f"crash at {point}: {crash(spark, flow, point)}")
            run(spark, flow)
        _compare(flow, [one for events, _ in steps for one in events])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _compare(flow: Flow, arrived: list[dict[str, Any]]) -> None:
    gone = [identity(row) for address in (flow.place.late, flow.place.dead) for row in rows_of(address)]
    folded = []
    for one in arrived:
        if identity(one) in gone:
            gone.remove(identity(one))
        else:
            folded.append(one)
    assert gone == []
    head = flow.ledger().head
    assert head is not None
    mark = START - timedelta(days=1) if head.watermark is None else of_micros(head.watermark)
    for number in (0, 1):
        assert results(flow, number) == totals(folded, mark)


def identity(row: dict[str, Any]) -> str:
    return repr((row["at"] and row["at"].astimezone(UTC), row["k"], row["v"], row["n"]))


def of_micros(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


def totalling(root: Path, **more: Any) -> Flow:
    return Flow(root, process="totals:Totals", stream={"start": {"version": 0}}, **more)


def results(flow: Flow, number: int = 0) -> list[tuple[Any, ...]]:
    rows = (tuple(row.values()) for row in rows_of(flow.sink(number)))
    return ordered(tuple(map(_in_utc, row)) for row in rows)


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def state(flow: Flow, table: str) -> list[dict[str, Any]]:
    return rows_of(flow.place.state(1, table))


CALM = [event(second, "a", n=second) for second in range(0, 200, 20)]


@pytest.mark.prove
def test_a_class_that_fails_leaves_no_epoch_open_and_its_mended_text_goes_on(spark: SparkSession, place: Path) -> None:
    flow = totalling(place, sinks=1)
    good = (CLASSES / flow.module).read_text()
    flow.arrive(CALM[:5])
    run(spark, flow)
    flow.arrive(CALM[5:])
    flow.write_class(good.replace('if row["n"] == 3:', 'if 1 / (row["n"] - 100) == 3:'))
    with pytest.raises(ProcessFault, match=r"rule counted: process fails for key \('a',\), event time 2001-01-01 00:01"
                                           r":40\+00:00 \(totals.py, line \d+\): ZeroDivisionError"):  # fmt: skip
        run(spark, flow)
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.open) == (1, None)
    flow.write_class(good)
    run(spark, flow)
    assert results(flow) == totals(CALM, START + timedelta(seconds=150))


@pytest.mark.prove
def test_an_open_epoch_is_finished_with_the_class_that_its_intent_holds(spark: SparkSession, place: Path) -> None:
    flow = totalling(place, sinks=1)
    flow.arrive(CALM[:5])
    assert crash(spark, flow, "state.after")
    good = (CLASSES / flow.module).read_text()
    flow.write_class(good.replace('f"row {', 'f"new {'))
    flow.arrive(CALM[5:])
    run(spark, flow)
    expected = totals(CALM, START + timedelta(seconds=150))
    first = START + timedelta(seconds=50)
    new = [(k, at, what.replace("row", "new") if at >= first else what, *rest) for k, at, what, *rest in expected]
    assert results(flow) == ordered(new)


@pytest.mark.prove
def test_state_evolves_with_its_class(spark: SparkSession, place: Path) -> None:
    flow = totalling(place, sinks=1)
    good = (CLASSES / flow.module).read_text()
    narrow = good.replace("n BIGINT, seen", "n INT, gone STRING, seen")
    flow.write_class(narrow)
    flow.arrive(CALM[:5])
    run(spark, flow)
    before = flow.ledger().head
    flow.write_class(good.replace("n BIGINT, seen", "n BIGINT, more DATE, seen").replace(
        "state: ClassVar = {", "state: ClassVar = {'other': 'x INT', "))  # fmt: skip
    flow.arrive(CALM[5:])
    assert crash(spark, flow, "intent.before")
    run(spark, flow)
    assert results(flow) == totals(CALM, START + timedelta(seconds=150))
    after = flow.ledger().head
    assert before and after and after.generation == before.generation == 1
    assert {**after.table_ids, **before.table_ids} == after.table_ids
    assert list(state(flow, "last")[0]) == ["k", "at", "n", "more", "seen", "_at", "_deleted", "_epoch"]
    assert state(flow, "other") == []

    flow.write_class(good.replace("n BIGINT, seen", "n STRING, seen"))
    with pytest.raises(RuleChanged, match="n from bigint to string"):
        run(spark, flow)


@pytest.mark.prove
def test_a_state_that_comes_back_must_fit_what_it_held(spark: SparkSession, place: Path) -> None:
    flow = totalling(place)
    good = (CLASSES / flow.module).read_text()
    with_other = good.replace("state: ClassVar = {", "state: ClassVar = {'other': 'x INT', ")
    for text, events in ((with_other, CALM[:2]), (good, CALM[2:4])):
        flow.write_class(text)
        flow.arrive(events)
        run(spark, flow)
    flow.write_class(with_other.replace("x INT", "x STRING"))
    flow.arrive(CALM[4:])
    with pytest.raises(RuleChanged, match=r"state\['other'\] would have to change: x from int to string"):
        run(spark, flow)


@pytest.mark.prove
def test_expired_values_read_as_absent_and_compaction_drops_them(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "MAX_FILES", 2)
    flow = Flow(
        place, process="totals:Forgetting", stream={"start": {"version": 0}}, settings={"epoch": {"max_files": 1}}
    )
    for times in ((0, 59), (119, 130), (300,), (400,)):
        flow.arrive([event(seconds, "b" if seconds == 0 else "a") for seconds in times])
    run(spark, flow)
    assert [row[2:] for row in results(flow) if row[0] == "a"] == [(1, 1), (1, 1), (2, 2), (1, 1)]
    assert {row["k"] for row in state(flow, "seen")} == {"a"}
    assert len(state(flow, "counters")) == 1


@pytest.mark.prove
def test_tombstones_are_dropped_by_compaction(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "MAX_FILES", 2)
    flow = totalling(place, settings={"epoch": {"max_files": 1}})
    for times in ((0,), (100, 110), (141,), (300,)):
        flow.arrive([event(second, "a", n=3) for second in times])
    run(spark, flow)
    assert state(flow, "timers") == []


@pytest.mark.prove
def test_at_qos_0_what_a_lost_epoch_kept_is_not_seen(spark: SparkSession, place: Path) -> None:
    flow = totalling(place, settings={"qos": 0, "epoch": {"max_files": 1}})
    flow.arrive(CALM[:4])
    flow.arrive(CALM[4:6])
    assert crash(spark, flow, "commit.before", nth=2)
    flow.arrive(CALM[6:])
    run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.lost == (2,)
    # Rows before 30 s were handed over in the first epoch; those before 70 s were due in the lost one.
    kept = [row for row in results(flow) if row[1] >= START + timedelta(seconds=70)]
    assert sorted(row[3] for row in kept if row[2].startswith("row")) == [3, 4]


def test_rows_of_several_streams_come_in_one_order(spark: SparkSession, place: Path) -> None:
    one, other = totalling(place, name="one", sinks=1), Flow(place, "other")
    one.arrive([event(0, "a"), event(20, "a"), event(100, "a")])
    other.arrive([event(10, "a"), event(20, "a"), event(100, "a")])
    streams = {"z": one.text()["streams"]["events"], "b": other.text()["streams"]["events"]}
    one.settings = {"streams": streams, "process": "both:Both"}
    one.process = "both:Both"
    run(spark, one)
    assert [row[2] for row in sorted(results(one), key=lambda row: row[1:3])] == ["z 0", "b 1", "b 2", "z 3"]


@pytest.mark.prove
def test_event_times_keep_their_kind_in_any_time_zone(spark: SparkSession, place: Path) -> None:
    zoned = totalling(place, name="zoned", settings={"timezone": "Europe/Berlin"})
    plain = Flow(place, "plain", process="both:Clockless", settings={"timezone": "Europe/Berlin"})
    plain.stream = {"start": {"version": 0}, "event_time": {"name": "moment", "expr": "CAST(at AS timestamp_ntz)"}}
    for flow in (zoned, plain):
        flow.arrive(CALM)
        run(spark, flow)
    assert results(zoned) == totals(CALM, START + timedelta(seconds=150))
    in_berlin = datetime(2001, 1, 1, 1)
    assert results(plain) == [("a", in_berlin + timedelta(seconds=second + 1)) for second in range(0, 149, 20)]


def test_workers_begin_with_one_seed_of_hashes(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(spark.sparkContext.environment, HASH_SEED, "random")
    flow = totalling(place, sinks=1)
    flow.arrive(CALM)
    run(spark, flow)
    assert spark.sparkContext.environment[HASH_SEED] == "0"


def test_preview_shows_what_the_class_gives_and_writes_nothing(spark: SparkSession, place: Path) -> None:
    flow = totalling(place)
    flow.arrive(CALM)
    found = preview(spark, flow.rule(), 1000, 100)
    assert [name for name, _ in found.columns] == ["k", "at", "what", "n", "v"]
    assert len(found.rows) == len(totals(CALM, START + timedelta(seconds=150)))
    assert not flow.home.exists()


def test_what_cannot_be_sorted_or_imported_is_refused(spark: SparkSession, place: Path) -> None:
    flow = totalling(place)
    flow.arrive(CALM)
    flow.write_class(
        (CLASSES / flow.module).read_text().replace("from datetime", "import no_such_module\nfrom datetime")
    )
    with pytest.raises(RuleInvalid, match="cannot be imported: ModuleNotFoundError"):
        run(spark, flow)
    flow.write_class((CLASSES / flow.module).read_text() + "Totals.ttl = {'last': '1 day'}\n")
    with pytest.raises(RuleInvalid, match=r"has the ttl .* of its text, {}, found {'last': 86400000000}"):
        run(spark, flow)
    shutil.rmtree(flow.source)
    spark.sql("SELECT timestamp'2001-01-01' AS at, 'a' AS k, array(map('a', 1)) AS m").write.format("delta").save(
        flow.source
    )
    flow.write_class((CLASSES / flow.module).read_text())
    with pytest.raises(WrongColumn, match="expected columns that can be sorted, found m array<map<string,int>>"):
        run(spark, flow)
