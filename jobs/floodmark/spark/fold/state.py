"""Read a state table in an epoch: the live files of its log, as plain Parquet.

Only its rule writes a state table, and it has neither deletion vectors nor renamed columns, so its rows are its files'
rows. Delta's own scan would first reconstruct the new version in several Spark jobs; delta-rs reads the same file names
from the log in milliseconds.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.ledger.delta import datafiles, tables


def state_rows(
    session: SparkSession, address: str, schema: StructType, time: str | None, needed_from: int | None
) -> DataFrame | None:
    """Rows of the files with any row at or after `needed_from` (microseconds; None: all); None without such a file."""
    table = tables.open_table(address)
    files = datafiles.files_of(table, time) if table else []
    paths = [file.path for file in files if needed_from is None or file.newest is None or file.newest >= needed_from]
    return session.read.schema(schema).parquet(*paths) if paths else None
