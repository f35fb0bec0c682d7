"""What each sink takes of the results, and how its table lies, whatever crashes, retries, resets and backfills come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.flow import SCHEMA, START, STATELESS, Flow, event, rows_of
from support.oracle import ordered
from support.running import abandon, backfill, crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.errors import InputFault, Refused, RuleChanged, SqlRefused, WrongColumn
from floodmark.proving.play.inbatch import for_sink
from floodmark.reading import read

FIRST = [event(0, "a", 1.0, 1), event(1, "", -1.0, 2), event(2, None, 3.0, 3), event(3, "b c/d", 4.0, 4)]
SECOND = [event(4, "a", -5.0, 5), event(5, "b c/d", 6.0, 6), event(6, "c", None, 7), event(7, "", 8.0, 8)]
THIRD = [event(8, "a", 9.0, 9), event(9, "c", 2.0, 10)]
Rows = list[tuple[Any, ...]]


def sink(flow: Flow, number: int) -> Rows:
    """Rows by the table's columns, in their order."""
    return ordered(tuple(row.values()) for row in rows_of(flow.sink(number)))


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    assert (found.verdict, [finding.what for finding in found.findings]) == ("proven", [])


def chosen(*portions: Iterable[Mapping[str, Any]], generation: int = 1) -> Rows:
    """(n, k, generation, epoch) of the positive ones; Delta has no empty text in a partition."""
    numbered = [(epoch, one) for epoch, portion in enumerate(portions, 1) for one in portion]
    return [(one["n"], one["k"] or None, generation, epoch) for epoch, one in numbered if (one["v"] or 0) > 0]


def latest(*portions: Iterable[Mapping[str, Any]]) -> Rows:
    """(v, k) of each key whose latest row is positive."""
    last = {one["k"]: one["v"] for portion in portions for one in portion}
    return [(v, k) for k, v in last.items() if (v or 0) > 0]


def wanting(place: Path, **settings: Any) -> Flow:
    flow = Flow(place, sql="SELECT at, k, v, n FROM events", **settings)
    flow.settings["sinks"] = [
        {"delta": flow.sink(0), "columns": ["N", "k"], "where": "v > 0", "partition_by": ["K"], "epoch_columns": True},
        {"delta": flow.sink(1), "key": ["k"], "columns": ["v", "k"], "where": "v > 0 -- so far", "cluster_by": ["k"]},
        {"delta": flow.sink(2)},
    ]
    return flow


def layout(spark: SparkSession, flow: Flow, number: int) -> tuple[list[str], list[str]]:
    found = spark.sql(f"DESCRIBE DETAIL delta.`{flow.sink(number)}`").select("partitionColumns", "clusteringColumns")
    return tuple(found.collect()[0])  # type: ignore[return-value]


def test_each_sink_takes_its_part_exactly_once_whatever_crashes(spark: SparkSession, place: Path) -> None:
    flow = wanting(place, settings={"epoch": {"max_files": 1}}, stream={"start": {"version": 0}})
    flow.arrive(FIRST)
    run(spark, flow)
    assert layout(spark, flow, 0) == (["k"], [])
    assert layout(spark, flow, 1) == ([], ["k"])
    flow.arrive(SECOND)
    assert crash(spark, flow, "sink1.after")
    # both sinks hold the second epoch, and no reader of the rule's sinks sees it yet
    before = read(flow.name, flow.home)
    assert before.epoch == 1
    assert [ordered(map(tuple, (row.values() for row in one.arrow().to_pylist()))) for one in before][:2] == [
        ordered(chosen(FIRST)),
        ordered(latest(FIRST)),
    ]
    run(spark, flow)
    assert sink(flow, 0) == ordered(chosen(FIRST, SECOND))
    assert sink(flow, 1) == ordered(latest(FIRST, SECOND)), "a row that is not positive any more has gone"
    assert len(sink(flow, 2)) == len(FIRST + SECOND)
    proven(flow)
    in_batch = for_sink(
        spark.createDataFrame(FIRST, "at timestamp, k string, v double, n bigint"), flow.rule().sinks[0]
    )
    assert ordered(map(tuple, in_batch.collect())) == ordered(row[:2] for row in chosen(FIRST))


@pytest.mark.prove
def test_each_sink_takes_its_part_again_after_a_reset(spark: SparkSession, place: Path) -> None:
    flow = wanting(place, settings={"epoch": {"max_files": 1}}, stream={"start": {"version": 0}})
    for portion in (FIRST, SECOND):
        flow.arrive(portion)
    run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    assert sink(flow, 0) == ordered(chosen(FIRST, SECOND, generation=2))
    assert layout(spark, flow, 0) == (["k"], [])
    assert layout(spark, flow, 1) == ([], ["k"])


