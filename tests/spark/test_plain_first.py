"""Expressions that may raise run as they are; only if one does, each is tried on each row, with the same facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import Flow, event, rows_of
from support.running import run

from floodmark.errors import InputFault
from floodmark.spark.read.shape import Shape
from floodmark.spark.rule.epochs.epoch import EpochFolder

SHARE = "12 / (n + 1)"  # raises at n = -1
SQL = f"SELECT at, k, v, n, {SHARE} AS share FROM events WHERE n IS NULL OR n <> 7"
WINDOWS = (
    f"SELECT window.start AS start, k, count(*) AS c, sum({SHARE}) AS s FROM events GROUP BY window(at, '1 minute'), k"
)
TOTALS = f"SELECT k, count(*) AS c, sum({SHARE}) AS s FROM events GROUP BY k"
WHERE = {"where": "k <> 'out' AND 12 / (n + 1) IS DISTINCT FROM 0"}
# Of each kind of row at least one, in the second epoch too.
FIRST = [event(100), event(3, "out"), event(None), event(5, n=7), event(4, v=None), event(2, v=float("nan"))]
AHEAD = event(9 * 10**9)
SECOND = [event(200, n=None), event(10, "late"), event(10, "out"), AHEAD, event(150, None), event(70, v=-0.0)]
BAD = event(180, "bad", n=-1)
DROPS = {"expect": {"small": {"check": "n < 5", "on_fail": "drop"}, "known": {"check": "v > 0", "on_fail": "dead"}}}
KEYED = {"settings": {"unbounded": True, "sinks": [{"delta": "totals", "key": ["k"]}]}}
COMPUTED = {"event_time": {"name": "t", "expr": "timestamp_micros(unix_micros(at) + 1000000)"}}
TIMELESS = {"lateness": None, "event_time": None}
TWO = {"sinks": [{"delta": "one"}, {"delta": "two", "where": "n IS NULL"}]}
FLOWS: dict[str, dict[str, Any]] = {
    "rows": {},
    "where": {"stream": WHERE},
    "expected": {"stream": DROPS},
    "computed time": {"stream": COMPUTED},
    "no time": {"stream": TIMELESS},
    "no result": {"sql": f"SELECT k, n, {SHARE} AS share FROM events WHERE 1 = 0"},
    "slices": {"sql": WINDOWS, "settings": {"windows": "slices"}},
    "totals": {"sql": TOTALS, **KEYED},
    "two sinks": {"settings": TWO},
    "all that a stream says": {"stream": {**WHERE, **DROPS, **COMPUTED}},
    "no time, two sinks": {"stream": TIMELESS, "settings": TWO},
}
# `make test` tries what can be combined together; `make prove` tries each alone, too.
IN_CI = ("all that a stream says",)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that an epoch is computed, whether expressions are tried on each row."""
    found: list[bool] = []
    computed = EpochFolder._computed_as

    def watched(folder: EpochFolder, shape: Shape, *given: Any) -> Any:
        found.append(bool(shape.checks))
        return computed(folder, shape, *given)

    monkeypatch.setattr(EpochFolder, "_computed_as", watched)
    return found


def flow_of(root: Path, name: str, **given: Any) -> Flow:
    settings = dict(given.pop("settings", {}))
    if "sinks" in settings:
        places = ({"delta": str(root / name / sink["delta"])} if "delta" in sink else {} for sink in settings["sinks"])
        settings["sinks"] = [{**sink, **place} for sink, place in zip(settings["sinks"], places, strict=True)]
    found = Flow(root / name, **({"sql": SQL, "sinks": 1, "settings": settings} | given))
    found.arrive(FIRST)
    return found


def folded(spark: SparkSession, flow: Flow) -> list[dict[str, Any]]:
    """The bodies of the commit rows of two epochs, without the ids and times of their tables."""
    run(spark, flow)
    flow.arrive(SECOND)
    run(spark, flow)
    return [facts(json.loads(row.body)) for row in flow.ledger().rows if row.kind == "commit"][1:]


def facts(body: dict[str, Any]) -> dict[str, Any]:
    taken = {name: body.get(name) for name in ("watermark", "maxima", "counts", "digests", "output_rows", "heard")}
    tables = {name.split("/")[0]: one for name, one in body["tables"].items()}
    rows = {name: (one["rows"], one["digest"] if name == "sink" else None) for name, one in tables.items()}
    return {**taken, "tables": rows}  # late and dead rows carry the id of the source's table


def texts(table: str) -> list[str]:
    """The rows in an order of their own; NaN, too, has a text that is equal to itself."""
    return sorted(str({name: value for name, value in row.items() if name != "_source"}) for row in rows_of(table))


