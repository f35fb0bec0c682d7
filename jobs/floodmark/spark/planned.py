"""The rows that Spark has planned for a batch, as ordinary relations.

What foreachBatch hands over is an RDD of rows: nothing is pushed through it, and every action decodes every column of
every file again. The plan that Spark made for the batch holds the very relation that each source gave (for Delta: its
list of files, deletion vectors and column mapping included), so a frame over that relation has the same rows, and reads
only the columns and row groups that an action needs.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"


def relations(session: SparkSession, query: str, streams: int) -> list[DataFrame | None] | None:
    """One frame for each stream of the running query, in order; None for a stream without new rows.

    None altogether where a source is not planned as files: then only the batch itself has its rows.
    """
    leaves = _leaves(session, query)
    if len(leaves) != streams:
        return None
    found: list[DataFrame | None] = []
    for leaf in leaves:
        kind = leaf.getClass().getSimpleName()
        if kind == "LogicalRelation" and leaf.relation().getClass().getName() == FILES:
            found.append(DataFrame(_jvm(session).baseRelationToDataFrame(leaf.relation()), session))
        elif kind == "LocalRelation" and leaf.data().isEmpty():
            found.append(None)
        else:
            return None
    return found


def _leaves(session: SparkSession, query: str) -> list[Any]:
    """The leaves of the plan of the batch at work, left to right."""
    running = _jvm(session).streams().get(query)
    leaves = running.streamingQuery().lastExecution().logical().collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]


def materialised(frame: DataFrame, session: SparkSession) -> DataFrame:
    """The same rows in `session`, computed as far as the last shuffle: every action on them goes on from there.

    foreachBatch makes its frame in this way. Unlike a cache it copies no rows, so it costs no memory.
    """
    execution = frame._jdf.queryExecution()
    rows = _jvm(session).internalCreateDataFrame(execution.toRdd(), execution.analyzed().schema(), False)
    return DataFrame(rows, session)


def _jvm(session: SparkSession) -> Any:
    return session._jsparkSession
