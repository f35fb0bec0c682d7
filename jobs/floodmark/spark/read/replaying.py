"""The rows of a replay: dead rows of this generation, corrected, as the frame that READ sorts."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.lifecycle.replays import wanted
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Replay
from floodmark.core.rules.rule import Rule, Stream
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import Refused
from floodmark.spark.read.batch import united
from floodmark.spark.read.frames import tagged
from floodmark.spark.read.shape import Shape


def dead_rows(session: SparkSession, address: str) -> DataFrame:
    """All rows of a dead table, with its own columns."""
    return session.read.format("delta").load(address)


def count(dead: DataFrame, head: Head, replay: Replay) -> int:
    """How many rows of the dead table the replay reads. Raises Refused if a condition names an unknown column."""
    try:
        return _rows(dead, head, replay).count()
    except AnalysisException as fault:
        raise _unknown(fault) from fault


def replayed(rule: Rule, shape: Shape, dead: DataFrame, head: Head, replay: Replay, clock: int) -> DataFrame:
    """The rule's frame over the rows of a replay. `dead`: the rows of the dead table, or some of them."""
    rows = _rows(dead, head, replay)
    try:
        frames = [
            tagged(
                rows.where(F.col("_stream") == name).select(*_corrected(rows, stream, shape, name, replay)),
                _corrected_stream(stream, replay),
                name,
                shape,
                clock,
            )
            for name, stream in rule.streams.items()
        ]
    except AnalysisException as fault:
        raise _unknown(fault) from fault
    return united(frames)


def _unknown(fault: AnalysisException) -> Refused:
    line = str(fault).strip().split("\n", 1)[0]
    return Refused(f"--where and --set read the columns of the dead rows (`floodmark dead list` shows them): {line}")


def _rows(dead: DataFrame, head: Head, replay: Replay) -> DataFrame:
    """The rows of a replay. It excludes rows that later epochs quarantine, so a retry reads the same ones."""
    return dead.where(wanted(replay, head.replays.values(), head.lost))


def _corrected(rows: DataFrame, stream: Stream, shape: Shape, name: str, replay: Replay) -> list[Column]:
    """The columns of the stream's table, original or corrected, without an event time that `expr` computes again.

    A column that was not read when the row was quarantined is null.
    """
    there = {name.lower() for name in rows.columns}
    corrected = {column.lower(): sql for column, sql in replay.corrected.items()}
    made = stream.event_time.name.lower() if stream.event_time and stream.event_time.expr else None
    found = []
    for field in shape.columns(name):
        sql = corrected.get(field.name.lower())
        if sql is not None:
            found.append(F.expr(f"({sql}\n)").cast(field.dataType).alias(field.name))
        elif field.name.lower() != made:
            known = F.col(quoted(field.name)) if field.name.lower() in there else F.lit(None).cast(field.dataType)
            found.append(known.alias(field.name))
    return found


def _corrected_stream(stream: Stream, replay: Replay) -> Stream:
    """The stream, without its event time's `expr` if the event time is corrected."""
    time = stream.event_time
    if time is None or time.name.lower() not in map(str.lower, replay.corrected):
        return stream
    return stream.model_copy(update={"event_time": time.model_copy(update={"expr": None})})
