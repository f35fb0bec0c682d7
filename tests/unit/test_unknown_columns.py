"""Columns that no table has, or no GROUP BY: found by the text alone, and never where there is no mistake."""

from __future__ import annotations

import pytest

from floodmark.core.sql import analyse
from floodmark.core.sql.tree.unknown import unknown_column, unknown_in_expression
from floodmark.errors import SqlAt

COLUMNS = ("at", "k", "v", "s", "Arr", "odd name", "map")


@pytest.mark.parametrize(
    "expression",
    [
        "timestampadd(SECOND, CAST(k AS INT), at)", "datediff(DAY, at, at)", "extract(YEAR FROM at)", "cast(k AS date)",
        "at > TIMESTAMP'2001-01-01'", "s.a.b = 1", "map['a'] = 1", "transform(arr, x -> x + 1)[0]", "`odd name` = 1",
        "aggregate(arr, 0, (acc, x) -> acc + x) > 1", "named_struct('a', k).a", "trim(BOTH ' ' FROM k) = ''", "V > 1",
        "from_json(k, 'a INT').a", "substring(k FROM 1 FOR 2)", "at + INTERVAL 1 DAY", "CASE k WHEN 'a' THEN v END",
    ],
)  # fmt: skip
def test_what_is_no_mistake_in_an_expression_is_none(expression: str) -> None:
    assert unknown_in_expression(expression, COLUMNS) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT e.k, x.n FROM events e JOIN (SELECT k, v AS n FROM events) x ON e.k = x.k",
        "WITH a AS (SELECT at AS t, k AS u FROM events) SELECT t, a.u FROM a",
        "SELECT window.start AS since, count(*) AS n FROM events GROUP BY window(at, '1 hour') HAVING n > 1",
        "SELECT count_window.end AS stop, k, count(*) AS c FROM events GROUP BY count_window(3), k",
        "SELECT session_window.start AS since FROM events GROUP BY session_window(at, '1 hour')",
        "SELECT count(*) AS n, n + 1 AS m FROM events GROUP BY window(at, '1 hour')",
        "SELECT p.v FROM events LEFT JOIN prices p ON events.k = p.k AND at >= p._valid_from",
    ],
)
def test_what_is_no_mistake_in_a_query_is_none(sql: str) -> None:
    assert unknown_column(sql, COLUMNS) is None


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("SELECT k, _metadata.file_path AS file FROM events", "_metadata"),
        ("SELECT k, window.start AS since FROM events", "window"),
        ("SELECT k, count_window.start AS since FROM events GROUP BY window(at, '1 hour'), k", "count_window"),
    ],
)
def test_what_spark_adds_to_files_and_windows_alone_is_unknown_elsewhere(sql: str, name: str) -> None:
    found = unknown_column(sql, COLUMNS)
    assert found is not None and f"column {name}: expected a column that a table has" in found.problem
    assert unknown_column(sql, (*COLUMNS, name)) is None


def test_the_first_unknown_name_is_told_with_its_place_and_the_nearest() -> None:
    found = unknown_column("SELECT k,\n  sum(arrr) AS total FROM events GROUP BY window(att, '1 hour'), k", COLUMNS)
    assert found is not None and (found.line, found.column) == (2, 7)
    assert "column arrr: did you mean arr?" in found.problem and "found at, k, v" in found.problem
    assert unknown_in_expression("x.a = 1", COLUMNS) is not None


@pytest.mark.parametrize(
    "selected",
    [
        "window.start AS since, k, sum(v) FILTER (WHERE s > 1) AS n", "upper(k) AS u, max(v) AS m",
        "upper(k) AS u, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS m",
        "timestampadd(HOUR, 1, window.start) AS t, any(v > 1) AS a", "max(v) + 1 AS top, k AS c",
        "array_sort(collect_list(v)) AS l", "count(DISTINCT v, s) AS d", "max(named_struct('v', v)).v AS m",
        "transform(sort_array(collect_list(v)), x -> x + 1) AS l", "count(*) AS n, n + 1 AS m", "'a' AS a, 1 AS b",
    ],
)  # fmt: skip
def test_what_is_grouped_or_aggregated_is_no_mistake(selected: str) -> None:
    analyse(f"SELECT {selected} FROM events GROUP BY window(at, '1 hour'), k", {"events": "at"})


@pytest.mark.parametrize("group", ["1, 2", "window(at, '1 hour'), up", "window(at, '1 hour'), upper(s)"])
def test_a_group_by_may_name_places_aliases_and_expressions(group: str) -> None:
    analyse(
        f"SELECT window(at, '1 hour') AS w, upper(s) AS up, count(*) AS n FROM events GROUP BY {group}",
        {"events": "at"},
    )


@pytest.mark.parametrize(
    "selected", ["s, count(*) AS n", "upper(s) AS u, count(*) AS n", "max(v) + s AS n", "e.s AS n"]
)
def test_what_is_neither_is_refused_at_its_place(selected: str) -> None:
    with pytest.raises(SqlAt, match="neither in the GROUP BY nor in an aggregate") as fault:
        analyse(f"SELECT {selected} FROM events e GROUP BY window(at, '1 hour'), k", {"events": "at"})
    assert fault.value.line == 1
