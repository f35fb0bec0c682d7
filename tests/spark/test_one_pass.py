"""Epochs of rules over single rows are read while their results are written, with the facts of several passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import Flow, event, rows_of
from support.running import run

from floodmark.errors import InputFault
from floodmark.spark.rule.epochs import onepass
from floodmark.spark.rule.epochs.onepass import OnePass, is_one_pass

SQL = "SELECT at, k, v, n, 12 / (n + 1) AS share FROM events WHERE n IS NULL OR n <> 7"
WHERE = {"where": "k <> 'out'"}
# Of each kind of row at least one, in the second epoch too; n = -1 makes the SQL fail.
FIRST = [event(100), event(3, "out"), event(None), event(5, n=7), event(4, v=None), event(2, v=float("nan"))]
AHEAD = event(9 * 10**9)
SECOND = [event(200, n=None), event(10, "late"), event(10, "out"), AHEAD, event(150, None), event(70, v=-0.0)]
BAD = event(180, "bad", n=-1)
DROPS = {"expect": {"small": {"check": "n < 5", "on_fail": "drop"}, "known": {"check": "v > 0", "on_fail": "dead"}}}
FLOWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dead": {"settings": {"on_error": "dead"}, "stream": WHERE},
    "expected": {"stream": {**WHERE, **DROPS}},
    "no time": {"stream": {"lateness": None, "event_time": None}},
    "computed time": {"stream": {"event_time": {"name": "t", "expr": "timestamp_micros(unix_micros(at) + 1000000)"}}},
    "no result": {"sql": "SELECT k, n FROM events WHERE 1 = 0"},
}


def flow_of(root: Path, name: str, **given: Any) -> Flow:
    found = Flow(root / name, **({"sql": SQL, "sinks": 1} | given))
    found.arrive(FIRST)
    return found


def folded(spark: SparkSession, flow: Flow, bad: bool = False) -> list[dict[str, Any]]:
    """The bodies of the commit rows of two epochs, without the ids and times of their tables."""
    run(spark, flow)
    flow.arrive([*SECOND, BAD] if bad else SECOND)
    run(spark, flow)
    return [facts(json.loads(row.body)) for row in flow.ledger().rows if row.kind == "commit"][1:]


def facts(body: dict[str, Any]) -> dict[str, Any]:
    taken = {name: body.get(name) for name in ("watermark", "maxima", "counts", "digests", "output_rows", "heard")}
    tables = {name.split("/")[0]: one for name, one in body["tables"].items()}
    rows = {name: (one["rows"], one["digest"] if name == "sink" else None) for name, one in tables.items()}
    return {**taken, "tables": rows}  # late and dead rows carry the id of the source's table


def in_one_pass(flow: Flow) -> list[bool]:
    """By epoch, whether it had no READ of its own."""
    bodies = [json.loads(row.body) for row in flow.ledger().rows if row.kind == "commit"]
    return ["read" not in body["seconds"] for body in bodies[1:]]


@pytest.mark.parametrize("name", FLOWS)
def test_one_pass_finds_what_several_passes_find(
    spark: SparkSession, place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, several = (flow_of(place, folder, **FLOWS[name]) for folder in ("one", "several"))
    found = folded(spark, one, bad=name == "dead")
    monkeypatch.setattr(OnePass, "results", lambda *_: None)
    assert found == folded(spark, several, bad=name == "dead")
    assert in_one_pass(one) == ([False, False] if name == "no result" else [True, True])
    assert in_one_pass(several) == [False, False]
    assert one.counts()["read"] == len(FIRST) + len(SECOND) + (name == "dead")
    for table in (one.sink(), str(one.place.late), str(one.place.dead)):
        other = table.replace("/one/", "/several/")
        assert texts(table) == texts(other)


def test_rows_that_spark_does_not_read_for_the_results_are_measured_in_a_pass_of_their_own(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that was one pass can lose its measuring operator: Spark drops it with a branch that gives no rows."""
    monkeypatch.setattr(onepass, "is_one_pass", lambda _: True)
    flow = flow_of(place, "dropped", **FLOWS["no result"])
    run(spark, flow)
    assert in_one_pass(flow) == [True]
    assert flow.counts() == {"read": 6, "filtered": 0, "dead": 1, "late": 0, "folded": 5}


