"""SQL that cannot be folded: every form is refused at its place, by its name. `§` marks the place."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.sql import analyse, analyse_expression
from floodmark.core.sql.words import function_names
from floodmark.errors import SqlAt, SqlRefused

STREAMS = {"flights": "date", "others": "ts", "plain": None}
LATER = "is not supported yet"
W = "window(date, '1 hour')"

STATE = {
    "distinct": ("SELECT §DISTINCT k FROM flights", "DISTINCT"),
    "group by below": (
        "SELECT n FROM (SELECT count(*) AS n FROM flights §GROUP BY k)",
        "below or next to another SELECT",
    ),
    "two group bys without a window": (
        "SELECT k, count(*) FROM flights §GROUP BY k UNION ALL SELECT k, count(*) FROM others GROUP BY k",
        "below or next to another SELECT",
    ),
    "a running list": ("SELECT k, sort_array(§collect_list(v)) FROM flights GROUP BY k", "needs all rows of its key"),
    "a running percentile": ("SELECT k, §median(v) AS m FROM flights GROUP BY k", "needs all rows of its key"),
    "a running distinct": ("SELECT k, §count(DISTINCT v) AS m FROM flights GROUP BY k", "(DISTINCT) needs all values"),
    "group by a part of the window": (f"SELECT 1 FROM flights §GROUP BY {W}.start", "GROUP BY without a window"),
    "group by an expression over the window": (f"SELECT 1 FROM flights §GROUP BY (k, {W})", "GROUP BY without a win"),
    "aggregate without group by": ("SELECT §count(*) FROM flights", "aggregate count without GROUP BY window"),
    "aggregate in where": ("SELECT k FROM flights WHERE §max(k) > 1", "aggregate max"),
    "aggregate above the group by": (
        f"SELECT §sum(n) FROM (SELECT count(*) AS n FROM flights GROUP BY {W})",
        "aggregate sum",
    ),
    "over": ("SELECT sum(k) §OVER (PARTITION BY k) FROM flights", "OVER"),
    "named window": ("SELECT sum(k) OVER w FROM flights §WINDOW w AS (PARTITION BY k)", ""),
    "in (select)": ("SELECT k FROM flights WHERE k IN (§SELECT k FROM others)", "IN (SELECT ...)"),
    "not in (select)": ("SELECT k FROM flights WHERE k NOT IN (§SELECT k FROM others)", "IN (SELECT ...)"),
    "exists": ("SELECT k FROM flights WHERE EXISTS (§SELECT k FROM others)", "EXISTS (SELECT ...)"),
    "scalar subquery": ("SELECT (§SELECT max(k) FROM others) FROM flights", "a subquery in an expression"),
    "scalar subquery in having": (f"SELECT 1 FROM flights GROUP BY {W} HAVING 1 > (§SELECT 1 FROM others)", "subquery"),
    "grouping sets of the window": (
        f"SELECT k FROM flights §GROUP BY GROUPING SETS (({W}, k), (k))",
        "write the window beside it: GROUP BY window(...), GROUPING SETS (...)",
    ),
    "grouping sets after the list": (f"SELECT k FROM flights GROUP BY k, {W} §GROUPING SETS ((k))", "GROUPING SETS"),
    "with rollup": (
        f"SELECT k FROM flights GROUP BY {W}, k WITH §ROLLUP",
        "after the list of the GROUP BY; write it in the list: window(...), ROLLUP (...)",
    ),
    "rollup of the window": (
        f"SELECT k FROM flights §GROUP BY ROLLUP ({W}, k)",
        "GROUP BY without a window beside ROLLUP is not supported yet; write the window beside it",
    ),
    "group by all": ("SELECT k, count(*) FROM flights GROUP BY §ALL", "GROUP BY ALL"),
    "grouping() without a group": ("SELECT §grouping(k) FROM flights", "aggregate grouping without GROUP BY"),
    "pivot": ("SELECT * FROM flights §PIVOT (sum(x) FOR y IN (1, 2))", "PIVOT"),
    "unpivot": ("SELECT * FROM flights §UNPIVOT (a FOR b IN (c, d))", "UNPIVOT"),
    "union": ("SELECT k FROM flights §UNION SELECT k FROM others", "UNION without ALL"),
    "union distinct": ("SELECT k FROM flights §UNION DISTINCT SELECT k FROM others", "UNION without ALL"),
    "intersect": ("SELECT k FROM flights §INTERSECT SELECT k FROM others", "INTERSECT"),
    "except": ("SELECT k FROM flights §EXCEPT SELECT k FROM others", "EXCEPT"),
    "minus": ("SELECT k FROM flights §MINUS SELECT k FROM others", "EXCEPT"),
    "except all": ("SELECT k FROM flights §EXCEPT ALL SELECT k FROM others", "EXCEPT"),
    "qualify": ("SELECT k FROM flights §QUALIFY k > 1", "QUALIFY"),
    "window_time": (f"SELECT §window_time(window) FROM flights GROUP BY {W}", "window_time"),
    "two windows": (f"SELECT 1 FROM flights GROUP BY {W}, §window(date, '2 hours')", "a second window"),
    "the window twice": (f"SELECT 1 FROM flights GROUP BY {W}, §{W}", "a second window"),
    "another window in the list": (
        f"SELECT §window(date, '2 hours').end FROM flights GROUP BY {W}",
        "a second, differ",
    ),
    "having without group by": ("SELECT k FROM flights §HAVING k > 1", "HAVING without GROUP BY"),
    "union all above the group by": (
        f"SELECT window.end FROM flights GROUP BY {W} §UNION ALL SELECT ts FROM others",
        "UNION ALL of windows and of single rows",
    ),
    "union all of a cte with group by": (
        f"WITH a AS (SELECT window.end AS e FROM flights GROUP BY {W})\n"
        "SELECT ts FROM others §UNION ALL SELECT e FROM a",
        "UNION ALL of windows and of single rows",
    ),
    "recursive": ("WITH §RECURSIVE r AS (SELECT k FROM flights) SELECT * FROM r", "WITH RECURSIVE"),
}

NEVER = {
    "order by": ("SELECT k FROM flights §ORDER BY k", "ORDER BY: the rows of a stream's sink have no order"),
    "order by after the group": (f"SELECT 1 FROM flights GROUP BY {W} §ORDER BY 1", "ORDER BY"),
    "sort by": ("SELECT k FROM flights §SORT BY k", "SORT BY"),
    "cluster by": ("SELECT k FROM flights §CLUSTER BY k", "CLUSTER BY"),
    "distribute by": ("SELECT k FROM flights §DISTRIBUTE BY k", "DISTRIBUTE BY"),
    "lateral view": ("SELECT * FROM flights §LATERAL VIEW explode(a) t AS x", "LATERAL VIEW"),
    "explode": ("SELECT §explode(a) FROM flights", "function explode: functions that return several rows"),
    "typeof beside a group": (
        "SELECT window.start AS w, §typeof(sum(v)) AS t FROM flights GROUP BY window(date, '1 hour')",
        "function typeof: Spark treats it as a constant and fails to plan it with a GROUP BY",
    ),
    "table function": ("SELECT * §FROM range(10)", "functions that return several rows"),
    "identifier clause": ("SELECT k §FROM identifier('flights')", "FROM"),
    "identifier function": ("SELECT §identifier('k') FROM flights", "function identifier"),
    "values": ("SELECT * §FROM VALUES (1)", "FROM VALUES"),
    "tablesample": ("SELECT * FROM flights §TABLESAMPLE (10 ROWS)", "TABLESAMPLE"),
    "insert": ("§INSERT INTO x SELECT * FROM flights", "expected SELECT or WITH, found INSERT"),
    "values statement": ("§VALUES (1)", "expected SELECT or WITH"),
    "table statement": ("§TABLE flights", "expected SELECT or WITH"),
    "from first": ("§FROM flights SELECT k", "expected SELECT or WITH"),
    "from first below": ("SELECT * FROM (§FROM flights SELECT k)", "FROM before SELECT"),
    "from first in a union": ("SELECT k FROM flights UNION ALL §FROM others SELECT k", "FROM before SELECT"),
    "table in a list": ("SELECT (§TABLE others) AS z FROM flights", "TABLE as a query"),
    "table as an argument": ("SELECT named_struct('a', (§TABLE secret)) AS z FROM flights", "TABLE as a query"),
    "table in where": ("SELECT k FROM flights WHERE k = ((§TABLE/**/`secret`))", "TABLE as a query"),
    "table in exists": ("SELECT k FROM flights WHERE EXISTS((§table secret))", "TABLE as a query"),
    "table in having": (f"SELECT 1 FROM flights GROUP BY {W} HAVING k = (§TABLE others)", "TABLE as a query"),
    "table in on": ("SELECT 1 FROM flights f JOIN others o ON f.k = (§TABLE others)", "TABLE as a query"),
    "table in a union": ("SELECT k FROM flights UNION ALL §TABLE others", "TABLE as a query"),
    "a command in parentheses": ("SELECT k FROM flights WHERE k = (SHOW §TABLES)", "SHOW AS TABLES: only a column"),
    "map in parentheses": ("SELECT (MAP §a) AS z FROM flights", "MAP AS a: only a column"),
    "a name in a row": ("SELECT k FROM flights WHERE (k §a, v) = (1, 2)", "k AS a: only a column"),
    "two statements": ("SELECT k FROM flights; §SELECT k FROM others", "a second statement"),
    "pipe": ("SELECT k FROM flights §|> WHERE k > 1", "the pipe syntax"),
    "path table": ("SELECT * FROM §delta.`/lake/x`", "table delta./lake/x: only streams"),
    "qualified table": ("SELECT * FROM §db.flights", "table db.flights: only streams"),
    "unknown table": ("SELECT * FROM §flihgts", "no stream or lookup has this name; did you mean flights?"),
    "no table": ("§SELECT 1", "without FROM"),
    "hint": ("SELECT §/*+ BROADCAST(flights) */ k FROM flights", "a hint"),
    "time travel by version": ("SELECT * FROM flights §VERSION AS OF 1", "time travel"),
    "time travel by time": ("SELECT * FROM flights §TIMESTAMP AS OF '2020-01-01'", "time travel"),
    "named parameter": ("SELECT §:p FROM flights", "no parameters"),
    "parameter": ("SELECT §? FROM flights", "found the character '?'"),
    "variant path": ("SELECT a§:b FROM flights", "no paths (a:b)"),
    "transform using": ("SELECT §TRANSFORM (a, b) USING 'cat' AS (x) FROM flights", "runs a program"),
    "substitution": ("SELECT '§${x}' FROM flights", "Spark would substitute"),
    "backslash comment": ("SELECT k §-- c \\\n, k2\nFROM flights", "a comment ends in a backslash"),
    "open comment": ("SELECT k FROM flights §/* /* */", "a comment /* is not closed"),
    "open string": ("SELECT §'a FROM flights", "a ' is not closed"),
    "open backquote": ("SELECT §`a FROM flights", "a ` is not closed"),
    "dollar string": ("SELECT §$$a$$ FROM flights", "found the character '$'"),
    "collate": ("SELECT k §COLLATE utf8_lcase FROM flights", "COLLATE"),
    "collate in a type": ("SELECT CAST(k AS string §COLLATE utf8_lcase) FROM flights", "COLLATE"),
    "cte called window": (f"WITH §window AS (SELECT date FROM flights) SELECT 1 FROM window GROUP BY {W}", "name of a"),
    "window below the group": (
        f"SELECT 1 FROM (SELECT date, k AS §window FROM flights) GROUP BY {W}",
        "a column named window below",
    ),
    "unused cte": ("WITH §a AS (SELECT k FROM flights) SELECT * FROM others", "WITH a: it is never read"),
    "cte with a stream's name": (
        "WITH §Others AS (SELECT k FROM flights) SELECT * FROM others",
        "a stream or lookup has this na",
    ),
    "a cte twice": (
        "WITH §a AS (SELECT k FROM flights), a AS (SELECT 1 FROM a) SELECT * FROM a",
        "it is defined twic",
    ),
    "cte columns": ("WITH §a(k) AS (SELECT k FROM flights) SELECT * FROM a", "give columns their names"),
    "alias columns": ("SELECT k FROM flights AS §f(k)", "give columns their names"),
    "nested with": ("SELECT * FROM (§WITH a AS (SELECT k FROM flights) SELECT * FROM a)", "put it at the start"),
    "relation called window": (f"SELECT 1 FROM flights AS §window GROUP BY {W}", "name of a relation"),
    "column called window": (f"SELECT k AS §window FROM flights GROUP BY {W}, k", "AS window"),
    "a comma and a join": ("SELECT k FROM flights, §JOIN others", "JOIN where a stream's name is expected"),
    "a comma and a side": ("SELECT k FROM flights, §left others", "left where a stream's name is expected"),
    "from and a side": ("SELECT k FROM §semi flights", "semi where a stream's name is expected"),
    "comma before from": ("SELECT k§, FROM flights", "a comma with nothing after it"),
    "where with a name in parentheses": ("SELECT k FROM flights §WHERE (k)", "leave the parentheses out"),
    "no columns": ("§SELECT FROM flights", "a SELECT without columns"),
    "a column called interval": (f"SELECT 1 FROM flights GROUP BY {W}, §interval", "in backquotes"),
    "limit": ("SELECT k FROM flights §LIMIT 1", "LIMIT: a stream never ends"),
    "limit below": ("SELECT k FROM (SELECT * FROM flights §LIMIT 3)", "LIMIT: a stream never ends"),
    "offset": ("SELECT k FROM flights §OFFSET 1", "OFFSET: a stream never ends"),
    "neither grouped nor aggregated": (
        "SELECT §k, count(*) AS n FROM flights GROUP BY window(date, '1 hour')",
        "k is neither in the GROUP BY nor in an aggregate",
    ),
    "syntax": ("SELECT k frm §flights", "cannot be parsed at flights"),
    "nothing": ("§-- nothing", "expected a SELECT, found nothing"),
}

REPLAY = {
    "rand": ("SELECT §rand() FROM flights", "function rand: a replay would give a different answer"),
    "rand with a seed": ("SELECT §rand(1) FROM flights", "function rand"),
    "quoted rand": ("SELECT §`rand`() FROM flights", "function `rand`"),
    "qualified rand": ("SELECT system.builtin.§rand() FROM flights", "a qualified function name"),
    "uuid": ("SELECT §uuid() FROM flights", "function uuid"),
    "shuffle": ("SELECT §shuffle(a) FROM flights", "function shuffle"),
    "monotonic id": ("SELECT §monotonically_increasing_id() FROM flights", "function monotonically_increasing_id"),
    "partition": ("SELECT §spark_partition_id() FROM flights", "function spark_partition_id"),
    "file name": ("SELECT §input_file_name() FROM flights", "function input_file_name"),
    "encryption with a random vector": ("SELECT §aes_encrypt(k, 'x') FROM flights", "function aes_encrypt"),
    "now": ("SELECT * FROM flights WHERE date < §now()", "function now: the epoch's clock is allowed only in the list"),
    "the clock below": (
        "SELECT c FROM (SELECT §current_timestamp() AS c FROM flights)",
        "of the outermost SELECT (or",
    ),
    "the clock in a join": (
        "SELECT 1 FROM flights JOIN others ON date < §now() AND date = ts",
        "is allowed only in the list",
    ),
    "the clock with a precision": ("SELECT §current_timestamp(3) AS c FROM flights", "expected current_timestamp()"),
    "current_timestamp": ("SELECT §current_timestamp FROM flights", "current_timestamp: a replay"),
    "localtimestamp()": ("SELECT §localtimestamp() FROM flights", "function localtimestamp: it reads the clock"),
    "current_date": ("SELECT date > §current_date FROM flights", "current_date"),
    "quoted current_date": ("SELECT §`current_date` FROM flights", "current_date"),
    "localtimestamp": ("SELECT §localtimestamp FROM flights", "localtimestamp"),
    "unix_timestamp()": ("SELECT §unix_timestamp() FROM flights", "without an argument"),
    "user": ("SELECT §user FROM flights", "if it is a column, write STREAM.user"),
    "current_user()": ("SELECT §current_user() FROM flights", "function current_user"),
    "session_user": ("SELECT §session_user FROM flights", "session_user"),
    "version": ("SELECT §version() FROM flights", "function version"),
    "java": ("SELECT §reflect('java.util.UUID', 'randomUUID') FROM flights", "function reflect"),
    "raise_error": ("SELECT §raise_error('x') FROM flights", "function raise_error"),
    "special timestamp": ("SELECT TIMESTAMP §'now' FROM flights", "the string 'now'"),
    "special date": ("SELECT DATE§'today' FROM flights", "the string 'today'"),
    "cast of a special text": ("SELECT CAST(§' Tomorrow ' AS date) FROM flights", "Spark may read the clock"),
    "comparison with a special text": ('SELECT date > §"yesterday" FROM flights', "Spark may read the clock"),
    "special text with a zone": ("SELECT to_date(§'today UTC') FROM flights", "Spark may read the clock"),
    "special text with an escape": ("SELECT to_date(§'t\\oday') FROM flights", "Spark may read the clock"),
    "special text in unicode": ("SELECT CAST(§'\\u006eow' AS date) FROM flights", "Spark may read the clock"),
    "special text in octal": ("SELECT CAST(§'\\156ow' AS date) FROM flights", "Spark may read the clock"),
    "special text and a tab": ("SELECT CAST(§'now\\t' AS date) FROM flights", "Spark may read the clock"),
    "special text of parts": ("SELECT CAST(§concat('n', 'ow') AS date) FROM flights", "computed from constants"),
    "special text by an operator": ("SELECT k FROM flights WHERE date < 'no' §|| 'w'", "computed from constants"),
    "special text backwards": ("SELECT to_date(§reverse('yadot')) FROM flights", "computed from constants"),
    "special text of bytes": ("SELECT date(§CAST(X'6E6F77' AS string)) FROM flights", "computed from constants"),
    "special text by a format": ("SELECT §date_format(DATE'2001-01-01', \"'now'\") FROM flights", "from con"),
    "special text in a lambda": (
        "SELECT §transform(array('wo'), x -> concat('n', reverse(x)))[0] FROM flights",
        "computed from constants",
    ),
    "special text in two parts": ("SELECT to_date(§'to' 'day') FROM flights", "Spark may read the clock"),
    "own function": ("SELECT §my_udf(k) FROM flights", "function my_udf: it is not one of the built-in"),
    "misspelt function": ("SELECT §cuont(k) FROM flights", "did you mean count?"),
    "first": (f"SELECT §first(k) FROM flights GROUP BY {W}", "function first: its answer depends on row order"),
    "try_sum": (f"SELECT §try_sum(k) FROM flights GROUP BY {W}", "row order"),
    "last_value": (f"SELECT §last_value(k) FROM flights GROUP BY {W}", "row order"),
    "any_value": (f"SELECT §any_value(k) FROM flights GROUP BY {W}", "row order"),
    "max_by": (f"SELECT §max_by(k, v) FROM flights GROUP BY {W}", "row order"),
    "mode": (f"SELECT §mode(k) FROM flights GROUP BY {W}", "row order"),
    "percentile_approx": (f"SELECT §percentile_approx(k, 0.5) FROM flights GROUP BY {W}", "row order"),
    "listagg": (f"SELECT §listagg(k) WITHIN GROUP (ORDER BY k) FROM flights GROUP BY {W}", "row order"),
    "collect_list": (f"SELECT §collect_list(k) FROM flights GROUP BY {W}", "row order"),
    "collect_set in size": (f"SELECT size(§collect_set(k)) FROM flights GROUP BY {W}", "row order"),
    "sorted after a change": (
        f"SELECT sort_array(transform(§collect_list(k), x -> 1)) FROM flights GROUP BY {W}",
        "row",
    ),
    "sorted by a comparator": (
        f"SELECT array_sort(§collect_list(k), (a, b) -> 0) FROM flights GROUP BY {W}",
        "row ord",
    ),
}

WINDOW = {
    "in where": (f"SELECT k FROM flights WHERE §{W}.end > date", "elsewhere write window.start"),
    "sessions without group by": ("SELECT §session_window(date, '1 hour') FROM flights", "without GROUP BY"),
    "in having": (f"SELECT 1 FROM flights GROUP BY {W} HAVING §{W}.end > date", "elsewhere write window.start"),
    "in where of the group by": (f"SELECT 1 FROM flights WHERE §{W}.end > date GROUP BY {W}", "elsewhere write window"),
    "another column": ("SELECT 1 FROM flights GROUP BY §window(dat, '1 hour')", "expected date of stream flights"),
    "a field": ("SELECT 1 FROM flights GROUP BY §window(s.date, '1 hour')", "found s.date"),
    "computed": ("SELECT 1 FROM flights GROUP BY §window(date + INTERVAL 1 DAY, '1 hour')", "expected date of stream"),
    "computed below": (
        f"SELECT 1 FROM (SELECT CAST(date AS date) AS date FROM flights) GROUP BY §{W}",
        "expected date",
    ),
    "another column of its name": (f"SELECT 1 FROM (SELECT k AS date FROM flights) GROUP BY §{W}", "expected date"),
    "two columns of its name": (f"SELECT 1 FROM (SELECT *, k AS date FROM flights) GROUP BY §{W}", "expected date"),
    "a field of its name": (f"SELECT 1 FROM (SELECT s.* FROM flights) GROUP BY §{W}", "expected date"),
    "fields before it in a branch": (
        f"SELECT 1 FROM (SELECT s.*, date FROM flights UNION ALL SELECT s.*, ts FROM others) GROUP BY §{W}",
        "expected date of stream flights and ts of stream others",
    ),
    "too many windows": (
        "SELECT 1 FROM flights GROUP BY §window(date, '1 day', '1 microsecond')",
        "at most 100000 wind",
    ),
    "no space before the unit": ("SELECT 1 FROM flights GROUP BY §window(date, '1hour')", "a space between"),
    "left out": (f"SELECT 1 FROM (SELECT * EXCEPT (date) FROM flights) GROUP BY §{W}", "expected date"),
    "a field below": (f"SELECT 1 FROM (SELECT s.date FROM flights) GROUP BY §{W}", "expected date"),
    "another column in a branch": (
        f"SELECT 1 FROM (SELECT date, k FROM flights UNION ALL SELECT k, ts FROM others) GROUP BY §{W}",
        "expected date of stream flights and ts of stream others",
    ),
    "a star in a branch": (
        f"SELECT 1 FROM (SELECT * FROM flights UNION ALL SELECT * FROM others) GROUP BY §{W}",
        "no `*` before it in a UNION ALL",
    ),
    "no event time": ("SELECT 1 FROM plain GROUP BY §window(date, '1 hour')", "declare `event_time`"),
    "group by a truncated time": (
        "SELECT 1 FROM flights §GROUP BY date_trunc('hour', date)",
        "expected columns, found",
    ),
    "group by an alias": ("SELECT upper(k) AS u FROM flights §GROUP BY u", "expected columns, found u"),
    "group by a field": ("SELECT s.k FROM flights §GROUP BY s.k", "expected columns, found s.k"),
    "cube without a window": ("SELECT k FROM flights §GROUP BY CUBE (k)", "expected columns, found CUBE"),
    "having without a window": ("SELECT k FROM flights GROUP BY k §HAVING count(*) > 1", "`delete: CONDITION`"),
    "over another column": (
        "SELECT sum(k) §OVER (ORDER BY k RANGE 5 PRECEDING) AS s FROM flights",
        "by the event time",
    ),
    "over two columns": ("SELECT sum(k) §OVER (ORDER BY date, k RANGE 5 PRECEDING) AS s FROM flights", "alone"),
    "over, newest first": (
        "SELECT sum(k) §OVER (ORDER BY date DESC RANGE INTERVAL '1' HOUR PRECEDING) AS s FROM flights",
        "oldest first",
    ),
    "over a month": (
        "SELECT sum(k) §OVER (ORDER BY date RANGE INTERVAL '1' MONTH PRECEDING) AS s FROM flights",
        "a month is not a fixed length",
    ),
    "over a number": ("SELECT sum(k) §OVER (ORDER BY date RANGE 5 PRECEDING) AS s FROM flights", "reaches 5"),
    "over in where": (
        "SELECT k FROM flights WHERE sum(k) §OVER (ORDER BY date RANGE INTERVAL '1' HOUR PRECEDING) > 1",
        "outside of the select list",
    ),
    "a scalar over": ("SELECT §upper(k) OVER (ORDER BY date) AS s FROM flights", "OVER is for aggregates"),
    "a session over another column": (
        "SELECT 1 FROM flights GROUP BY §session_window(k, '1 hour')",
        "expected date of",
    ),
    "a session of three": ("SELECT 1 FROM flights GROUP BY §session_window(date, '1 hour', '1 hour')", "with 3 arg"),
    "a gap that is no interval": (
        "SELECT 1 FROM flights GROUP BY §session_window(date, 'soon')",
        "session_window(...): exp",
    ),
    "a gap that is a number": ("SELECT 1 FROM flights GROUP BY §session_window(date, 5)", "a duration in quotes"),
    "a gap of nothing": ("SELECT 1 FROM flights GROUP BY §session_window(date, '0 seconds')", "a gap above 0"),
    "a gap in a branch": (
        "SELECT 1 FROM flights GROUP BY k, §session_window(date, CASE k WHEN 'a' THEN '1 hour' ELSE 'never' END)",
        "session_window(...): exp",
    ),
    "a session and a window": (f"SELECT 1 FROM flights GROUP BY {W}, §session_window(date, '1 hour')", "a second"),
    "where above sessions": (
        "SELECT e FROM (SELECT session_window.end AS e FROM flights GROUP BY session_window(date, k)) §WHERE e > 1",
        "use HAVING",
    ),
    "a session in the list": (
        "SELECT §session_window(date, '1 hour') FROM flights",
        "session_window(...) without GROUP",
    ),
    "a month": ("SELECT 1 FROM flights GROUP BY §window(date, '1 month')", "a month is not a fixed length"),
    "a slide beyond the size": (
        "SELECT 1 FROM flights GROUP BY §window(date, '1 hour', '2 hours')",
        "0 < slide <= size",
    ),
    "no size": ("SELECT 1 FROM flights GROUP BY §window(date, '0 hours')", "0 < slide <= size"),
    "a start beyond the slide": ("SELECT 1 FROM flights GROUP BY §window(date, '1 hour', '1 hour', '1 hour')", "start"),
    "a size without quotes": ("SELECT 1 FROM flights GROUP BY §window(date, INTERVAL 1 HOUR)", "a duration in quotes"),
    "one argument": ("SELECT 1 FROM flights GROUP BY §window(date)", "with 1 arguments"),
    "an ordinal after a star": (f"SELECT * EXCEPT (date), {W} FROM flights §GROUP BY 2", "GROUP BY without a window"),
}


ROWS = f"(SELECT {W} AS w, * FROM flights)"
OTHER_ROWS = "(SELECT window(ts, '1 hour') AS w, * FROM others)"
NEAR = "o.ts BETWEEN f.date - INTERVAL '1' HOUR AND f.date"
HOUR_BEFORE = "OVER (ORDER BY date RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)"

# What crosses windows, or has no bound in event time.
APART = {
    "join": ("SELECT f.k FROM flights f §JOIN others o ON f.k = o.k", "JOIN of o with no bound on how far"),
    "left join": ("SELECT f.k FROM flights f LEFT §JOIN others o ON f.k = o.k", "no bound"),
    "cross join": ("SELECT 1 FROM flights CROSS §JOIN others", "no bound"),
    "semi join": ("SELECT k FROM flights LEFT SEMI §JOIN others USING (k)", "no bound"),
    "natural join": ("SELECT k FROM flights §NATURAL JOIN others", "NATURAL JOIN is not allowed"),
    "comma join": ("SELECT a, b FROM flights§, others", "no bound"),
    "join of subqueries": ("SELECT 1 FROM (SELECT * FROM flights) a §JOIN (SELECT * FROM others) b", "no bound"),
    "join in parentheses": ("SELECT 1 FROM (flights f §JOIN others o ON f.k = o.k)", "a JOIN in parentheses"),
    "a bound on one side": ("SELECT 1 FROM flights f §JOIN others o ON o.ts > f.date", "on one side only"),
    "a bound beside OR": (f"SELECT 1 FROM flights f §JOIN others o ON {NEAR} OR f.k = o.k", "no bound"),
    "a bound in the WHERE of an outer join": (
        f"SELECT 1 FROM flights f LEFT §JOIN others o ON f.k = o.k WHERE {NEAR}",
        "no bound",
    ),
    "a bound by months": (
        "SELECT 1 FROM flights f §JOIN others o ON o.ts BETWEEN f.date AND f.date + INTERVAL '1' MONTH",
        "on one side only",
    ),
    "a bound by a column": (
        "SELECT 1 FROM flights f §JOIN others o ON o.ts BETWEEN f.date AND f.expires",
        "on one side only",
    ),
    "a bound to the first only": (
        f"SELECT 1 FROM flights f §JOIN others o ON {NEAR} JOIN plain p ON p.k = f.k",
        "p has no event time",
    ),
    "a bound in the ON of a LEFT JOIN alone": (
        "SELECT 1 FROM flights f §JOIN others o ON o.k = f.k LEFT JOIN others p ON p.ts = f.date AND p.ts = o.ts",
        "JOIN of o with no bound",
    ),
    "a bound in the ON of an ANTI JOIN alone": (
        "SELECT 1 FROM flights f §JOIN others o ON o.k = f.k ANTI JOIN others p ON p.ts = f.date AND p.ts = o.ts",
        "JOIN of o with no bound",
    ),
    "the third without a bound": (
        f"SELECT 1 FROM flights f §JOIN others o ON {NEAR} JOIN others p ON p.k = f.k",
        "JOIN of p with no bound",
    ),
    "two joins, one of them full": (
        f"SELECT 1 FROM flights f JOIN others o ON {NEAR} §FULL JOIN others p ON p.ts = o.ts",
        "FULL JOIN next to another",
    ),
    "one name for two": (f"SELECT 1 FROM §flights JOIN flights ON {NEAR}", "two relations are called flights"),
    "windows with rows": (f"SELECT 1 FROM {ROWS} f §JOIN others o ON {NEAR}", "JOIN of windows with single rows"),
    "windows by their starts and ends": (
        f"SELECT 1 FROM {ROWS} a §JOIN {OTHER_ROWS} b ON a.w.start = b.w.end",
        "expected ON ... AND a.w = b.w",
    ),
    "windows of two sizes": (
        f"SELECT 1 FROM {ROWS} a §JOIN (SELECT window(ts, '2 hours') AS w FROM others) b ON a.w = b.w",
        "of one size and slide",
    ),
    "windows by a key": (f"SELECT 1 FROM {ROWS} a §JOIN {OTHER_ROWS} b ON a.k = b.k", "expected ON ... AND a.w = b.w"),
    "windows, the third by a key": (
        f"SELECT 1 FROM {ROWS} a §JOIN {OTHER_ROWS} b USING (w) JOIN {OTHER_ROWS} c ON c.k = a.k",
        "expected ON ... AND a.w = b.w",
    ),
    "grouped across windows": (f"SELECT k, count(*) FROM {ROWS} §GROUP BY k", "GROUP BY above windows"),
    "grouped by what a left join may lack": (
        f"SELECT 1 FROM {ROWS} a LEFT JOIN {OTHER_ROWS} b ON a.w = b.w §GROUP BY b.w",
        "GROUP BY above windows",
    ),
    "a window of a window": (
        f"SELECT count(*) FROM (SELECT window.end AS e FROM flights GROUP BY {W}) §GROUP BY window(e, '1 day')",
        "GROUP BY above windows",
    ),
    "distinct across windows": (f"SELECT §DISTINCT k FROM {ROWS}", "DISTINCT over all rows"),
    "over across windows": (f"SELECT sum(v) §OVER (PARTITION BY k) FROM {ROWS}", "OVER above windows"),
    "rows without an order": (
        f"SELECT sum(v) §OVER (PARTITION BY w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM {ROWS}",
        "OVER with ROWS: expected ORDER BY",
    ),
    **{
        f"{call} without an order": (
            f"SELECT {call} §OVER (PARTITION BY w) AS f FROM {ROWS}",
            f"{call.partition('(')[0]}: expected ORDER BY in its OVER",
        )
        for call in (
            "first_value(v)", "first_value(v) FILTER (WHERE v > 1)", "last_value(v)", "nth_value(v, 2)", "row_number()",
            "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(2)", "lag(v)", "lead(v)",
        )
    },
    "the first of one event time without an order": (
        "SELECT date, first_value(v) §OVER (PARTITION BY k, date) AS f FROM flights",
        "first_value: expected ORDER BY in its OVER",
    ),
    "the last of equal rows": (
        f"SELECT last_value(v) §OVER (PARTITION BY w ORDER BY k) FROM {ROWS}",
        "last_value: expected ROWS",
    ),
    "the first by a range": (
        f"WITH a AS {ROWS} SELECT first_value(v) §OVER (PARTITION BY w ORDER BY v RANGE 1 PRECEDING) AS f FROM a",
        "first_value: expected ROWS",
    ),
    "over in a select with group by": (
        f"SELECT sum(count(*)) §OVER (ORDER BY window.start RANGE 1 PRECEDING) FROM flights GROUP BY {W}",
        "OVER next to GROUP BY",
    ),
    "over beside a window": (f"SELECT {W} AS w, sum(v) §{HOUR_BEFORE} FROM flights", "OVER next to window(...)"),
    "a rank by another order": (
        "SELECT 1 + row_number() §OVER (ORDER BY k) FROM flights",
        "ordered by the event time, found k",
    ),
    "the first of equal rows": (f"SELECT first_value(k) §{HOUR_BEFORE} FROM flights", "first_value: expected ROWS"),
    "the next row": ("SELECT lead(k) §OVER (ORDER BY date) FROM flights", "lead: OVER that depends on later rows"),
    "a share of all rows": ("SELECT ntile(4) §OVER (ORDER BY date) FROM flights", "ntile: OVER that depends on later"),
    "rows after the row": (
        "SELECT max(k) §OVER (ORDER BY date ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM flights",
        "max: OVER that depends on later rows",
    ),
    **{
        f"a frame to {bound}": (
            f"SELECT max(k) §OVER (ORDER BY date {kind} BETWEEN UNBOUNDED PRECEDING AND {bound} PRECEDING) "
            "FROM flights",
            words,
        )
        for kind, bound, words in (
            ("ROWS", "-1", "a frame that reaches -1 PRECEDING: expected a whole number of rows"),
            ("ROWS", "1 - 2", "a frame that reaches 1 - 2 PRECEDING"),
            ("ROWS", "(-1)", "a frame that reaches (-1) PRECEDING"),
            ("ROWS", "CAST(-1 AS INT)", "a frame that reaches CAST(-1 AS INT) PRECEDING"),
            ("RANGE", "INTERVAL '-5' MINUTES", "a duration that is not negative"),
            ("RANGE", "- INTERVAL '5' MINUTES", "expected a length such as INTERVAL '5' MINUTES of at least 0"),
        )
    },
    "a frame from rows to come": ("SELECT max(k) §OVER (ORDER BY date ROWS -2 PRECEDING) FROM flights", "reaches -2"),
    "a lag that looks ahead": ("SELECT lag(k, -1) §OVER (ORDER BY date) FROM flights", "lag: expected a number of"),
    "a lag that is no number": ("SELECT lag(k, n) §OVER (ORDER BY date) FROM flights", "lag: expected a number of"),
    "a rank without over": ("SELECT §lag(k) FROM flights", "function lag: expected OVER"),
    "another order": (
        f"SELECT sum(v) §{HOUR_BEFORE}, max(v) {HOUR_BEFORE.replace('date', 'o.ts')} FROM flights f JOIN others o"
        f" ON {NEAR}",
        "OVER with another event time",
    ),
    "group by above a join": (
        f"SELECT f.k, count(*) FROM flights f JOIN others o ON {NEAR} §GROUP BY f.k",
        "GROUP BY without a window above a JOIN or OVER",
    ),
    "group by above over": (
        f"SELECT k, max(s) FROM (SELECT k, sum(v) {HOUR_BEFORE} AS s FROM flights) §GROUP BY k",
        "GROUP BY without a window above a JOIN or OVER",
    ),
    "sessions of a join": (
        f"SELECT 1 FROM flights f JOIN others o ON {NEAR} GROUP BY §session_window(f.date, '1 hour')",
        "session_window(...) above a JOIN",
    ),
    **{
        f"sessions by {sets}": (
            f"SELECT count(*) AS n FROM flights GROUP BY session_window(date, '1 hour'), §{sets}",
            f"{sets.partition('(')[0].strip()} beside session_window(...): Spark cannot tell",
        )
        for sets in ("ROLLUP(k)", "CUBE(k, v)", "GROUPING SETS ((k), ())")
    },
    "sessions by their name beside sets": (
        "SELECT session_window(date, '1 hour') AS w, count(*) AS n FROM flights GROUP BY w, §ROLLUP(k)",
        "ROLLUP beside session_window(...)",
    ),
    "distinct above sessions": (
        "SELECT §DISTINCT e FROM (SELECT session_window.end AS e FROM flights GROUP BY session_window(date, '1 hour'))",
        "DISTINCT above a session_window",
    ),
    "a join read twice": (
        f"§WITH a AS (SELECT f.* FROM flights f JOIN others o ON {NEAR}) SELECT k FROM a UNION ALL "
        f"SELECT k FROM a GROUP BY {W}, k",
        "is read both on its own and below a window",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_crosses_windows_or_has_no_bound(name: str) -> None:
    check(*APART[name])


@pytest.mark.parametrize(
    ("after", "taken"),
    [
        ("", False),
        (" GROUP BY k", False),
        (" WHERE k > 0 GROUP BY k", False),
        (" WHERE k IS NULL GROUP BY k", False),
        (" s GROUP BY k", True),
        (" AS s GROUP BY k", True),
        (" WHERE flag GROUP BY k", True),
        (" WHERE (k > 0) GROUP BY k", True),
    ],
)
def test_a_stream_named_stream_where_spark_reads_a_keyword(after: str, taken: bool) -> None:
    listed = "k, count(*) AS n" if "GROUP" in after else "k"
    analyse(f"SELECT {listed} FROM `stream`{after}", {"stream": "at"})
    if not taken:
        analyse(f"SELECT {listed} FROM stream{after}", {"stream": "at"})
        return
    with pytest.raises(SqlAt, match="put the name in backquotes"):
        analyse(f"SELECT {listed} FROM stream{after}", {"stream": "at"})


OWN_NAMES = {
    "all columns": (
        "SELECT §*, count(*) AS n FROM (SELECT upper(k) AS k FROM flights) GROUP BY k",
        "* beside aggregates by their parts: these parts, Floodmark's own columns, would be among those that it",
    ),
    "all columns, without an aggregate": ("SELECT u.§* FROM (SELECT k FROM flights) u GROUP BY k", "list the columns"),
    "a struct of all columns": (
        "SELECT k, struct(§*) AS s, max(k) AS m FROM (SELECT k FROM flights) GROUP BY k",
        "list the columns of the GROUP BY",
    ),
    "a key": (
        "SELECT §_epoch, count(*) AS n FROM (SELECT k AS _epoch FROM flights) GROUP BY _epoch",
        "a column named _e",
    ),
    "an alias that is read": (
        "SELECT k, count(*) AS §_epoch, _Epoch + 1 AS n FROM flights GROUP BY k",
        "a column named _epoch: partial aggregates have one of that name; give it another name",
    ),
    "the alias of another": (
        "SELECT upper(k) AS k, count(*) AS n FROM flights §GROUP BY k",
        "GROUP BY without a window: expected columns, found k",
    ),
    "the alias of a field": (
        "SELECT s.k AS k, count(*) AS n FROM flights §GROUP BY k",
        "GROUP BY without a window: expected columns, found k",
    ),
}


def test_two_grouping_columns_of_one_name() -> None:
    with pytest.raises(SqlAt, match=r"expected one column named k, found f\.k and a\.k; name one otherwise in a subq"):
        analyse(
            "SELECT f.k, a.k AS l, count(*) AS n FROM flights f JOIN airports a ON f.o = a.o GROUP BY f.k, a.k",
            STREAMS,
            lookups={"airports"},
        )


@pytest.mark.parametrize(
    ("join", "by", "other"),
    [
        ("flights f LEFT JOIN airports a", "k, a.k", "k and a.k"),
        ("flights f LEFT JOIN airports a", "a.K, k", "a.K and k"),
        ("flights f JOIN airports a", "k, a.k", "k and a.k"),
        ("flights f LEFT JOIN airports a", "k, f.k", None),
        ("airports a JOIN flights f", "k, f.k", "k and f.k"),
        ("(SELECT k FROM flights) JOIN airports a", "k, a.k", "k and a.k"),
    ],
)
def test_a_column_that_using_joins_is_the_first_relations(join: str, by: str, other: str | None) -> None:
    """The column of the other side is NULL in rows without a partner."""
    sql = f"SELECT k, count(*) AS n FROM {join} USING (k) GROUP BY {by}"
    if other is None:
        running = analyse(sql, STREAMS, lookups={"airports"}).running
        assert running is not None
        assert running.keys == ("k",)
        return
    with pytest.raises(SqlAt, match=f"expected one column named k, found {other}; name one otherwise"):
        analyse(sql, STREAMS, lookups={"airports"})


@pytest.mark.parametrize("name", OWN_NAMES)
def test_names_that_totals_cannot_tell_apart(name: str) -> None:
    check(*OWN_NAMES[name])


CLOCKED = {
    "a comparison": (
        "SELECT k, count_if(date > §current_timestamp()) AS n FROM flights GROUP BY k",
        "within count_if(",
    ),
    "a filter": (
        "SELECT k, sum(v) FILTER (WHERE date > §now()) AS n, now() AS at FROM flights GROUP BY k",
        "now() within sum(...): each epoch would count its rows by its own clock",
    ),
    "an average": ("SELECT k, avg(unix_micros(§now()) - v) AS n FROM flights GROUP BY k", "now() within avg("),
}


@pytest.mark.parametrize("name", CLOCKED)
def test_totals_do_not_keep_the_clocks_of_many_epochs(name: str) -> None:
    check(*CLOCKED[name])


RANKED = "(SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM flights) WHERE n = 1"
TOPS = {
    "over above": (
        f"SELECT k, v, rank() §OVER (ORDER BY v DESC) AS r FROM {RANKED}",
        "OVER above the first rows of a key: an epoch would compute it over the keys that it touches only",
    ),
    "over everything": (f"SELECT k, count(*) §OVER () AS c FROM {RANKED}", "OVER above the first rows of a key"),
    "distinct": (f"SELECT §DISTINCT v FROM {RANKED}", "DISTINCT next to the first rows of a key"),
    "group by": (f"SELECT v FROM {RANKED} §GROUP BY v", "GROUP next to the first rows of a key"),
    "order by": (f"SELECT k FROM {RANKED} §ORDER BY v", "ORDER BY: the rows of a stream's sink have no order"),
    "limit": (f"SELECT k FROM {RANKED} §LIMIT 1", "LIMIT: a stream never ends"),
    "qualify": (f"SELECT k FROM {RANKED} §QUALIFY v > 1", "QUALIFY"),
    "an aggregate": (f"SELECT §max(v) AS m FROM {RANKED}", "aggregate max without GROUP BY"),
    "a subquery": (f"SELECT (§SELECT max(v) FROM others) AS m FROM {RANKED}", "a subquery in an expression"),
    "a window": (f"SELECT k, §{W}.start AS s FROM {RANKED}", "window(...) beside the first rows of a key"),
    "a window below": (
        f"SELECT * FROM {RANKED.replace('*', f'*, §{W} AS w')}",
        "window(...) beside the first rows of a key",
    ),
    "no order": (
        f"SELECT * FROM {RANKED.replace('OVER', '§OVER').replace(' ORDER BY v DESC', '')}",
        "row_number: expected ORDER BY in its OVER",
    ),
}


@pytest.mark.parametrize("name", TOPS)
def test_a_row_of_a_top_n_depends_on_its_own_key_alone(name: str) -> None:
    check(*TOPS[name])


COLLECTED = {
    "distinct": ("SELECT §DISTINCT k, max(v) AS m FROM flights GROUP BY count_window(2), k", "DISTINCT next to count_"),
    "over": (
        "SELECT k, sum(count(*)) §OVER (PARTITION BY k) AS t FROM flights GROUP BY state_window(v > 1, v < 1), k",
        "OVER next to state_window(...): an epoch would compute it over the windows that it closes only",
    ),
    "a time window": (
        f"SELECT k, max(§{W}.start) AS m FROM flights GROUP BY count_window(2), k",
        "window(...) beside co",
    ),
    "a time window in WHERE": (
        f"SELECT k FROM flights WHERE §{W}.end > date GROUP BY count_window(2), k",
        "window(...) beside count_window(...)",
    ),
    "all columns": (
        "SELECT k, max(struct(§*)) AS m FROM flights GROUP BY count_window(2), k",
        "* beside count_window(...)",
    ),
    "all columns but those of the key": (
        "SELECT §* EXCEPT (k, date) FROM flights GROUP BY count_window(2), k, v",
        "Floodmark's own columns would be among",
    ),
    "a time in WHERE": (
        "SELECT count_window.end AS e, k FROM flights WHERE §count_window.start > date GROUP BY count_window(2), k",
        "write the condition into HAVING",
    ),
}


@pytest.mark.parametrize("name", COLLECTED)
def test_beside_windows_of_rows_nothing_depends_on_what_an_epoch_closes(name: str) -> None:
    check(*COLLECTED[name])


NEVER_PLANNED = {
    "distinct on": (
        "SELECT f.k FROM flights f JOIN (SELECT DISTINCT §ON (k) k, v FROM others) o ON f.k = o.k",
        "DISTINCT ON: Spark has none",
    ),
    "a window in WHERE": (
        f"SELECT window.start AS s FROM flights WHERE §window.end > date GROUP BY {W}",
        "window in WHERE, which decides which rows come into windows; write the condition into HAVING",
    ),
    "a session in WHERE": (
        "SELECT k FROM flights WHERE §session_window.end > date GROUP BY session_window(date, '1 hour'), k",
        "session_window in WHERE",
    ),
    "all columns": (f"SELECT §* FROM flights GROUP BY {W}, k", "* beside GROUP BY: date, which is a column"),
    "all columns of a relation": (f"SELECT f.§* FROM flights f GROUP BY {W}, k", "* beside GROUP BY: date"),
    "a count of a relation's columns": ("SELECT k, §count(f.*) AS c FROM flights f GROUP BY k", "write count(*)"),
}


@pytest.mark.parametrize("name", NEVER_PLANNED)
def test_what_spark_would_refuse_once_a_run_has_started(name: str) -> None:
    check(*NEVER_PLANNED[name])


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM flights GROUP BY {W}, k, date",
        f"SELECT * FROM flights GROUP BY {W}, ROLLUP (k, date)",
        f"SELECT * EXCEPT (date) FROM flights GROUP BY {W}, k",
        f"SELECT * EXCEPT (v) FROM (SELECT {W} AS w, k, v FROM flights) GROUP BY w, k",
        f"SELECT * FROM (SELECT {W} AS w, k FROM flights) WHERE w.start > '2020-01-01' GROUP BY w, k",
        "SELECT count_window.start AS s, count(*) AS n FROM flights GROUP BY count_window(2), k HAVING "
        "count_window.start > '2020-01-01'",
    ],
)
def test_what_spark_plans_is_taken(sql: str) -> None:
    assert analyse(sql, STREAMS, unbounded=True).stateful


def refusal(sql: str) -> SqlAt:
    with pytest.raises(SqlRefused) as caught:
        analyse(sql.replace("§", ""), STREAMS)
    assert isinstance(caught.value, SqlAt)
    return caught.value


def check(sql: str, words: str) -> None:
    before = sql.partition("§")[0]
    error = refusal(sql)
    assert (error.line, error.column) == (before.count("\n") + 1, len(before) - before.rfind("\n")), str(error)
    assert words in error.problem
    assert str(error) == f"sql line {error.line}, column {error.column}: {error.problem}"


@pytest.mark.parametrize("name", [name for name in STATE if name != "named window"])
def test_needs_state_that_is_not_there_yet(name: str) -> None:
    check(*STATE[name])
    assert LATER in refusal(STATE[name][0]).problem


def test_a_named_window_is_refused_at_its_over_or_its_clause() -> None:
    assert LATER in refusal(STATE["named window"][0]).problem


@pytest.mark.parametrize("name", NEVER)
def test_not_allowed(name: str) -> None:
    check(*NEVER[name])


@pytest.mark.parametrize("name", REPLAY)
def test_a_replay_would_differ(name: str) -> None:
    check(*REPLAY[name])


NO_RULE_MAY_CALL = set().union(
    function_names.CLOCKS,
    function_names.RANDOM,
    function_names.SURROUNDINGS,
    function_names.OUTSIDE,
    function_names.GENERATORS,
    function_names.STATEFUL,
    function_names.ORDER_DEPENDENT,
)


@pytest.mark.parametrize("function", sorted(NO_RULE_MAY_CALL))
def test_functions_that_no_rule_may_call(function: str) -> None:
    error = refusal(f"SELECT {function}(k) FROM flights GROUP BY {W}")
    assert f"function {function}: " in error.problem


@pytest.mark.parametrize("name", WINDOW)
def test_windows_that_cannot_close(name: str) -> None:
    check(*WINDOW[name])


def test_the_place_counts_lines_from_one() -> None:
    check("SELECT k,\n  count(*)\nFROM flights\n  §LIMIT 1", "LIMIT")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "expected an expression"),
        ("a, b", "expected one expression"),
        ("a AS b", "expected one expression"),
        ("*", "expected one expression"),
        ("a FROM flights", "expected one expression"),
        ("a) OR (b", "cannot be parsed"),
        ("a; DROP TABLE x", "expected one"),
        ("a > 1;", "a semicolon"),
        ("a > (SELECT 1 FROM flights)", "a subquery in an expression"),
        ("a = (TABLE flights)", "TABLE as a query"),
        ("(TABLE flights)", "TABLE as a query"),
        ("a = (SHOW TABLES)", "only a column"),
        ("max(a) > 1", "aggregate max"),
        ("rand() > 1", "function rand"),
        ("a > current_date", "current_date"),
        ("window(a, '1 hour').end > a", "window(...)"),
        ("a > 'now'", "the string 'now'"),
        ("sum(a) OVER (ORDER BY b) > 1", "OVER"),
        ("explode(a)", "function explode"),
        ("DISTINCT a", "expected one expression"),
    ],
)
def test_expressions_are_held_to_the_same_rules(expression: str, words: str) -> None:
    with pytest.raises(SqlRefused) as caught:
        analyse_expression(expression)
    assert words in str(caught.value)


def test_the_place_in_an_expression() -> None:
    with pytest.raises(SqlAt) as caught:
        analyse_expression("a > 1 AND\n  rand() > 1")
    assert (caught.value.line, caught.value.column) == (2, 3)


@pytest.mark.parametrize("sql", ["(" * 3000 + "SELECT 1" + ")" * 3000, "SELECT " + "(" * 3000 + "1" + ")" * 3000])
def test_deep_nesting_is_refused_not_fatal(sql: str) -> None:
    with pytest.raises(SqlRefused):
        analyse(sql + " FROM flights", STREAMS)


def test_long_sql_is_refused() -> None:
    assert "at most 100000" in refusal("SELECT '" + "x" * 100_000 + "' FROM flights").problem


PIECES = st.sampled_from(
    """SELECT FROM WHERE GROUP BY HAVING UNION ALL flights others date ts k * , ( ) window(date,'1 hour') count(*) AS x
    DISTINCT WITH a AS ( ' ` -- /* */ 1 = . JOIN ON OVER LIMIT ; CASE WHEN THEN END [ ] -> :: CAST( struct< >
    EXISTS IN EXCEPT VALUES LATERAL VIEW ORDER interval TABLE \n""".split(" ")
)


@given(st.lists(PIECES, max_size=25).map(" ".join))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(SqlAt):
        analyse(f"SELECT {text}", STREAMS)


@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_whatever_may_follow_a_window_it_can_be_bounded(text: str) -> None:
    try:
        query = analyse(f"SELECT count(*) FROM flights GROUP BY window(date, '1 hour') {text}", STREAMS)
    except SqlRefused:
        return
    again = analyse(query.bounded(1, 2, lambda at, _: str(at)), STREAMS)
    assert again.windows == query.windows
