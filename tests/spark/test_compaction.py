"""A state table that is rewritten holds what is live, and no more."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.crash import put_reach
from support.flow import Flow, event, rows_of
from support.running import run

from floodmark.audit.certificate import audit
from floodmark.core.lifecycle import cleanup
from floodmark.errors import Fenced
from floodmark.spark.rule.epochs import compaction
from floodmark.spark.session import lock

DIRECT = """
SELECT session_window.start AS start, k, count(*) AS c, sum(n) AS s, sum(v) AS v FROM events
GROUP BY session_window(at, '20 seconds'), k
"""
TWICE = """
SELECT session_window.start AS start, a.k, count(*) AS c, sum(n) AS s, sum(v) AS v FROM events AS a
GROUP BY session_window(at, '20 seconds'), a.k
UNION ALL
SELECT session_window.start, b.k, count(*), sum(n), sum(v) FROM events AS b
GROUP BY session_window(b.at, '1 second'), b.k, b.n HAVING count(*) > 9
"""
ALIASED = """
SELECT session_window.start AS start, u, count(*) AS c, sum(n) AS s, sum(v) AS v
FROM (SELECT at, upper(k) AS u, n, v FROM events) GROUP BY session_window(at, '20 seconds'), u
"""

BESIDE = """
SELECT session_window.start AS start, k, count(*) AS c FROM events GROUP BY session_window(at, '1 second'), k
UNION ALL
SELECT window.start, upper(k), count(*) FROM events GROUP BY window(at, '1 minute'), upper(k)
"""


def test_beside_sessions_the_row_at_the_start_of_an_open_window_stays(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(cleanup, "MAX_FILES", 1)
    flow = Flow(place, sql=BESIDE, sinks=1, stream={"start": {"version": 0}, "lateness": "0 seconds"})
    flow.settings["epoch"] = {"max_files": 1}
    flow.arrive([event(59.999999, "a"), event(60, "b"), event(60.000001, "c")])
    flow.arrive([event(70, "d")])
    run(spark, flow)
    assert {row["k"] for row in rows_of(flow.place.state(1, "events"))} == {"b", "c", "d"}
    flow.arrive([event(200, "z")])
    run(spark, flow)
    assert sorted(row["k"] for row in rows_of(flow.sink())) == [*"ABCD", *"abcd"]


@pytest.mark.parametrize(
    ("sql", "live"),
    [
        pytest.param(DIRECT, {("busy", 4), ("b", 1)}, marks=pytest.mark.prove),
        pytest.param(TWICE, {("busy", 4), ("b", 1)}, marks=pytest.mark.prove),
        (ALIASED, {("busy", 4), ("a", 2), ("b", 1)}),
    ],
)
def test_of_sessions_only_those_that_are_open(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path, sql: str, live: Any
) -> None:
    """Where the keys are columns, a session without end holds back its own rows and no others."""
    monkeypatch.setattr(cleanup, "MAX_FILES", 1)
    flow = Flow(place, sql=sql, sinks=1, stream={"lateness": "0 seconds"})
    flow.arrive([event(at, "busy") for at in (0, 15, 30)])
    flow.arrive([event(5, "a"), event(6, "a"), event(45, "b"), event(45, "busy")])
    run(spark, flow)
    kept = rows_of(flow.place.state(1, "events"))
    assert {(k, sum(row["k"] == k for row in kept)) for k in {row["k"] for row in kept}} == live
    flow.arrive([event(200, "z")])
    run(spark, flow)
    found = sorted((row.get("k") or row["u"], row["c"]) for row in rows_of(flow.sink()))
    assert [(k.lower(), count) for k, count in found] == [("a", 2), ("b", 1), ("busy", 4)]
    certificate = audit(flow.name, flow.home, deep=True)
    assert certificate is not None and certificate.findings == []
    assert certificate.tables["state/events"].rewrites == 2


PAIRED = """
SELECT session_window.start AS start, k, count(*) AS c FROM (SELECT a.at, a.k FROM events a JOIN
(SELECT at, k, n FROM events) b ON a.k = b.k AND a.at = b.at AND a.n < b.n) GROUP BY session_window(at, '20 seconds'), k
"""
COUNTED = """
SELECT session_window.start AS start, k, count(*) - 1 AS c FROM (SELECT *, count(*) OVER (PARTITION BY k, at) AS of
FROM events) WHERE of > 1 GROUP BY session_window(at, '20 seconds'), k
"""


@pytest.mark.parametrize("sql", [PAIRED, pytest.param(COUNTED, marks=pytest.mark.prove)])
def test_rows_that_are_in_no_session_yet_stay(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path, sql: str
) -> None:
    """The first session of all has started later than a row whose partner is yet to come."""
    monkeypatch.setattr(cleanup, "MAX_FILES", 1)
    flow = Flow(place, sql=sql, sinks=1, stream={"lateness": "100 seconds"})
    flow.arrive([event(-100, "z", n=0), event(10, "a", n=0), event(100, "b", n=0), event(100, "b", n=1)])
    run(spark, flow)
    assert {row["k"] for row in rows_of(flow.place.state(1, "events"))} == {"a", "b"}
    flow.arrive([event(10, "a", n=1)])
    run(spark, flow)
    flow.arrive([event(900, "z", n=0)])
    run(spark, flow)
    assert sorted((row["k"], row["c"]) for row in rows_of(flow.sink())) == [("a", 1), ("b", 1)]


OF_ALL_TYPES = """
from datetime import date, datetime
from decimal import Decimal


