"""Rewrites a state table to what is live. Runs between epochs, in the driver that holds the rule."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from floodmark.core.compaction import is_due
from floodmark.core.records import Head
from floodmark.crashpoints import reach
from floodmark.ledger import tables
from floodmark.spark.folds import Fold
from floodmark.spark.session import refuse_leaked_transaction
from floodmark.spark.sites import ROWS_IN_A_FILE, Site


def compact(session: SparkSession, rule: str, fold: Fold, name: str, site: Site, head: Head) -> None:
    """Rewrite one state table if it is due. Content that any later epoch could see stays as it is."""
    table = tables.open_table(site.address)
    if table is None or not _due(session, table, fold.live(name, head.watermark)):
        return
    reach(rule, "compact.before", head.epoch)
    refuse_leaked_transaction(session)
    frame = session.read.format("delta").load(site.address)
    condition = fold.live(name, head.watermark)
    live = frame.where(condition) if condition else frame
    if head.lost:
        live = live.where(f"_epoch NOT IN ({', '.join(map(str, head.lost))})")
    rows = live.count()
    live.coalesce(1 + rows // ROWS_IN_A_FILE).write.format("delta").mode("overwrite").save(site.address)
    session.sql(f"VACUUM delta.`{site.address}`")
    reach(rule, "compact.after", head.epoch)


def _due(session: SparkSession, table: DeltaTable, live: str | None) -> bool:
    files = len(table.file_uris())
    if not files:
        return False
    frame = session.read.format("delta").load(table.table_uri)
    if is_due(files, 0, 0):
        return True
    if live is None:
        return False
    rows, kept = frame.count(), frame.where(live).count()
    return is_due(files, rows, rows - kept)
