"""The columns that a rule reads from its streams, their event times, and the checks on their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import DataType, StructField, StructType, TimestampNTZType, TimestampType

from floodmark.connectors.columns import check_columns, needed, with_checked_columns
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.ports.source import MALFORMED
from floodmark.core.protocol.records.rows import Columns
from floodmark.core.rules.rule import Rule, Stream
from floodmark.core.rules.sinks.sinkcolumns import QUARANTINE_COLUMNS
from floodmark.core.sql.times import micros_since_1970
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import Refused, WrongColumn
from floodmark.ledger.home import Home
from floodmark.spark.read import expectationchecks, rowchecks
from floodmark.spark.read.expectationchecks import ExpectationChecks
from floodmark.spark.read.narrowing import narrowed, older_types
from floodmark.spark.read.rowchecks import Checks


@dataclass(frozen=True)
class Shape:
    """The columns of each stream that the rule folds: name → Spark schema, in the order of the streams' offsets.

    By stream: `checks`: expressions that may raise for a row; `expectations`: expectations on rows; `more`: the folded
    columns and those that the expectations read; `older`: columns that are read with the types that they had before.
    malformed: streams that say which of their records could not be read.
    """

    streams: dict[str, StructType]
    checks: dict[str, Checks] = dataclasses.field(default_factory=dict)
    expectations: dict[str, ExpectationChecks] = dataclasses.field(default_factory=dict)
    more: dict[str, StructType] = dataclasses.field(default_factory=dict)
    older: dict[str, dict[str, DataType]] = dataclasses.field(default_factory=dict)
    malformed: frozenset[str] = frozenset()

    def columns(self, name: str) -> StructType:
        """The columns with which a row of a stream is read and quarantined."""
        return self.more.get(name, self.streams[name])

    def prefix(self, name: str) -> str:
        return f"s{list(self.streams).index(name)}_"


def shape_of(
    spark: SparkSession,
    rule: Rule,
    home: Home | None,
    frozen: Mapping[str, list[str]],
    recorded: Columns | None = None,
    begins: bool = False,
) -> Shape:
    """The rule's input columns in the tables' present state. `frozen`: those with which a generation with `SELECT *`
    started; `recorded`: those of an open epoch, which is finished with the types that it started with. `begins`: for a
    generation that is to begin, for which landings gain what their sources have gained."""
    found, checks, expected, more, older, malformed = {}, {}, {}, {}, {}, set[str]()
    for name, opened in sources(rule, home).items():
        source = opened.origin if begins else opened
        columns = source.columns()
        check_columns(rule, name, columns)
        wanted = frozen.get(name) or needed(rule, name, columns)
        _refuse_unknown(name, wanted, columns)
        _refuse_quarantine_columns(name, wanted)
        whole = source.typed(spark)
        malformed |= {name} if MALFORMED in whole.columns else set()
        older[name] = older_types((recorded or {}).get(name, ()), whole.schema)
        whole = narrowed(whole, older[name])
        table = whole.select(*map(quoted, wanted))
        timed = _with_event_time(table, rule.streams[name], name)
        found[name], checks[name] = timed.schema, rowchecks.checks_of(rule, name, table, timed)
        if rule.streams[name].expect:
            table = whole.select(*map(quoted, with_checked_columns(rule, name, wanted, columns)))
            timed = _with_event_time(table, rule.streams[name], name)
            expected[name] = expectationchecks.checks_for(
                timed, rule.streams[name].expect, f"rule {rule.rule}, stream {name}"
            )
            more[name] = timed.schema
    _refuse_mixed_times(rule, found)
    older = {name: types for name, types in older.items() if types}
    checks = {name: one for name, one in checks.items() if one}
    return Shape(found, checks, expected, more, older, frozenset(malformed))


def _refuse_unknown(name: str, wanted: list[str], columns: Mapping[str, str]) -> None:
    lacking = [column for column in wanted if column not in columns]
    if lacking:
        raise WrongColumn(
            f"stream {name}: expected columns {', '.join(lacking)}, found {', '.join(columns)}: restore these "
            "columns in the table, or start over with the columns that it has: `floodmark reset`"
        )


def _refuse_quarantine_columns(name: str, wanted: list[str]) -> None:
    taken = [column for column in wanted if column.lower() in QUARANTINE_COLUMNS]
    if taken:
        raise WrongColumn(
            f"stream {name}: expected to read none of the columns {', '.join(QUARANTINE_COLUMNS)}, which the late "
            f"and dead tables add themselves; found {', '.join(taken)}: name the columns that the SQL needs, or "
            "rename these in the table"
        )


def _with_event_time(frame: DataFrame, stream: Stream, name: str) -> DataFrame:
    time = stream.event_time
    if time is None:
        return frame
    if time.expr is not None:
        frame = frame.withColumn(time.name, F.expr(time.expr))
    found = next(field.dataType for field in frame.schema if field.name.lower() == time.name.lower())
    if not isinstance(found, TimestampType | TimestampNTZType):
        raise WrongColumn(f"stream {name}: expected {time.expr} to be a timestamp, found {found.simpleString()}")
    return frame


def _refuse_mixed_times(rule: Rule, schemas: Mapping[str, StructType]) -> None:
    kinds = {name: time_type(rule.streams[name], schema) for name, schema in schemas.items()}
    timed = {name: kind for name, kind in kinds.items() if kind}
    if len(set(timed.values())) > 1:
        raise Refused(f"expected streams with event times of the same type, found {timed}: cast one in its `expr`")


def time_type(stream: Stream, schema: StructType) -> str | None:
    """'timestamp' or 'timestamp_ntz'; None for a stream without event time."""
    if stream.event_time is None:
        return None
    name = stream.event_time.name.lower()
    return next(field.dataType.simpleString() for field in schema if field.name.lower() == name)


def micros(column: str, kind: str | None) -> str:
    """SQL for a time column in microseconds; a time without zone is treated as UTC."""
    if kind is None:
        return "CAST(NULL AS BIGINT)"
    if kind == "timestamp":
        return f"unix_micros({quoted(column)})"
    return micros_since_1970(quoted(column))


def instant(at: int, kind: str) -> str:
    """SQL that turns a time in microseconds into a value of the column's own type."""
    if kind == "timestamp":
        return f"timestamp_micros({at})"
    return f"timestampadd(MICROSECOND, {at}, TIMESTAMP_NTZ'1970-01-01 00:00:00')"


def quarantine_schema(shape: Shape) -> StructType:
    """Columns of the late and dead tables. Raises Refused if a name has different types in two streams.

    Names that differ only in case are one column for Delta and Spark, with the first stream's spelling.
    """
    fields: dict[str, StructField] = {}
    for name in shape.streams:
        for field in shape.columns(name):
            known = fields.setdefault(field.name.lower(), StructField(field.name, field.dataType))
            if known.dataType != field.dataType:
                raise Refused(
                    f"column {field.name} has different types in two streams: {known.dataType} and {field.dataType}"
                )
    found = StructType(list(fields.values()))
    return found.add("_epoch", "long").add("_stream", "string").add("_reason", "string").add("_source", "string")
