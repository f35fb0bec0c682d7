"""Tables of every kind that a rule can write are never called BROKEN, whatever rightful comes over them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.aged import age
from support.flow import START, Flow, event
from support.running import crash, reset, run
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.core.lifecycle.backfills import requested_interval
from floodmark.core.rules.sinks import upserts
from floodmark.spark.rule.run import RuleRun

RENAMED = {"delta.columnMapping.mode": "name"}
FEED, VECTORS = {"delta.enableChangeDataFeed": True}, {"delta.enableDeletionVectors": True}
PLAIN = ["at", "key", "k", "v", "n"]
# `key` is text that is no UTF-8 in some rows; `j` holds no floating point, which versions of Java may write otherwise
SQL = """
SELECT at, CAST(unhex(k) AS STRING) AS key, k, v, n, date_trunc('MINUTE', at) AS day,
       parse_json(to_json(named_struct('n', n, 'k', k))) AS j, array(named_struct('at', at, 'v', v), NULL) AS s
FROM events
"""
SINKS = {
    "appended": {},
    "some columns and rows": {"columns": ["n", "k", "j"], "where": "n > 1", "epoch_columns": True},
    "partitioned": {"partition_by": ["day", "n"]},
    "clustered": {"cluster_by": ["k", "at"]},
    "renamed columns": {"properties": RENAMED},
    "twice": {"qos": 1},
    "keyed": {"key": ["key", "at"]},
    "newest": {"key": ["key"], "newest": "n", "columns": PLAIN},
    "deleted": {"key": ["k"], "delete": "v < 0", "properties": FEED},
    "where": {"key": ["key"], "where": "v > 0", "columns": PLAIN, "newest": None},
    "vectors": {"key": ["key"], "newest": "n", "columns": PLAIN, "properties": VECTORS},
    "keyed and partitioned": {"key": ["k", "n"], "newest": "at", "columns": PLAIN, "partition_by": ["n"]},
    "keyed and clustered": {"key": ["k"], "newest": "n", "columns": PLAIN, "cluster_by": ["k"]},
    "keyed, renamed columns": {"key": ["key"], "newest": "n", "columns": PLAIN, "properties": RENAMED | VECTORS},
}


def flow_of(place: Path) -> Flow:
    flow = Flow(place, "good", sql=SQL, stream={"start": {"version": 0}, "lateness": "30 seconds"})
    sinks = [
        {"delta": flow.sink(i), **{name: value for name, value in deepcopy(how).items() if value is not None}}
        for i, how in enumerate(SINKS.values())
    ]
    flow.settings = {"epoch": {"max_files": 1}, "sinks": sinks}
    return flow


def portions() -> Iterator[list[dict[str, object]]]:
    """One row for each key, some of them late or dead."""
    keys = {"80": 1.0, "C3A9": -1.0, "61": 2.0, "": 3.0}
    for number in range(5):
        yield [event(100 * number + i, k, v, number) for i, (k, v) in enumerate(keys.items())]
    yield [event(None, "62"), event(0, "63")]


def said(flow: Flow, *words: str) -> None:
    places = {**os.environ, "FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    found = CliRunner().invoke(app, list(words), env=places)
    assert found.exit_code == 0, found.output


def good(flow: Flow, proven: bool = False) -> None:
    """`proven`: all of it, but for tables with renamed columns, whose files cannot be read plainly."""
    found = audit(flow.name, flow.home, True)
    assert found is not None
    sinks = flow.settings["sinks"]
    renamed = {f"sink/{one['delta']}" for one in sinks if "delta.columnMapping.mode" in one.get("properties", {})}
    wrong = [one for one in found.findings if one.verdict == "broken" or (proven and one.table not in renamed)]
    assert [(one.table, one.what) for one in wrong] == []


@pytest.mark.prove
def test_good_tables_of_every_kind_are_not_called_broken(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserts, "FEW_TIMES", 0)  # so that small files, too, get deletion vectors
    flow = flow_of(place)
    addresses = [flow.sink(i) for i in range(len(SINKS))]
    arriving = list(portions())
    for portion in arriving[:3]:
        flow.arrive(portion)
    assert crash(spark, flow, "sink5.after", 2)
    run(spark, flow)
    good(flow, proven=True)

    for address in addresses:
        spark.sql(f"OPTIMIZE delta.`{address}`")
    good(flow)
    for portion in arriving[3:5]:
        flow.arrive(portion)
    run(spark, flow)
    good(flow)

    for address in (*addresses, flow.place.late, flow.place.dead):
        age(address, 60)
    said(flow, "maintain", flow.name, "--yes")
    good(flow)
    flow.arrive(arriving[5])
    run(spark, flow)
    good(flow)

    said(flow, "rename", flow.name, "better", "--yes")
    text = flow.text()
    (place / "rules" / f"{flow.name}.yaml").unlink()
    flow = Flow(place, "better", sql=SQL, settings={**flow.settings, "streams": text["streams"]})
    run(spark, flow)
    good(flow)
    reset(spark, flow, keep_output=True)
    good(flow)
    reset(spark, flow)
    run(spark, flow)
    good(flow, proven=True)


@pytest.mark.prove
def test_good_tables_are_not_called_broken_after_a_backfill(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place)
    kinds = ("appended", "some columns and rows", "partitioned", "clustered", "renamed columns")
    flow.settings["sinks"] = [one for one, name in zip(flow.settings["sinks"], SINKS, strict=True) if name in kinds]
    flow.settings["sinks"][1]["columns"] = ["at", "n", "k", "j"]
    for portion in portions():
        flow.arrive(portion)
    run(spark, flow)
    begin = round(START.timestamp() * 1_000_000)
    for _ in range(2):
        job = RuleRun(spark, flow.rule(), flow.home, "backfill", lambda _: None)
        job.backfill(
            lambda head: requested_interval(flow.rule(), head, begin, begin + 300_000_000, str), 0, lambda _: None
        )
        good(flow)
