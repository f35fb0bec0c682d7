"""Which expressions of a query are computed of one row at a time, and for which rows."""

from __future__ import annotations

import pytest

from floodmark.core.sql.rowchecks import RowCheck, row_checks
from floodmark.core.sql.words import spans

STREAMS = {"events": "at", "other": "at"}


def found(sql: str) -> list[tuple[str, str, str | None]]:
    checks = row_checks(sql, STREAMS, unbounded=True)
    return [(one.place, one.sql, one.only and " ".join(one.only.split())) for one in checks]


def guards_of(sql: str, *lookups: str) -> list[list[str]]:
    checks = row_checks(sql, STREAMS, lookups, unbounded=True)
    return [[" ".join(guard.split()) for guard in one.guards] for one in checks]


def test_items_of_the_list_are_computed_where_the_where_lets_a_row_through() -> None:
    sql = "SELECT at, CAST(n AS INT) AS i, 10 / n j, * FROM events WHERE CAST(k AS INT) > 0;"
    only = "(CAST(k AS INT) > 0 )"
    assert found(sql) == [
        ("WHERE", "CAST(k AS INT) > 0", None),
        ("SELECT", "CAST(n AS INT)", only),
        ("SELECT", "10 / n", only),
    ]


def test_arguments_of_aggregates_where_their_filter_holds_and_items_of_the_group_by() -> None:
    sql = """SELECT window.start, k, upper(k) AS u, sum(DISTINCT 1 / n) FILTER (WHERE n + 1 > 0) + 2 AS s,
      count(*), sqrt(corr(v * 2, float(k)))
      FROM events GROUP BY window(at, '1 minute'), k, n % 2"""
    assert found(sql) == [
        ("GROUP BY", "n % 2", None),
        ("SELECT", "upper(k)", None),
        ("FILTER of sum", "n + 1 > 0", None),
        ("argument of sum", "1 / n", "(n + 1 > 0 )"),
        ("argument of corr", "v * 2", None),
        ("argument of corr", "float(k)", None),
    ]


@pytest.mark.parametrize(
    ("sets", "items"),
    [
        ("ROLLUP(1 / n, k)", ["1 / n"]),
        ("cube((1 / n, k), upper(v))", ["1 / n", "upper(v)"]),
        ("GROUPING SETS ((1 / n, k), 2 / n, ())", ["1 / n", "2 / n"]),
        ("GROUPING SETS (ROLLUP(1 / n), CUBE(k, 2 / n), GROUPING SETS ((3 / n)))", ["1 / n", "2 / n", "3 / n"]),
        ("1 / e.cube", ["1 / cube"]),
    ],
    ids=["rollup", "cube", "sets", "nested", "a-column-named-so"],
)
def test_each_item_of_grouping_sets_is_computed_of_each_row(sets: str, items: list[str]) -> None:
    assert found(f"SELECT count(*) AS c FROM events e GROUP BY window(at, '1 minute'), {sets}") == [
        ("GROUP BY", item, None) for item in items
    ]


def test_an_aggregate_of_all_values_has_the_same_argument() -> None:
    sql = "SELECT sum(ALL CAST(k AS INT)) AS s, sum(`distinct` + 1) AS t FROM events GROUP BY window(at, '1 minute')"
    assert [sql for _, sql, _ in found(sql)] == ["CAST(k AS INT)", "`distinct` + 1"]


def test_a_column_may_have_the_name_of_a_word_of_sql() -> None:
    sql = "SELECT at, 1 / e.`over` AS x, 2 / `as` y, 3 / e.as z FROM events e"
    assert [sql for _, sql, _ in found(sql)] == ["1 / `over`", "2 / `as`", "3 / as"]
    sql = "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY 1 / `desc`) AS p FROM events GROUP BY window(at, '1 day')"
    assert [sql for _, sql, _ in found(sql)] == ["1 / `desc`"]


def test_what_begins_and_ends_a_window_of_rows_is_computed_of_each_row() -> None:
    sql = """SELECT state_window.start AS s, k, count(*) AS c FROM events e WHERE 1 / n > 0
      GROUP BY state_window(CAST(e.code AS MAP<STRING, INT>)['a'] > 3, e.code::INT = 0), k HAVING count(*) > 1"""
    only = "(1 / n > 0 )"
    assert found(sql) == [
        ("WHERE", "1 / n > 0", None),
        ("begin of state_window", "CAST(code AS MAP<STRING, INT>)['a'] > 3", only),
        ("emit of state_window", "code::INT = 0", only),
    ]
    sql = "SELECT count_window.start AS s, k, count(*) AS c FROM events GROUP BY count_window(2), k"
    assert found(sql) == []


