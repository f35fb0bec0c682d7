"""Rewrite state tables to their live rows, between epochs, in the driver that holds the rule's lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from floodmark.core.lifecycle.cleanup import is_rewrite_due
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.records.head import Head
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.datafiles import DataFile
from floodmark.spark.fold.fold import Fold, Moment
from floodmark.spark.fold.state import state_rows
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.layouts import table_at
from floodmark.spark.write.sites import Site
from floodmark.spark.write.staterewrites import StateRewrite


def compact(session: SparkSession, rule: str, fold: Fold, sites: Mapping[str, Site], head: Head) -> None:
    """Rewrite the state tables that are due. Content that later epochs could read is unchanged."""
    for name, site in sites.items():
        table = tables.open_table(site.address)
        files = datafiles.files_of(table, fold.time_of(name)) if table else []
        dead = _dead(files, fold.needed_from(head.watermark))
        rows = _rows(files)
        if table is not None and _is_due(table, len(files), rows, dead):
            reach(rule, "compact.before", head.epoch)
            rewrite = StateRewrite(session, site, head.epoch)  # before the rows are read
            live = fold.live(name, _committed(session, fold, sites, head), head.watermark)
            rewrite.finish(live.coalesce(files_for(rows - dead)), head.epoch, head.epoch)
            session.sql(f"VACUUM {table_at(site.address)}")
            reach(rule, "compact.after", head.epoch)


def _is_due(table: DeltaTable, files: int, rows: int, dead: int) -> bool:
    """Whether a rewrite is due. The log is read only for a table of many files: few tables have these."""
    return is_rewrite_due(files, rows, dead) and is_rewrite_due(files, rows, dead, datafiles.left_by_rewrite(table))


def _committed(session: SparkSession, fold: Fold, sites: Mapping[str, Site], head: Head) -> dict[str, DataFrame]:
    """The rows of committed epochs in each state table, as the next epoch will read them."""
    coming = Moment(head.epoch + 1, head.watermark, head.watermark, head.lost, head.entry.clock_ms * 1000)
    found = {}
    for name, site in sites.items():
        rows = state_rows(session, site.address, fold.tables[name], None, None)
        found[name] = coming.committed(session.createDataFrame([], fold.tables[name]) if rows is None else rows)
    return found


def _dead(files: list[DataFile], since: int | None) -> int:
    """How many rows are in files that no window needs any more, by the files' statistics, without Spark."""
    if since is None:
        return 0
    return _rows(file for file in files if file.newest is not None and file.newest < since)


def _rows(files: Iterable[DataFile]) -> int:
    """The files' rows by their statistics: only Spark writes state, and it counts the rows of each file."""
    return sum(file.rows or 0 for file in files)
