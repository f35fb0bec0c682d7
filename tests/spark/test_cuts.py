"""Where a query is cut, and what is kept for it: any nesting of joins, OVER and windows, against the query itself.

Of random queries over fixed rows: the results that become final between two watermarks are the same whether they are
computed of all rows, or only of those that are still needed and have come; and all of them together are the answer.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.sql import analyse
from floodmark.spark.fold.liverows import live_rows

START = datetime(2001, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
STREAMS = {"flights": "date", "others": "ts"}
SIZES = ["'20 seconds'", "'60 seconds', '20 seconds'", "'30 seconds', '20 seconds', '5 seconds'"]
LENGTHS = st.sampled_from([0, 1, 10, 25])
FRAMES = """OVER (PARTITION BY k ORDER BY t
RANGE BETWEEN INTERVAL '{0}' SECONDS PRECEDING AND INTERVAL '{1}' SECONDS FOLLOWING)"""


@st.composite
def rows(draw: Any, depth: int) -> str:
    """A SELECT of single rows with an event time t, a key k and a number v."""
    kind = draw(st.sampled_from(["stream", "union", "join", "join", "over", "back"])) if depth else "stream"
    if kind == "stream":
        time, name = draw(st.sampled_from([("date", "flights"), ("ts", "others")]))
        where = draw(st.sampled_from(["", " WHERE v % 3 > 0", " WHERE k <> 'a'"]))
        return f"SELECT {time} AS t, k, v FROM {name}{where}"
    if kind == "union":
        return f"{draw(rows(0))} UNION ALL {draw(rows(0))}"
    if kind == "back":
        time, name = draw(st.sampled_from([("date", "flights"), ("ts", "others")]))
        where = draw(st.sampled_from(["", " WHERE v % 3 > 0"]))
        back = f"lag(v, {draw(st.integers(1, 3))}, 0) OVER (PARTITION BY k ORDER BY {time}, v)"
        return f"SELECT {time} AS t, k, v + 100 * {back} AS v FROM {name}{where}"
    if kind == "over":
        frame = FRAMES.format(draw(LENGTHS), draw(LENGTHS))
        below = draw(rows(depth - 1))
        if draw(st.booleans()):
            return f"SELECT t, k, v + c AS v FROM (SELECT *, count(*) {frame} AS c FROM ({below}))"
        return f"SELECT t, k, v + count(*) {frame} AS v FROM ({below})"
    return _joined(draw, depth)


def _joined(draw: Any, depth: int) -> str:
    side = draw(st.sampled_from(["INNER", "LEFT", "RIGHT", "LEFT SEMI", "LEFT ANTI"]))
    time = draw(st.sampled_from(["a.t", "b.t"])) if side == "INNER" else "b.t" if side == "RIGHT" else "a.t"
    other = "a.v" if side in ("LEFT SEMI", "LEFT ANTI") else "coalesce(a.v, 0) * 100 + coalesce(b.v, 0)"
    near = f"b.t BETWEEN a.t - INTERVAL '{draw(LENGTHS)}' SECONDS AND a.t + INTERVAL '{draw(LENGTHS)}' SECONDS"
    left, right = draw(rows(depth - 1)), draw(rows(depth - 1))
    return (
        f"SELECT {time} AS t, {time[0]}.k AS k, {other} AS v FROM ({left}) AS a {side} JOIN ({right}) AS b "
        f"ON a.k = b.k AND {near}"
    )


@st.composite
def windows(draw: Any, depth: int, size: str) -> str:
    """A SELECT of rows of windows: the window w, a key k and a number v."""
    kind = draw(st.sampled_from(["rows", "groups", "again", "distinct", "ranks", "join"])) if depth else "rows"
    if kind == "rows":
        return f"SELECT window(t, {size}) AS w, k, v FROM ({draw(rows(min(depth, 1)))})"
    if kind == "groups":
        return f"SELECT window(t, {size}) AS w, k, sum(v) AS v FROM ({draw(rows(depth))}) GROUP BY w, k"
    below = draw(windows(depth - 1, size))
    if kind == "again":
        return f"SELECT w, 'all' AS k, max(v) AS v FROM ({below}) GROUP BY w"
    if kind == "distinct":
        return f"SELECT DISTINCT w, k, v % 2 AS v FROM ({below})"
    if kind == "ranks":
        return f"SELECT w, k, row_number() OVER (PARTITION BY k, w ORDER BY v) AS v FROM ({below})"
    side = draw(st.sampled_from(["INNER", "LEFT", "LEFT ANTI"]))
    value = "a.v" if side == "LEFT ANTI" else "a.v * 100 + coalesce(b.v, 0)"
    return (
        f"SELECT a.w AS w, a.k AS k, {value} AS v FROM ({below}) AS a {side} JOIN ({draw(windows(0, size))}) AS b "
        "ON a.w = b.w AND a.k = b.k"
    )


@st.composite
def queries(draw: Any) -> str:
    sized = st.sampled_from(SIZES).flatmap(lambda size: windows(2, size))
    of_rows = rows(2).filter(lambda sql: "JOIN" in sql or "OVER" in sql)
    return draw(st.one_of(sized, of_rows, st.tuples(sized, of_rows).map(lambda both: (
        f"SELECT w.end AS t, k, v FROM ({both[0]}) UNION ALL SELECT t, k, v FROM ({both[1]})"))))  # fmt: skip


MARKS = st.lists(st.integers(-20, 140), min_size=2, max_size=2, unique=True).map(sorted)
CASES = given(sql=queries(), marks=MARKS)


@CASES
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_results_are_cut_once_and_what_they_need_is_kept(spark: SparkSession, sql: str, marks: list[int]) -> None:
    _check(spark, sql, marks)


@pytest.mark.prove
@CASES
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_results_are_cut_once_many_times(spark: SparkSession, sql: str, marks: list[int]) -> None:
    _check(spark, sql, marks)


def _check(spark: SparkSession, sql: str, marks: list[int]) -> None:
    note(sql)
    query = analyse(sql, STREAMS)
    low, high = (_micros(mark) for mark in marks)
    _show(_rows(spark))
    whole = _answer(spark, query.sql)
    before, between = (_answer(spark, query.bounded(*pair, _instant)) for pair in ((None, low), (low, high)))
    assert before + between == _answer(spark, query.bounded(None, high, _instant)), "nothing twice, nothing left out"
    assert _answer(spark, query.bounded(None, _micros(10_000), _instant)) == whole, "in the end it is the answer"
    rows = _rows(spark)
    kept = {name: live_rows(query, name, time, rows, low, _instant) for name, time in STREAMS.items()}
    _show({name: frame.where(f"{STREAMS[name]} < {_instant(high, '')}") for name, frame in kept.items()})
    assert _answer(spark, query.bounded(low, high, _instant)) == between, "what is kept is enough, what is final stays"


def _rows(spark: SparkSession) -> dict[str, DataFrame]:
    """Some sixty rows of two minutes, with equal times."""
    number = (
        "SELECT id AS n, element_at(array('a', 'b', 'c'), CAST(pmod(hash(id), 3) AS INT) + 1) AS k FROM range({0}, {1})"
    )
    at = "timestamp'2001-01-01 00:00:00' + make_dt_interval(0, 0, 0, pmod(hash(n, {2}), 120))"
    found = {}
    for name, first in (("flights", 0), ("others", 100)):
        rows = number.format(first, first + 30)
        found[name] = spark.sql(f"SELECT {at.format(0, 0, first)} AS {STREAMS[name]}, k, n AS v FROM ({rows})")
    return found


def _show(rows: dict[str, DataFrame]) -> None:
    for name, frame in rows.items():
        frame.createOrReplaceTempView(name)


def _answer(spark: SparkSession, sql: str) -> Counter[str]:
    return Counter(map(str, spark.sql(sql).collect()))


def _micros(seconds: int) -> int:
    return (START + timedelta(seconds=seconds) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _instant(at: int, _: str) -> str:
    return f"timestamp_micros({at})"