@pytest.mark.prove
def test_a_reset_lays_tables_out_as_the_rule_says_now(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS)
    first = [{"partition_by": ["k"]}, {"cluster_by": ["n"]}, {"cluster_by": ["n"]}]
    other = [{"cluster_by": ["n"]}, {"partition_by": ["n"]}, {"columns": ["k", "v"], "cluster_by": ["k"]}]
    flow.settings["sinks"] = [{"delta": flow.sink(i), **how} for i, how in enumerate(first)]
    flow.arrive([event(0, "a", 1.0, 1)])
    run(spark, flow)
    flow.settings["sinks"] = [{"delta": flow.sink(i), **how} for i, how in enumerate(other)]
    with pytest.raises(RuleChanged, match="columns of a sink, partition_by of a sink"):
        run(spark, flow)
    with pytest.raises(Refused, match=r"expected a table partitioned by nothing .*write `partition_by: \[k\]`"):
        reset(spark, flow, keep_output=True)
    reset(spark, flow)
    run(spark, flow)
    assert [layout(spark, flow, i) for i in range(3)] == [([], ["n"]), (["n"], []), ([], ["k"])]
    assert sink(flow, 2) == [("a", 1.0)]
    proven(flow)


@pytest.mark.prove
def test_an_added_sink_that_no_epoch_has_written_may_get_another_layout(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS, sinks=1)
    flow.arrive(FIRST)
    run(spark, flow)
    old, added = {"delta": flow.sink(0)}, {"delta": flow.sink(1), "columns": ["k", "v"]}
    flow.settings["sinks"] = [old, {**added, "partition_by": ["k"]}]
    run(spark, flow)
    assert layout(spark, flow, 1) == (["k"], [])
    flow.settings["sinks"] = [old, added]
    flow.arrive(SECOND)
    assert crash(spark, flow, "commit.before")
    abandon(spark, flow)
    proven(flow)
    flow.settings["sinks"] = [old, {"delta": flow.sink(1), "columns": ["n", "v"], "partition_by": ["n"]}]
    run(spark, flow)
    assert layout(spark, flow, 1) == (["n"], [])
    assert len(sink(flow, 1)) == len(SECOND)
    proven(flow)


@pytest.mark.prove
def test_clusters_may_change_in_the_same_generation(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS, sinks=1)
    flow.arrive(FIRST)
    run(spark, flow)
    flow.settings["sinks"] = [{"delta": flow.sink(0), "cluster_by": ["k", "at"]}]
    flow.arrive(SECOND)
    run(spark, flow)
    assert layout(spark, flow, 0) == ([], ["k", "at"])
    spark.sql(f"OPTIMIZE delta.`{flow.sink(0)}`")
    flow.arrive(THIRD)
    run(spark, flow)
    assert len(sink(flow, 0)) == 10
    assert read(flow.name, flow.home)["counted_out0"].arrow().num_rows == 10


@pytest.mark.parametrize("qos", [pytest.param(0, marks=pytest.mark.prove), 1])
def test_at_a_lower_qos_an_epoch_counts_results_that_every_sink_leaves_out(
    spark: SparkSession, place: Path, qos: int
) -> None:
    flow = Flow(place, sql=STATELESS, settings={"qos": qos})
    flow.settings["sinks"] = [{"delta": flow.sink(i), "where": f"n % 2 = {i}"} for i in range(2)]
    flow.arrive(FIRST)
    assert run(spark, flow).epochs[-1].output == 4
    flow.arrive(SECOND)
    assert crash(spark, flow, "commit.before")
    run(spark, flow)
    expected = [[one["n"] for one in FIRST + SECOND if one["n"] % 2 == i] for i in range(2)]
    twice = {0: [], 1: [one["n"] for one in SECOND]}[qos]
    for i in range(2):
        again = [n for n in twice if n % 2 == i]
        assert sorted(row["n"] for row in rows_of(flow.sink(i))) == sorted([*expected[i], *again])
    proven(flow)


