"""SQL that can be folded: what `analyse` finds in it, and where the condition on the window goes."""

from __future__ import annotations

import re

import pytest

from floodmark.core.sql import Query, analyse, analyse_expression
from floodmark.core.sql.state.collected import FromTo
from floodmark.core.sql.windows import RowSpec, SessionSpec, WindowSpec
from floodmark.core.text.durations import DAY, HOUR, MINUTE
from floodmark.errors import SqlRefused

STREAMS = {"flights": "date", "others": "ts", "plain": None}


def query(sql: str) -> Query:
    return analyse(sql, STREAMS)


def test_the_example_of_the_design() -> None:
    found = query(
        "SELECT window.start AS hour, origin, count(*) AS flights, avg(delay) AS mean_delay\n"
        "FROM flights\nGROUP BY window(date, '1 hour'), origin\n"
    )
    assert found.streams == ("flights",)
    assert found.windows == (WindowSpec(HOUR, HOUR, 0),)
    assert found.star is False
    assert {"date", "origin", "delay"} <= found.identifiers
    assert "distance" not in found.identifiers


@pytest.mark.parametrize(
    ("call", "spec"),
    [
        ("window(date, '1 hour')", WindowSpec(HOUR, HOUR, 0)),
        ("window(date, '1 hour', '30 minutes')", WindowSpec(HOUR, 30 * MINUTE, 0)),
        ("window(date, '2 days', '1 day', '-1 hour')", WindowSpec(2 * DAY, DAY, -HOUR)),
        ("WINDOW (`Date`, 'interval 1 hour')", WindowSpec(HOUR, HOUR, 0)),
        ("window(flights.date, '60 minutes')", WindowSpec(HOUR, HOUR, 0)),
    ],
)
def test_windows(call: str, spec: WindowSpec) -> None:
    assert query(f"SELECT count(*) FROM flights GROUP BY {call}").windows == (spec,)
    assert query(f"SELECT {call} AS w, count(*) FROM flights GROUP BY w").windows == (spec,)
    assert query(f"SELECT {call}, count(*) FROM flights GROUP BY 1").windows == (spec,)
    assert query(f"SELECT {call}.end, k FROM flights GROUP BY k, {call}").windows == (spec,)


@pytest.mark.parametrize(
    "below",
    [
        "flights",
        "(SELECT * FROM flights)",
        "(SELECT date, k FROM flights WHERE k > 1) AS f",
        "(SELECT x AS date FROM (SELECT date AS x FROM flights) AS f)",
        "(SELECT f.* FROM flights AS f)",
        "(SELECT * EXCEPT (k) FROM flights)",
        "(SELECT date, k FROM flights UNION ALL SELECT ts, k FROM others)",
        "(SELECT * FROM flights UNION ALL SELECT * FROM flights)",
    ],
)
def test_the_event_time_may_be_passed_on_and_renamed(below: str) -> None:
    assert query(f"SELECT count(*) FROM {below} GROUP BY window(date, '1 hour')").windows


def test_ctes_are_followed() -> None:
    found = query(
        "WITH a AS (SELECT date AS t FROM flights), b AS (SELECT t AS u FROM a UNION ALL SELECT ts FROM others)\n"
        "SELECT window.end, count(*) FROM b GROUP BY window(u, '1 hour')"
    )
    assert found.streams == ("flights", "others")


def test_streams_are_named_as_declared_whatever_the_case() -> None:
    assert query("SELECT k FROM FLIGHTS UNION ALL SELECT k FROM `Others`").streams == ("flights", "others")


@pytest.mark.parametrize(
    ("sql", "star"),
    [
        ("SELECT * FROM flights", True),
        ("SELECT f.*, 1 FROM flights f", True),
        ("SELECT struct(*) FROM flights", True),
        ("SELECT count(*) FROM flights GROUP BY window(date, '1 hour')", False),
        ("SELECT count(*) FILTER (WHERE k) FROM flights GROUP BY window(date, '1 hour')", False),
        ("SELECT a * b FROM flights", False),
    ],
)
def test_star(sql: str, star: bool) -> None:
    assert query(sql).star is star


