"""Rules that correct rewrites of their source, and what plain batch gives of the source as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodmark.audit.certificate import audit
from floodmark.core.protocol.records.backfills import Backfill
from support import oracle, rowsofkeys
from support.flow import HOPPING, OVER, PLACES, RUNNING, SLICED, START, STATELESS, TUMBLING, Flow, rows_of
from support.oracle import ordered

Rows = list[tuple[Any, ...]]
SIZE = timedelta(minutes=1)
CORRECT = {"on_rewrite": "correct"}
BEHIND = """
SELECT a.at, a.k, a.v, a.n, b.at AS before, b.n AS other FROM events a JOIN events b
ON a.k = b.k AND b.at >= a.at - INTERVAL 25 SECONDS AND b.at < a.at
"""
JOINED = f"""
SELECT window.start AS start, k, count(*) AS c, sum(other) AS s FROM ({BEHIND}) GROUP BY window(at, '1 minute'), k
"""
FORMS = {
    "slices": SLICED,
    "rows": TUMBLING,
    "hopping": HOPPING,
    "single rows": STATELESS,
    "over": OVER,
    "join": BEHIND,
    "windows of a join": JOINED,
}


@dataclass(frozen=True)
class Keyed:
    """A rule whose sinks have a key. sink: its other settings. whole: plain SQL over the source for what a sink is to
    hold, where that is not the rule's own. lateness: of its stream."""

    sql: str
    key: tuple[str, ...]
    sink: Mapping[str, Any] = field(default_factory=dict)
    whole: str | None = None
    lateness: str | None = None

    @property
    def grows(self) -> bool:
        """Whether its state has rows of each key."""
        return "GROUP BY k" in self.sql or "row_number" in self.sql


FIRSTS = "SELECT k, at, v, n{} FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, n, at) AS place FROM events) WHERE place <= {}"  # noqa: E501
NEWEST = "SELECT k, at, v, n FROM events WHERE n <> 7"
KEYED = {
    "totals": Keyed("SELECT k, count(*) AS c, sum(v) AS s, max(n) AS m, min(at) AS low FROM events GROUP BY k", ("k",)),
    "totals of expressions": Keyed(RUNNING, ("K",)),
    "totals that delete": Keyed(
        "SELECT k, count(*) AS c, sum(n) AS s FROM events GROUP BY k",
        ("k",),
        {"delete": "s > 12"},
        "SELECT k, count(*) AS c, sum(n) AS s FROM events GROUP BY k HAVING NOT sum(n) > 12",
    ),
    "first row": Keyed(FIRSTS.format("", 1), ("k",)),
    "first two rows": Keyed(FIRSTS.format(", place", 2), ("k", "place")),
    "newest row": Keyed(
        NEWEST,
        ("k",),
        {"newest": "at"},
        f"SELECT k, at, v, n FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY at DESC, n DESC, v DESC) AS p FROM ({NEWEST})) WHERE p = 1",  # noqa: E501
    ),
    "newest row by number": Keyed(
        "SELECT n, k, v, at FROM events",
        ("n",),
        {"newest": "v", "columns": ["n", "v", "k"]},
        "SELECT n, v, k FROM (SELECT *, row_number() OVER (PARTITION BY n ORDER BY v DESC, k DESC) AS p FROM events) WHERE p = 1",  # noqa: E501
    ),
    "windows": Keyed(TUMBLING.replace("GROUP", " GROUP"), ("start", "k"), lateness="30 seconds"),
    "rows by time": Keyed(
        "SELECT at, v, k, n FROM events",
        ("at",),
        {"newest": "n"},
        "SELECT at, v, k, n FROM (SELECT *, row_number() OVER (PARTITION BY at ORDER BY n DESC, k DESC, v DESC) AS p FROM events) WHERE p = 1",  # noqa: E501
    ),
}
Given = list[dict[str, Any]]  # all rows of the source


@dataclass(frozen=True)
class Answered:
    """A rule with an answer of its own.

    given: its results by plain Python, of all rows and a watermark; None: by `batch`, plain SQL with a column `_end`
    that the watermark has passed where a result is final.
    """

    sql: str = ""
    given: Callable[[Given, datetime], Rows] | None = None
    batch: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    sink: Mapping[str, Any] = field(default_factory=dict)
    process: str | None = None


def _by_keys(name: str) -> Answered:
    """One of the rules about the rows of a key, by its own answer over the rows that the watermark has passed."""
    kind = rowsofkeys.KINDS[name]

    def given(rows: Given, until: datetime) -> Rows:
        return [*kind.answer([row for row in rows if row["at"] < until])]

    return Answered(kind.sql, given, settings=kind.settings, stream=kind.stream)


