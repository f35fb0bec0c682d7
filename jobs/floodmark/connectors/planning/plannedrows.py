"""The rows that Spark has planned for a batch, as ordinary relations.

foreachBatch passes an RDD of rows: Spark pushes nothing down through it, and every action decodes all columns of all
files again. The batch's plan holds the relation of each source (for Delta: its list of files, including deletion
vectors and column mapping). A frame over this relation has the same rows, and reads only the columns and row groups
that an action needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame, SparkSession

FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
Frames = dict[int, DataFrame | None]


def relations(session: SparkSession, query: str, streams: int) -> Frames:
    """By position of a stream, its frame in the batch of the running query; None for a stream without new rows.

    A stream is left out if Spark's plan does not read it as files, or does not distinguish it from another one.
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
    """The positions of each stream's leaves; None if that is ambiguous. `tables`: None is an empty leaf.

    Delta reads each version of files with deletion vectors separately, so a stream may have several adjacent leaves,
    all of its table. Every stream has at least one. So if there are as many runs of a table as streams, each is one.
    """
    if len(tables) == streams:
        return [[i] for i in range(streams)]
    runs = [list(run) for _, run in groupby(range(len(tables)), key=lambda i: tables[i] or i)]
    return runs if len(runs) == streams else None


def _table(leaf: Any) -> str | None:
    """The location of a leaf's files; None if the leaf does not read files."""
    relation = leaf.relation()
    return str(relation.location().rootPaths().mkString(",")) if relation.getClass().getName() == FILES else None


def _frame(session: SparkSession, leaves: Sequence[Any]) -> DataFrame | None:
    frames = [DataFrame(_jvm(session).baseRelationToDataFrame(leaf.relation()), session) for leaf in leaves]
    return reduce(DataFrame.unionAll, frames) if frames else None


def _leaves(session: SparkSession, query: str) -> list[Any]:
    """The leaves of the running batch's plan, left to right."""
    running = _jvm(session).streams().get(query)
    leaves = running.streamingQuery().lastExecution().logical().collectLeaves()
    return [leaves.apply(i) for i in range(leaves.size())]


def _jvm(session: SparkSession) -> Any:
    return session._jsparkSession
