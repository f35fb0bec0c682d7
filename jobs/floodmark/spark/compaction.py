"""Rewrites a state table to what is live. Runs between epochs, in the driver that holds the rule."""

from __future__ import annotations

from pyspark.sql import SparkSession

from floodmark.core.compaction import is_due
from floodmark.core.records import Head
from floodmark.crashpoints import reach
from floodmark.ledger import tables
from floodmark.ledger.tables import DataFile
from floodmark.spark.fold import Fold, Moment
from floodmark.spark.session import refuse_leaked_transaction
from floodmark.spark.sites import Site, files_for


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
    live = fold.live(name, _next(head).committed(frame), head.watermark)
    live.coalesce(files_for(rows - dead)).write.format("delta").mode("overwrite").save(site.address)
    session.sql(f"VACUUM delta.`{site.address}`")
    reach(rule, "compact.after", head.epoch)


def _dead(files: list[DataFile], since: int | None) -> int:
    """Rows of the files whose newest row no window needs any more; the files' statistics say so without Spark."""
    if since is None:
        return 0
    return sum(file.rows for file in files if file.newest is not None and file.newest < since)


def _next(head: Head) -> Moment:
    """The epoch that will read what is left."""
    return Moment(head.epoch + 1, head.watermark, head.watermark, head.lost, head.entry.clock_ms * 1000)
