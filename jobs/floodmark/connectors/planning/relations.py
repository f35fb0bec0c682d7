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
Told = dict[int, DataFrame | None]


def relations(session: SparkSession, query: str, streams: int) -> Told:
    """By place of a stream, its frame in the batch of the running query; None for one without new rows.

    A stream is left out where Spark's plan does not tell: it is not planned as files, or not told from another one.
    """
    leaves = _leaves(session, query)
    kinds = [leaf.getClass().getSimpleName() for leaf in leaves]
    tables = [_table(leaf) if kind == "LogicalRelation" else None for leaf, kind in zip(leaves, kinds, strict=True)]
    empty = [kind == "LocalRelation" and leaf.data().isEmpty() for leaf, kind in zip(leaves, kinds, strict=True)]
    places = by_stream(tables, streams)
    told = {} if places is None else dict(enumerate(places))
    known = {i: own for i, own in told.items() if all(empty[leaf] or tables[leaf] for leaf in own)}
    return {i: _frame(session, [leaves[leaf] for leaf in own if tables[leaf]]) for i, own in known.items()}


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


def _jvm(session: SparkSession) -> Any:
    return session._jsparkSession
