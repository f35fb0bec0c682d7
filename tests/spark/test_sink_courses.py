"""A Delta table, written in every way, keeps what every sink promises (`support.sinkkinds`).

On a sink in memory the same body tries all courses of attempts: `tests/unit/test_sink_promises.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.flow import rows_of
from support.sinkkinds import DIES_AFTER, DIES_BEFORE, ENDS, SinkUnderTest, expected, ways, written_once

from floodmark.core.rules.sinks.upserts import Upsert
from floodmark.ledger.delta import tables
from floodmark.spark.write.sites import Site

COURSE = [(DIES_BEFORE, DIES_AFTER, ENDS), (DIES_AFTER, DIES_AFTER, ENDS), (DIES_AFTER, ENDS)]
SITE = Site("sink", "sink0", "", "floodmark/test")
WAYS = {**ways(SITE), "merged": replace(SITE, upsert=Upsert(key=("id",)))}


@pytest.mark.parametrize("way", WAYS)
def test_each_epoch_has_its_effect_once(spark: SparkSession, place: Path, way: str) -> None:
    address, schema = str(place / "table"), "id INT, v STRING"
    tables.create(address, spark.createDataFrame([], schema).schema.json(), {})
    site = replace(WAYS[way], address=address)
    sink = SinkUnderTest(
        site,
        lambda rows: spark.createDataFrame([*rows], schema),
        lambda: sorted((row["id"], row["v"]) for row in rows_of(address)),
    )
    written = written_once(sink, COURSE)
    assert sink.rows() == expected(site, COURSE)
    assert [one and one.rows for one in written] == [2, 2, 0 if site.whole else None]