class T:
    output = "k STRING, n INT"
    state = {"s": "f FLOAT, d DOUBLE, n DECIMAL(38, 9), t TIMESTAMP, l TIMESTAMP_NTZ, o DATE, b BINARY, y TINYINT, "
                  "z BOOLEAN, r STRUCT<a: ARRAY<DOUBLE>, m: MAP<STRING, FLOAT>>"}

    def process(self, key, rows, ctx):
        for row in rows:
            ctx.put_state("s", {
                "f": -0.0, "d": float("nan"), "n": Decimal("-1.5"), "t": row["at"], "l": datetime(1, 1, 1),
                "o": date(9999, 12, 31), "b": b"\\xff", "y": -128, "z": None,
                "r": {"a": [float("inf"), None], "m": {"x": -0.0}},
            })
            yield key[0], row["n"]
"""


@pytest.mark.prove
def test_a_rewrite_has_the_digest_of_values_of_all_types(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(cleanup, "MAX_FILES", 1)
    flow = Flow(place, process="mine:T", stream={"start": {"version": 0}}, sinks=1)
    flow.write_class(OF_ALL_TYPES)
    for second in (0, 200):
        flow.arrive([event(second, "a"), event(second, "b")])
        run(spark, flow)
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and found.findings == []
    tally = found.tables["state/s"]
    assert (tally.rewrites, tally.recomputed) == (1, 2)  # the epoch's commit, too


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch, place: Path) -> Flow:
    """A rule whose state is rewritten after each run, and whose lock keeps no other driver out."""
    monkeypatch.setattr(cleanup, "MAX_FILES", 1)
    monkeypatch.setattr(lock, "held", lambda *_: nullcontext())
    flow = Flow(place, sinks=1, stream={"start": {"version": 0}})
    flow.arrive([event(10, "a"), event(50, "a")])
    return flow


def test_a_driver_that_is_overtaken_while_it_reads_drops_no_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, raced: Flow
) -> None:
    """Nothing but Delta's own transaction can see that."""
    real = compaction._committed

    def overtaken(*given: Any) -> Any:
        found = real(*given)
        monkeypatch.setattr(compaction, "_committed", real)
        raced.arrive([event(57, "a")])
        run(spark, raced)
        return found

    monkeypatch.setattr(compaction, "_committed", overtaken)
    with pytest.raises(Fenced, match="another writer committed in between; this rewrite had no effect"):
        run(spark, raced)
    raced.arrive([event(300, "z")])
    run(spark, raced)
    assert [row["c"] for row in rows_of(raced.sink())] == [3]


def test_a_driver_that_was_overtaken_drops_no_rows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, raced: Flow
) -> None:
    """It was held before it rewrites, and another has folded more rows in the meantime."""
    run(spark, raced)
    raced.arrive([event(55, "a")])
    fired = list[str]()

    def overtaken(rule: str, point: str, *_: object) -> None:
        if point == "compact.before" and not fired:
            fired.append(point)
            raced.arrive([event(57, "a")])
            run(spark, raced)

    put_reach(monkeypatch, overtaken)
    with pytest.raises(Fenced, match="expected no epoch after 2, found 3: another run went on"):
        run(spark, raced)
    assert fired
    raced.arrive([event(300, "z")])
    run(spark, raced)
    assert [row["c"] for row in rows_of(raced.sink())] == [4]
