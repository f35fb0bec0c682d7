"""Lookup tables as an epoch reads them: the version that its intent names, or the versions up to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.delta.lookups import BEGIN, END, NO_ROWS, NO_TIMES, LookupTable, VersionSpan, lookup_tables
from floodmark.connectors.planning.versionrows import renamed_as
from floodmark.core.lifecycle.zones import earliest_moment
from floodmark.core.protocol.records.rows import Pinned
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.asof import by_start, first_start, undated
from floodmark.errors import HistoryGone, RunFailed
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.shape import Shape, time_type
from floodmark.spark.session.faults import of_version
from floodmark.spark.session.views import put_view


class First(NamedTuple):
    """The moments before which no event time of the rows lies, and no start of their windows.

    NO_ROWS: there are no rows. NO_TIMES: none has an event time.
    """

    row: int
    start: int


Since = Callable[[bool], First]  # of True, the rows are asked if that may find later moments; this takes a pass
NONE = First(NO_ROWS, NO_ROWS)
UNORDERED = "INVALID_ORDERING_TYPE"


def show(session: SparkSession, rule: Rule, pinned: Mapping[str, Pinned], since: Since) -> None:
    """Register each lookup table as a view for the SQL. Raises HistoryGone if a version no longer exists."""
    tables = lookup_tables(rule)
    dated = any(table.lookup.history for table in tables.values())
    whole = undated(rule.sql, rule.event_times, rule.lookups) if dated else {}
    starts = by_start(rule.sql, rule.event_times, rule.lookups) if dated else frozenset()
    since = cache(since)
    for name, table in tables.items():
        table.check(pinned[name])
        version = pinned[name].version
        if table.lookup.history:
            spans = _spans(table, version, since, name in starts, whole.get(name, ""))
            put_view(_history(session, table, version, spans), name)
        else:
            put_view(_at(session, table, version), name)


def results_of_rows(session: SparkSession, rule: Rule, timed: Callable[[str], str] = str) -> DataFrame:
    """The results of SQL without windows, which chooses the same of equal rows of a lookup table each time.

    A lookup table may have a map, which has no order. The order of such rows is the user's alone, as it was in rules of
    older versions. Not so for the first rows of each key: to fold these, an epoch needs the order. timed: puts a clock
    into the SQL.
    """
    try:
        return session.sql(timed(rule.query.sql))
    except AnalysisException as fault:
        if UNORDERED not in (fault.getCondition() or "") or rule.query.top is not None:
            raise
        return session.sql(timed(rule.sql))


def show_columns(session: SparkSession, rule: Rule, pinned: Mapping[str, Pinned]) -> None:
    """The same, for callers that only need the columns."""
    show(session, rule, pinned, lambda _: NONE)


def first_moments(batch: Batch, _: bool = True) -> First:
    """Those of a batch alone."""
    if not any(count.folded for count in batch.counts.values()):
        return NONE
    first = batch.earliest()
    if first is None:
        return First(NO_TIMES, NO_TIMES)
    return moments_of(batch.rule, batch.shape, first, first_start(batch.rule.query.windows, first))


def moments_of(rule: Rule, shape: Shape, row: int, start: int) -> First:
    """The moments of event times, before which none of a later one lies; Spark reads those without zone in the
    rule's."""
    kinds = {time_type(rule.streams[name], schema) for name, schema in shape.streams.items()}
    if "timestamp_ntz" not in kinds:
        return First(row, start)
    return First(earliest_moment(row, rule.timezone), earliest_moment(start, rule.timezone))


def _spans(table: LookupTable, newest: int, since: Since, by_start: bool, whole: str) -> list[VersionSpan]:
    """The versions that the SQL can meet. The rows are asked only where the log is too short for what is known, or
    cannot be read that far now."""
    try:
        return _spans_from(since(False), table, newest, by_start, whole)
    except (HistoryGone, RunFailed):
        return _spans_from(since(True), table, newest, by_start, whole)


def _spans_from(first: First, table: LookupTable, newest: int, by_start: bool, whole: str) -> list[VersionSpan]:
    return table.versions_since(newest, first.start if by_start else first.row, whole)


def _at(session: SparkSession, table: LookupTable, version: int) -> DataFrame:
    with of_version(f"lookup {table.name}", table.address, version):
        return session.read.format("delta").option("versionAsOf", str(version)).load(table.address)


def _history(session: SparkSession, table: LookupTable, newest: int, spans: Iterable[VersionSpan]) -> DataFrame:
    """The rows of each version, with the time from and until which the version was valid. Columns have their names of
    the newest one."""
    now = _at(session, table, newest)
    versions = [
        renamed_as(_at(session, table, one.version), now)
        .withColumn(BEGIN, F.expr(f"timestamp_micros({one.begin})"))
        .withColumn(END, F.expr(f"timestamp_micros({one.end})"))
        for one in spans
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), versions)
