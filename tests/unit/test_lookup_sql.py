"""Lookup tables in SQL: what may be joined with them, and what they make of a query."""

from __future__ import annotations

import pytest

from floodmark.core.sql import Query, analyse
from floodmark.core.sql.asof import by_start, first_start, undated
from floodmark.core.sql.windows import RowSpec, WindowSpec
from floodmark.errors import SqlAt

STREAMS = {"flights": "date", "others": "ts"}


def query(sql: str) -> Query:
    return analyse(sql, STREAMS, lookups=["airports"])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT f.origin, a.city FROM flights f JOIN airports a ON f.origin = a.iata",
        "SELECT f.origin, a.city FROM airports a, flights f WHERE f.origin = a.iata",
        "SELECT * FROM flights LEFT JOIN airports USING (origin)",
        "SELECT f.* FROM flights f LEFT SEMI JOIN airports a ON f.origin = a.iata",
        "SELECT f.* FROM flights f JOIN (SELECT hub, count(*) AS n FROM airports GROUP BY hub) a ON f.hub = a.hub",
        "SELECT f.* FROM flights f JOIN (SELECT hub, count(*) AS n FROM airports "
        "GROUP BY session_window(since, '1 hour'), ROLLUP(hub)) a ON f.hub = a.hub",
        "SELECT f.* FROM flights f JOIN (SELECT *, lead(since) OVER (PARTITION BY iata ORDER BY since) AS until "
        "FROM airports) a ON f.origin = a.iata AND f.date >= a.since AND f.date < a.until",
    ],
)
def test_looking_up_keeps_nothing(sql: str) -> None:
    found = query(sql)
    assert (found.streams, found.lookups, found.stateful) == (("flights",), ("airports",), False)


def test_a_window_above_a_lookup_is_like_one_without() -> None:
    grouped = "GROUP BY window(date, '1 hour'), city"
    plain = query(f"SELECT city, count(*) AS n FROM flights {grouped}")
    joined = query(f"SELECT city, count(*) AS n FROM flights f JOIN airports a ON f.origin = a.iata {grouped}")
    assert joined.windows == plain.windows


def test_streams_are_joined_by_time_beside_a_lookup() -> None:
    found = query(
        "SELECT f.origin FROM flights f JOIN airports a ON f.origin = a.iata JOIN others o ON o.k = a.k "
        "AND o.ts BETWEEN f.date AND f.date + INTERVAL '5' MINUTES"
    )
    assert [(spec.before_us, spec.after_us) for spec in found.windows] == [(300_000_000, 0)]


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT a.city FROM flights f RIGHT JOIN airports a ON f.origin = a.iata", "RIGHT JOIN with lookup table a"),
        ("SELECT a.city FROM flights f FULL JOIN airports a ON f.origin = a.iata", "FULL JOIN with lookup table a"),
        ("SELECT a.city FROM airports a LEFT JOIN flights f ON f.origin = a.iata", "LEFT JOIN with lookup table a"),
        ("SELECT origin FROM flights UNION ALL SELECT iata FROM airports", "UNION ALL of a stream with a lookup"),
        (
            "SELECT f.x FROM flights f JOIN (SELECT *, first_value(city) OVER (PARTITION BY iata) AS c FROM airports) "
            "a ON f.x = a.x",
            "first_value: expected ORDER BY in its OVER",
        ),
        ("WITH airports AS (SELECT 1 AS x FROM flights) SELECT * FROM airports", "a stream or lookup has this name"),
        ("SELECT f.x FROM flights f JOIN airport a ON f.x = a.x", "no stream or lookup has this name; did you mean"),
        (
            "SELECT f.x FROM flights f JOIN airports a ON f.x = a.x JOIN others o ON o.x = a.x",
            "JOIN of o with no bound on how far event times may lie apart",
        ),
    ],
)
def test_what_is_refused(sql: str, problem: str) -> None:
    with pytest.raises(SqlAt, match=problem):
        query(sql)


GROUPED = "GROUP BY session_window(f.date, '1 hour')"
LEFT = "FROM flights f LEFT JOIN airports a ON f.origin = a.iata"
THEN = "o.ts = f.date"


