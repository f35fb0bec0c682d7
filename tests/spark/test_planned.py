"""An epoch reads relations instead of the batch that Spark hands over: they must have the same rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.flow import Flow, event, rows_of
from support.running import run

from floodmark.connectors.planning import checkpoint
from floodmark.connectors.planning.plannedrows import by_stream, relations
from floodmark.connectors.ports.registering import register
from floodmark.spark.read.planning import Steps
from floodmark.spark.rule.epochs import epoch


@pytest.fixture
def tables(spark: SparkSession, place: Path) -> dict[str, str]:
    """A plain table, one with deletion vectors and renamed columns, and a partitioned one; the last has fewer files."""
    names = {name: str(place / name) for name in ("plain", "mapped", "parted")}
    for part in range(4):
        for name in ("plain", "mapped"):
            append(spark, part, names[name])
    spark.sql(
        f"ALTER TABLE delta.`{names['mapped']}` SET TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"ALTER TABLE delta.`{names['mapped']}` RENAME COLUMN k TO kept")
    append(spark, 4, names["mapped"], "kept")
    spark.sql(f"DELETE FROM delta.`{names['mapped']}` WHERE part = 4 AND kept = '3'")
    for part in range(2):
        append(spark, part, names["parted"], by="part")
    return names


def append(spark: SparkSession, part: int, table: str, k: str = "k", by: str | None = None) -> None:
    rows = spark.range(100).selectExpr("id", f"CAST(id % 7 AS STRING) AS {k}", f"{part} AS part").coalesce(1)
    writer = rows.write.format("delta").mode("append")
    (writer.partitionBy(by) if by else writer).save(table)


def test_relations_have_the_rows_of_the_batch(spark: SparkSession, place: Path, tables: dict[str, str]) -> None:
    seen = list[tuple[int, list[int]]]()

    def compare(frame: DataFrame, number: int) -> None:
        found = relations(spark, checkpoint.query_id(place / "checkpoint"), len(tables))
        assert list(found) == [0, 1, 2]
        parts = [one.select(one.columns[:3]) for one in found.values() if one is not None]
        rows = Counter(tuple(map(str, row)) for part in parts for row in part.collect())
        assert rows == Counter(tuple(map(str, row)) for row in frame.collect())
        seen.append((sum(rows.values()), [place for place, one in found.items() if one is None]))

    (place / "checkpoint").mkdir()
    (place / "checkpoint" / "metadata").write_text(f'{{"id":"{uuid4()}"}}')
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    frames = [reader.load(table) for table in tables.values()]
    union = frames[0].unionAll(frames[1]).unionAll(frames[2])
    query = union.writeStream.trigger(availableNow=True).option("checkpointLocation", str(place / "checkpoint"))
    query.foreachBatch(compare).start().awaitTermination()

    deleted = sum(1 for id in range(100) if id % 7 == 3)
    assert sum(rows for rows, _ in seen) == 400 + 500 - deleted + 200
    assert any(without for _, without in seen), "an epoch in which a stream has nothing new"


@pytest.mark.prove
def test_without_relations_the_sources_themselves_are_asked(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [[event(second, n=second) for second in range(first, first + 90, 5)] for first in (0, 60, 120)]
    results = []
    for name, there in (("planned", True), ("asked", False)):
        if not there:
            monkeypatch.setattr(epoch, "relations", lambda *_: {})
        flow = Flow(place, name, settings={"epoch": {"max_files": 1}}, stream={"start": {"version": 0}})
        for portion in events:
            flow.arrive(portion)
        run(spark, flow)
        results.append((flow.counts(), sorted(map(str, rows_of(flow.sink())))))

    assert results[0] == results[1]
    assert results[0][1]


@pytest.mark.parametrize(
    ("tables", "streams", "places"),
    [
        (["a", "b"], 2, [[0], [1]]),
        (["a", None], 2, [[0], [1]]),
        (["a", "a"], 2, [[0], [1]]),
        (["a", "a", "a"], 1, [[0, 1, 2]]),
        (["a", "a", "b"], 2, [[0, 1], [2]]),
        ([None, "b", "b", None], 3, [[0], [1, 2], [3]]),
        (["a", "b", "b", "a"], 3, [[0], [1, 2], [3]]),
        (["a", "a", "a"], 2, None),
        (["a", "a", "a", "b"], 3, None),
        (["a", "a", None, None], 2, None),
        (["a"], 2, None),
        ([], 1, None),
    ],
)
def test_several_leaves_are_of_one_stream_only_where_that_is_sure(
    tables: list[str | None], streams: int, places: list[list[int]] | None
) -> None:
    assert by_stream(tables, streams) == places


def test_a_source_is_known_to_each_session(spark: SparkSession) -> None:
    """The rules of one application have a session each; Spark looks in the active one, too."""
    sessions: list[Any] = [spark.newSession(), spark.newSession(), spark]
    for session in sessions:
        register(session, Steps)
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