@pytest.mark.parametrize(
    "item",
    """k IS DISTINCT FROM 'a' | extract(year FROM date) | trim(both 'a' FROM k) | CAST(x AS decimal(10, 2)) | x::int
    | map('a', 1)['a'] | transform(a, x -> x + 1) | aggregate(a, 0, (s, x) -> s + x) | struct(a AS b).b | x IN (1, 2)
    | exists(a, x -> x > 1) | x NOT BETWEEN 1 AND 2 | CASE WHEN x THEN 1 ELSE 2 END | INTERVAL 1 DAY | NOT x | -x
    | INTERVAL '1 2' DAY TO HOUR | DATE'2020-01-01' | TIMESTAMP '2020-01-01 00:00:00' | k RLIKE 'a' | k ILIKE 'a'
    | k LIKE 'a' ESCAPE '/' | k LIKE ANY ('a', 'b') | k LIKE ALL ('a') | if(a, b, c) | a <=> b | a DIV b | a % b
    | a ^ b | ~a | 1L | 2S | 1.5BD | 1e3 | .5 | x'1A' | r'a\\' | "a""b" | 'it''s' | 'a' 'b' | 'a\\'b' | x IS NOT NULL
    | timestampadd(HOUR, 1, date) | date + INTERVAL 1 DAY | overlay(k PLACING 'x' FROM 1) | position('a' IN k)
    | substring(k FROM 1 FOR 2) | datediff(DAY, date, date) | a.b.c | a[0].b | left(k, 1) | null | true
    | filter(a, x -> x > 1) | try_cast(a AS int) | (1, 2) IN ((1, 2)) | /* a /* b */ */ k | concat_ws(',', a, b)
    | unix_timestamp(k) | flights.user | k AS user | `a b` | `a``b` | offset | left | window.k | CAST(a AS varchar(10))
    | concat(k, 'b') | array('a', 'b')[0] | coalesce(k, 'x') | to_timestamp('2001-01-01', 'yyyy-MM-dd')
    | CAST('2001-01-01' AS timestamp) | transform(a, x -> upper(x)) | timestamp_millis(0)
    | 'now and then' | 'todays' | named_struct('a', 1) | nvl(a, b) | `where` | a AS `from` | CAST(a AS array<int>)
    | CAST(NULL AS string) | CAST(NULL AS bigint)
    """.split("|"),
)
def test_expressions_that_are_allowed(item: str) -> None:
    assert query(f"SELECT {item} FROM flights").windows == ()


def test_a_bit_or_and_a_concatenation_are_allowed() -> None:
    assert query("SELECT a | b, a || b FROM flights").streams == ("flights",)


@pytest.mark.parametrize(
    "call",
    """count(*) | count(DISTINCT k, v) | count_if(v > 1) | sum(v) | sum(DISTINCT v) | avg(v) | min(v)
    | bool_and(v) | any(v) | some(v) | every(v) | bit_xor(v) | stddev_pop(v) | corr(v, k) | regr_slope(v, k) | median(v)
    | percentile(v, 0.5) | percentile_cont(0.5) WITHIN GROUP (ORDER BY v DESC) | approx_count_distinct(v)
    | sum(v) FILTER (WHERE k = 'a') | sort_array(collect_list(v)) | sort_array(collect_set(v), false)
    | array_sort(array_agg(v)) | array_sort(collect_list(v) FILTER (WHERE v > 1)) | round(sum(v) / count(*), 2)
    | max(struct(v, k)).k""".split("|"),
)
def test_aggregates_that_are_allowed(call: str) -> None:
    assert query(f"SELECT {call} FROM flights GROUP BY window(date, '1 hour')").windows


@pytest.mark.parametrize("sets", ["ROLLUP (k, v)", "CUBE(k, (v, a))", "GROUPING SETS ((k), ())", "ROLLUP(k), CUBE(v)"])
def test_grouping_sets_beside_the_window_are_allowed(sets: str) -> None:
    text = (
        f"SELECT window.end, grouping(k), grouping_id(), count(*) FROM flights GROUP BY window(date, '1 hour'), {sets}"
    )
    assert query(text).windows
    assert bounded(text) == f"{text}\nHAVING {CONDITION}\n"


def bounded(sql: str) -> str:
    return query(sql).bounded(1, 2, marks)


def marks(moment: int, column: str) -> str:
    return {1: "LO", 2: "HI"}[moment]


CONDITION = "window.end > LO AND window.end <= HI"
GROUPED = "SELECT count(*) FROM flights GROUP BY window(date, '1 hour')"


