"""The rows that Spark has planned for a batch, as ordinary relations.

What foreachBatch hands over is an RDD of rows: nothing is pushed through it, and every action decodes every column of
every file again. The plan that Spark made for the batch holds the very relation that each source gave (for Delta: its
list of files, deletion vectors and column mapping included), so a frame over that relation has the same rows, and reads
only the columns and row groups that an action needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame, SparkSession

FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"


def relations(session: SparkSession, query: str, streams: int) -> list[DataFrame | None] | None:
    """One frame for each stream of the running query, in order; None for a stream without new rows.

    None altogether where a source is not planned as files: then only the batch itself has its rows.
    """
    leaves = _leaves(session, query)
    kinds = [leaf.getClass().getSimpleName() for leaf in leaves]
    tables = [_table(leaf) if kind == "LogicalRelation" else None for leaf, kind in zip(leaves, kinds, strict=True)]
    empty = [kind == "LocalRelation" and leaf.data().isEmpty() for leaf, kind in zip(leaves, kinds, strict=True)]
    if not all(none or table for none, table in zip(empty, tables, strict=True)):
        return None
    places = by_stream(tables, streams)
    return None if places is None else [_frame(session, [leaves[i] for i in one if tables[i]]) for one in places]


def by_stream(tables: Sequence[str | None], streams: int) -> list[list[int]] | None:
    """Which leaves, by place, are of each stream; None where that cannot be told. `tables`: None is an empty leaf.

    Of files with deletion vectors Delta reads each version apart, so a stream may have several leaves, all of its table
    and side by side. No stream has none: so there are as many runs of a table as streams only where each is one.
    """
    if len(tables) == streams:
        return [[i] for i in range(streams)]
    runs = [list(run) for _, run in groupby(range(len(tables)), key=lambda i: tables[i] or i)]
    return runs if len(runs) == streams else None


def _table(leaf: Any) -> str | None:
    """Where the files of a leaf lie; None where it is none of files."""
    relation = leaf.relation()
    return str(relation.location().rootPaths().mkString(",")) if relation.getClass().getName() == FILES else None


def _frame(session: SparkSession, leaves: Sequence[Any]) -> DataFrame | None:
    frames = [DataFrame(_jvm(session).baseRelationToDataFrame(leaf.relation()), session) for leaf in leaves]
    return reduce(DataFrame.unionAll, frames) if frames else None


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
