"""Which windows fold by slices, and what the SQL of that is."""

from __future__ import annotations

import pytest

from floodmark.core.sql.slices import slices_of
from floodmark.errors import SqlAt

STREAMS = {"flights": "date", "others": "ts"}
GROUP = "GROUP BY window(date, '1 hour', '10 minutes'), k"

REFUSED = {
    "a list": (f"SELECT sort_array(§collect_list(v)) FROM flights {GROUP}", "aggregate collect_list by its parts"),
    "distinct": (f"SELECT §count(DISTINCT v) FROM flights {GROUP}", "needs all values"),
    "the clock": (f"SELECT count_if(date > §now()) AS n FROM flights {GROUP}", "now() within count_if(...)"),
    "the end of the window in an aggregate": (
        f"SELECT count_if(date >= §window.end - INTERVAL '10' MINUTES) AS n FROM flights {GROUP}",
        "expected no window within an aggregate",
    ),
    "the start in a filter, in other letters": (
        f"SELECT avg(v) FILTER (WHERE date < §`Window`.start + INTERVAL '9' MINUTES) AS m FROM flights {GROUP}",
        "expected no window within an aggregate",
    ),
    "the window as a whole, in having": (
        f"SELECT k FROM flights {GROUP} HAVING max(window_time(§window)) > max(date)",
        "expected no window within an aggregate",
    ),
    "the window called again": (
        f"SELECT sum(unix_micros(§window(date, '1 hour', '10 minutes').end)) AS n FROM flights {GROUP}",
        "expected no window within an aggregate",
    ),
    "the window of rows below, in an aggregate": (
        f"SELECT any(date > §window.start) AS n FROM (SELECT *, v + 1 AS w FROM flights) {GROUP}",
        "expected no window within an aggregate",
    ),
    "in having": (f"SELECT k FROM flights {GROUP} HAVING §median(v) > 1", "aggregate median by its parts"),
    "a select above": (f"§SELECT * FROM (SELECT max(v) AS m FROM flights {GROUP})", "nothing above it"),
    "two of them": (f"§SELECT k FROM flights {GROUP} UNION ALL SELECT k FROM flights {GROUP}", "nothing above it"),
    "sessions": ("§SELECT max(v) FROM flights GROUP BY session_window(date, '1 hour')", "expected one SELECT"),
    "by an expression": (f"SELECT max(v) FROM flights §{GROUP.replace(', k', ', upper(k)')}", "found UPPER(k)"),
    "by an alias": (f"SELECT upper(k) AS k, max(v) FROM flights §{GROUP}", "expected columns in GROUP BY"),
    "by an alias of its own name": (
        f"SELECT f.k AS k, max(v) FROM flights f §{GROUP}",
        "expected columns in GROUP BY",
    ),
    "by sets": (f"SELECT max(v) FROM flights §{GROUP.replace(', k', ', ROLLUP(k)')}", "expected columns in GROUP BY"),
    "by the event time": (f"SELECT max(v) FROM flights §{GROUP}, date", "no event time next to the window"),
    "a key with the name of the parts' own column": (
        f"SELECT max(v) AS m, §_epoch FROM (SELECT date, v, k AS _epoch FROM flights) {GROUP[:-3]}, _epoch",
        "a column named _epoch",
    ),
    "all columns, among which the parts would be": (
        f"SELECT §* EXCEPT (date, v), max(v) AS m FROM (SELECT date, k, v FROM flights) {GROUP}",
        "* beside aggregates by their parts",
    ),
    "all columns of the rows": (
        f"SELECT f.§* EXCEPT (date, v), max(v) AS m FROM (SELECT date, k, v FROM flights) f {GROUP}",
        "* beside aggregates by their parts",
    ),
    "a join below": (
        f"SELECT max(v) FROM flights f JOIN others o ON date = ts §{GROUP.replace(', k', ', o.k')}",
        "found a JOIN or OVER",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_fold_by_slices_says_why(name: str) -> None:
    sql, words = REFUSED[name]
    with pytest.raises(SqlAt, match=r".") as caught:
        slices_of(sql.replace("§", ""), STREAMS)
    assert (caught.value.line, caught.value.column) == (1, sql.index("§") + 1), str(caught.value)
    assert words in caught.value.problem


@pytest.mark.parametrize(
    ("window", "slice_"),
    [
        ("'1 hour', '10 minutes'", "'600000000 microseconds', '600000000 microseconds', '0 microseconds'"),
        ("'50 minutes', '20 minutes'", "'600000000 microseconds', '600000000 microseconds', '0 microseconds'"),
        (
            "'3 hours', '1 hour', '-10 minutes'",
            "'3600000000 microseconds', '3600000000 microseconds', '3000000000 micro",
        ),
        (
            "'1 hour', '40 minutes', '35 minutes'",
            "'1200000000 microseconds', '1200000000 microseconds', '900000000 micro",
        ),
    ],
)
def test_a_window_is_made_up_of_whole_slices(window: str, slice_: str) -> None:
    found = slices_of(f"SELECT max(v) AS m FROM flights f GROUP BY f.k, window(f.date, {window})", STREAMS)
    assert f"window(f.date, {slice_}" in found.partial
    assert found.keys == ("date", "k")
    assert found.time == "date"


@pytest.mark.parametrize(
    "listed", ["window.*, s.*, count(*) AS n", "window.*, f.s.*, count(struct(*)) AS n", "* EXCEPT (date)"]
)
def test_a_star_that_has_no_parts_among_its_columns_folds_by_slices(listed: str) -> None:
    """Of a struct it has the fields; without aggregates there are no parts, and such a rule may have run by slices."""
    assert slices_of(f"SELECT {listed} FROM (SELECT date, s FROM flights) f {GROUP[:-3]}, s", STREAMS).keys


@pytest.mark.parametrize("argument", ["f.details.window", "f.window", "named_struct('window', v).window"])
def test_another_window_within_an_aggregate_is_no_window(argument: str) -> None:
    assert slices_of(f"SELECT max({argument}) AS m, window.start AS s FROM flights f {GROUP}", STREAMS).partials


def test_a_key_counts_once_however_it_is_written() -> None:
    assert slices_of(f"SELECT k, K AS j, max(v) AS m FROM flights {GROUP}, K", STREAMS).keys == ("date", "k")


def test_results_are_merged_from_parts() -> None:
    found = slices_of(f"SELECT k, avg(v) AS m, count(*) AS c FROM flights {GROUP} HAVING count(*) > 1", STREAMS)
    assert [(part.name, part.merge) for part in found.partials] == [
        ("sum_0", "sum"), ("count_0", "sum"), ("count_1", "sum"), ("count_2", "sum"),
    ]  # fmt: skip
    bounded = found.final().bounded(None, 5, lambda at, _: str(at))
    assert "try_divide(sum(sum_0), sum(count_0)) AS m, sum(count_1) AS c" in bounded
    assert "HAVING (window.end <= 5) AND ( sum(count_2) > 1" in bounded


def test_a_lambdas_argument_may_have_the_name_of_the_stream() -> None:
    listed = "f.* EXCEPT (date), filter(f.items, f -> f.q > 1) AS x"
    found = slices_of(f"SELECT {listed} FROM (SELECT date, items FROM flights) f {GROUP[:-1]}f.items", STREAMS)
    ours = "`_floodmark_f`"
    assert " ".join(found.merging.sql().split()) == (
        f"SELECT {ours}.* EXCEPT (date), filter({ours}.items, f -> f.q > 1) AS x FROM _floodmark_totals AS {ours} "
        f"{GROUP[:-1]}{ours}.items"
    )