def test_the_condition_stands_after_the_group_by() -> None:
    assert bounded(GROUPED) == f"{GROUPED}\nHAVING {CONDITION}\n"


def test_a_having_is_kept_in_parentheses() -> None:
    assert bounded(f"{GROUPED} HAVING a OR b") == f"{GROUPED} HAVING ({CONDITION}) AND ( a OR b\n)\n"


def test_comments_cannot_swallow_the_condition() -> None:
    assert bounded(f"{GROUPED} -- the end") == f"{GROUPED}\nHAVING {CONDITION}\n -- the end"
    text = bounded(f"{GROUPED} HAVING -- (\n count(*) > 1 -- )")
    assert text == f"{GROUPED} HAVING ({CONDITION}) AND ( -- (\n count(*) > 1\n)\n -- )"


def test_the_condition_goes_into_the_select_that_groups() -> None:
    text = f"WITH a AS ({GROUPED}) SELECT * FROM (SELECT * FROM a WHERE true) WHERE extract(year FROM x) > 1"
    assert bounded(text) == text.replace(GROUPED, f"{GROUPED}\nHAVING {CONDITION}\n")


def test_without_a_lower_bound() -> None:
    assert query(GROUPED).bounded(None, 2, marks) == f"{GROUPED}\nHAVING window.end <= HI\n"


def test_a_closing_semicolon_is_dropped() -> None:
    assert query(f"{GROUPED} ; -- done").sql == f"{GROUPED}  -- done"
    assert bounded(f"{GROUPED};") == f"{GROUPED}\nHAVING {CONDITION}\n"


def test_a_session_that_ends_at_the_watermark_is_open() -> None:
    grouped = "SELECT count(*) FROM flights GROUP BY session_window(date, '5 minutes'), k"
    condition = "CASE WHEN count(*) > 0 THEN session_window.end >= LO AND session_window.end < HI END"
    assert bounded(grouped) == f"{grouped}\nHAVING {condition}\n"


@pytest.mark.parametrize(
    "gap",
    ["'5 minutes'", "CASE WHEN k = 'a' THEN '5 minutes' ELSE '1 hour' END", "IF(v > 3, '1 minute', '1 day')", "k"],
)
def test_sessions(gap: str) -> None:
    assert query(f"SELECT count(*) FROM flights GROUP BY k, session_window(date, {gap})").windows == (SessionSpec(gap),)
    named = query(f"SELECT session_window(date, {gap}) AS w, count(*) FROM flights GROUP BY w")
    assert [session.keys for session in named.sessions] == [()]


def test_what_a_session_has_in_its_own() -> None:
    cte = "WITH a AS (SELECT date AS t, k FROM flights), b AS (SELECT * FROM a)"
    text = f"{cte} SELECT k, count(*) FROM b GROUP BY session_window(t, '1 hour'), 1 HAVING count(*) > 1"
    (session,) = query(text).sessions
    assert session.keys is None
    assert session.open_since(text, 1, marks) == (
        f"{cte} SELECT _floodmark_since FROM (SELECT k, count(*), session_window.start AS _floodmark_since  "
        "FROM b GROUP BY session_window(t, '1 hour'), 1\n"
        "HAVING CASE WHEN count(*) > 0 THEN session_window.end >= LO END\n)"
    )
    (direct,) = query("SELECT f.k FROM flights f GROUP BY session_window(f.date, '1 hour'), f.k, v").sessions
    assert direct.keys == ("k", "v")
    (field,) = query("SELECT s.k FROM flights f GROUP BY session_window(f.date, '1 hour'), s.k").sessions
    assert field.keys is None
    (hidden,) = query("SELECT upper(k) AS k FROM flights GROUP BY session_window(date, '1 hour'), k").sessions
    assert hidden.keys is None


def test_a_window_that_follows_each_row() -> None:
    frame = "RANGE BETWEEN INTERVAL '90' MINUTES PRECEDING AND INTERVAL '1 hour' FOLLOWING"
    inner = (
        f"SELECT f.k, sum(v) OVER (PARTITION BY f.k ORDER BY f.date {frame}) AS s -- so far\nFROM flights f WHERE v > 1"
    )
    text = f"WITH a AS ({inner}) SELECT k FROM a WHERE s > 3"
    found = query(text)
    assert found.windows == (RowSpec(90 * MINUTE, HOUR),)
    listed, rest = inner.split(" -- ")
    assert found.bounded(HOUR, 2 * HOUR, lambda at, _: str(at)) == text.replace(
        inner,
        f"SELECT * EXCEPT (_floodmark_at) FROM ({listed}, f.date AS _floodmark_at  -- {rest}\n) "
        f"WHERE _floodmark_at >= 0 AND _floodmark_at < {HOUR}\n",
    )
    assert found.windows[0].needed_from(0) == -150 * MINUTE