@pytest.mark.parametrize("direction", ["", " DESC", " ASC NULLS LAST", " NULLS FIRST"])
def test_what_an_aggregate_orders_by_is_an_argument_of_it(direction: str) -> None:
    sql = f"""SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY CAST(v AS INT){direction}) FILTER (WHERE n > 0) AS p
      FROM events GROUP BY window(at, '1 minute')"""
    assert found(sql)[-1] == ("argument of percentile_cont", "CAST(v AS INT)", "(n > 0 )")
    assert [place for place, _, _ in found(sql)] == ["FILTER of percentile_cont", "argument of percentile_cont"]


def test_with_a_having_what_groups_show_is_not_computed_of_every_row() -> None:
    sql = "SELECT upper(k) AS u, sum(n + 1) AS s FROM events GROUP BY window(at, '1 minute'), k HAVING min(1 / n) > 0"
    assert [sql for _, sql, _ in found(sql)] == ["n + 1", "1 / n"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.n + 1 AS x FROM events a JOIN other b ON a.k = b.k AND a.at = b.at",
        "SELECT at, k, sum(n + 1) OVER (ORDER BY at RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW) AS s "
        "FROM events",
        "SELECT window.start AS s, count(*) AS c FROM events GROUP BY window(at, '1 minute')",
    ],
    ids=["join", "over", "window"],
)
def test_what_hangs_on_several_rows_is_left_out(sql: str) -> None:
    assert found(sql) == []


def test_of_a_join_keys_of_one_stream_are_computed_of_each_of_its_rows() -> None:
    sql = """SELECT a.n + 1 AS x FROM events a LEFT JOIN other b
      ON CAST(a.k AS INT) = b.n AND a.at BETWEEN b.at AND b.at + INTERVAL '1' MINUTE AND left(b.k, 1) <=> 10 / a.n
        AND a.n + b.n = 3 AND a.v + 1 > 2 AND (a.n % 2 = 1 OR a.n % 3 = 1) AND a.v = b.v
      WHERE 1 / b.n > 0"""
    assert [(one.stream, one.place, one.sql) for one in row_checks(sql, STREAMS)] == [
        ("events", "ON", "CAST(k AS INT)"),
        ("other", "ON", "left(k, 1)"),
        ("events", "ON", "10 / n"),
    ]


def keys_of(on: str) -> list[str]:
    return [one.sql for one in row_checks(f"SELECT a.at FROM events a JOIN other b ON {on}", STREAMS, unbounded=True)]


@pytest.mark.parametrize("field", ["s.k", "s.t.k", "s.t.u.v.k"])
def test_a_key_may_be_computed_from_a_field_of_a_struct(field: str) -> None:
    assert keys_of(f"CAST(a.{field} AS INT) = b.k AND a.at = b.at") == [f"CAST({field} AS INT)"]
    assert keys_of(f"CAST(a.{field} AS INT) + b.{field} = b.k AND a.at = b.at") == []


@pytest.mark.parametrize(
    ("on", "keys"),
    [
        ("(CAST(a.k AS INT) = b.k) AND a.at = b.at", ["CAST(k AS INT)"]),
        ("((CAST(a.k AS INT) = b.k AND a.at = b.at))", ["CAST(k AS INT)"]),
        ("a.at = b.at AND (a.x > 1 AND ((1 / a.n) <=> b.n))", ["(1 / n)"]),
        ("a.at = b.at AND (1 / a.n = b.n OR a.x = 1 AND 2 / a.n = b.n)", []),
        ("CASE WHEN a.t = 'n' AND a.x == 1 THEN CAST(a.k AS INT) END = b.k AND a.at = b.at",
         ["CASE WHEN t = 'n' AND x == 1 THEN CAST(k AS INT) END"]),
        ("b.k = CASE a.t WHEN 1 = a.x THEN CASE WHEN a.y = 1 THEN 1 END ELSE 1 / a.n END AND a.at = b.at",
         ["CASE t WHEN 1 = x THEN CASE WHEN y = 1 THEN 1 END ELSE 1 / n END"]),
        ("a.case + 1 = b.k AND 1 / a.`=` = b.end AND a.at = b.at", ["case + 1", "1 / `=`"]),
    ],
    ids=["equation", "all", "deep", "or", "case", "case-within-case", "columns-named-so"],
)  # fmt: skip
def test_neither_parentheses_nor_a_case_hide_a_key(on: str, keys: list[str]) -> None:
    assert keys_of(on) == keys


