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
    "rows of windows": "SELECT window(date, '2 hours', '1 hour').end AS e, v FROM flights WHERE v % 3 = 1",
    "grouped twice": """SELECT w.end AS e, max(n) AS m FROM (SELECT window(date, '2 hours', '30 minutes') AS w, k,
                        count(*) AS n FROM flights GROUP BY w, k) GROUP BY w HAVING max(n) > 1""",
    "grouped by the end": """SELECT e, count(*) AS m FROM (SELECT window.end AS e, k, sum(v) FROM flights
                             GROUP BY window(date, '1 hour'), k) AS a GROUP BY a.e""",
    "distinct": "SELECT DISTINCT window(date, '1 hour').end AS e, k FROM flights",
    "distinct above": """SELECT DISTINCT w.end AS e, v % 2 AS o FROM (SELECT *, window(date, '1 hour') AS w FROM
                         flights)""",
    "ranks": """SELECT w.end AS e, v, r, q, b FROM (SELECT *, rank() OVER (PARTITION BY w, k ORDER BY v DESC) AS r,
                row_number() OVER (PARTITION BY w.end ORDER BY k) AS q,
                lag(v, 2) OVER (PARTITION BY w ORDER BY k) AS b
                FROM (SELECT window(date, '1 hour') AS w, * FROM flights)) WHERE r < 3""",
    "running in a window": """SELECT w.end AS e, sum(v) OVER (PARTITION BY w, k ORDER BY date) AS s, max(v) OVER
                              (PARTITION BY k, w ORDER BY v % 2 ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m
                              FROM (SELECT window(date, '2 hours', '1 hour') AS w, * FROM flights)""",
    "windows joined": """SELECT a.w.end AS e, a.k, n, m FROM
                         (SELECT window(date, '1 hour') AS w, k, count(*) AS n FROM flights GROUP BY w, k) a
                         LEFT JOIN (SELECT window(ts, '60 minutes') AS w, k, count(*) AS m FROM others
                                    WHERE k <> 'k1' GROUP BY w, k) b ON a.k = b.k AND a.w = b.w""",
    "windows joined using": """WITH a AS (SELECT window(date, '1 hour').end AS e, * FROM flights),
                               b AS (SELECT window(ts, '1 hour').end AS e, * FROM others)
                               SELECT e, v FROM a LEFT ANTI JOIN b USING (e, k) UNION ALL
                               SELECT e, v + 1000 FROM a RIGHT JOIN b USING (e, k)""",
    "windows over a join": """SELECT window.end - INTERVAL '-20' MINUTES AS e, f.k, count(*) AS n, max(o.k) AS m
                              FROM flights f JOIN others AS o
                              ON o.ts BETWEEN f.date - INTERVAL 30 MINUTES AND f.date + INTERVAL '20' MINUTES
                              WHERE f.k <> 'k9' GROUP BY window(f.date, '1 hour', '30 minutes'), f.k""",
    "windows over OVER": """SELECT window.end AS e, max(n) AS m FROM (SELECT date, count(*) OVER (PARTITION BY
                                       k ORDER BY date RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS n
                                       FROM flights) GROUP BY window(date, '1 hour')""",
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