@pytest.mark.parametrize(
    ("sql", "decides"),
    [
        (f"SELECT max(city) AS c {LEFT} {GROUPED}", False),
        (f"SELECT max(city) AS c {LEFT} WHERE f.x > 1 {GROUPED}, f.k, f.s.k", False),
        (f"SELECT session_window(f.date, '1 hour') AS w, f.k, max(city) AS c {LEFT} GROUP BY w, 2", False),
        (f"SELECT max(city) AS c {LEFT} GROUP BY session_window(date, IF(f.x > 1, '1 hour', '1 day'))", False),
        (f"SELECT max(n) AS n {LEFT.replace('airports', '(SELECT iata, 1 AS n FROM airports)')} {GROUPED}", False),
        ("SELECT 1 AS c FROM flights LEFT JOIN airports USING (k) GROUP BY session_window(date, '1 hour'), k", False),
        (f"SELECT 1 AS c {LEFT} JOIN others o ON o.k = f.k AND {THEN} {GROUPED}", False),
        (f"SELECT 1 AS c FROM flights f JOIN others o ON city = k AND {THEN} LEFT JOIN airports a USING (k) {GROUPED}",
         False),
        (f"SELECT 1 AS c FROM flights f LEFT JOIN airports a USING (k) JOIN others o USING (k) WHERE {THEN} {GROUPED}",
         False),
        (f"SELECT 1 AS c {LEFT} JOIN others o ON o.city = a.city AND {THEN} {GROUPED}, f.k", True),
        (f"SELECT 1 AS c {LEFT} JOIN others o ON o.city = city AND {THEN} {GROUPED}, f.k", True),
        (f"SELECT 1 AS c {LEFT} LEFT JOIN others o ON o.city = a.city AND {THEN} {GROUPED}, f.k", True),
        (f"SELECT 1 AS c {LEFT} JOIN others o USING (city) WHERE {THEN} {GROUPED}, f.k", True),
        (f"SELECT 1 AS c {LEFT} LEFT JOIN airports b USING (city) {GROUPED}, city", True),
        (f"SELECT max(city) AS c {LEFT} {GROUPED}, k", True),
        (f"SELECT max(city) AS c {LEFT} {GROUPED}, upper(a.city)", True),
        (f"SELECT session_window(f.date, '1 hour') AS w, a.k, max(city) AS c {LEFT} GROUP BY 1, 2", True),
        (f"SELECT max(city) AS c {LEFT} WHERE city > 'a' {GROUPED}", True),
        (f"SELECT max(city) AS c {LEFT} GROUP BY session_window(date, IF(a.x > 1, '1 hour', '1 day'))", True),
        (f"SELECT 1 AS c {LEFT.replace('LEFT', 'INNER')} {GROUPED}", True),
        (f"SELECT 1 AS c {LEFT.replace('LEFT', 'LEFT SEMI')} {GROUPED}", True),
        (f"SELECT 1 AS c {LEFT.replace('LEFT', 'LEFT ANTI')} {GROUPED}", True),
        (f"SELECT max(city) AS c {LEFT} WHERE hash(f.*) > 1 {GROUPED}", False),
        (f"SELECT max(city) AS c {LEFT} WHERE hash(*) > 1 {GROUPED}", True),
        (f"SELECT 1 AS c FROM airports a, flights f WHERE a.iata = f.origin {GROUPED}", True),
        (f"SELECT 1 AS c FROM (SELECT f.date, a.city {LEFT}) f {GROUPED}", True),
        (f"WITH f AS (SELECT f.date, a.city {LEFT}) SELECT 1 AS c FROM f {GROUPED}", True),
    ],
)  # fmt: skip
def test_a_lookup_table_may_decide_which_rows_a_session_has(sql: str, decides: bool) -> None:
    (session,) = query(sql).sessions
    assert session.decided_by == ({"airports"} if decides else frozenset())


BEFORE = "f.date BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"
COUNTED = "count(*) OVER (PARTITION BY f.k ORDER BY f.date RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW)"


