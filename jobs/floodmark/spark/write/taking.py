"""The rows and columns of the results that a sink gets, as frames; `core.rules.sinks.takings` decides which."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import LongType, StringType, StructField, StructType

from floodmark.connectors.columns import is_key_type
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.rules.sinks.partitionvalues import long_name
from floodmark.core.rules.sinks.takings import GONE, Taking, taking_of
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import WrongColumn
from floodmark.spark.session.constants import aside
from floodmark.spark.write.upsertchecks import check_condition


def schema_of(taking: Taking, output: StructType) -> StructType:
    """The columns of the sink's table. `output`: those of the result."""
    stamps = [StructField(name, LongType()) for name in taking.stamps]
    return StructType([*(output[name] for name in taking.columns), *stamps])


def taken(results: DataFrame, taking: Taking, generation: int, epoch: int) -> DataFrame:
    """The results that go to the sink; with a key, `GONE` marks those that delete rows."""
    if taking.is_all_of(results.columns):
        return results
    rows = results if taking.where is None else results.where(F.expr(f"coalesce(({taking.where}\n), false)"))
    return rows.select(*_columns(rows, taking, generation, epoch))


def _columns(rows: DataFrame, taking: Taking, generation: int, epoch: int) -> Iterator[Column]:
    laid = {name for name in taking.partitions if name in taking.columns}
    for name in taking.columns:
        column = F.col(quoted(name))
        empty = name in laid and isinstance(rows.schema[name].dataType, StringType)
        yield (F.nullif(column, F.lit("")) if empty else column).alias(name)  # Delta has no partition for empty text
    for name, number in zip(taking.stamps, (generation, epoch), strict=False):
        yield F.expr(aside(f"{number}L", quoted(taking.columns[0]))).alias(name)
    if taking.gone is not None:
        yield F.expr(taking.gone).alias(GONE)


def check_takings(session: SparkSession, rule: Rule, output: StructType) -> None:
    """Raise WrongColumn or SqlRefused if a sink cannot store the results as the rule says. `output`: the result."""
    for sink in rule.sinks:
        taking = taking_of(sink, output.names)
        if sink.where is not None:
            check_condition(session, sink, "where", sink.where, output)
        _check_layout(sink, taking, schema_of(taking, output))


def _check_layout(sink: Sink, taking: Taking, columns: StructType) -> None:
    for name in taking.partitions:
        kind = columns[name].dataType
        if not is_key_type(kind.simpleString()) or kind.typeName() == "binary":
            raise WrongColumn(
                f"sink {sink.address}: partition_by: expected columns of whole numbers, decimals, text, dates, "
                f"times or booleans, found {name} of type {kind.simpleString()}: leave it out, or cast it"
            )
        if (why := long_name(name, kind.simpleString())) is not None:
            raise WrongColumn(f"sink {sink.address}: partition_by: expected {why}: name it otherwise in the SQL")
    if taking.partitions and len(taking.partitions) == len(columns):
        raise WrongColumn(
            f"sink {sink.address}: partition_by: expected a column beside those of partition_by, for it is not in "
            "the files; found none"
        )