@pytest.mark.parametrize("name", [one if one in IN_CI else pytest.param(one, marks=pytest.mark.prove) for one in FLOWS])
def test_an_epoch_is_the_same_whether_its_expressions_are_tried_or_not(
    spark: SparkSession, place: Path, name: str, tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_of(place, "plain", **FLOWS[name])
    plain = folded(spark, flow)
    assert tried == [False, False] and flow.counts()["read"] == len(FIRST) + len(SECOND)
    monkeypatch.setattr(
        EpochFolder, "_computed", lambda folder, *given: folder._computed_as(folder._plan.fold.shape, *given)
    )
    other = flow_of(place, "tried", **FLOWS[name])
    assert folded(spark, other) == plain
    assert texts(str(flow.place.late)) == texts(str(other.place.late))
    assert texts(str(flow.place.dead)) == texts(str(other.place.dead))
    assert tried == [False, False, True, True]


@pytest.mark.parametrize(
    "name", [*(pytest.param(one, marks=pytest.mark.prove) for one in ("rows", "slices")), "where", "totals"]
)
def test_the_row_for_which_an_expression_fails_is_named(
    spark: SparkSession, place: Path, name: str, tried: list[bool]
) -> None:
    flow = flow_of(place, name, **FLOWS[name])
    run(spark, flow)
    flow.arrive([*SECOND, BAD])
    with pytest.raises(InputFault, match=r"fails: .*, for 1 row; one of them: .*k = 'bad'.* n = -1"):
        run(spark, flow)
    assert tried == [False, False, True]
    assert flow.ledger().begun.open is None and flow.ledger().begun.epoch == 1


@pytest.mark.prove  # `test_expected_rows.py` does in each commit
def test_the_rule_goes_on_with_an_edit_that_leaves_the_row_out(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "edited")
    run(spark, flow)
    flow.arrive([*SECOND, BAD])
    with pytest.raises(InputFault, match="for 1 row; one of them"):
        run(spark, flow)
    flow.sql = f"{SQL} AND n <> -1"
    run(spark, flow)
    assert flow.counts()["late"] == 2


@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.prove)], ids=["none gets all", "one gets all"]
)
def test_results_are_counted_whatever_a_sink_takes(spark: SparkSession, place: Path, whole: bool) -> None:
    sinks = [{"delta": "some", "where": "n IS NULL"}, {"delta": "all"}, {"console": True, "qos": 1}]
    flow = flow_of(place, "sinks", settings={"sinks": sinks if whole else sinks[:1] + sinks[2:]})
    assert [body["output_rows"] for body in folded(spark, flow)] == [4, 3]
    assert len(rows_of(str(place / "sinks" / "some"))) == 1
    assert not whole or len(rows_of(str(place / "sinks" / "all"))) == 7


def test_a_row_that_waits_in_the_state_is_tried_first(spark: SparkSession, place: Path, tried: list[bool]) -> None:
    """Its window is open, so nothing computes its expression in this epoch."""
    flow = flow_of(place, "waits", sql=WINDOWS)
    run(spark, flow)
    flow.arrive([*SECOND, BAD])
    with pytest.raises(InputFault, match=r"fails: .*, for 1 row; one of them: .*k = 'bad'.*"):
        run(spark, flow)
    assert tried == [True, True]


def test_a_row_that_dies_is_looked_for_at_once(spark: SparkSession, place: Path, tried: list[bool]) -> None:
    flow = flow_of(place, "dead", settings={"on_error": "dead"})
    flow.arrive([BAD])
    run(spark, flow)
    assert tried == [True]
    assert flow.counts() == {"read": 7, "filtered": 0, "dead": 2, "late": 0, "folded": 5}


@pytest.mark.prove
def test_an_open_epoch_is_computed_in_the_same_way(spark: SparkSession, place: Path, tried: list[bool]) -> None:
    flow = flow_of(place, "killed", **FLOWS["expected"])
    run(spark, flow)
    flow.arrive(SECOND)
    with crash_at("intent.after") as planned, pytest.raises(Crash):
        run(spark, flow)
    assert planned.fired
    run(spark, flow)
    assert tried == [False, False, False]
    assert flow.ledger().begun.open is None and len(rows_of(flow.sink())) == 4


def test_a_failure_that_is_not_about_a_row_is_not_tried_again(
    spark: SparkSession, place: Path, tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise AnalysisException("the table is gone")

    flow = flow_of(place, "gone")
    monkeypatch.setattr(EpochFolder, "_fold", fails)
    with pytest.raises(Exception, match="the table is gone"):
        run(spark, flow)
    assert tried == [False]