SESSIONS = """SELECT session_window.start AS start, k, count(*) AS c, sum(v) AS total, max(n) AS top FROM events
GROUP BY session_window(at, '40 seconds'), k"""
BY_ROW = """SELECT session_window.start AS start, k, count(*) AS c, sum(v) AS total FROM events
GROUP BY session_window(at, CASE WHEN n > 3 THEN '40 seconds' ELSE '20 seconds' END), k"""
SIZES = """SELECT window.start AS start, k, count(*) AS c, sum(v) AS s FROM events GROUP BY window(at, '1 minute'), k
UNION ALL SELECT window.start, upper(k), count(n), max(v) FROM events GROUP BY window(at, '90 seconds', '30 seconds'), upper(k)"""  # noqa: E501
FULL = """SELECT a.at AS at, a.k AS k, b.at AS before, b.n AS n FROM events a FULL JOIN events b
ON a.k = b.k AND b.at >= a.at - INTERVAL 25 SECONDS AND b.at < a.at"""
TOTALS = "SELECT k, count(*) AS c, max(n) AS m FROM events GROUP BY k"
# An interval of time bounds what is recomputed, as of `FORMS`.
SPANNED = {
    "distinct rows": _by_keys("distinct"),
    "sessions": Answered(SESSIONS, oracle.sessions),
    "several sizes": Answered(
        SIZES, batch=SIZES.replace("SELECT window.start", "SELECT window.end AS _end, window.start")
    ),
}
# Neither an interval nor keys bound it, so that all results are recomputed.
ENTIRE = {
    "class": Answered(given=oracle.totals, process="totals:Totals"),
    "windows of rows": _by_keys("count"),
    "windows by conditions": _by_keys("state"),
    "sessions by row": Answered(
        BY_ROW, batch=BY_ROW.replace("SELECT ", "SELECT session_window.end + INTERVAL 1 MICROSECOND AS _end, ", 1)
    ),
    "rows before": Answered(
        PLACES, batch=f"SELECT at + INTERVAL 1 MICROSECOND AS _end, * FROM ({PLACES})", settings={"unbounded": True}
    ),
    "full join": Answered(
        FULL,
        batch=f"SELECT coalesce(at, before + INTERVAL 25 SECONDS) + INTERVAL 1 MICROSECOND AS _end, * FROM ({FULL})",
    ),
    "totals with a lateness": Answered(
        TOTALS,
        batch=f"SELECT TIMESTAMP'1970-01-01' AS _end, * FROM ({TOTALS})",
        settings={"unbounded": True},
        sink={"key": ["k"]},
    ),
}
ANSWERED = {**SPANNED, **ENTIRE}
AHEAD = {"over": timedelta(seconds=1)}  # how far behind a row the watermark has to be for its result to be final


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def flow_of(place: Path, form: str, sinks: int = 2, **kwargs: Any) -> Flow:
    if form in ANSWERED:
        return _answered(place, ANSWERED[form], sinks, **kwargs)
    if form in KEYED:
        return _keyed(place, KEYED[form], sinks, **kwargs)
    settings = {"windows": "rows"} if form == "rows" else {}
    return Flow(place, sql=FORMS[form], settings=settings, stream=CORRECT, sinks=sinks, **kwargs)


def _keyed(place: Path, form: Keyed, sinks: int, **kwargs: Any) -> Flow:
    flow = Flow(place, sql=form.sql, stream={**CORRECT, "lateness": form.lateness}, sinks=sinks, **kwargs)
    flow.settings["sinks"] = [deepcopy({"delta": flow.sink(i), "key": [*form.key], **form.sink}) for i in range(sinks)]
    if form.grows:
        flow.settings["unbounded"] = True
    return flow


def _answered(place: Path, form: Answered, sinks: int, **kwargs: Any) -> Flow:
    settings, stream = deepcopy({**form.settings}), {**CORRECT, **form.stream}
    flow = Flow(place, sql=form.sql, process=form.process, settings=settings, stream=stream, sinks=sinks, **kwargs)
    flow.settings["sinks"] = [deepcopy({"delta": flow.sink(i), **form.sink}) for i in range(sinks)]
    return flow


def watermark(flow: Flow) -> datetime:
    """The rule's watermark; the year 1 before it has one."""
    head = flow.ledger().head
    assert head is not None
    if head.watermark is None:
        return datetime.min.replace(tzinfo=START.tzinfo)
    return datetime.fromtimestamp(head.watermark / 1_000_000, START.tzinfo)


def in_batch(spark: SparkSession, flow: Flow) -> Rows:
    """What the rule's SQL gives of the source as it is now, of windows that are final."""
    spark.read.format("delta").load(flow.source).createOrReplaceTempView("events")
    for one in ANSWERED.values():
        if (one.sql, one.process, one.stream.get("distinct")) == (flow.sql, flow.process, flow.stream.get("distinct")):
            return _answer(spark, flow, one)
    form = next((one for one in KEYED.values() if one.sql == flow.sql), None)
    if form is not None and form.lateness is None:
        return ordered(map(tuple, spark.sql(form.whole or form.sql).collect()))
    rows = [row.asDict() for row in spark.sql(flow.sql).collect()]
    until = watermark(flow)
    return ordered(tuple(row.values()) for row in rows if _is_final(flow.sql, row, until))


def _answer(spark: SparkSession, flow: Flow, form: Answered) -> Rows:
    until = watermark(flow)
    if form.given is not None:
        found = form.given(rows_of(flow.source), until)
        return ordered(tuple(_naive(value) for value in row) for row in found)
    rows = [tuple(row) for row in spark.sql(form.batch).collect()]
    return ordered(row[1:] for row in rows if aware(row[0]) <= until)


def _is_final(sql: str, row: Mapping[str, Any], until: datetime) -> bool:
    """Whether the rule has given a result: a window that has ended, a row that the watermark has passed, any row."""
    if "start" in row:
        return bool(aware(row["start"]) + SIZE <= until)
    form = next(form for form, one in FORMS.items() if one == sql)
    return form == "single rows" or bool(aware(row["at"]) + AHEAD.get(form, timedelta(0)) < until)


def aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=START.tzinfo)


def sink(flow: Flow, number: int = 0) -> Rows:
    return ordered(tuple(_naive(value) for value in row.values()) for row in rows_of(flow.sink(number)))


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def newest_backfill(flow: Flow) -> Backfill:
    """The newest one, or the newest correction."""
    return Backfill.model_validate_json([row.body for row in flow.ledger().rows if row.kind == "backfill"][-1])


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    assert not found.findings, "\n".join(map(str, found.findings))
    assert found.verdict == "proven"


def same_as_batch(spark: SparkSession, flow: Flow) -> None:
    expected = in_batch(spark, flow)
    assert expected
    for number in range(flow.sinks):
        assert sink(flow, number) == expected