def test_a_comma_ends_the_condition_of_a_join_before_it() -> None:
    join = "FROM events a JOIN other b ON a.at = b.at AND b.k = CAST(a.k AS INT)"
    sql = f"SELECT a.at {join}, cities c WHERE c.id = a.id"
    assert [one.sql for one in row_checks(sql, STREAMS, ("cities",))] == ["CAST(k AS INT)"]
    sql = f"SELECT a.at {join} AND a.x IN (1, 2), cities c JOIN lands d ON left(a.z, 1) = d.k AND a.y = 1"
    checks = row_checks(sql, STREAMS, ("cities", "lands"))
    assert [(one.sql, one.guards) for one in checks] == [
        ("CAST(k AS INT)", ("x IN (1, 2)", "y = 1")),
        ("left(z, 1)", ("x IN (1, 2)", "y = 1")),
    ]


def test_a_stream_may_have_the_name_of_a_word_of_joins() -> None:
    sql = "SELECT `left`.at FROM `left` JOIN `right` ON CAST(`left`.k AS INT) = `right`.k"
    checks = row_checks(sql, {"left": "at", "right": "at"}, unbounded=True)
    assert [(one.stream, one.sql) for one in checks] == [("left", "CAST(k AS INT)")]


@pytest.mark.parametrize(
    ("join", "found"),
    [
        ("JOIN right ON right.k = CAST(a.k AS INT)", ["CAST(k AS INT)"]),
        ("JOIN cities c ON full AND CAST(a.k AS INT) = c.k", ["CAST(k AS INT)"]),
        ("JOIN cities c ON c.k = CAST(a.k AS INT) AND NOT semi LEFT JOIN right ON right.k = 1 / a.n",
         ["CAST(k AS INT)", "1 / n"]),
        ("JOIN cities c ON", []),
    ],
)  # fmt: skip
def test_a_word_of_joins_ends_no_condition_that_it_is_part_of(join: str, found: list[str]) -> None:
    checks = row_checks(f"SELECT a.at FROM events a {join}", STREAMS, ("cities", "right"))
    assert [one.sql for one in checks] == found


def test_a_column_named_end_ends_no_case() -> None:
    sql = """SELECT a.at FROM events a JOIN cities c ON c.k = CAST(a.k AS INT)
        WHERE CASE WHEN end = 1 AND x = 1 AND y = 2 THEN false ELSE true END"""
    assert [(one.sql, one.guards) for one in row_checks(sql, STREAMS, ("cities",))] == [("CAST(k AS INT)", ())]


@pytest.mark.parametrize(("group", "found"), [("GROUPING SETS ((k), (n))", []), ("ROLLUP (k, n)", ["k / n"])])
def test_items_of_a_list_are_not_tried_where_sets_put_nulls(group: str, found: list[str]) -> None:
    sql = f"SELECT window.start AS at, k / n AS r FROM events GROUP BY window(at, '1 minute'), {group}"
    assert [one.sql for one in row_checks(sql, STREAMS)] == found


def test_a_unit_is_no_column_without_a_relation() -> None:
    assert keys_of("timestampadd(HOUR, CAST(a.h AS INT), a.at) = b.t AND a.at = b.at") == [
        "timestampadd(HOUR, CAST(h AS INT), at)"
    ]
    assert keys_of("concat(hour, CAST(a.h AS INT)) = b.t AND coalesce(1 / a.n, hour, 1) = b.n AND a.at = b.at") == []


LEFT, RIGHT = "a.x = 'l' AND b.x = 'r'", "a.y > 0 AND b.y > 0"