@pytest.mark.prove
def test_windows_by_key_and_a_console_take_what_they_name(
    spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = Flow(place)
    flow.settings["sinks"] = [
        {"delta": flow.sink(0), "key": ["k"], "newest": "start", "columns": ["k", "start", "c"], "epoch_columns": True},
        {"console": True, "qos": 1, "columns": ["c"], "where": "k = 'b'"},
    ]
    flow.arrive([event(0, "a"), event(1, "b"), event(2, "b"), event(100, "a"), event(200, "c")])
    assert run(spark, flow).epochs[-1].output == 3
    shown = capsys.readouterr().out
    assert "epoch 1: 1 rows" in shown and "start" not in shown
    flow.arrive([event(400, "z")])
    run(spark, flow)
    found = {row["k"]: (row["c"], row["_generation"], row["_epoch"]) for row in rows_of(flow.sink(0))}
    assert found == {"a": (1, 1, 1), "b": (2, 1, 1), "c": (1, 1, 2)}
    proven(flow)


@pytest.mark.prove
def test_of_equal_rows_of_one_key_the_epoch_is_not_what_tells_the_newer(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS)
    flow.settings["sinks"] = [{"delta": flow.sink(0), "key": ["k"], "newest": "at", "epoch_columns": True}]
    for portion in ([event(0, "a", 2.0, 2), event(5, "b")], [event(0, "a", 2.0, 2), event(5, "b", 7.0)]):
        flow.arrive(portion)
        run(spark, flow)
    assert {row["k"]: (row["v"], row["_epoch"]) for row in rows_of(flow.sink(0))} == {"a": (2.0, 1), "b": (7.0, 2)}


def test_a_backfill_replaces_in_each_sink_the_part_that_it_takes(spark: SparkSession, place: Path) -> None:
    flow = Flow(place)
    flow.settings["sinks"] = [
        {"delta": flow.sink(0)},
        {"delta": flow.sink(1), "columns": ["k", "start", "c"], "where": "c > 1", "partition_by": ["k"],
         "epoch_columns": True},
    ]  # fmt: skip
    flow.arrive([event(0, "a"), event(1, "b"), event(2, "b"), event(70, "a"), event(200, "c")])
    run(spark, flow)
    flow.arrive([event(10, "a"), event(20, "c"), event(300, "z")])  # late, but for the last
    run(spark, flow)
    start = round(START.timestamp() * 1_000_000)
    put = backfill(spark, flow, start, start + 60_000_000)
    assert list(put.sinks.values()) == [(3, 2), (2, 1)]
    assert sink(flow, 1) == ordered([("a", START, 2, 1, 2), ("b", START, 2, 1, 2)])
    assert sorted((row["k"], row["c"]) for row in rows_of(flow.sink(0))) == [
        ("a", 1), ("a", 2), ("b", 2), ("c", 1), ("c", 1)
    ]  # fmt: skip
    proven(flow)


@pytest.mark.prove
def test_a_table_that_is_partitioned_otherwise_is_refused_before_the_ledger_begins(
    spark: SparkSession, place: Path
) -> None:
    flow = Flow(place, sql=STATELESS, sinks=1)
    flow.arrive(FIRST)
    write_deltalake(flow.sink(0), pa.Table.from_pylist([], schema=SCHEMA), partition_by=["n"])
    with pytest.raises(Refused, match=r"by nothing .* found one partitioned by n: write `partition_by: \[n\]`"):
        run(spark, flow)
    flow.settings["sinks"] = [{"delta": flow.sink(0), "partition_by": ["N"]}]
    run(spark, flow)
    assert len(rows_of(flow.sink(0))) == 4
    proven(flow)


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        (
            {"partition_by": ["v"]},
            WrongColumn,
            "partition_by: expected columns of whole numbers.* v of type double",
        ),
        ({"columns": ["x"]}, WrongColumn, "columns: expected one of the result columns at, k, v, n, found x"),
        ({"where": "x > 0"}, SqlRefused, "where: .*may name the result's columns"),
        ({"where": "n + 1"}, SqlRefused, "where: expected a condition .boolean., found bigint"),
        pytest.param(
            {"partition_by": ["at", "k", "n"], "columns": ["at", "k", "n", "v"]}, None, "", marks=pytest.mark.prove
        ),
    ],
)
def test_what_a_sink_cannot_take_is_refused_before_anything_is_written(
    spark: SparkSession, place: Path, how: dict[str, Any], error: type[Exception] | None, said: str
) -> None:
    flow = Flow(place, sql=STATELESS)
    flow.settings["sinks"] = [{"delta": flow.sink(0), **how}]
    flow.arrive(FIRST)
    if error is None:
        assert crash(spark, flow, "sink0.after")
        run(spark, flow)
        assert ordered(sink(flow, 0)) == ordered((one["at"], one["k"] or None, one["n"], one["v"]) for one in FIRST)
        return proven(flow)
    with pytest.raises(error, match=said):
        run(spark, flow)
    assert not flow.place.path.exists() or not Path(flow.sink(0)).exists()
    return None


