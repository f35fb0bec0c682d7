"""Random queries give what Spark gives in batch: `support.queries` draws them, with the rows and epochs.

FLOODMARK_SEED plays the cases of a failed run again; each failure tells its own.
"""

from __future__ import annotations

import math
import os
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.compared import CACHE, same
from support.crash import Crash, crash_at
from support.flow import Flow
from support.queries import FORMS, SCHEMA, Case, Row, case_of, row

from floodmark.core.lifecycle import cleanup
from floodmark.errors import FloodmarkError, Refused, SqlRefused
from floodmark.spark.rule.run import RuleRun

FAR = datetime(2030, 1, 1, tzinfo=UTC)  # everything is final by then
LOOKUP = pa.table(
    {"k": ["a", "b", None, "a"], "x": [0.0, math.nan, 3.0, None], "y": pa.array([1, None, 2, -7], pa.int64())}
)


def seed() -> str:
    return os.environ.get("FLOODMARK_SEED") or str(random.SystemRandom().getrandbits(32))


DECIMALS = "sum(d) / 3 AS c0, sum(d) / count(d) AS c1, sum(d) * 1.5BD AS c2, sum(d * d) % 7 AS c4"
UNBOUNDED = {"unbounded": True}
THIRDS = tuple((row(s, k="a", d=Decimal(s) / 100), row(s, k=None, d=Decimal("-99999999.99"))) for s in (1, 2, 40))
TEXTS = tuple((row(s, k="a", s=text), row(s, k=None, s="x")) for s, text in ((1, "1"), (2, ""), (40, " 3 ")))
FOUND = {
    "average of text": Case(
        "", "SELECT k, avg(s) AS c0, sum(s) AS c1 FROM events GROUP BY k", "", False, "UTC", TEXTS, UNBOUNDED, ("k",)
    ),
    "places of a running sum": Case(
        "", f"SELECT k, {DECIMALS} FROM events GROUP BY k", "", True, "UTC", THIRDS, UNBOUNDED, ("k",)
    ),
    "places of a sum of slices": Case(
        "",
        f"SELECT window.start AS s, {DECIMALS} FROM events GROUP BY window(at, '1 minute', '10 seconds')",
        "",
        False,
        "UTC",
        THIRDS,
        {"windows": "slices"},
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.prove) if "slices" in name else name for name in FOUND]
)
def test_what_random_queries_found(spark: SparkSession, name: str) -> None:
    assert check(spark, replace(FOUND[name], batch=FOUND[name].sql), name)


@pytest.mark.prove
@pytest.mark.parametrize("form", FORMS)
def test_many_random_queries_equal_batch(spark: SparkSession, form: str) -> None:
    drawn = seed()
    answered = [check(spark, case_of(f"{drawn}/{form}/{i}", form), f"{drawn}/{form}/{i}") for i in range(25)]
    assert sum(answered) > 12, "most of them are answered, not refused"


def check(spark: SparkSession, case: Case, number: str) -> bool:
    """Whether it was answered; then as in batch. What stops the engine stops batch."""
    root = CACHE / uuid4().hex
    root.mkdir(parents=True)
    try:
        return _play(spark, case, root)
    except BaseException as fault:
        fault.add_note(f"case {number} (FLOODMARK_SEED={number.split('/')[0]}): {case}")
        raise
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _play(spark: SparkSession, case: Case, root: Path) -> bool:
    flow = _flow(case, root)
    try:
        with mock.patch.object(cleanup, "MAX_FILES", 1 if case.compacts else cleanup.MAX_FILES):
            for number, rows in enumerate(case.epochs):
                _arrive(flow.source, rows)
                _run(spark, flow, case.crash[1] if case.crash and case.crash[0] == number else None)
            RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None, close_until=FAR).run()
    except (Refused, SqlRefused):
        return False
    except FloodmarkError:
        with pytest.raises(PySparkException):
            _batch(spark, case, root)
        return False
    found = [tuple(row) for row in spark.read.format("delta").load(flow.sink()).collect()]
    same(_plain(found), _plain(_batch(spark, case, root)))
    return True


def _flow(case: Case, root: Path) -> Flow:
    flow = Flow(root, sql=case.sql, sinks=1, stream={"start": {"version": 0}})
    settings = dict(case.settings)
    if settings.pop("lookups", False):
        write_deltalake(str(root / "lake" / "t"), LOOKUP)
        settings["lookups"] = {"t": {"delta": str(root / "lake" / "t")}}
    conf = {"spark.sql.ansi.enabled": case.ansi}
    settings |= {"timezone": case.zone, "spark": {"shuffle_partitions": 2, "conf": conf}}
    if case.key:
        settings["sinks"] = [{"delta": flow.sink(), "key": list(case.key)}]
    flow.settings = settings
    return flow


def _arrive(address: str, rows: Any) -> None:
    Path(address).parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(address, pa.Table.from_pylist(list(rows), schema=SCHEMA), mode="append")


def _run(spark: SparkSession, flow: Flow, point: str | None) -> None:
    run = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None)
    if point is not None:
        with crash_at(point), suppress(Crash):
            run.run()
        run = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None)
    run.run()


def _batch(spark: SparkSession, case: Case, root: Path) -> list[tuple[Any, ...]]:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", str(case.ansi).lower())
    session.conf.set("spark.sql.session.timeZone", case.zone)
    rows: list[Row] = [row for epoch in case.epochs for row in epoch if row["at"] is not None]
    _arrive(str(root / "lake" / "all"), rows if case.settings.get("rebuild") else case.folded())
    session.read.format("delta").load(str(root / "lake" / "all")).createOrReplaceTempView("events")
    if case.settings.get("lookups"):
        session.read.format("delta").load(str(root / "lake" / "t")).createOrReplaceTempView("t")
    return [tuple(row) for row in session.sql(case.batch).collect()]


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(map(_value, row)) for row in rows]


def _value(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return repr([_value(one) for one in value])
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value.normalize() if isinstance(value, Decimal) else value
