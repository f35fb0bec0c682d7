"""Rows that are forgotten: nowhere below the rule's home any more, while the rule continues exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import run

from floodmark.ledger.home import Home
from floodmark.spark.rule.forgetting import Forgot, forget, rehearse

ALICE, WHERE = "alice@example.org", "k = 'alice@example.org'"


def forgotten(spark: SparkSession, flow: Flow, where: str = WHERE) -> Forgot:
    return forget(spark, flow.place, "forgetter", where, lambda _: None)


def found_in(place: Path, value: str) -> list[str]:
    """The files below a folder that hold a value: in their bytes, or in a Parquet file's decoded rows or statistics."""
    files = sorted(file for file in place.rglob("*") if file.is_file())
    return [str(file.relative_to(place)) for file in files if _holds(file, value)]


def _holds(file: Path, value: str) -> bool:
    if value.encode() in file.read_bytes():
        return True
    if file.suffix != ".parquet" or file.name.startswith("."):
        return False
    with pq.ParquetFile(file) as parquet:
        return value in str(parquet.read().to_pylist()) or value in str(parquet.metadata.to_dict())


def windows(place: Path, **more: Any) -> Flow:
    flow = Flow(place, sinks=1, stream={"start": {"version": 0}}, **more)
    flow.settings["epoch"] = {"max_files": 1}
    flow.arrive([event(0, ALICE), event(1, "bob"), event(50, ALICE, n=4), event(100, "bob"), event(110, ALICE)])
    flow.arrive([event(5, ALICE), event(6, "bob"), event(None, ALICE), event(None, "bob"), event(120, ALICE)])
    return flow


def test_a_window_by_key(spark: SparkSession, place: Path) -> None:
    flow = windows(place)
    run(spark, flow)
    before = found_in(flow.place.path, ALICE)
    assert {one.split("/")[0] for one in before} == {"state", "late", "dead"}
    done = forgotten(spark, flow)
    print(done)
    assert found_in(flow.place.path, ALICE) == []
