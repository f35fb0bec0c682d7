"""The rows and columns of the results that a sink gets, as frames; `core.rules.sinks.sinkcolumns` decides which."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import LongType, StringType, StructField, StructType

from floodmark.connectors.columns import is_key_type
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.rules.sinks.partitionvalues import long_name
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN, SinkColumns, sink_columns_of
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import WrongColumn
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.write.merging.upsertchecks import check_condition


def schema_of(sink_columns: SinkColumns, output: StructType) -> StructType:
    """The columns of the sink's table. `output`: those of the result."""
    stamps = [StructField(name, LongType()) for name in sink_columns.stamps]
    return StructType([*(output[name] for name in sink_columns.columns), *stamps])


def rows_for_sink(results: DataFrame, sink_columns: SinkColumns, generation: int, epoch: int) -> DataFrame:
    """The results that go to the sink; with a key, `DELETE_COLUMN` marks those that delete rows."""
    if sink_columns.is_all_of(results.columns):
        return results
    rows = (
        results if sink_columns.where is None else results.where(F.expr(f"coalesce(({sink_columns.where}\n), false)"))
    )
    return rows.select(*_columns(rows, sink_columns, generation, epoch))


def _columns(rows: DataFrame, sink_columns: SinkColumns, generation: int, epoch: int) -> Iterator[Column]:
    for name in sink_columns.columns:
        column = F.col(quoted(name))
        empty = name in sink_columns.nulled and isinstance(rows.schema[name].dataType, StringType)
        yield (F.nullif(column, F.lit("")) if empty else column).alias(name)  # Delta has no partition for empty text
    for name, number in zip(sink_columns.stamps, (generation, epoch), strict=False):
        yield F.expr(uncompiled_constant(f"{number}L", quoted(sink_columns.columns[0]))).alias(name)
    if sink_columns.delete is not None:
        yield F.expr(sink_columns.delete).alias(DELETE_COLUMN)


def check_sink_columns(session: SparkSession, rule: Rule, output: StructType) -> None:
    """Raise WrongColumn or SqlRefused if a sink cannot store the results as the rule says. `output`: the result."""
    for sink in rule.sinks:
        sink_columns = sink_columns_of(sink, output.names)
        if sink.where is not None:
            check_condition(session, sink, "where", sink.where, output)
        _check_layout(sink, sink_columns, schema_of(sink_columns, output))


def _check_layout(sink: Sink, sink_columns: SinkColumns, columns: StructType) -> None:
    for name in sink_columns.partitions:
        kind = columns[name].dataType
        if not is_key_type(kind.simpleString()) or kind.typeName() == "binary":
            raise WrongColumn(
                f"sink {sink.label}: partition_by: expected columns of whole numbers, decimals, text, dates, "
                f"times or booleans, found {name} of type {kind.simpleString()}: leave it out, or cast it"
            )
        if (why := long_name(name, kind.simpleString())) is not None:
            raise WrongColumn(f"sink {sink.label}: partition_by: expected {why}: rename it in the SQL")
    if sink_columns.partitions and len(sink_columns.partitions) == len(columns):
        raise WrongColumn(
            f"sink {sink.label}: partition_by: expected a column that is not in partition_by, because partition "
            "columns are not in the files; found none"
        )