@pytest.mark.parametrize(
    ("side", "matched", "decides"),
    [
        ("SELECT * FROM flights", "f.k = o.k", False),
        (f"SELECT f.k, f.date, a.city {LEFT}", "f.k = o.k", False),
        (f"SELECT f.k, f.date, a.* {LEFT} WHERE f.x > 1", "f.k = o.k", False),
        (f"SELECT f.*, a.city {LEFT}", "f.k = o.k", False),
        (f"SELECT f.*, a.city {LEFT}", "f.s.city = o.k", False),
        (f"SELECT f.*, a.city {LEFT}", "f.k = o.city", False),
        (f"SELECT f.k, f.date, a.city {LEFT.replace('LEFT', 'INNER')}", "f.k = o.k", True),
        (f"SELECT f.k, f.date {LEFT.replace('LEFT', 'LEFT SEMI')}", "f.k = o.k", True),
        (f"SELECT f.k, f.date {LEFT.replace('LEFT', 'LEFT ANTI')}", "f.k = o.k", True),
        (f"SELECT f.k, f.date, a.city {LEFT} WHERE a.city > 'a'", "f.k = o.k", True),
        (f"SELECT f.k, f.date, a.city {LEFT}", "f.city = o.k", True),
        (f"SELECT f.k, f.date, a.city {LEFT}", "city = o.k", True),
        (f"SELECT f.date, nvl(a.k, f.k) AS k {LEFT}", "f.k = o.k", True),
        (f"SELECT f.date, k {LEFT}", "f.k = o.k", True),
        (f"SELECT * {LEFT}", "f.k = o.k", True),
        (f"SELECT f.*, a.* {LEFT}", "f.k = o.k", True),
        (f"SELECT f.*, a.* EXCEPT (k, date) {LEFT}", "f.k = o.k", False),
        (f"SELECT f.*, a.* EXCEPT (k) {LEFT}", "f.k = o.k", True),
        (f"SELECT f.*, a.* EXCEPT (k, s.date) {LEFT}", "f.k = o.k", True),
        (f"SELECT f.date, (f.k), upper(a.city) {LEFT}", "f.k = o.k", False),
        (f"SELECT f.date, upper(f.k), a.city {LEFT}", "f.`upper(k)` = o.k", False),
        (f"SELECT f.k, f.date, (a.city) {LEFT}", "f.city = o.k", True),
        (f"SELECT f.k, f.date, ((a.city)) {LEFT}", "city = o.k", True),
        (f"SELECT f.k, f.date, CAST(a.city AS STRING) {LEFT}", "f.city = o.k", True),
        (f"SELECT f.k, f.date, upper(a.city) {LEFT}", "f.`upper(city)` = o.k", True),
        (f"SELECT f.k, f.date, a.s['x'] {LEFT}", "f.`s[x]` = o.k", True),
        (f"SELECT f.k, f.date, a.s[0].x {LEFT}", "f.x = o.k", True),
        (f"SELECT f.k, f.date, struct(a.city AS city) AS f {LEFT}", "f.city = o.k", True),
        (f"SELECT f.k, f.date, struct(a.city AS city) AS o {LEFT}", "f.k = o.city", True),
        (f"SELECT f.k, f.date, hash(f.*) AS h {LEFT}", "f.h = o.k", False),
        (f"SELECT f.k, f.date, hash(*) AS h {LEFT}", "f.h = o.k", True),
        (f"SELECT f.k, f.date, a.city {LEFT}", "f.k = o.k AND hash(f.*) > 1", True),
        (f"SELECT f.k, f.date, a.city {LEFT}", "f.k = o.k AND hash(*) > 1", True),
        (f"SELECT f.k, f.date, row_number() OVER (PARTITION BY f.k ORDER BY f.date) AS n {LEFT}", "f.n = o.k", True),
        (f"SELECT f.k, f.date, {COUNTED} AS n {LEFT}", "f.n = o.k", True),
        (f"SELECT f.k, f.date, {COUNTED} AS n {LEFT}", "f.k = o.k", False),
        (f"SELECT f.k, f.date, {COUNTED} AS n FROM flights f", "f.n = o.k", False),
        (f"SELECT f.date, f.k {LEFT} UNION ALL SELECT date, k FROM flights", "f.k = o.k", True),
        (f"SELECT date, k FROM (SELECT f.date, f.k {LEFT.replace('LEFT', 'LEFT SEMI')})", "f.k = o.k", True),
    ],
)
def test_a_lookup_table_may_decide_which_rows_of_a_full_join_find_a_partner(
    side: str, matched: str, decides: bool
) -> None:
    """A row with a partner becomes final at another time than one without: another epoch reads another version."""
    (full,) = query(f"SELECT o.k, f.k AS fk FROM others o FULL JOIN ({side}) f ON {matched} AND {BEFORE}").full_joins
    assert full.decided_by == ({"airports"} if decides else frozenset())


