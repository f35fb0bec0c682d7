"""Views by which SQL reads the rows of an epoch."""

from __future__ import annotations

from pyspark.sql import DataFrame


def put_view(rows: DataFrame, name: str) -> None:
    """Let SQL read these rows by a name, in the place of what it has named so far.

    The older view is dropped first. To replace it would also unpersist every frame, of any session, that has read a
    view with this name: Spark would compute it again without a word.
    """
    rows.sparkSession.catalog.dropTempView(name)
    rows.createOrReplaceTempView(name)