def widened(flow: Flow, rows: list[dict[str, Any]], column: tuple[str, pa.DataType]) -> None:
    """Rows with one column more than the source has."""
    schema = SCHEMA.append(pa.field(*column))
    write_deltalake(flow.source, pa.Table.from_pylist(rows, schema=schema), mode="append", schema_mode="merge")


def growing(place: Path) -> Flow:
    flow = Flow(place, sql="SELECT *, n * 2 AS twice FROM events")
    flow.settings["sinks"] = [
        {"delta": flow.sink(0), "schema": "add_columns"},
        {"delta": flow.sink(1), "schema": "add_columns", "key": ["k"], "newest": "at"},
        {"delta": flow.sink(2), "columns": ["k", "twice"]},
    ]
    return flow


@pytest.mark.prove
def test_a_new_column_of_the_source_does_not_appear_in_a_sink_that_does_not_ask(
    spark: SparkSession, place: Path
) -> None:
    flow = Flow(place, sql="SELECT * FROM events", sinks=1)
    flow.arrive(FIRST)
    run(spark, flow)
    widened(flow, [{**one, "w": "new"} for one in SECOND], ("w", pa.string()))
    run(spark, flow)
    assert DeltaTable(flow.sink(0)).schema().to_arrow().names == ["at", "k", "v", "n"]
    assert len(rows_of(flow.sink(0))) == 8
    flow.settings["sinks"] = [{"delta": flow.sink(0), "schema": "add_columns"}]
    widened(flow, [{**one, "w": "newer"} for one in THIRD], ("w", pa.string()))
    run(spark, flow)
    assert sorted((row["n"], row["w"]) for row in rows_of(flow.sink(0))) == [
        *((one["n"], None) for one in FIRST + SECOND),
        *((one["n"], "newer") for one in THIRD),
    ]
    proven(flow)


@pytest.mark.parametrize(
    "point",
    [
        "sink0.after",
        *(pytest.param(point, marks=pytest.mark.prove) for point in ("intent.before", "intent.after", "commit.before")),
    ],
)
def test_a_column_that_is_gained_comes_with_one_epoch_whatever_crashes(
    spark: SparkSession, place: Path, point: str
) -> None:
    flow = growing(place)
    flow.arrive(FIRST)
    run(spark, flow)
    widened(flow, [{**one, "w": one["k"]} for one in SECOND], ("w", pa.string()))
    assert crash(spark, flow, point)
    widened(flow, [{**one, "x": one["n"]} for one in THIRD], ("x", pa.int64()))  # another, while an epoch may be open
    run(spark, flow)
    rows = {row["n"]: (row.get("w"), row.get("x"), row["twice"]) for row in rows_of(flow.sink(0))}
    assert rows == {
        **{one["n"]: (None, None, 2 * one["n"]) for one in FIRST},
        **{one["n"]: (one["k"], None, 2 * one["n"]) for one in SECOND},
        **{one["n"]: (None, one["n"], 2 * one["n"]) for one in THIRD},
    }
    by_key = {row["k"]: (row["n"], row["w"], row["x"]) for row in rows_of(flow.sink(1))}
    assert by_key == {
        None: (3, None, None), "b c/d": (6, "b c/d", None), "": (8, "", None), "a": (9, None, 9), "c": (10, None, 10)
    }  # fmt: skip
    assert len(sink(flow, 2)) == 10 and len(sink(flow, 2)[0]) == 2
    gained = [["w", "x"]] if point == "intent.before" else [["w"], ["x"]]
    assert recorded(flow) == [["at", "k", "v", "n"], *gained]
    proven(flow)


def recorded(flow: Flow) -> list[list[str]]:
    """The columns of the stream as the ledger's rows name them, each time those that are new."""
    bodies = [json.loads(row.body).get("columns", {}).get("events", []) for row in flow.ledger().rows]
    known: set[str] = set()
    found = []
    for names in ([name for name, _ in body] for body in bodies):
        found += [[name for name in names if name not in known]] if set(names) - known else []
        known |= set(names)
    return found


