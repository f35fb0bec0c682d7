"""Which columns of a result are the stream's own: by these, a correction finds the rows of a key in a source."""

from __future__ import annotations

import pytest

from floodmark.core.sql import analyse

SORTED = "(SELECT *, row_number() OVER (PARTITION BY {} ORDER BY v DESC) AS p FROM e) WHERE p <= 2"


@pytest.mark.parametrize(
    ("sql", "column", "own"),
    [
        ("SELECT k, count(*) AS n FROM e GROUP BY k", "k", "k"),
        ("SELECT K AS `Key`, count(*) AS n FROM e GROUP BY k", "KEY", "k"),
        ("SELECT k, count(*) AS n FROM e GROUP BY k", "n", None),
        ("SELECT a, sum(v) AS n FROM (SELECT k AS a, v FROM e WHERE v > 3) GROUP BY a", "a", "k"),
        ("WITH x AS (SELECT k AS a, v AS k FROM e) SELECT x.a, sum(k) AS n FROM x GROUP BY x.a", "a", "k"),
        ("SELECT a, sum(v) AS n FROM (SELECT upper(k) AS a, v FROM e) GROUP BY a", "a", None),
        ("SELECT a, sum(v) AS n FROM (SELECT s.k AS a, v FROM e) GROUP BY a", "a", None),
        ("SELECT a, sum(v) AS n FROM (SELECT e.k AS a, v FROM e) GROUP BY a", "a", "k"),
        ("SELECT * FROM e", "any", "any"),
        ("SELECT *, upper(k) AS u FROM e", "u", None),
        ("SELECT *, upper(k) AS u FROM e", "k", "k"),
        ("SELECT * EXCEPT (k), upper(k) AS k FROM e", "k", None),
        ("SELECT * EXCEPT (k), upper(k) AS k FROM e", "v", None),
        ("SELECT k, v FROM e UNION ALL SELECT k, v FROM f", "k", None),
        ("SELECT k, v FROM " + SORTED.format("k"), "k", "k"),
        ("SELECT k, v FROM " + SORTED.format("v"), "k", None),
    ],
)
def test_a_column_is_the_streams_own_if_each_select_passes_it_on(sql: str, column: str, own: str | None) -> None:
    found = analyse(sql, {"e": "at", "f": "at"}, unbounded=True)
    assert found.carried.of(column) == own
