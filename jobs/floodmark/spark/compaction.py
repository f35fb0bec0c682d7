"""Rewrites a state table to what is live. Runs between epochs, in the driver that holds the rule."""

from __future__ import annotations

from pyspark.sql import SparkSession

from floodmark.core.compaction import is_due
from floodmark.core.records import Head
from floodmark.crashpoints import reach
from floodmark.ledger import tables
from floodmark.ledger.tables import DataFile
from floodmark.spark.appending import files_for
from floodmark.spark.folds import Fold
from floodmark.spark.session import refuse_leaked_transaction
from floodmark.spark.sites import Site


def compact(session: SparkSession, rule: str, fold: Fold, name: str, site: Site, head: Head) -> None:
    """Rewrite one state table if it is due. Content that any later epoch could see stays as it is."""
    table = tables.open_table(site.address)
    if table is None:
        return
    files = tables.files_of(table, fold.time_of(name))
    dead = _dead(files, fold.needed_from(head.watermark))
    rows = sum(file.rows for file in files)
    if not is_due(len(files), rows, dead):
        return
    reach(rule, "compact.before", head.epoch)
    refuse_leaked_transaction(session)
    frame = session.read.format("delta").load(site.address)
    condition = fold.live(name, head.watermark)
    live = frame.where(condition) if condition else frame
    if head.lost:
        live = live.where(f"_epoch NOT IN ({', '.join(map(str, head.lost))})")
    live.coalesce(files_for(rows - dead)).write.format("delta").mode("overwrite").save(site.address)
    session.sql(f"VACUUM delta.`{site.address}`")
    reach(rule, "compact.after", head.epoch)


def _dead(files: list[DataFile], since: int | None) -> int:
    """Rows of the files whose newest row no window needs any more; the files' statistics say so without Spark."""
    if since is None:
        return 0
    return sum(file.rows for file in files if file.newest is not None and file.newest < since)