@pytest.mark.parametrize(
    ("join", "of_a", "of_b"),
    [
        ("JOIN", ["x = 'l'", "y > 0"], ["x = 'r'", "y > 0"]),
        ("LEFT JOIN", ["x = 'l'"], ["x = 'r'", "y > 0"]),
        ("RIGHT JOIN", ["x = 'l'", "y > 0"], ["x = 'r'"]),
        ("FULL JOIN", ["x = 'l'"], ["x = 'r'"]),
        ("LEFT SEMI JOIN", ["x = 'l'", "y > 0"], ["y > 0"]),
        ("LEFT ANTI JOIN", ["x = 'l'"], ["y > 0"]),
    ],
)
def test_a_key_is_not_computed_of_rows_that_spark_leaves_out_before_the_join(
    join: str, of_a: list[str], of_b: list[str]
) -> None:
    where = LEFT if "S" not in join and "ANTI" not in join else "a.x = 'l'"
    sql = f"SELECT a.at FROM events a {join} other b ON CAST(a.k AS INT) = CAST(b.k AS INT) AND {RIGHT} WHERE {where}"
    assert [(one.stream, list(one.guards)) for one in row_checks(sql, STREAMS, unbounded=True)] == [
        ("events", of_a),
        ("other", of_b),
    ]


@pytest.mark.parametrize(
    ("where", "guards"),
    [
        ("kind = 'x' AND a.s.n BETWEEN 1 AND 2", ["kind = 'x'", "s.n BETWEEN 1 AND 2"]),
        ("a.x = 1 OR a.x = 2 AND a.y = 3", ["x = 1 OR x = 2 AND y = 3"]),
        ("((a.x = 1 AND (a.y = 1)) AND a.z = 1)", ["x = 1", "y = 1", "z = 1"]),
        ("(a.x = 1 AND b.x = 1) OR a.x = 2 AND a.y = 3", []),
        ("a.x = 1 AND b.x = 1 OR a.x = 2 AND b.x IS NULL", []),
        ("CASE WHEN a.x = 1 AND b.x = 1 THEN true END AND CASE WHEN a.x = 1 OR a.y = 2 THEN true END",
         ["CASE WHEN x = 1 OR y = 2 THEN true END"]),
        ("a.x BETWEEN b.x AND 3 AND a.end = 1", ["end = 1"]),
        ("NOT a.x <=> 1 AND upper(a.x) = 'b.x'", ["NOT x <=> 1", "upper(x) = 'b.x'"]),
    ],
    ids=["without-a-name", "or", "wrapped", "or-of-both", "or-of-ands", "case", "between", "not"],
)  # fmt: skip
def test_conditions_of_the_where_that_name_no_other_relation_guard_a_key(where: str, guards: list[str]) -> None:
    assert guards_of(f"SELECT a.at FROM events a JOIN other b ON CAST(a.k AS INT) = b.k WHERE {where}") == [guards]


@pytest.mark.parametrize(
    ("where", "guards"),
    [
        ("b.x IS NOT NULL AND (b.x < 1) AND b.y NOT IN (1, 2) AND b.x BETWEEN 1 AND 2",
         ["x IS NOT NULL", "x < 1", "y NOT IN (1, 2)", "x BETWEEN 1 AND 2"]),
        ("b.x IS NULL AND NOT b.x IS NOT NULL", []),
        ("(b.x < 1 OR b.x IS NULL) AND (b.x < 1 OR b.y < 1)", []),
        ("coalesce(b.x, 0) = 0 AND b.x <=> NULL AND (b.x = 1 OR b.y) = true AND NOT b.x AND b.x = 1 IS NULL", []),
        ("(b.x, b.y) NOT IN ((1, 2)) AND (b.x, 1) <> (1, 1) AND 1 IN (b.x, 1) AND 1 = 2 AND x = 1", []),
    ],
    ids=["false", "is-null", "or", "of-null", "several"],
)  # fmt: skip
def test_a_condition_that_is_true_of_no_partner_leaves_no_row_out(where: str, guards: list[str]) -> None:
    sql = f"SELECT a.at FROM events a LEFT JOIN other b ON a.k = CAST(b.k AS INT) WHERE {where}"
    assert guards_of(sql) == [guards]


def test_the_conditions_of_a_later_join_guard_a_key_too() -> None:
    sql = """SELECT a.at FROM events a JOIN other b ON CAST(a.k AS INT) = b.k
      LEFT JOIN cities c ON c.k = b.k AND a.x = 1 JOIN lands d ON d.k = c.k AND a.x = 2"""
    assert guards_of(sql, "cities", "lands") == [["x = 2"]]


def test_a_later_join_computes_a_condition_of_what_an_earlier_one_may_lack() -> None:
    sql = """SELECT a.at FROM events a LEFT JOIN other b ON a.k = CAST(b.k AS INT) AND b.z IS NULL
      JOIN cities c ON c.k = a.k AND b.x IS NULL AND b.y = 1"""
    assert guards_of(sql, "cities") == [["z IS NULL", "y = 1"]]
    sql = """SELECT a.at FROM events a RIGHT JOIN other b ON CAST(a.k AS INT) = b.k AND a.x IS NULL
      WHERE a.y IS NULL AND a.z = 1"""
    assert guards_of(sql) == [["z = 1", "x IS NULL"]]


