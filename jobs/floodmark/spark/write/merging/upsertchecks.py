"""Check that the result has what an upsert needs: columns, types that can be compared, a condition."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, StringType, StructType

from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.rules.sinks.sinkcolumns import sink_columns_of
from floodmark.core.rules.sinks.upserts import upsert_of
from floodmark.errors import SqlRefused, WrongColumn
from floodmark.spark.session.jvm import without_rows

UNORDERED = ("map", "variant", "geometry", "geography")
INEXACT = ("float", "double")


def check_upserts(session: SparkSession, rule: Rule, output: StructType) -> None:
    """Raise WrongColumn or SqlRefused if a sink cannot be merged into as the rule says. `output`: the result."""
    for sink in rule.sinks:
        upsert = upsert_of(sink, output.names)
        if upsert is not None:
            _check_types(sink, "key", [*upsert.key], output, (*UNORDERED, *INEXACT))
        if upsert is not None and upsert.newest is not None:
            _check_types(sink, "newest", list(sink_columns_of(sink, output.names).columns), output, UNORDERED)
        if sink.delete is not None:
            check_condition(session, sink, "delete", sink.delete, output)


def _check_types(sink: Sink, field: str, columns: list[str], output: StructType, refused: tuple[str, ...]) -> None:
    for column in columns:
        for kind in _leaves(output[column].dataType):
            if kind.typeName() in refused or (isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()):
                raise WrongColumn(
                    f"sink {sink.label}: {field}: {_REASONS[field]}; found column {column} of type "
                    f"{output[column].dataType.simpleString()}: leave it out of {_PLACES[field]}, or cast it"
                )


_REASONS = {
    "key": "expected columns with well-defined equality (no floating point, map, variant or collated text)",
    "newest": "expected columns that can be ordered, because rows with equal values are ordered by all of them",
}
_PLACES = {"key": "the key", "newest": "the result"}


def _leaves(kind: DataType) -> Iterator[DataType]:
    """The types that a type consists of; a map counts as one type."""
    if isinstance(kind, StructType):
        for field in kind:
            yield from _leaves(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    else:
        yield kind


def check_condition(session: SparkSession, sink: Sink, field: str, condition: str, output: StructType) -> None:
    """Raise SqlRefused unless `condition` is a condition over the result's columns."""
    try:
        [found] = without_rows(session, output).selectExpr(f"({condition}\n)").schema
    except AnalysisException as fault:
        line = str(fault).split("\n", 1)[0]
        raise SqlRefused(f"sink {sink.label}: {field}: {line}; it may name the result's columns") from fault
    if found.dataType.typeName() != "boolean":
        raise SqlRefused(
            f"sink {sink.label}: {field}: expected a condition (boolean), found {found.dataType.simpleString()}"
        )
