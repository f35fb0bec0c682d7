"""The rule's streams as one frame: the rows of a range, or a sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.planning.plannedrows import Frames
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.ports.source import MALFORMED
from floodmark.core.protocol.entry import Entry
from floodmark.core.rules.rule import EventTime, Rule, Stream
from floodmark.core.sql.words.clock import at_clock
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.home import Home
from floodmark.spark.read import expectationchecks, rowchecks
from floodmark.spark.read.narrowing import narrowed
from floodmark.spark.read.rowchecks import NONE, Checks, tried
from floodmark.spark.read.shape import Shape, micros, time_type

ROW = 400  # characters of a row in a message
TIME, KEEP = "_floodmark_time", "_floodmark_keep"  # structs with the tried values
ERROR = "_floodmark_error"  # the number of the expression that raised


@dataclass(frozen=True)
class Foreseen:
    """A table as it would be after a rewrite: the rows that would leave it and come, and all that it would have."""

    left: DataFrame
    came: DataFrame
    rows: DataFrame


def read_range(
    spark: SparkSession,
    rule: Rule,
    home: Home,
    shape: Shape,
    begin: Entry,
    end: Entry,
    clock: int,
    planned: Frames | None = None,
) -> DataFrame:
    """The rule's streams as one batch frame, over the range between two entries.

    `clock`: the epoch's, in microseconds. `planned`: relations of Spark's plan of the range, by the position of a
    stream.
    """
    known, read = planned or {}, list(sources(rule, home).values())
    found = [
        None if one == other else known[i] if i in known else source.frame(spark, one, other)
        for i, (source, one, other) in enumerate(zip(read, begin.offsets, end.offsets, strict=True))
    ]
    if any(frame is not None for frame in found):
        return _united(found, rule, shape, clock)
    empty = [spark.createDataFrame([], source.typed(spark).schema) for source in read]
    return _united(empty, rule, shape)


def sampled(spark: SparkSession, rule: Rule, shape: Shape, rows: int) -> DataFrame:
    """The same frame over at most `rows` rows of each stream."""
    return _united([source.whole(spark).limit(rows) for source in sources(rule, None).values()], rule, shape)


def _united(frames: Sequence[DataFrame | None], rule: Rule, shape: Shape, clock: int | None = None) -> DataFrame:
    found = [
        tagged(narrowed(frame, shape.older.get(name, {})), stream, name, shape, clock)
        for frame, (name, stream) in zip(frames, rule.streams.items(), strict=True)
        if frame is not None
    ]
    return reduce(DataFrame.unionAll, found)


def tagged(frame: DataFrame, stream: Stream, name: str, shape: Shape, clock: int | None) -> DataFrame:
    """Rows of a stream's table, with the columns of the rule's frame. `clock`: the epoch's, in µs; None: Spark's."""
    mine, checks = shape.columns(name), shape.checks.get(name, NONE)
    if stream.event_time and stream.event_time.expr:
        frame = _with_time_made(frame, stream.event_time, checks, clock)
    else:
        checks = dataclasses.replace(checks, time=None)
    time = micros(stream.event_time.name, time_type(stream, mine)) if stream.event_time else micros("", None)
    keep = f"coalesce({stream.where}\n, false)" if stream.where else "true"
    if checks.where:
        frame = frame.withColumn(KEEP, tried(frame, checks.where))
        keep = f"coalesce({KEEP}.v, false)"
    if checks:
        frame = frame.withColumn(ERROR, _failed(frame, checks, F.expr(keep), clock))
    expected = shape.expectations.get(name)
    if expected:
        frame = frame.withColumn(expectationchecks.FAILED, expected.failed(frame))
    place = list(shape.streams).index(name)
    tags = [f"{place} AS _s", f"{keep} AS _k", f"{time} AS _t", f"{ERROR if checks else 'CAST(NULL AS INT)'} AS _e"]
    tags.append(f"{expectationchecks.FAILED if expected else 'CAST(NULL AS BIGINT)'} AS _x")
    if shape.malformed:  # a replay's rows come from the dead table, which has no such column
        tags.append(f"{MALFORMED if MALFORMED in frame.columns else 'CAST(NULL AS STRING)'} AS _m")
    own = (f"{quoted(field.name)} AS {quoted(shape.prefix(name) + field.name)}" for field in mine)
    return _with_nulls(frame.selectExpr(*tags, *own), name, shape)


def _with_time_made(frame: DataFrame, time: EventTime, checks: Checks, clock: int | None) -> DataFrame:
    expr = str(time.expr)
    made = expr if clock is None else at_clock(expr, clock)
    if not checks.time:
        return frame.withColumn(time.name, F.expr(made))
    return frame.withColumn(TIME, tried(frame, made)).withColumn(time.name, F.col(f"{TIME}.v"))


def _failed(frame: DataFrame, checks: Checks, keep: Column, clock: int | None) -> Column:
    """The number of the first expression that raises for a row, in the order of computation; null: none."""
    time = [(F.col(TIME).isNull(), rowchecks.TIME)] if checks.time else []
    where = [(F.col(KEEP).isNull(), rowchecks.WHERE), (~keep, None)] if checks.where else [(~keep, None)]
    tests = (check.tested if clock is None else at_clock(check.tested, clock) for check in checks.sql)
    sql = [(tried(frame, test).isNull(), number) for number, test in enumerate(tests, rowchecks.SQL)]
    cases = [*time, *where, *sql] if checks.time_first else [*where, *time, *sql]
    found = F.when(F.lit(False), F.lit(None).cast("int"))
    for condition, number in cases:
        found = found.when(condition, F.lit(number).cast("int"))
    return found


def _with_nulls(frame: DataFrame, name: str, shape: Shape) -> DataFrame:
    """The frame plus the other streams' columns as nulls, in the order that all frames share."""
    if len(shape.streams) == 1:
        return frame
    named = {
        stream: {shape.prefix(stream) + field.name: field.dataType for field in shape.columns(stream)}
        for stream in shape.streams
    }
    others = {
        column: F.lit(None).cast(kind)
        for stream, kinds in named.items()
        if stream != name
        for column, kind in kinds.items()
    }
    ordered = (quoted(column) for kinds in named.values() for column in kinds)
    tags = [name for name in frame.columns if name in ("_s", "_k", "_t", "_e", "_x", "_m")]
    return frame.withColumns(others).selectExpr(*tags, *ordered)
