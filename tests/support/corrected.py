"""Rules that correct rewrites of their source, and what plain batch gives of the source as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodmark.audit.certificate import audit
from support.flow import HOPPING, OVER, SLICED, START, STATELESS, TUMBLING, Flow, rows_of
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
AHEAD = {"over": timedelta(seconds=1)}  # how far behind a row the watermark has to be for its result to be final


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def flow_of(place: Path, form: str, **kwargs: Any) -> Flow:
    settings = {"windows": "rows"} if form == "rows" else {}
    return Flow(place, sql=FORMS[form], settings=settings, stream=CORRECT, **kwargs)


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
    rows = [row.asDict() for row in spark.sql(flow.sql).collect()]
    until = watermark(flow)
    return ordered(tuple(row.values()) for row in rows if _is_final(flow.sql, row, until))


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