def test_how_far_an_over_reaches_is_known_of_a_star_too() -> None:
    over = "count(*) OVER (ORDER BY date RANGE BETWEEN INTERVAL '5' MINUTES PRECEDING AND CURRENT ROW) AS n"
    for listed in ("*", "date", "flights.*"):
        found = query(f"SELECT max(n) AS m FROM (SELECT {listed}, {over} FROM flights) GROUP BY window(date, '1 hour')")
        assert [spec.before_us for spec in found.windows if isinstance(spec, WindowSpec)] == [300_000_000]


LATER = "BETWEEN {0} AND {0} + INTERVAL '1' HOUR"


@pytest.mark.parametrize(
    ("joined", "reach"),
    [
        (f"JOIN others o ON o.ts {LATER.format('f.date')} LEFT JOIN others p ON p.ts = f.date AND p.ts = o.ts", HOUR),
        (f"JOIN others o ON o.ts {LATER.format('f.date')} SEMI JOIN others p ON p.ts = f.date AND p.ts = o.ts", 0),
        (f"LEFT JOIN others o ON o.ts {LATER.format('f.date')} LEFT JOIN others p ON p.ts {LATER.format('o.ts')}",
         2 * HOUR),
        (f"LEFT JOIN others o ON o.ts {LATER.format('f.date')} JOIN others p ON p.ts {LATER.format('o.ts')}", 2 * HOUR),
    ],
)  # fmt: skip
def test_a_join_is_bounded_by_the_conditions_that_hold_for_its_rows(joined: str, reach: int) -> None:
    """A LEFT JOIN restricts no rows but its own, and those of later joins that need a row of it."""
    (spec,) = query(f"SELECT f.date, f.k FROM flights f {joined}").windows
    assert isinstance(spec, RowSpec)
    assert spec.before_us + spec.after_us == reach


def test_only_a_window_can_be_bounded() -> None:
    with pytest.raises(ValueError, match="windowed"):
        bounded("SELECT k FROM flights")


def test_names_in_an_expression() -> None:
    assert analyse_expression("origin <> '' AND `Delay` > 0 -- ok") >= {"origin", "delay"}


TWO = """WITH a AS (SELECT window.end AS e, count(*) AS n FROM flights GROUP BY window(date, '1 hour') HAVING n > 1)
SELECT e, n FROM a UNION ALL SELECT e, -n FROM a
UNION ALL SELECT window.end, max(v) FROM others GROUP BY window(ts, '1 day', '1 hour')"""


def test_every_group_by_has_its_window() -> None:
    assert query(TWO).windows == (WindowSpec(HOUR, HOUR, 0), WindowSpec(DAY, HOUR, 0))


def test_every_group_by_is_bounded() -> None:
    first, second = (
        f"HAVING ({CONDITION}) AND ( n > 1\n)\n",
        f"GROUP BY window(ts, '1 day', '1 hour')\nHAVING {CONDITION}\n",
    )
    assert bounded(TWO) == TWO.replace("HAVING n > 1", first).replace("GROUP BY window(ts, '1 day', '1 hour')", second)


RUNNING = """WITH a AS (SELECT upper(k) AS k, v FROM flights)
SELECT x.k AS key, count(*) AS c, avg(v -- )
) FILTER (WHERE v > 1) + 1 AS m FROM a AS x WHERE v < 9 GROUP BY k -- so"""


BESIDE = "FROM flights f JOIN airports a ON f.o = a.iata"


