"""`Query.bounded` against Spark itself: the bounded SQL gives what the whole SQL gives, cut by the window's end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.core.sql import analyse

START = datetime(2001, 1, 1, tzinfo=UTC)
LOW, HIGH = START + timedelta(hours=2), START + timedelta(hours=5)

# Every query shows its window's end, or leaves it out and stands beside one that shows it.
QUERIES = {
    "tumbling": "SELECT window.end AS e, k, count(*) AS n, sum(v) AS s FROM flights GROUP BY window(date, '1 hour'), k",
    "hopping": "SELECT window.end AS e, count(*) FROM flights GROUP BY window(date, '2 hours', '30 minutes')",
    "offset": "SELECT window.end AS e, max(v) FROM flights GROUP BY window(date, '1 hour', '1 hour', '-10 minutes')",
    "having": "SELECT window.end AS e, k FROM flights GROUP BY window(date, '1 hour'), k HAVING sum(v) > 20 OR k = 'a'",
    "having an alias": "SELECT window.end AS e, sum(v) AS s FROM flights GROUP BY window(date, '1 hour') HAVING s > 30",
    "whole window": "SELECT window, window.end AS e, avg(v) FROM flights GROUP BY window(date, '1 hour')",
    "call in select": "SELECT window(date, '60 minutes').end AS e, k FROM flights GROUP BY window(date, '1 hour'), k",
    "alias": "SELECT e.end AS e FROM (SELECT window(date, '1 hour') AS e, k FROM flights GROUP BY e, k)",
    "ordinal": "SELECT window.end AS e, k FROM (SELECT window(date, '1 hour'), k FROM flights GROUP BY 1, 2)",
    "named": "SELECT w.end AS e, k FROM (SELECT window(date, '1 hour') AS w, k FROM flights GROUP BY 1, 2)",
    "cte": """WITH a AS (SELECT date AS t, k, v FROM flights WHERE v % 2 = 0),
                   b AS (SELECT window.end AS e, k, count(DISTINCT v) AS n FROM a GROUP BY window(t, '1 hour'), k)
              SELECT e, upper(k), n FROM b WHERE n > 0""",
    "union all": """SELECT window.end AS e, k, count(*) FROM
                    (SELECT date AS t, k FROM flights UNION ALL SELECT ts, k FROM others) AS u
                    GROUP BY window(u.t, '1 hour'), k""",
    "two windows": """SELECT window.end AS e, k, count(*) FROM flights GROUP BY window(date, '1 hour'), k
                      UNION ALL
                      SELECT window.end, upper(k), max(v) FROM flights
                      GROUP BY window(date, '3 hours', '1 hour'), upper(k) HAVING max(v) > 5""",
    "a cte read twice": """WITH a AS (SELECT window.end AS e, k, sum(v) AS s FROM flights
                                     GROUP BY window(date, '1 hour'), k)
                           SELECT e, k, s FROM a UNION ALL SELECT e, 'all', s FROM a WHERE s > 3""",
    "rollup": """SELECT window.end AS e, k, grouping(k), count(*) FROM flights
                 GROUP BY window(date, '1 hour'), ROLLUP(k)""",
    "hopping grouping sets": """SELECT window.end AS e, k, grouping_id(), sum(v) FROM flights
                                GROUP BY window(date, '2 hours', '1 hour'), GROUPING SETS ((k, v), (k), ())""",
    "comments": """SELECT window.end AS e, count(*) -- GROUP BY
                   FROM flights /* HAVING /* nested */ */
                   GROUP BY window(date, '1 hour'), k -- the end of it
                   HAVING -- (
                     count(*) > 0 -- )
                   ;""",
    "filter": """SELECT window.end AS e, count(*) FILTER (WHERE v > 3), sort_array(collect_list(v)), any(v > 5)
                 FROM flights GROUP BY window(date, '1 hour')""",
    "percentile": """SELECT window.end AS e, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM flights
                     GROUP BY window(date, '1 hour')""",
    "shadowed time": "SELECT window.end AS e, v AS date FROM flights GROUP BY window(date, '1 hour'), v",
    "extract": """SELECT window.end AS e, extract(day FROM date) AS d FROM flights
                  GROUP BY window(date, '1 hour'), extract(day FROM date) HAVING (extract(day FROM window.end)) = 1""",
}


@pytest.fixture(scope="module")
def tables(spark: Any) -> Any:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = "SELECT timestamp'2001-01-01' + make_dt_interval(0, 0, id * 7) AS date, concat('k', id % 3) AS k, id AS v"
    spark.sql(f"{rows} FROM range(60)").createOrReplaceTempView("flights")
    spark.sql(f"SELECT date AS ts, k FROM ({rows} FROM range(20))").createOrReplaceTempView("others")
    return spark


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def instant(at: int, column: str) -> str:
    return f"timestamp_micros({at})"


def ended(row: Any) -> datetime:
    return row["e"].astimezone(UTC)  # pyspark gives times without a zone, in this process's local time


@pytest.mark.parametrize("name", QUERIES)
def test_the_bounded_query_is_the_whole_one_cut_by_the_end_of_the_window(tables: Any, name: str) -> None:
    query = analyse(QUERIES[name], {"flights": "date", "others": "ts"})
    whole = tables.sql(query.sql).collect()
    cut = sorted(map(str, (row for row in whole if LOW < ended(row) <= HIGH)))
    assert 0 < len(cut) < len(whole)
    assert sorted(map(str, tables.sql(query.bounded(micros(LOW), micros(HIGH), instant)).collect())) == cut
    until = sorted(map(str, (row for row in whole if ended(row) <= HIGH)))
    assert sorted(map(str, tables.sql(query.bounded(None, micros(HIGH), instant)).collect())) == until


SESSIONS = {
    "one gap": """SELECT session_window.end AS e, k, count(*) AS n FROM flights
                  GROUP BY session_window(date, '25 minutes'), k""",
    "named": """SELECT e, w.start FROM (SELECT session_window(date, '25 minutes') AS w, session_window.end AS e
                FROM flights GROUP BY w HAVING sum(v) > 3)""",
    "a gap by row": """SELECT e, m FROM (SELECT session_window.end AS e, max(v) AS m FROM flights GROUP BY k,
                       session_window(date, CASE WHEN v % 2 = 0 THEN '25 minutes' ELSE '5 minutes' END))""",
    "cte": """WITH a AS (SELECT date AS t, upper(k) AS u FROM flights WHERE v > 3)
              SELECT session_window.end AS e, u, sort_array(collect_set(u)) AS s FROM a
              GROUP BY 2, session_window(t, '25 minutes')""",
}


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_are_cut_by_their_end(tables: Any, name: str) -> None:
    query = analyse(SESSIONS[name].replace("flights", "bursts"), {"bursts": "date"})
    tables.sql("SELECT * FROM flights WHERE v % 20 < 7").createOrReplaceTempView("bursts")
    whole = tables.sql(query.sql).collect()
    high = max(map(ended, whole))
    low = min(map(ended, whole))
    cut = sorted(map(str, (row for row in whole if low <= ended(row) < high)))
    assert 0 < len(cut) < len(whole)
    assert sorted(map(str, tables.sql(query.bounded(micros(low), micros(high), instant)).collect())) == cut
    (session,) = query.sessions
    still = tables.sql(session.open_since(query.sql, micros(high), instant)).collect()
    assert len(still) >= len(whole) - len(cut)


def test_a_condition_on_sessions_is_about_whole_sessions(tables: Any) -> None:
    """Spark's own answer is not: it looks at single rows, each a session of 25 minutes."""
    long = "HAVING session_window.end - session_window.start > INTERVAL '30' MINUTES"
    text = SESSIONS["one gap"].replace("flights", "bursts")
    tables.sql("SELECT * FROM flights WHERE v % 20 < 7 OR v % 20 = 10").createOrReplaceTempView("bursts")
    query = analyse(f"{text} {long}", {"bursts": "date"})
    assert tables.sql(query.sql).count() == 0
    found = tables.sql(query.bounded(None, micros(START + timedelta(days=1)), instant)).collect()
    assert 0 < len(found) < tables.sql(text).count()
    assert all(row["n"] > 1 for row in found)


def test_the_bound_is_pushed_below_the_aggregation(tables: Any) -> None:
    text = analyse(QUERIES["tumbling"], {"flights": "date"}).bounded(None, micros(HIGH), instant)
    plan = tables.sql(text)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.index("Aggregate") < plan.index("Filter")