@pytest.mark.parametrize("same", ["f.date = o.ts", "f.date >= o.ts AND o.ts >= f.date"])
def test_rows_of_one_time_are_final_together_with_their_partners(same: str) -> None:
    """So one epoch writes them, by one version of the table."""
    for counted in ("", f", {COUNTED} AS n"):  # an OVER reads rows before, and waits for none after
        side = f"SELECT f.k, f.date{counted} {LEFT.replace('LEFT', 'INNER')}"
        (full,) = query(f"SELECT o.k, f.k AS fk FROM others o FULL JOIN ({side}) f ON f.k = o.k AND {same}").full_joins
        assert not full.decided_by


def test_a_lookup_table_above_a_full_join_decides_of_no_partner() -> None:
    joined = f"SELECT o.k, f.k AS fk FROM others o FULL JOIN flights f ON f.k = o.k AND {BEFORE}"
    (full,) = query(f"SELECT j.k, a.city FROM ({joined}) j JOIN airports a ON a.iata = j.k").full_joins
    assert not full.decided_by


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT a.* {LEFT} GROUP BY window(f.date, '1 hour'), a.iata, a.city",
        f"SELECT f.s.* {LEFT} GROUP BY window(f.date, '1 hour'), f.s",
        f"SELECT s.* {LEFT} GROUP BY window(f.date, '1 hour'), s",
        f"SELECT f.* EXCEPT (date), a.* {LEFT} GROUP BY window(f.date, '1 hour'), f.k, a.iata",
    ],
)
def test_all_columns_of_what_is_no_stream_can_be_grouped(sql: str) -> None:
    """Which columns these are, is not known here."""
    assert query(sql).stateful


@pytest.mark.parametrize("star", ["*", "f.*", "a.*, f.*", "a.* EXCEPT (date), f.*"])
def test_all_columns_of_a_stream_have_its_event_time(star: str) -> None:
    with pytest.raises(SqlAt, match="beside GROUP BY: date, which is a column of the stream"):
        query(f"SELECT {star} {LEFT} GROUP BY window(f.date, '1 hour'), f.k, a.iata")