@pytest.mark.parametrize(
    ("sql", "keys", "final"),
    [
        (f"SELECT a.city, count(*) AS n {BESIDE} GROUP BY city", "city", "SELECT `f`.city, {} GROUP BY city"),
        (
            f"SELECT f.o, A.city AS c, count(*) AS n {BESIDE} GROUP BY f.o, `a`.city",
            "o city",
            "SELECT f.o, `f`.city AS c, {} GROUP BY f.o, `f`.city",
        ),
        (
            f"SELECT upper(a.city) AS u, f.a.city AS x, a.s.k AS y, count(*) FILTER (WHERE a.city > 'A') AS n {BESIDE} "
            "GROUP BY a.city, a.s, f.a",
            "city s a",
            "SELECT upper(`f`.city) AS u, f.a.city AS x, `f`.s.k AS y, {} GROUP BY `f`.city, `f`.s, f.a",
        ),
        (
            f"SELECT a.f AS r, a.f.k AS x, f.k, count(*) AS n {BESIDE} GROUP BY f.k, a.f",
            "k f",
            "SELECT `f`.f AS r, `f`.f.k AS x, f.k, {} GROUP BY f.k, `f`.f",
        ),
        (
            "SELECT f.o, count(*) AS n FROM airports a JOIN flights f ON f.o = a.iata GROUP BY f.o",
            "o",
            "SELECT `a`.o, {} GROUP BY `a`.o",
        ),
    ],
)
def test_running_aggregates_have_keys_of_every_relation(sql: str, keys: str, final: str) -> None:
    """Rows of partials are one relation: it has one name only."""
    running = analyse(sql, STREAMS, lookups={"airports"}).running
    assert running is not None
    assert running.keys == tuple(keys.split())
    ours = f"sum(count_0) AS n FROM _floodmark_totals AS `{'a' if 'FROM airports' in sql else 'f'}`"
    assert " ".join(running.merging.sql().split()) == final.format(ours)


@pytest.mark.parametrize(
    ("written", "named", "relation"),
    [
        ("transform(f.items, a -> a.city)", "transform(f.items, a -> a.city)", "f"),
        ("transform(f.items, (a, i) -> a.city)", "transform(f.items, (a, i) -> a.city)", "f"),
        ("filter(f.items, x -> x.q > a.city)", "filter(f.items, x -> x.q > `f`.city)", "f"),
        (
            "filter(f.items, f -> f.city > a.city)",
            "filter(`_floodmark_f`.items, f -> f.city > `_floodmark_f`.city)",
            "_floodmark_f",
        ),
    ],
)
def test_keys_beside_a_lambda_are_told_from_its_arguments(written: str, named: str, relation: str) -> None:
    """A lambda's arguments have fields, and hide a relation of their name."""
    sql = f"SELECT {written} AS x, a.city, count(*) AS n {BESIDE} GROUP BY f.items, a.city"
    running = analyse(sql, STREAMS, lookups={"airports"}).running
    assert running is not None
    items = f"`{relation}`.items" if relation != "f" else "f.items"
    assert " ".join(running.merging.sql().split()) == (
        f"SELECT {named} AS x, `{relation}`.city, sum(count_0) AS n FROM _floodmark_totals AS `{relation}` "
        f"GROUP BY {items}, `{relation}`.city"
    )


def test_running_aggregates_are_split_into_partials_and_their_results() -> None:
    running = query(RUNNING).running
    assert running is not None
    assert (running.keys, running.outputs) == (("k",), ("key",))
    assert [(p.name, p.merge) for p in running.partials] == [("count_0", "sum"), ("sum_0", "sum"), ("count_1", "sum")]
    assert running.partial.startswith("WITH a AS (SELECT upper(k) AS k, v FROM flights) SELECT k AS `k`, count(*\n)")
    assert running.partial.endswith(" FROM a AS x WHERE v < 9 GROUP BY k")
    assert running.merging.sql() == (
        "SELECT x.k AS key, sum(count_0) AS c, try_divide(sum(sum_0), sum(count_1)) + 1 AS m\n"
        "FROM _floodmark_totals AS `x` GROUP BY k"
    )


def test_a_merge_has_the_type_that_the_sum_has_in_batch() -> None:
    """A sum of decimal sums is ten digits wider, and a quotient of it would have fewer places."""
    running = query("SELECT k, sum(v) / 3 AS s, avg(v) AS m FROM flights GROUP BY k").running
    assert running is not None
    assert running.merging.sql({"sum_0": "decimal(20,2)"}) == (
        "SELECT k, CAST(sum(sum_0) AS decimal(20,2)) / 3 AS s, try_divide(sum(sum_1), sum(count_0)) AS m\n"
        "FROM _floodmark_totals AS `flights` GROUP BY k"
    )


