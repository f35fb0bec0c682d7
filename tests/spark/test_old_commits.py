"""Runs pass commits without new rows before the source's log forgets what they held."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.aged import DAY
from support.corrected import proven
from support.flow import STATELESS, Flow, event, rows_of
from support.running import run

from floodmark.connectors.backlog.news import look
from floodmark.core.sql.tree.names import CHANGE_FEED
from floodmark.ledger.delta import tables

WAYS: dict[str, dict[str, Any]] = {
    "planned-by-spark": {"stream": {"on_rewrite": "correct"}},
    "paced": {"stream": {"on_rewrite": "skip"}, "settings": {"epoch": {"max_seconds": 60}}},
    "changes": {"stream": {"changes": True, "lateness": None}, "sql": "SELECT at, k, v, n FROM events"},
    "landing": {"stream": {"landing": True}},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_passes_commits_without_new_rows(spark: SparkSession, place: Path, way: str) -> None:
    flow = Flow(place, sinks=1, **{"sql": STATELESS, **WAYS[way]})
    flow.arrive([event(1)])
    DeltaTable(flow.source).alter.set_table_properties({CHANGE_FEED: "true"})
    flow.arrive([event(2)])
    run(spark, flow)
    DeltaTable(flow.source).optimize.compact()
    assert look(flow.rule(), flow.home).why is None
    entry = tables.local_entry(flow.source, DeltaTable(flow.source).version())
    then = time.time() - 11 * DAY
    os.utime(entry, (then, then))
    assert look(flow.rule(), flow.home).why is not None
    run(spark, flow)
    assert look(flow.rule(), flow.home).why is None
    assert len(rows_of(flow.sink())) == 2
    proven(flow)