@pytest.mark.parametrize(("join", "guards"), [("LEFT SEMI", ["y = 1"]), ("LEFT ANTI", ["y = 1"]), ("INNER", None)])
def test_a_column_without_a_relation_is_none_of_one_behind_semi_or_anti(join: str, guards: list[str] | None) -> None:
    sql = f"""SELECT a.at FROM events a {join} JOIN other b ON a.k = CAST(b.k AS INT) AND b.y = 1
      JOIN cities c ON c.id = a.id AND kind = 'x' WHERE x = 1"""
    assert guards_of(sql, "cities") == [guards or ["x = 1", "y = 1", "kind = 'x'"]]


def test_a_column_that_using_merges_may_have_another_type_than_the_relations_own() -> None:
    sql = """SELECT a.at FROM events a JOIN other b USING (K, at) JOIN cities c ON CAST(b.v AS INT) = c.v
      WHERE k LIKE '0%' AND b.k > '1' AND v.k = 1"""
    assert guards_of(sql, "cities") == [["k > '1'", "v.k = 1"]]


def test_a_column_may_have_the_name_of_a_word_of_joins() -> None:
    sql = """SELECT a.at FROM events a JOIN other b ON a.on = b.left AND CAST(a.k AS INT) = b.k AND a.x = 1
      JOIN cities c ON c.full = a.full AND a.y = 1"""
    assert guards_of(sql, "cities") == [["x = 1", "y = 1"]]


def test_the_guards_that_the_stream_has_the_columns_of_limit_a_check() -> None:
    check = RowCheck("events", "ON", "1 / n", guards=("n > 0", "m > 0"))
    assert check.guarded({"n > 0"}) == RowCheck("events", "ON", "1 / n", "(n > 0\n)")
    assert check.guarded(()) == RowCheck("events", "ON", "1 / n")


def test_a_condition_that_is_null_ends_those_of_a_check() -> None:
    """AND itself would compute those after it."""
    guarded = RowCheck("events", "ON", "1 / n", guards=("n > 0", "m > 0", "o > 0")).guarded({"n > 0", "o > 0"})
    assert guarded.only == "coalesce(n > 0\n, false) AND (o > 0\n)"
    sql = "SELECT sum(1 / n) FILTER (WHERE n > 0) AS s FROM events WHERE k > 0 GROUP BY window(at, '1 minute')"
    assert found(sql)[1:] == [
        ("FILTER of sum", "n > 0", "(k > 0 )"),
        ("argument of sum", "1 / n", "coalesce(k > 0 , false) AND (n > 0 )"),
    ]


@pytest.mark.parametrize(
    ("item", "alone"),
    [
        ("filter(e.items, e -> 100 / e.qty > 3)", "filter(items, e -> 100 / e.qty > 3)"),
        ("aggregate(e.a, 0, (s, E) -> e.x::MAP<INT, INT>[s], s -> e.n)",
         "aggregate(a, 0, (s, E) -> e.x::MAP<INT, INT>[s], s -> n)"),
        ("filter(e.items, i -> exists(e.m, `e` -> e.y > 1 / i.y))",
         "filter(items, i -> exists(m, `e` -> e.y > 1 / i.y))"),
        ("filter(e.items, i -> e.n / i.qty > 3) IS NULL AND e.n > 0",
         "filter(items, i -> n / i.qty > 3) IS NULL AND n > 0"),
    ],
    ids=["same", "of-two", "nested", "another"],
)  # fmt: skip
def test_a_lambdas_argument_of_the_streams_name_stays_its_argument(item: str, alone: str) -> None:
    assert found(f"SELECT {item} AS x, e.n + 1 AS y FROM events e") == [
        ("SELECT", alone, None),
        ("SELECT", "n + 1", None),
    ]
    sql = "SELECT e.at FROM events e JOIN other o ON filter(e.items, o -> 1 / o.n > e.n) = o.k"
    assert [one.sql for one in row_checks(sql, STREAMS, unbounded=True)] == ["filter(items, o -> 1 / o.n > n)"]
    sql = "SELECT e.at FROM events e JOIN other o ON CAST(e.k AS INT) = o.k WHERE exists(e.items, o -> o.n = 1)"
    [check] = row_checks(sql, STREAMS, unbounded=True)
    assert check.guards == ("exists(items, o -> o.n = 1)",)