def texts(table: str) -> list[str]:
    """The rows in an order of their own; NaN, too, has a text that is equal to itself."""
    return sorted(str({name: value for name, value in row.items() if name != "_source"}) for row in rows_of(table))


def test_an_epoch_that_was_read_in_one_pass_is_the_same_when_it_is_read_again(spark: SparkSession, place: Path) -> None:
    """The retry reads in several passes, and compares them with the intent."""
    flow = flow_of(place, "killed", **FLOWS["expected"])
    run(spark, flow)
    flow.arrive(SECOND)
    with crash_at("intent.after") as planned, pytest.raises(Crash):
        run(spark, flow)
    assert planned.fired
    run(spark, flow)
    assert in_one_pass(flow) == [True, False]
    assert flow.ledger().begun.open is None


def test_the_row_for_which_the_sql_fails_is_named(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "named")
    run(spark, flow)
    flow.arrive([*SECOND, BAD])
    with pytest.raises(InputFault, match=r"fails: .*, for 1 row; one of them: .*k = 'bad'.* n = -1"):
        run(spark, flow)
    assert flow.ledger().begun.open is None
    flow.sql = f"{SQL} AND n <> -1"
    run(spark, flow)
    assert flow.counts()["late"] == 2


def test_only_one_of_several_sinks_measures(spark: SparkSession, place: Path) -> None:
    """The one that keeps some rows counts the results, too; a console shows them."""
    sinks = [
        {"delta": str(place / "some"), "where": "n IS NULL"},
        {"delta": str(place / "all")},
        {"console": True, "qos": 1},
    ]
    flow = flow_of(place, "sinks", settings={"sinks": sinks[:1] + sinks[2:]})
    assert [body["output_rows"] for body in folded(spark, flow)] == [4, 3]
    assert in_one_pass(flow) == [True, True] and len(rows_of(str(place / "some"))) == 1
    flow = flow_of(place, "more", settings={"sinks": [{"delta": str(place / "first")}, *sinks[1:]]})
    assert [body["output_rows"] for body in folded(spark, flow)] == [4, 3]
    assert in_one_pass(flow) == [True, True] and len(rows_of(str(place / "all"))) == 7


@pytest.mark.parametrize(
    "given",
    [
        {"settings": {"sinks": [{"delta": "SINK", "key": ["k", "at"], "newest": "n"}]}},
        {"settings": {"sinks": [{"delta": "SINK", "partition_by": ["at"]}]}},
        {"settings": {"sinks": [{"delta": "SINK", "partition_by": ["k"]}]}},
        {"settings": {"sinks": [{"delta": "SINK", "properties": {"delta.autoOptimize.optimizeWrite": "true"}}]}},
        {"settings": {"expect": {"some": {"check": "n >= 0", "on_fail": "warn"}}}},
        {"settings": {"sinks": [{"console": True, "qos": 1}]}},
    ],
    ids=["key", "instants as partitions", "text as partitions", "shuffled", "results checked", "console"],
)
def test_a_write_that_may_read_a_row_twice_measures_nothing(
    spark: SparkSession, place: Path, given: dict[str, Any]
) -> None:
    for sink in given["settings"].get("sinks", []):
        sink.update({"delta": str(place / "sink")} if "delta" in sink else {})
    flow = flow_of(place, "passes", **given, sql="SELECT at, k, v, n FROM events")
    run(spark, flow)
    assert in_one_pass(flow) == [False] and flow.counts()["read"] == len(FIRST)


def test_a_plan_with_a_shuffle_or_two_measuring_operators_is_not_one_pass() -> None:
    one = "Project\n+- CollectMetrics\n   +- FileScan parquet"
    assert is_one_pass(one)
    assert not is_one_pass("Project\n+- FileScan parquet")
    assert not is_one_pass(f"Union\n:- {one}\n+- {one}")
    assert not is_one_pass(f"HashAggregate\n+- Exchange\n   +- {one}")
    assert not is_one_pass(f"GlobalLimit 3\n+- {one}")