AS_OF = "SELECT f.date, a.city FROM flights f LEFT JOIN airports a ON f.k = a.k AND f.date < a._valid_to"
OPEN, EVER = "a._valid_to IS NULL OR", "coalesce(a._valid_to, current_date())"
LATER = "JOIN others o ON o.ts = f.date AND"
UNMATCHED = [
    AS_OF.replace("AND f.date <", f"WHERE {OPEN} f.date <"),
    AS_OF.replace("AND f.date < a._valid_to", f"WHERE f.date < {EVER}"),
    AS_OF.replace("AND f.date <", f"{LATER} ({OPEN} f.date <") + ")",
    AS_OF.replace("AND f.date < a._valid_to", f"{LATER} o.ts < {EVER}"),
]  # fmt: skip
NEAR = "o.ts BETWEEN f.date AND f.date + INTERVAL '5' MINUTES"
DATED = [
    AS_OF,
    AS_OF.replace("f.date < a._valid_to", "(f.date >= a._valid_from AND (a._VALID_TO > DATE))"),
    AS_OF.replace("f.date < a._valid_to", "f.date BETWEEN a._valid_from AND a._valid_to"),
    AS_OF.replace("f.date < a._valid_to", "(a._valid_to IS NULL OR f.date < a._valid_to)"),
    AS_OF.replace("f.date < a._valid_to", "((a._valid_to > f.date) OR (a._valid_to IS NULL))"),
    AS_OF.replace("f.date < a._valid_to", "f.date < coalesce(a._valid_to, current_date())"),
    AS_OF.replace("f.date < a._valid_to", "f.date < nvl(a._valid_to, current_date())"),
    AS_OF.replace("f.date < a._valid_to", "f.date < IFNULL(a._valid_to, current_date())"),
    AS_OF.replace("f.date < a._valid_to", "NOT (f.date >= a._valid_to)"),
    AS_OF.replace("f.date < a._valid_to", "NOT a._valid_to <= f.date"),
    AS_OF.replace("f.date < a._valid_to", f"NOT f.date > {EVER}"),
    AS_OF.replace("a._valid_to", "a.u").replace("airports", "(SELECT k, nvl(_valid_to, '') u FROM airports)"),
    AS_OF.replace("AND f.date < a._valid_to", "WHERE NOT (f.date >= a._valid_to)"),
    AS_OF.replace("AND f.date", "WHERE f.date"),
    AS_OF.replace("LEFT JOIN", "JOIN").replace("AND f.date <", f"WHERE {OPEN} f.date <"),
    AS_OF.replace("LEFT JOIN", "JOIN").replace("AND f.date < a._valid_to", f"WHERE f.date < {EVER}"),
    AS_OF.replace("LEFT JOIN", "LEFT SEMI JOIN").replace(", a.city", ""),
    AS_OF.replace("flights f LEFT JOIN airports a", "airports a JOIN flights f"),
    AS_OF.replace("airports a", "(SELECT k, city, _valid_to AS u FROM airports) a").replace("a._valid_to", "a.u"),
    f"WITH b AS (SELECT * FROM airports) {AS_OF.replace('airports', 'b')}",
    f"WITH b AS (SELECT k, date FROM flights WHERE k > 1) {AS_OF.replace('flights', 'b')}",
    f"SELECT f.k FROM flights f JOIN others o ON {NEAR} JOIN airports a ON a.k = f.k AND o.ts < a._valid_to",
    f"SELECT window.start AS s, max(city) AS c FROM ({AS_OF}) GROUP BY window(date, '1 hour')",
    AS_OF.replace("f.date, a.city", "window.start AS s, count(*) AS n") + " GROUP BY window(date, '1 hour')",
    *(
        AS_OF.replace("flights f", f"(SELECT k, {bound} AS date FROM flights GROUP BY {windows}, k) f")
        for bound in ("window.start", "window.end")
        for windows in ("window(date, '1 hour')", "window(date, '1 hour', '20 minutes')")
    ),
]  # fmt: skip
OTHERWISE = [
    *UNMATCHED,
    AS_OF.replace("f.date <", "f.departed <"),
    AS_OF.replace("f.date <", "f.date - INTERVAL '1' HOUR <"),
    AS_OF.replace("f.date <", "f.date >="),
    AS_OF.replace("f.date < a._valid_to", "(f.date < a._valid_to OR f.k = 1)"),
    AS_OF.replace("f.date < a._valid_to", "(f.date < a._valid_to OR a.closed IS NULL)"),
    AS_OF.replace("f.date < a._valid_to", "(a._valid_to IS NULL OR NOT (f.date < a._valid_to))"),
    AS_OF.replace("f.date < a._valid_to", "f.date < coalesce(a.closed, a._valid_to)"),
    AS_OF.replace("f.date < a._valid_to", "NOT (f.date < a._valid_to)"),
    AS_OF.replace("f.date < a._valid_to", "NOT (f.date BETWEEN a._valid_from AND a._valid_to)"),
    AS_OF.replace("airports a", "(SELECT k, city, nvl(closed, _valid_to) AS _valid_to FROM airports) a"),
    AS_OF.replace("f.date < a._valid_to", "f.date >= a._valid_from"),
    AS_OF.replace(" AND f.date < a._valid_to", ""),
    AS_OF.replace("f.date < a._valid_to", "f.date < a.closed"),
    AS_OF.replace("airports a", "(SELECT k, 'x' AS city, max(_valid_to) AS _valid_to FROM airports GROUP BY k) a"),
    AS_OF.replace("airports a", "(SELECT *, lead(k) OVER (PARTITION BY k ORDER BY _valid_to) AS z FROM airports) a"),
    AS_OF.replace("airports a", "(SELECT DISTINCT k, city, _valid_to FROM airports) a"),
    AS_OF.replace("airports a", "(SELECT * EXCEPT (_valid_to), closed AS _valid_to FROM airports) a"),
    AS_OF.replace("LEFT JOIN", "LEFT ANTI JOIN").replace(", a.city", "").replace("AND f.date", "WHERE f.date"),
    f"{AS_OF} UNION ALL {AS_OF.replace('f.date <', 'f.departed <')}",
    f"WITH b AS (SELECT k, date + INTERVAL '1' DAY AS date FROM flights) {AS_OF.replace('flights', 'b')}",
    AS_OF.replace("flights f", "(SELECT k, max(date) AS date FROM flights GROUP BY window(date, '1 hour'), k) f"),
]  # fmt: skip


