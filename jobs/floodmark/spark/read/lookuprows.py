"""Lookup tables as an epoch reads them: the version that its intent names, or the versions up to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.delta.lookups import BEGIN, END, FOR_EVER, LookupTable, lookup_tables
from floodmark.connectors.planning.versionrows import renamed_as
from floodmark.core.protocol.records.rows import Pinned
from floodmark.core.rules.rule import Rule
from floodmark.spark.session.faults import of_version
from floodmark.spark.session.views import put_view


def show(session: SparkSession, rule: Rule, pinned: Mapping[str, Pinned], since: Callable[[], int | None]) -> None:
    """Register each lookup table as a view for the SQL. `since`: the epoch has no row with an earlier event time.

    Raises HistoryGone if a version no longer exists.
    """
    for name, table in lookup_tables(rule).items():
        table.check(pinned[name])
        version = pinned[name].version
        frame = _history(session, table, version, since()) if table.lookup.history else _at(session, table, version)
        put_view(frame, name)


def show_columns(session: SparkSession, rule: Rule, pinned: Mapping[str, Pinned]) -> None:
    """The same, for callers that only need the columns."""
    show(session, rule, pinned, lambda: FOR_EVER - 1)


def _at(session: SparkSession, table: LookupTable, version: int) -> DataFrame:
    with of_version(f"lookup {table.name}", table.address, version):
        return session.read.format("delta").option("versionAsOf", str(version)).load(table.address)


def _history(session: SparkSession, table: LookupTable, newest: int, since: int | None) -> DataFrame:
    """The rows of each version, with the time from and until which the version was valid. Columns have their names of
    the newest one."""
    now = _at(session, table, newest)
    versions = [
        renamed_as(_at(session, table, one.version), now)
        .withColumn(BEGIN, F.expr(f"timestamp_micros({one.begin})"))
        .withColumn(END, F.expr(f"timestamp_micros({one.end})"))
        for one in table.versions_since(newest, since)
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), versions)
