"""Read the rows of a generation's epochs again, for a backfill."""

from __future__ import annotations

import dataclasses

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Stream
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.home import Home
from floodmark.spark.read.batch import united
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.read.frames import read_range, tagged
from floodmark.spark.read.replaying import replayed
from floodmark.spark.read.shape import Shape
from floodmark.spark.rule.generation import Plan

TIMES, PLACE = "_floodmark_times", "_floodmark_place"
TAGS = ("_k", "_t", "_e", "_x")  # computed for a row, beside its stream and columns


def reread(session: SparkSession, plan: Plan, begun: Entry, end: Entry) -> DataFrame:
    """The rule's frame over the sources' rows between two entries."""
    return read_range(session, plan.rule, plan.fold.shape, begun, end, end.clock_ms * 1000)


def reread_replays(session: SparkSession, plan: Plan, home: Home, head: Head, upto: int) -> list[DataFrame]:
    """The rows of each replay up to epoch `upto`, with the columns of the same frame."""
    earlier = {epoch: replay for epoch, replay in head.replays.items() if epoch <= upto}
    found = []
    for epoch in sorted(earlier, reverse=True):
        replay = earlier.pop(epoch)
        before = dataclasses.replace(head, replays=dict(earlier))
        found.append(replayed(session, plan.rule, plan.fold.shape, home.dead, before, replay, 0))
    return found


def quarantined_rows(session: SparkSession, plan: Plan, table: str, head: Head, upto: int) -> DataFrame:
    """The rows that epochs up to `upto` quarantined in a late or dead table, with the columns of the same frame. Rows
    of abandoned epochs, which are in the table too, don't count."""
    kept = f"_epoch <= {upto}" + "".join(f" AND _epoch <> {epoch}" for epoch in head.lost)
    rows, shape = session.read.format("delta").load(table).where(kept), plan.fold.shape
    frames = []
    for name, stream in plan.rule.streams.items():
        mine = _with_all(rows.where(F.col("_stream") == name), shape.streams[name])
        frames.append(tagged(mine, _as_quarantined(stream), name, Shape(shape.streams), None))
    return united(frames)


def _as_quarantined(stream: Stream) -> Stream:
    """The stream, without `where` and `expr`: quarantined rows already have their event time."""
    time = stream.event_time and stream.event_time.model_copy(update={"expr": None})
    return stream.model_copy(update={"where": None, "event_time": time})


def _with_all(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with every column that the rule reads now; columns that it did not read then are null."""
    there = {name.lower() for name in rows.columns}
    lacking = [field for field in schema if field.name.lower() not in there]
    return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})


def without(rows: DataFrame, removed: DataFrame, first: str) -> DataFrame:
    """The rows minus those of another such frame, each as often as it occurs there, compared by their columns.

    `first`: SQL condition of rows to remove before others with equal columns.
    """
    columns = [field for field in rows.schema if field.name in removed.columns and field.name not in TAGS]
    digesting = Digesting(StructType(columns), exact=True)
    often = digesting.hashed(removed).groupBy(HASH).agg(F.count(F.lit(1)).alias(TIMES))
    place = F.row_number().over(Window.partitionBy(HASH).orderBy(F.expr(f"coalesce({first}, false)").desc()))
    placed = digesting.hashed(rows).withColumn(PLACE, place).join(often, HASH, "left")
    return placed.where(f"{PLACE} > coalesce({TIMES}, 0)").select(*map(quoted, rows.columns))
