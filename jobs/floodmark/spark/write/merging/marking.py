"""Deletion vectors: which rows of a table's files are deleted. Delta's own code writes them beside the files."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.spark.session.jvm import jvm_class


def deletion_vectors(session: SparkSession, txn: Any, rows: DataFrame, files: Any) -> dict[str, Any]:
    """The vectors (Delta's descriptors) of the files once these rows are deleted too, by the files' names.

    `rows`: a row's file as `path` and its index there as `at`; `files`: Scala's Seq of the files they are in.
    """
    generator = jvm_class(session, "org.apache.spark.sql.delta.commands.DeletionVectorBitmapGenerator$")
    every = jvm_class(session, "org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral()
    path, at = (jvm_class(session, "scala.Option").apply(F.col(name)._jc) for name in ("path", "at"))
    build = getattr(generator, "MODULE$").buildRowIndexSetsForFilesMatchingCondition
    found = build(session._jsparkSession, txn, True, rows.select("path", "at")._jdf, files, every, path, at)
    results = [found.apply(i) for i in range(found.size())]
    return {unquote(str(one.filePath()).rsplit("/", 1)[-1]): one.deletionVector() for one in results}