@pytest.mark.prove
def test_a_column_whose_type_changes_and_one_that_is_left_out_are_refused_with_the_way_out(
    spark: SparkSession, place: Path
) -> None:
    flow = Flow(place, sql="SELECT k, n FROM events")
    flow.settings["sinks"] = [{"delta": flow.sink(0), "schema": "add_columns"}]
    flow.arrive(FIRST)
    run(spark, flow)
    flow.arrive(SECOND)
    flow.sql = "SELECT k, CAST(n AS STRING) AS n FROM events"
    with pytest.raises(WrongColumn, match=r"n: table bigint, rule string.*CAST\(x AS TYPE\) AS x.*floodmark reset"):
        run(spark, flow)
    flow.sql = "SELECT k, v FROM events"
    with pytest.raises(WrongColumn, match=r"n: table bigint, rule none.*`CAST\(NULL AS TYPE\) AS x` its place"):
        run(spark, flow)
    flow.sql = "SELECT k, n, v FROM events"
    run(spark, flow)
    assert sorted((row["n"], row["v"]) for row in rows_of(flow.sink(0))) == sorted(
        [*((one["n"], None) for one in FIRST), *((one["n"], one["v"]) for one in SECOND)], key=lambda pair: pair[0]
    )
    flow.arrive(THIRD)
    flow.sql = "SELECT CAST(NULL AS STRING) AS k, CAST(NULL AS BIGINT) AS n, v FROM events"
    run(spark, flow)
    assert sorted(row["v"] for row in rows_of(flow.sink(0)) if row["n"] is None) == sorted(one["v"] for one in THIRD)
    proven(flow)


@pytest.mark.prove
def test_what_is_expected_decides_before_a_sink_takes_its_part(spark: SparkSession, place: Path) -> None:
    known = {"known": {"check": "k IS NOT NULL", "on_fail": "dead"}}
    plausible = {"plausible": {"check": "v > -4", "on_fail": "drop"}}
    flow = Flow(place, sql="SELECT * FROM events", stream={"expect": known}, settings={"expect": plausible})
    flow.settings["sinks"] = [
        {"delta": flow.sink(0), "columns": ["n"], "where": "v > 0"},
        {"delta": flow.sink(1), "schema": "add_columns"},
    ]
    flow.arrive(FIRST)
    assert run(spark, flow).epochs[-1].output == 3
    widened(flow, [{**one, "w": "new"} for one in [*SECOND, event(8, None, 1.0, 9)]], ("w", pa.string()))
    assert crash(spark, flow, "sink0.after")
    epoch = run(spark, flow).epochs[-1]
    assert (epoch.dead, epoch.output, epoch.failed) == (1, 2, {"events.known": 1, "results.plausible": 2})
    assert sorted(row["n"] for row in rows_of(flow.sink(0))) == [1, 4, 6, 8]
    assert sorted((row["n"], row["w"]) for row in rows_of(flow.sink(1))) == [
        (1, None), (2, None), (4, None), (6, "new"), (8, "new")
    ]  # fmt: skip
    assert sorted((row["n"], row["w"]) for row in rows_of(flow.place.dead)) == [(3, None), (9, "new")]
    proven(flow)


def test_late_and_dead_rows_have_the_columns_that_were_gained(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT * FROM events")
    flow.settings["sinks"] = [{"delta": flow.sink(0), "schema": "add_columns"}]
    flow.arrive([event(100, n=1)])
    run(spark, flow)
    widened(flow, [{**event(0, n=2), "w": "late"}, {**event(None, n=3), "w": "dead"}], ("w", pa.string()))
    run(spark, flow)
    assert [row["w"] for row in rows_of(flow.place.late)] == ["late"]
    assert [row["w"] for row in rows_of(flow.place.dead)] == ["dead"]
    proven(flow)


@pytest.mark.prove
def test_a_sink_with_a_constraint_of_its_own_says_which_row_and_what_to_do(spark: SparkSession, place: Path) -> None:
    """No retry helps while the table is as it is; nothing is open, and the next run without the constraint goes on."""
    flow = Flow(place, sql=STATELESS, sinks=1)
    flow.arrive([event(1)])
    run(spark, flow)
    table = f"delta.`{flow.sink()}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (n >= 0)")
    flow.arrive([event(2, n=-7)])
    refused = (
        r"sink counted_out0: .*CHECK constraint positive \(n >= 0\) .* n : -7.*Drop the constraint.*it is not open"
    )
    for _ in range(2):
        with pytest.raises(InputFault, match=refused):
            run(spark, flow)
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT positive")
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [-7, 0]
