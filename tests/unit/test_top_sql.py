"""Which columns show the keys and the place of the first rows of each key, or the keys of running totals."""

from __future__ import annotations

import pytest

from floodmark.core.sql import analyse
from floodmark.core.sql.state.amending import amended_of
from floodmark.core.sql.state.tops import Top
from floodmark.errors import SqlAt

STREAMS = {"events": "at", "others": "ts"}
RANK = "row_number() OVER (PARTITION BY id ORDER BY v DESC) AS place"


def top(listed: str, inner: str = "*", where: str = "place <= 2", rank: str = RANK) -> Top:
    found = analyse(f"SELECT {listed} FROM (SELECT {inner}, {rank} FROM events e) r WHERE {where}", STREAMS)
    assert found.top is not None
    return found.top


@pytest.mark.parametrize(
    ("listed", "inner", "output", "place"),
    [
        ("customer.id AS customer_id, id, v", "*", "id", None),
        ("customer.id, r.id AS key, place", "*", "key", "place"),
        ("place.x AS p, place AS n, id", "*", "id", "n"),
        ("customer.id AS customer_id", "*", None, None),
        ("*", "*", "id", "place"),
        ("r.*", "e.*", "id", "place"),
        ("* EXCEPT (id, Place)", "* EXCEPT (v)", None, None),
        ("customer.*", "*", None, None),
        ("id", "e.ID, v", "id", None),
        ("r.id AS key", "e.id AS Id, v", "key", None),
    ],
)
def test_a_key_and_a_place_are_shown_by_their_own_columns(
    listed: str, inner: str, output: str | None, place: str | None
) -> None:
    found = top(listed, inner)
    assert (found.keys, found.outputs, found.place) == (("id",), (output,), place)


@pytest.mark.parametrize(
    ("inner", "where", "words"),
    [
        ("customer.id, v", "place = 1", "expected id unchanged in the SELECT list"),
        ("customer.*, v", "place = 1", "expected id unchanged in the SELECT list"),
        ("* EXCEPT (ID)", "place = 1", "expected id unchanged in the SELECT list"),
        ("customer.id AS id, v", "place = 1", "expected id unchanged in the SELECT list"),
        ("*, upper(id) AS id", "place = 1", "expected id unchanged in the SELECT list"),
        ("*", "s.place <= 1", "expected WHERE place <= n"),
    ],
)
def test_a_field_of_the_same_name_is_neither_key_nor_place(inner: str, where: str, words: str) -> None:
    with pytest.raises(SqlAt, match=words):
        top("*", inner, where)


def test_a_field_is_not_the_event_time() -> None:
    rank = "row_number() OVER (PARTITION BY id ORDER BY s.at) AS place"
    assert top("*", rank=rank).keys == ("id",)


@pytest.mark.parametrize(
    ("listed", "outputs"),
    [
        ("s.k AS x, k", (None, "k")),
        ("s, s.k AS x", ("s", None)),
        ("e.k AS x, s AS y", ("y", "x")),
    ],
)
def test_a_field_shows_no_key_of_totals(listed: str, outputs: tuple[str | None, ...]) -> None:
    found = analyse(f"SELECT {listed}, count(*) AS n FROM events e GROUP BY s, k", STREAMS).running
    assert found is not None
    assert found.outputs == outputs


def test_the_column_of_a_lookup_shows_no_key_of_the_stream() -> None:
    sql = "SELECT {} FROM events e JOIN places p ON e.place = p.id GROUP BY {}"
    for listed, by, output in (
        ("p.k AS x, e.k AS y", "e.k", "y"),
        ("p.city AS c", "city", "c"),
    ):
        found = analyse(sql.format(listed, by), STREAMS, lookups={"places"}).running
        assert found is not None
        assert found.outputs == (output,)


def test_a_field_shows_no_key_of_an_amended_window() -> None:
    sql = "SELECT window.end AS w, s.k AS x, k, count(*) AS n FROM events GROUP BY window(at, '1 hour'), k"
    assert amended_of(sql, STREAMS) == [("window.start", "w"), ("k", "k")]
