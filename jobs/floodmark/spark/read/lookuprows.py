"""Lookup tables as an epoch reads them: the version that its intent names, or the versions up to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.delta.lookups import BEGIN, END, NO_ROWS, NO_TIMES, LookupTable, lookup_tables
from floodmark.connectors.planning.versionrows import renamed_as
from floodmark.core.lifecycle.zones import earliest_moment
from floodmark.core.protocol.records.rows import Pinned
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.asof import before_us, undated
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.shape import Shape, time_type
from floodmark.spark.session.faults import of_version
from floodmark.spark.session.views import put_view


def show(session: SparkSession, rule: Rule, pinned: Mapping[str, Pinned], since: Callable[[], int | None]) -> None:
    """Register each lookup table as a view for the SQL. `since`: the moment before which no row or window lies.

    Of None it is unknown; NO_ROWS: there are none; NO_TIMES: none has an event time. Raises HistoryGone if a version
    no longer exists.
    """
    tables = lookup_tables(rule)
    dated = any(table.lookup.history for table in tables.values())
    whole = undated(rule.sql, rule.event_times, rule.lookups) if dated else {}
    first = since() if dated else None
    for name, table in tables.items():
        table.check(pinned[name])
        version = pinned[name].version
        if table.lookup.history:
            put_view(_history(session, table, version, first, whole.get(name, "")), name)
        else:
            put_view(_at(session, table, version), name)


def show_columns(session: SparkSession, rule: Rule, pinned: Mapping[str, Pinned]) -> None:
    """The same, for callers that only need the columns."""
    show(session, rule, pinned, lambda: NO_ROWS)


def first_moment(batch: Batch) -> int | None:
    """`since`, of the rows of a batch alone, and of their windows."""
    if not any(count.folded for count in batch.counts.values()):
        return NO_ROWS
    first = batch.earliest()
    if first is None:
        return NO_TIMES
    return moment_of(batch.rule, batch.shape, first - before_us(batch.rule.query.windows))


def moment_of(rule: Rule, shape: Shape, time: int | None) -> int | None:
    """The moment of an event time, before which none of a later one lies; Spark reads those without zone in the
    rule's."""
    kinds = {time_type(rule.streams[name], schema) for name, schema in shape.streams.items()}
    if time in (None, NO_ROWS, NO_TIMES) or "timestamp_ntz" not in kinds:
        return time
    return earliest_moment(time, rule.timezone)


def _at(session: SparkSession, table: LookupTable, version: int) -> DataFrame:
    with of_version(f"lookup {table.name}", table.address, version):
        return session.read.format("delta").option("versionAsOf", str(version)).load(table.address)


def _history(session: SparkSession, table: LookupTable, newest: int, since: int | None, whole: str) -> DataFrame:
    """The rows of each version, with the time from and until which the version was valid. Columns have their names of
    the newest one."""
    now = _at(session, table, newest)
    versions = [
        renamed_as(_at(session, table, one.version), now)
        .withColumn(BEGIN, F.expr(f"timestamp_micros({one.begin})"))
        .withColumn(END, F.expr(f"timestamp_micros({one.end})"))
        for one in table.versions_since(newest, since, whole)
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), versions)
