"""Records that a later `avro_schema` can read: they are dead, and a backfill does not count them beside that."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from support.flow import Flow, event, rows_of
from support.running import backfill, backfill_all, reset, run

from floodmark.connectors.ports import fakes
from floodmark.connectors.ports.source import MALFORMED
from floodmark.core.rules import kinds
from floodmark.errors import HistoryGone

COLUMNS = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"
SQL = "SELECT window.start AS start, count(*) AS c FROM events GROUP BY window(at, '1 minute')"
BEGIN = 978_307_200_000_000  # the events' first minute


class Config(fakes.FakeConfig):
    """`avro_schema`: the schema ids (`n`) that it knows."""

    avro_schema: tuple[int, ...]


class Values(fakes.FakeSource):
    """Rows of which those with an unknown schema are malformed."""

    def __init__(self, name: str, stream: kinds.Stream, keep: Path | None = None):
        known = {key: value for key, value in stream.options.items() if key != "avro_schema"}
        super().__init__(name, stream.model_copy(update={"options": known}), keep)
        self._known = [*stream.options["avro_schema"]]

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        found, good = super().frame(spark, begin, end), F.col("n").isin(self._known)
        own = [F.when(good, F.col(name)).alias(name) for name in found.columns]
        return found.select(*own, F.when(~good, F.concat(F.lit("schema "), F.col("n"))).alias(MALFORMED))


VALUES = dataclasses.replace(fakes.SOURCE, written=Config, open=Values, summary="values of several schemas")


@pytest.fixture
def flow(place: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setitem(kinds.SOURCES, "values", f"{__name__}:VALUES")
    made = Flow(place, sql=SQL, sinks=1, settings={"on_error": "dead"})
    made.stream = {"delta": None, "values": {"name": str(place), "columns": COLUMNS, "avro_schema": [1]}}
    naive = ({**row, "at": row["at"].replace(tzinfo=None)} for row in (event(5, n=1), event(7, n=2), event(600, n=1)))
    fakes.append(str(place), naive)
    return made


def first(flow: Flow) -> int:
    return min((row["start"], row["c"]) for row in rows_of(flow.sink()))[1]


def test_a_record_that_died_does_not_count_beside_that_once_its_schema_came(spark: SparkSession, flow: Flow) -> None:
    run(spark, flow)
    assert (first(flow), flow.counts()["dead"]) == (1, 1)
    _ = backfill(spark, flow, BEGIN, BEGIN + 60_000_000)
    flow.stream["values"]["avro_schema"] = [1, 2]
    can_be_read = r"stream events: expected 1 records that were malformed .* found 1 of them that .*`avro_schema` can"
    with pytest.raises(HistoryGone, match=can_be_read):
        _ = backfill(spark, flow, BEGIN, BEGIN + 60_000_000)
    with pytest.raises(HistoryGone, match=can_be_read):
        _ = backfill_all(spark, flow)
    assert first(flow) == 1
    reset(spark, flow)
    run(spark, flow)
    assert first(flow) == 2