@pytest.mark.parametrize("sql", DATED)
def test_rows_meet_no_version_that_ended_before_their_event_times(sql: str) -> None:
    assert undated(sql, STREAMS, ["airports"]) == {}


@pytest.mark.parametrize("sql", OTHERWISE)
def test_rows_may_meet_any_version_unless_the_event_time_has_to_be_before_its_end(sql: str) -> None:
    assert list(undated(sql, STREAMS, ["airports"])) == ["airports"]


HOURS = "(SELECT k, window.start AS date, window.end AS stop FROM flights GROUP BY window(date, '1 hour'), k) f"

DAYS = HOURS.replace("1 hour", "1 day")
ENDS = AS_OF.replace("flights f", HOURS).replace("f.date <", "f.stop <")


@pytest.mark.parametrize(
    ("sql", "starts"),
    [
        (AS_OF, False),
        (
            AS_OF.replace("f.date, a.city", "window.start AS s, count(*) AS n") + " GROUP BY window(date, '1 hour')",
            False,
        ),
        (AS_OF.replace("flights f", HOURS), True),
        (ENDS, False),
        (AS_OF.replace("flights f", HOURS).replace("f.date <", "f.stop < a._valid_to AND f.date <"), False),
        (f"{ENDS} UNION ALL {AS_OF.replace('flights f', HOURS)}", True),
        (AS_OF.replace("flights f", f"(SELECT * FROM {HOURS} UNION ALL SELECT * FROM {DAYS}) f"), True),
    ],
)
def test_rows_meet_versions_by_the_start_of_their_window_only_where_the_sql_compares_it(sql: str, starts: bool) -> None:
    """Only there are versions needed from before the rows' own event times."""
    assert by_start(sql, STREAMS, ["airports"]) == ({"airports"} if starts else set())
    assert undated(sql, STREAMS, ["airports"]) == {}


def test_the_first_start_of_a_window_of_rows_from_a_time_on() -> None:
    assert [first_start([WindowSpec(60, 60, 0)], at) for at in (59, 60, 61)] == [0, 60, 60]
    assert [first_start([WindowSpec(60, 20, 5)], at) for at in (84, 85, 86)] == [25, 45, 45]
    assert first_start([WindowSpec(60, 60, 0), WindowSpec(90, 90, 0)], 100) == 60
    assert first_start([RowSpec(60, 1)], 100) == 100


def test_the_reason_shows_the_comparison() -> None:
    shifted = undated(AS_OF.replace("f.date <", "f.departed <"), STREAMS, ["airports"])
    assert shifted["airports"].endswith("unchanged event time: f.departed < a._valid_to")
    for sql in UNMATCHED:
        assert "a LEFT JOIN finds no match" in undated(sql, STREAMS, ["airports"])["airports"]
    without = AS_OF.replace(" AND f.date < a._valid_to", "")
    assert "no condition" in undated(without, STREAMS, ["airports"])["airports"]