@pytest.mark.parametrize(
    ("means", "sums", "ansi", "words"),
    [
        ("double", "decimal(28,3)", False, None),
        ("double", "bigint", False, None),
        ("double", "decimal(38,3)", True, None),
        ("double", "decimal(29,3)", False, r"column 11: sum over DECIMAL\(29,3\) without ANSI .* DECIMAL\(28, s\)"),
        ("decimal(14,5)", "double", True, "column 24: avg over decimals"),
        ("interval day to second", "double", True, "avg over INTERVAL DAY TO SECOND cannot be merged"),
    ],
)
def test_parts_tell_the_result_by_their_types(means: list[str], sums: list[str], ansi: bool, words: str | None) -> None:
    running = query("SELECT k, sum(v) AS s, avg(v) AS m FROM flights GROUP BY k").running
    assert running is not None
    assert (running.means, running.sums) == (
        " SELECT avg(v\n) AS avg_0  FROM flights GROUP BY k",
        " SELECT max(v\n) AS sum_0  FROM flights GROUP BY k",
    )
    found = running.inexact({"avg_0": means}, {"sum_0": sums}, ansi)
    assert (found is None) if words is None else (found is not None and re.search(words, found))


def test_all_within_an_aggregate_is_left_out() -> None:
    with pytest.raises(SqlRefused, match="leave ALL out"):
        query("SELECT k, avg(ALL v) AS m FROM flights GROUP BY k")
    running = query("SELECT k, sum(all) AS s FROM flights GROUP BY k").running
    assert running is not None, "a column may have the name"


def test_partials_have_names_that_no_key_has() -> None:
    running = query("SELECT sum_0, sum(v) AS s FROM flights GROUP BY sum_0").running
    assert running is not None
    assert [partial.name for partial in running.partials] == ["sum_1"]


def test_totals_may_be_compared_with_the_clock_of_the_epoch_that_writes_them() -> None:
    running = query(
        "SELECT k, max(date) > now() AS coming, now() AS at, count_if(v) AS c FROM flights GROUP BY k"
    ).running
    assert running is not None
    assert running.merging.sql().startswith("SELECT k, max(max_0) > now() AS coming, now() AS at, sum(count_if_0) AS c")


@pytest.mark.parametrize(
    ("listed", "by", "outputs"),
    [
        ("k, K AS j", "k, K", ("k",)),
        ("k AS j", "flights.k, k", ("j",)),
        ("flights.k AS k", "k", ("k",)),
        ("flights.K AS k", "k", ("k",)),
    ],
)
def test_a_key_of_totals_counts_once_however_it_is_written(listed: str, by: str, outputs: tuple[str, ...]) -> None:
    running = query(f"SELECT {listed}, count(*) AS n FROM flights GROUP BY {by}").running
    assert running is not None
    assert ([key.lower() for key in running.keys], running.outputs) == (["k"], outputs)


def test_a_key_of_windows_of_rows_or_of_a_top_n_counts_once() -> None:
    collected = query("SELECT k, max(v) AS m FROM flights GROUP BY count_window(2), k, K").collected
    assert collected is not None
    assert collected.keys == ("k",)
    ranked = "SELECT *, row_number() OVER (PARTITION BY k, K ORDER BY v) AS n FROM flights"
    top = query(f"SELECT * FROM ({ranked}) WHERE n = 1").top
    assert top is not None
    assert top.keys == ("k",)


def test_the_name_of_the_totals_own_column_may_be_an_alias() -> None:
    assert query("SELECT k, count(*) AS _epoch FROM flights GROUP BY k").running is not None
    assert query("SELECT k, max(_epoch) AS _epoch FROM (SELECT k, v AS _epoch FROM flights) GROUP BY k").running


@pytest.mark.parametrize(
    ("begin", "emit"),
    [
        ("m::MAP<STRING, INT>['a'] > 1", "v < 3"),
        ("m::MAP<STRING, ARRAY<INT>>['a'][0] > 1", "x::ARRAY<MAP<INT, INT>>[0][1] > 2 AND v > 3"),
        ("v::INT < 3 AND coalesce(v, 1) < 2", "v::INT > 1"),
    ],
)
def test_commas_of_a_type_separate_no_conditions(begin: str, emit: str) -> None:
    collected = query(f"SELECT k, max(v) AS m FROM flights GROUP BY state_window({begin}, {emit}), k").collected
    assert collected is not None
    assert collected.window == FromTo(f"coalesce({begin}\n, false)", f"coalesce( {emit}\n, false)")