def test_a_column_that_a_lambdas_argument_would_hide_is_not_computed_apart() -> None:
    hidden = "filter(e.items, i -> e.i / i > 3)"
    where = "WHERE 1 / e.n > 0"
    rest = [("WHERE", "1 / n > 0", None), ("SELECT", "n + 1", "(1 / n > 0 )")]
    assert found(f"SELECT {hidden} AS x, e.n + 1 AS y FROM events e {where}") == rest
    where = f"WHERE exists({hidden}, j -> j)"
    unknown = f"SELECT e.k, e.n + 1 AS y FROM events e {where}"
    assert found(unknown) == [], "which rows the WHERE leaves out is not known"
    assert found(f"{unknown} UNION ALL SELECT items, n + 2 FROM events") == [("SELECT", "n + 2", None)]
    sums = f"sum(1 / e.n) FILTER (WHERE exists({hidden}, j -> j)) AS s, max({hidden}) AS m, sum(e.n + 1) AS t"
    assert found(f"SELECT {sums} FROM events e GROUP BY window(e.at, '1 minute')") == [
        ("argument of sum", "n + 1", None)
    ]


def test_a_hidden_column_takes_no_other_key_or_guard_away() -> None:
    hidden = "filter(e.items, i -> i.q > e.i)"
    sql = f"""SELECT {hidden} AS f FROM events e JOIN other o ON CAST(e.k AS INT) = o.k AND {hidden} = o.items
      WHERE e.n > 0 AND size({hidden}) > 1"""
    assert [(one.sql, one.guards) for one in row_checks(sql, STREAMS, unbounded=True)] == [
        ("CAST(k AS INT)", ("n > 0",))
    ]


def test_every_select_that_reads_a_stream_by_itself_counts_once() -> None:
    sql = """WITH one AS (SELECT at, CAST(k AS INT) AS i FROM events e WHERE e.n % 2 = 0)
      SELECT at, i + 1 AS i FROM one UNION ALL SELECT at, other.n + 1 FROM other UNION ALL SELECT at, i FROM one"""
    checks = row_checks(sql, STREAMS)
    assert [(one.stream, one.sql) for one in checks] == [
        ("events", "n % 2 = 0"),
        ("events", "CAST(k AS INT)"),
        ("other", "n + 1"),
    ]


@pytest.mark.parametrize(
    ("first", "alone"),
    [
        ("m::MAP<STRING, INT> AS m", "m::MAP<STRING, INT>"),
        ("m::MAP<STRING, ARRAY<INT>> m", "m::MAP<STRING, ARRAY<INT>>"),
        ("m::MAP<STRING, ARRAY<ARRAY<INT>>> IS NULL AS m", "m::MAP<STRING, ARRAY<ARRAY<INT>>> IS NULL"),
        ("m::INT < n AS m", "m::INT < n"),
        ("m::INT<3 AS m", "m::INT<3"),
        ("CAST(m AS MAP<STRING, INT>) AS m", "CAST(m AS MAP<STRING, INT>)"),
    ],
)
def test_a_comma_within_a_type_does_not_end_an_item(first: str, alone: str) -> None:
    assert found(f"SELECT {first}, 1 / n AS x FROM events") == [("SELECT", alone, None), ("SELECT", "1 / n", None)]


def test_a_list_whose_items_the_text_does_not_show_has_no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_NESTING", ())
    assert found("SELECT m::MAP<STRING, INT> AS m, 1 / n AS x FROM events WHERE 1 / n > 2") == [
        ("WHERE", "1 / n > 2", None)
    ]


def test_a_comment_or_a_field_of_the_streams_name_does_no_harm() -> None:
    sql = "SELECT -- the first, in short\n at, s.events.n + events.n /* a, b */ AS x FROM events"
    assert found(sql) == [("SELECT", "s.events.n + n", None)]


def test_what_is_tested_is_null_for_a_row_that_is_left_out() -> None:
    assert RowCheck("events", "SELECT", "1 / n", "(n > 0\n)").tested == "CASE WHEN (n > 0\n)\nTHEN 1 / n\nEND"
    assert RowCheck("events", "WHERE", "1 / n > 0").tested == "1 / n > 0"