# `e` is the event time beyond which nothing that the row hangs on can lie.
JOINS = {
    "inner": """SELECT greatest(f.date, o.ts) AS g, f.date + INTERVAL '20' MINUTES AS e, v FROM flights f JOIN others o
                ON f.k = o.k AND o.ts BETWEEN f.date - INTERVAL '1' HOUR AND f.date + INTERVAL '20' MINUTES""",
    "left": """SELECT date + INTERVAL '20' MINUTES AS e, v, ts FROM flights f LEFT OUTER JOIN others o
               ON f.k = o.k AND (o.ts >= f.date AND f.date + INTERVAL '20' MINUTES >= o.ts) WHERE v % 2 = 0""",
    "right": """SELECT ts AS e, v, ts FROM flights f RIGHT JOIN others AS o
                ON f.k = o.k AND o.ts - f.date < INTERVAL '1' DAY AND o.ts > f.date
                AND f.date > o.ts - INTERVAL '70' MINUTES""",
    "full": """SELECT coalesce(f.date + INTERVAL '5' MINUTES, o.ts + INTERVAL '10' MINUTES) AS e, v, ts, o.k
               FROM (SELECT * FROM flights WHERE v % 5 < 3) f
               FULL JOIN (SELECT ts, concat(k, 'x') AS k FROM others UNION ALL SELECT ts, k FROM others) o
               ON f.date <= o.ts + INTERVAL '10' MINUTES AND o.ts <= f.date + INTERVAL '5' MINUTES AND o.k = f.k""",
    "semi": """SELECT date + INTERVAL '10' MINUTES AS e, v FROM flights LEFT SEMI JOIN others
               ON flights.k = others.k AND ts >= date AND ts < date + INTERVAL '10' MINUTES""",
    "anti": """SELECT date + INTERVAL '1' HOUR AS e, v FROM flights f LEFT ANTI JOIN others o
               ON f.k = o.k AND ts > date AND ts < date + INTERVAL '1' HOUR""",
    "of three": """SELECT a.date AS e, b.v AS x, c.v AS y, o.k FROM flights a, flights b, others o, flights c
                   WHERE a.v = b.v + 3 AND c.v = b.v - 3 AND o.k = a.k AND b.date BETWEEN a.date - INTERVAL '30' MINUTES
                   AND a.date AND c.date <= b.date AND c.date > b.date - INTERVAL '40' MINUTES
                   AND o.ts = b.date""",
    "of OVER": """SELECT w.date AS e, w.n, o.k FROM others o JOIN (SELECT *, count(*) OVER (ORDER BY date
                                   RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS n FROM flights) AS w
                                   ON o.ts = w.date""",
    "OVER above": """SELECT e, count(*) OVER (PARTITION BY k ORDER BY e RANGE BETWEEN INTERVAL 1 HOUR
                                          PRECEDING AND CURRENT ROW) AS n FROM (SELECT f.date AS e, o.k FROM flights f
                                          JOIN others o ON o.ts BETWEEN f.date - INTERVAL 1 HOUR AND f.date)""",
}


@pytest.mark.parametrize("name", JOINS)
def test_a_join_is_cut_by_the_last_event_time_that_may_matter(tables: Any, name: str) -> None:
    query = analyse(JOINS[name], {"flights": "date", "others": "ts"})
    whole = tables.sql(query.sql).collect()
    cut = sorted(map(str, (row for row in whole if LOW - timedelta(hours=1) <= ended(row) < HIGH)))
    assert 0 < len(cut) < len(whole)
    found = tables.sql(query.bounded(micros(LOW - timedelta(hours=1)), micros(HIGH), instant)).collect()
    assert sorted(map(str, found)) == cut


PLACES = {
    "lag": "SELECT date AS e, v, lag(v, 2) OVER (PARTITION BY k ORDER BY date) AS b FROM flights WHERE v % 4 > 0",
    "rows": """SELECT date AS e, max(v % 5) OVER (PARTITION BY k ORDER BY date ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)
               AS m, count(*) OVER (ORDER BY date) AS n FROM flights""",
    "of one time": "SELECT date AS e, row_number() OVER (PARTITION BY date ORDER BY v DESC) AS place FROM flights",
    "in windows": """SELECT window.end - INTERVAL '1' MICROSECOND AS e, count_if(v > b) AS n FROM (SELECT *, lag(v % 5)
                     OVER (PARTITION BY k ORDER BY date) AS b FROM flights) GROUP BY window(date, '1 hour')""",
}


@pytest.mark.parametrize("name", PLACES)
def test_rows_that_look_back_by_their_place_are_cut_by_their_time(tables: Any, name: str) -> None:
    query = analyse(PLACES[name], {"flights": "date"})
    whole = tables.sql(query.sql).collect()
    cut = sorted(map(str, (row for row in whole if LOW <= ended(row) < HIGH)))
    assert 0 < len(cut) < len(whole)
    assert sorted(map(str, tables.sql(query.bounded(micros(LOW), micros(HIGH), instant)).collect())) == cut


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
