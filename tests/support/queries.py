"""Random queries of every form that the allow-list takes, over random rows, and what Spark gives for them in batch.

A case is drawn from a number alone, so that it can be played again. Its rows lie at the bounds: of windows, of the
watermark (and one microsecond beside them), of types; with nulls, ties, not-a-numbers and infinities. Floating point
has few binary digits, so that sums are the same in every order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

START = datetime(2001, 3, 25, 0, 59, tzinfo=UTC)  # clocks in Europe go on one minute later
LATENESS = timedelta(seconds=30)
MICRO = timedelta(microseconds=1)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")), ("k", pa.string()), ("v", pa.float64()), ("n", pa.int64()),
        ("i", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(10, 2)), ("q", pa.decimal128(38, 0)),
        ("s", pa.string()), ("b", pa.bool_()), ("day", pa.date32()),
    ]
)  # fmt: skip
BIG = 2**63 - 1
WIDE = Decimal(9 * 10**37)  # two of them are more than a sum can be, in whatever order small ones come
Row = dict[str, Any]


def row(seconds: float, **values: Any) -> Row:
    """A row so long after START; what is not given is null."""
    return {**dict.fromkeys(SCHEMA.names), "at": START + timedelta(seconds=seconds), **values}


@dataclass(frozen=True)
class Case:
    """`sql`: the rule's, `batch`: what Spark is asked over all folded rows. `epochs`: the rows of each.

    crash: where the run of an epoch is killed, by its number.
    """

    form: str
    sql: str
    batch: str
    ansi: bool
    zone: str
    epochs: tuple[tuple[Row, ...], ...]
    settings: dict[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    crash: tuple[int, str] | None = None
    compacts: bool = False

    def __str__(self) -> str:
        rows = "\n".join(f"epoch {i}: {row}" for i, rows in enumerate(self.epochs, 1) for row in rows)
        about = f"ansi {self.ansi}, {self.zone}, {self.settings}, crash {self.crash}, compacts {self.compacts}"
        return f"{self.form}: {self.sql}\n{about}\n{rows}"

    def folded(self) -> list[Row]:
        """The rows that count: neither without an event time nor below the watermark of the epoch before."""
        kept: list[Row] = []
        for rows in self.epochs:
            mark = watermark(kept)
            kept += [row for row in rows if row["at"] is not None and (mark is None or row["at"] >= mark)]
        return kept


def watermark(kept: list[Row]) -> datetime | None:
    return max(row["at"] for row in kept) - LATENESS if kept else None


@dataclass
class _Draw:
    """`ansi`: then what raises for a value at its bound is not drawn, for a sum may raise in one order only."""

    random: random.Random
    ansi: bool

    def some(self, values: list[str], least: int, most: int) -> list[str]:
        return self.random.sample(values, min(len(values), self.random.randint(least, most)))

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def chance(self, of: int) -> bool:
        return self.random.randrange(of) == 0


def case_of(number: str, form: str | None = None) -> Case:
    """The case of this number, of the form given or any."""
    draw = _Draw(random.Random(number), ansi=False)
    draw.ansi = draw.one(True, False)
    form = form or draw.one(*FORMS)
    sql, batch, settings, key = FORMS[form](draw)
    epochs = tuple(_epochs(draw))
    crash = (draw.random.randrange(len(epochs)), draw.one(*POINTS)) if draw.chance(2) else None
    zone = draw.one("UTC", "Europe/Warsaw", "America/St_Johns")
    if ("GROUP BY" not in sql and not key and draw.chance(4)) or draw.chance(8):
        settings = {**settings, "rebuild": True, "epoch": "none"} if not key else settings
    return Case(form, sql, batch, draw.ansi, zone, epochs, settings, key, crash, draw.chance(3))


POINTS = (
    "intent.after",
    "state.after",
    "sink0.before",
    "sink0.after",
    "commit.before",
    "commit.after",
    "intent.before",
)


def _epochs(draw: _Draw) -> Iterator[tuple[Row, ...]]:
    kept: list[Row] = []
    for _ in range(draw.random.randint(2, 4)):
        mark = watermark(kept)
        rows = tuple(_row(draw, mark) for _ in range(draw.one(1, 3, 8, 15)))
        kept += [row for row in rows if row["at"] is not None and (mark is None or row["at"] >= mark)]
        yield rows


def _row(draw: _Draw, mark: datetime | None) -> Row:
    bound = START + timedelta(seconds=draw.one(0, 20, 40, 60, 80, 90, 120, 180, draw.random.randint(0, 300)))
    if mark is not None and draw.chance(3):
        bound = mark
    at = bound + draw.one(-1, 0, 0, 0, 1) * MICRO
    small = draw.one(-7, -1, 0, 1, 2, 2, 3, 100)
    return {
        "at": None if draw.chance(25) else at,
        "k": draw.one("a", "a", "b", "é", "", None),
        "v": draw.one(0.5, -2.25, 3.0, 1024.0, 0.0, -0.0, None, float("nan"), float("inf"), float("-inf")),
        "n": draw.one(small, small, None, *((BIG, -BIG, -BIG - 1) if not draw.ansi else ())),
        "i": draw.one(small, None, *((2**31 - 1, -(2**31)) if not draw.ansi else ())),
        "f": draw.one(0.5, -0.25, 2.0, -0.0, None, float("nan")),
        "d": draw.one(Decimal(small), Decimal("0.01"), Decimal("-99999999.99"), None),
        "q": draw.one(Decimal(small), None, *((WIDE, WIDE) if not draw.ansi else ())),
        "s": draw.one("1", "-2.5", " 3 ", "x", "", "2001-02-03", None) if not draw.ansi else draw.one("1", "-2", None),
        "b": draw.one(True, False, None),
        "day": draw.one(date(2001, 3, 25), date(1970, 1, 1), date(9998, 12, 31), None),
    }


# Over one row. What raises with ANSI on is not drawn then; without it, it is NULL, or wraps.
SCALARS = [
    "upper(k)", "coalesce(k, s, 'z')", "k = s", "k <=> s", "v > 0", "v = v", "v <=> f", "isnan(v)", "nanvl(v, 0.0D)",
    "greatest(v, f, 1.0D)", "least(v, n)", "CASE WHEN v > 1 THEN 'x' WHEN b THEN k END", "k IN ('a', NULL)",
    "n BETWEEN -1 AND 2", "d * 2", "d / 3", "round(d / 7, 3)", "CAST(d AS INT)", "CAST(v AS STRING)", "d > n",
    "try_add(n, 1)", "try_divide(n, i)", "try_cast(s AS INT)", "hash(k, n, v)", "day + INTERVAL '1' DAY",
    "date_trunc('DAY', at)", "CAST(at AS DATE)", "hour(at)", "CAST(at AS STRING)", "date_format(at, 'yyyy-MM-dd HH')",
    "at + INTERVAL '1' DAY", "unix_micros(at)", "struct(k, n)", "array(v, f)", "nullif(n, 1)", "k LIKE 'a%'",
    "concat(k, '-', b)", "n IS DISTINCT FROM i", "-v", "abs(f)", "sign(v)", "month(day)", "bround(d, 1)", "b AND v > 0",
    "NOT b OR n > 1", "CAST(i AS DOUBLE) / 2", "CAST(at AS TIMESTAMP_NTZ)",
]  # fmt: skip
LENIENT = [
    "n + 1", "n * i", "i + 1", "-n", "abs(n)", "n / i", "n % i", "n DIV i", "CAST(s AS INT)", "s + 1",
    "CAST(n AS INT)",
    "CAST(v AS INT)", "CAST(s AS DATE)", "d * q", "q + q", "CAST(n AS TINYINT)", "get(array(1, 2), i)", "k + n",
    "CAST(q AS DECIMAL(10, 2))", "unix_date(date_add(day, i))", "CAST(k AS BOOLEAN)", "make_date(2001, i, 1)",
    "pmod(n, i)",
]  # fmt: skip
# Over the rows of a group, whatever the order. Those with parts that can be merged come first.
MERGED = [
    "count(*)", "count(n)", "count(n, k)", "sum(v)", "sum(f)", "sum(d)", "avg(v)", "avg(i)", "avg(f)", "mean(i)",
    "min(v)", "max(v)", "min(k)", "max(at)", "min(day)", "max(struct(n, k))", "min(d)", "max(b)", "count_if(b)",
    "bool_and(b)", "bool_or(v > 0)", "any(b)", "every(n > 0)", "some(b)", "bit_and(n)", "bit_or(i)", "bit_xor(n)",
    "sum(d) / count(d)", "sum(d) * 1.5BD", "sum(d) % 7", "round(sum(d), 1)", "avg(v) + max(n)", "sum(d * d)",
    "sum(d) / 3",
    "coalesce(sum(d) FILTER (WHERE b), 0)", "sum(CAST(n AS DOUBLE)) FILTER (WHERE n BETWEEN -9 AND 200)", "max(f)",
    "count(*) FILTER (WHERE v > 0)", "sum(CAST(b AS INT))", "min(CAST(v AS FLOAT))", "max(q)",
    "try_divide(sum(d), count(n))", "CAST(sum(d) AS DOUBLE)", "sum(d) = 1", "sum(CASE WHEN b THEN d END)", "min(s)",
]  # fmt: skip
LENIENT_SUMS = [
    "sum(n)",
    "sum(i)",
    "sum(q)",
    "sum(n) + 1",
    "sum(s)",
    "avg(s)",
    "sum(n * i)",
    "avg(q)",
    "sum(d) * max(q)",
]
WHOLE = [
    "count(DISTINCT k, n)", "sum(DISTINCT d)", "avg(DISTINCT f)", "stddev(v)", "var_pop(f)", "corr(f, d % 8)",
    "covar_samp(f, d % 8)", "skewness(f)", "kurtosis(f)", "median(f)", "percentile(d, 0.3)",
    "approx_count_distinct(k)", "avg(d)", "try_avg(d)", "sort_array(collect_list(n))", "sort_array(collect_set(v))",
    "regr_slope(f, d % 8)", "array_sort(array_agg(f))", "std(f)", "stddev_pop(f)", "stddev_samp(v)", "var_samp(f)",
    "variance(f)", "covar_pop(f, d % 8)", "regr_avgx(f, d % 8)", "regr_avgy(f, d % 8)", "regr_count(f, d % 8)",
    "regr_intercept(f, d % 8)", "regr_r2(f, d % 8)", "regr_sxx(f, d % 8)", "regr_sxy(f, d % 8)", "regr_syy(f, d % 8)",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY n)", "hex(bitmap_construct_agg(ABS(HASH(k)) % 9))",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY f)", "count(DISTINCT v)", "avg(CAST(n AS DECIMAL(20, 1)))",
]  # fmt: skip
WINDOWS = (
    "'1 minute'",
    "'1 minute', '20 seconds'",
    "'1 minute', '15 seconds', '5 seconds'",
    "'50 seconds', '20 seconds'",
)
Drawn = tuple[str, str, dict[str, Any], tuple[str, ...]]


def _scalars(draw: _Draw, most: int = 8) -> list[str]:
    return draw.some(SCALARS + ([] if draw.ansi else LENIENT), 2, most)


def _aggregates(draw: _Draw, merged: bool = False) -> list[str]:
    known = MERGED + ([] if draw.ansi else LENIENT_SUMS) + ([] if merged else WHOLE)
    return draw.some([one for one in known if not merged or one not in ("avg(q)", "sum(q)")], 3, 9)


def _named(columns: list[str], first: str = "c") -> str:
    return ", ".join(f"{sql} AS {first}{i}" for i, sql in enumerate(columns))


def _where(draw: _Draw) -> str:
    return draw.one(
        "", "", "", " WHERE n IS NULL OR n <> 3", " WHERE v > -1", " WHERE NOT (k = 'b')", " WHERE b OR i > 0"
    )


def _same(sql: str, key: tuple[str, ...] = (), **settings: Any) -> Drawn:
    return sql, sql, settings, key


def _stateless(draw: _Draw) -> Drawn:
    return _same(f"SELECT at, k, {_named(_scalars(draw))} FROM events{_where(draw)}")


def _keys(draw: _Draw) -> list[str]:
    return draw.some(["k", "v", "n", "f", "d", "b", "day", "i"], 0, 2)


def _window(draw: _Draw) -> Drawn:
    keys, window = _keys(draw), f"window(at, {draw.one(*WINDOWS)})"
    keeps = draw.one(None, None, "rows", "slices")
    listed = ", ".join(["window.start AS s0", "window.end AS s1", *(f"{key} AS g{i}" for i, key in enumerate(keys))])
    having = draw.one("", "", " HAVING count(*) > 1", " HAVING sum(d) > 0 OR max(n) IS NULL")
    by = ", ".join([window, *keys]) if not draw.chance(2) else ", ".join([*keys, window])
    found = _named(_aggregates(draw, merged=keeps == "slices"))
    return _same(
        f"SELECT {listed}, {found} FROM events{_where(draw)} GROUP BY {by}{having}",
        **({"windows": keeps} if keeps else {}),
    )


def _sets(draw: _Draw) -> Drawn:
    window = f"window(at, {draw.one(*WINDOWS)})"
    sets = draw.one(
        f"{window}, ROLLUP(k, b)",
        f"{window}, CUBE(k, n)",
        f"{window}, GROUPING SETS ((k), (b), ())",
        f"{window}, GROUPING SETS ((k, b), (k)), b",
    )
    extra = draw.one("", ", grouping_id() AS gid", ", grouping(k) AS gk")
    return _same(
        f"SELECT window.end AS s1, k{extra}, {_named(_aggregates(draw))} FROM events{_where(draw)} GROUP BY {sets}"
    )


def _sessions(draw: _Draw) -> Drawn:
    keys = _keys(draw)
    gap = draw.one("'20 seconds'", "'40 seconds'", "CASE WHEN b THEN '20 seconds' ELSE '40 seconds' END")
    listed = "".join(f"{key} AS g{i}, " for i, key in enumerate(keys))
    by = ", ".join([f"session_window(at, {gap})", *keys])
    having = draw.one("", "", " HAVING count(*) > 1")
    return _same(
        f"SELECT {listed}session_window.start AS s0, session_window.end AS s1, {_named(_aggregates(draw))} "
        f"FROM events{_where(draw)} GROUP BY {by}{having}"
    )


def _over_aggregates(draw: _Draw) -> list[str]:
    known = [one for one in [*MERGED, "stddev(f)", "avg(d)", *([] if draw.ansi else ["sum(n)", "sum(i)", "sum(q)"])]
             if one[-1] == ")" and one.count(")") == one.count("(") and not any(f" {sign} " in one for sign in "/*+%=")
             and not one.startswith(("round", "coalesce", "CAST", "try_", "struct", "array"))]  # fmt: skip
    return draw.some(known, 1, 3)


def _parts(draw: _Draw) -> str:
    return draw.one("", "PARTITION BY k ", "PARTITION BY v ", "PARTITION BY k, b ")


def _over_time(draw: _Draw) -> Drawn:
    parts = _parts(draw)
    frames = [
        "INTERVAL '40' SECONDS PRECEDING AND CURRENT ROW",
        "INTERVAL '60' SECONDS PRECEDING AND INTERVAL '1' SECOND FOLLOWING",
        "CURRENT ROW AND INTERVAL '20' SECONDS FOLLOWING",
        "INTERVAL '60' SECONDS PRECEDING AND INTERVAL '20' SECONDS PRECEDING",
        "INTERVAL '1' MICROSECOND PRECEDING AND INTERVAL '0' SECOND FOLLOWING",
        "INTERVAL '5' SECONDS FOLLOWING AND INTERVAL '20' SECONDS FOLLOWING",
        "CURRENT ROW AND CURRENT ROW",
    ]
    over = [f"{one} OVER ({parts}ORDER BY at RANGE BETWEEN {draw.one(*frames)})" for one in _over_aggregates(draw)]
    return _same(f"SELECT at, k, v, n, {_named(over)} FROM events{_where(draw)}")


RANKED = ["row_number()", "rank()", "dense_rank()", "lag(n)", "lag(v, 2, 0.5D)", "lag(k, 0)"]
PLACED = [
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING", "ROWS 1 PRECEDING",
    "ROWS BETWEEN 3 PRECEDING AND 0 PRECEDING", "ROWS BETWEEN CURRENT ROW AND CURRENT ROW", "",
    "ROWS UNBOUNDED PRECEDING", "RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '20' SECONDS PRECEDING",
]  # fmt: skip


def _placed(draw: _Draw, order: str, frames: list[str], ranked: list[str], tie: bool) -> Iterator[str]:
    """Calls with OVER; `tie`: with the order of all columns where rows that are equal would be told apart."""
    for one in draw.some(ranked, 1, 2):
        told = ", struct(*)" if tie and one.split("(")[0] in ("row_number", "lag", "lead", "ntile") else ""
        yield f"{one} OVER ({order}{told})"
    for one in _over_aggregates(draw):
        frame = draw.one(*frames)
        told = ", struct(*)" if tie and frame.startswith("ROWS") else ""
        yield f"{one} OVER ({order}{told} {frame})"


def _over_rows(draw: _Draw) -> Drawn:
    more = draw.one("", ", n", ", v DESC", ", n NULLS LAST", ", f DESC NULLS LAST, k")
    order = f"{_parts(draw)}ORDER BY at"
    frames = PLACED if not more else [one for one in PLACED if "INTERVAL" not in one]
    where, now, texts = _where(draw), draw.random.getstate(), []
    for tie in (False, True):  # the same draws twice
        draw.random.setstate(now)
        texts.append(
            f"SELECT at, k, v, n, {_named(list(_placed(draw, order + more, frames, RANKED, tie)))} FROM events{where}"
        )
    return texts[0], texts[1], {"unbounded": True}, ()


def _in_windows(draw: _Draw) -> Drawn:
    window, grouped = draw.one(*WINDOWS), draw.chance(2)
    below = (
        f"(SELECT window(at, {window}) AS w, k, b, {_named(_aggregates(draw), 'a')} FROM events GROUP BY w, k, b)"
        if grouped
        else f"(SELECT window(at, {window}) AS w, at, k, b, v, n, f, d, q, day, i, s FROM events{_where(draw)})"
    )
    if not grouped and draw.chance(3):
        columns = draw.some(["k", "n", "v", "f", "d", "b", "upper(k) AS u", "coalesce(n, 0) AS z"], 1, 3)
        return _same(f"SELECT DISTINCT w.end AS e, {', '.join(columns)} FROM {below}")
    ranks = [*RANKED[:3], "percent_rank()", "cume_dist()", "ntile(3)"]
    more = ["ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN -1 FOLLOWING AND 2 FOLLOWING", *PLACED[:4], ""]
    order = f"PARTITION BY w{draw.one('', ', k')} ORDER BY {draw.one('k', 'b DESC, k', 'k NULLS LAST')}"
    now, texts = draw.random.getstate(), []
    for tie in (False, True):
        draw.random.setstate(now)
        calls = list(_placed(draw, order, more, ranks, tie)) if not grouped else list(_ranks(draw, order, ranks, tie))
        texts.append(f"SELECT w.end AS e, k, b, {_named(calls)} FROM {below}")
    return texts[0], texts[1], {}, ()


def _ranks(draw: _Draw, order: str, ranks: list[str], tie: bool) -> Iterator[str]:
    for one in draw.some(ranks, 1, 4):
        yield f"{one} OVER ({order}{', struct(*)' if tie and one[:3] in ('row', 'nti') else ''})"
    yield "count_if(a0 IS NULL) OVER (PARTITION BY w)"


def _regrouped(draw: _Draw) -> Drawn:
    window = f"window(at, {draw.one(*WINDOWS)})"
    below = f"SELECT {window} AS w, k, b, sum(d) AS d, max(f) AS f, min(n) AS n FROM events GROUP BY w, k, b"
    above = "sum(d) AS c0, avg(f) AS c1, count(DISTINCT k) AS c2, max(n) AS c3"
    return _same(f"SELECT w.start AS s0, b, {above} FROM ({below}) GROUP BY w, b")


def _union(draw: _Draw) -> Drawn:
    one, other = (f"window(at, {draw.one(*WINDOWS)})" for _ in range(2))
    return _same(
        f"SELECT window.end AS e, k, sum(d) AS c0, max(v) AS c1 FROM events{_where(draw)} GROUP BY {one}, k "
        f"UNION ALL SELECT window.end, NULL, sum(d), min(v) FROM events{_where(draw)} GROUP BY {other}"
    )


def _join(draw: _Draw) -> Drawn:
    kind = draw.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
    equal = draw.one(
        "a.k = b.k", "a.k <=> b.k", "a.v = b.f", "a.v <=> b.v", "a.n = b.i", "a.d = b.n", "a.k = b.k AND a.b"
    )
    bound = draw.one(
        "b.at BETWEEN a.at - INTERVAL '20' SECONDS AND a.at + INTERVAL '10' SECONDS",
        "b.at > a.at AND b.at <= a.at + INTERVAL '40' SECONDS",
        "b.at = a.at",
        "b.at >= a.at - INTERVAL '20' SECONDS AND b.at < a.at - INTERVAL '1' MICROSECOND",
    )
    right = "" if "SEMI" in kind or "ANTI" in kind else ", b.at AS bt, b.k AS bk, b.v AS bv, b.n AS bn"
    return _same(f"SELECT a.at, a.k, a.v, a.n{right} FROM events a {kind} events b ON {equal} AND {bound}")


def _join_windows(draw: _Draw) -> Drawn:
    window = f"window(at, {draw.one(*WINDOWS)})"
    kind = draw.one("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT ANTI JOIN")
    one = f"(SELECT {window} AS w, k, max(v) AS v FROM events GROUP BY w, k)"
    other = f"(SELECT {window} AS w, k, sum(d) AS d FROM events{_where(draw)} GROUP BY w, k)"
    right = "" if "ANTI" in kind else ", b.k AS bk, b.d"
    on = f"a.w = b.w AND a.k {draw.one('=', '<=>')} b.k"
    return _same(f"SELECT a.w.end AS e, a.k, a.v{right} FROM {one} a {kind} {other} b ON {on}")


def _running(draw: _Draw) -> Drawn:
    keys = draw.some(["k", "n", "d", "b", "day", "i"], 1, 2)
    by, found = ", ".join(keys), _named(_aggregates(draw, merged=True))
    return _same(f"SELECT {by}, {found} FROM events{_where(draw)} GROUP BY {by}", tuple(keys), unbounded=True)


def _top(draw: _Draw) -> Drawn:
    key, rows = draw.one("k", "b", "n", "d"), draw.one(1, 2, 3)
    order = draw.one("v DESC", "f", "n NULLS LAST", "d DESC, v", "day, at DESC", "at DESC", "b, s DESC")
    where, every = _where(draw), ", struct(at, k, v, n, i, f, d, q, s, b, day)"
    sql, batch = (
        f"SELECT {key}, place, at, v, f, d AS e, s FROM (SELECT *, row_number() OVER (PARTITION BY {key} "
        f"ORDER BY {order}{tie}) AS place FROM events{where}) WHERE place <= {rows}"
        for tie in ("", every)
    )
    return sql, batch, {"unbounded": True}, (key, "place") if rows > 1 else (key,)


def _looked_up(draw: _Draw) -> Drawn:
    kind = draw.one("JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
    right = "" if "SEMI" in kind or "ANTI" in kind else ", t.x, t.y"
    on = draw.one("e.k = t.k", "e.k <=> t.k", "e.v = t.x", "e.v <=> t.x AND e.k = t.k", "e.n > t.y")
    return _same(f"SELECT e.at, e.k, e.v{right} FROM events e {kind} t ON {on}", lookups=True)


FORMS: dict[str, Callable[[_Draw], Drawn]] = {
    "stateless": _stateless, "window": _window, "sets": _sets, "sessions": _sessions, "over time": _over_time,
    "over rows": _over_rows, "in windows": _in_windows, "regrouped": _regrouped, "union": _union, "join": _join,
    "join of windows": _join_windows, "running": _running, "top": _top, "looked up": _looked_up,
}  # fmt: skip
