"""The layout of a sink's table: its columns, properties and clustering. No commit here holds rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from floodmark.connectors.columns import differing
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.tablenames import about_table
from floodmark.errors import Refused, WrongColumn
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.syncing import sync_table

# What Spark notes of a column, or of the whole type around a field, that was declared CHAR(n).
_PADDED = re.compile(r'"__CHAR_VARCHAR_TYPE_STRING":"[^"]*\bchar\(')


def lay_out(spark: SparkSession, address: str, properties: Mapping[str, str], clusters: Sequence[str]) -> None:
    """Set the properties and clustering columns that a table lacks; its other properties are unchanged."""
    set_properties(spark, address, properties)
    if clusters and list(clusters) != _clustered(spark, address):
        _cluster(spark, address, ", ".join(map(quoted, clusters)))


def table_at(address: str) -> str:
    """The name of the Delta table at an address, in SQL."""
    return f"delta.{quoted(address)}"


def loosen(spark: SparkSession, address: str) -> None:
    """Remove a table's clustering, before its columns or partitions change."""
    if _clustered(spark, address):
        _cluster(spark, address, None)


def set_properties(spark: SparkSession, address: str, properties: Mapping[str, str]) -> None:
    """Set the properties that a table lacks, in a commit without rows. Raises Refused if Delta rejects one."""
    known = tables.properties_of(address) if properties else {}  # nearly every run has nothing to check
    there = {name.lower(): value for name, value in known.items()}  # Delta spells its own names its own way
    lacking = {name: value for name, value in properties.items() if there.get(name.lower()) != value}
    if lacking:
        listed = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in lacking.items())
        _alter(
            spark, address, f"SET TBLPROPERTIES ({listed})", f"properties that Delta takes, found {', '.join(lacking)}"
        )


def unset_properties(spark: SparkSession, address: str, names: Iterable[str]) -> None:
    """Remove properties of a table, in a commit without rows."""
    _alter(spark, address, f"UNSET TBLPROPERTIES IF EXISTS ({', '.join(map(_text, names))})", "properties to remove")


def check_columns(spark: SparkSession, name: str, address: str, schema: StructType, adds: bool = False) -> None:
    """Refuse a table whose columns differ from the sink's, naming the differences; `adds`: it may lack some."""
    table = tables.open_table(address)
    if table is None:
        return
    refuse_padded(address, StructType.fromJson(json.loads(table.schema().to_json())))
    has = {field.name: field.dataType.simpleString() for field in spark.read.format("delta").load(address).schema}
    gives = {field.name: field.dataType.simpleString() for field in schema}
    names = [column for column in {**has, **gives} if has.get(column) != gives.get(column)]
    wrong = [column for column in names if column in has or not adds]
    if wrong:
        raise differing(name, {one: (has.get(one), gives.get(one)) for one in wrong})


def refuse_padded(address: str, schema: StructType) -> None:
    """Raise WrongColumn for columns of type CHAR. Spark reads them with spaces at their ends, which a rule's rows do
    not have: a key would have several rows."""
    padded = [field.name for field in schema if _PADDED.search(field.json())]
    if padded:
        whole = isinstance(schema[padded[0]].dataType, StringType)
        change = f"Change the type in the table (`ALTER TABLE ... ALTER COLUMN {quoted(padded[0])} TYPE STRING`)"
        way = change if whole else "Drop the column from the table, or name another table"
        raise WrongColumn(
            about_table(
                address,
                f"expected text of type STRING or VARCHAR, found CHAR in {', '.join(padded)}: Spark reads CHAR with "
                f"spaces at the end, which the results do not have. {way}, then run again",
            )
        )


def add_columns(spark: SparkSession, address: str, schema: StructType) -> None:
    """Add the columns that the table lacks, in a commit without rows; existing rows have NULL there."""
    table = tables.open_table(address)
    assert table is not None
    known = {column.lower() for column in tables.columns_of(table)}
    lacking = [field for field in schema if field.name.lower() not in known and field.name != DELETE_COLUMN]
    if lacking:
        _alter(spark, address, f"ADD COLUMNS ({', '.join(map(_declared, lacking))})", "columns that Delta takes")


def schema_of(address: str) -> StructType:
    """The columns of a table, from its log."""
    table = tables.open_table(address)
    assert table is not None
    return StructType.fromJson(json.loads(table.schema().to_json()))


def add_fields(spark: SparkSession, address: str, fields: Iterable[tuple[str, StructField]]) -> None:
    """Add the fields that structs in a table's columns lack, in a commit without rows."""
    listed = ", ".join(f"{path}{_declared(field)}" for path, field in fields)
    if listed:
        _alter(spark, address, f"ADD COLUMNS ({listed})", "fields that Delta takes")


def _declared(field: StructField) -> str:
    return f"{quoted(field.name)} {_type(field.dataType)}"


def _type(kind: DataType) -> str:
    """The type in SQL. simpleString() does not quote names of struct fields, which a rule's SQL may choose freely."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(part.name)}: {_type(part.dataType)}' for part in kind)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return kind.simpleString()


def _clustered(spark: SparkSession, address: str) -> list[str]:
    if not tables.can_be_clustered(address):
        return []
    found = spark.sql(f"DESCRIBE DETAIL {table_at(address)}").select("clusteringColumns").head()
    return list((found and found[0]) or ())


def _cluster(spark: SparkSession, address: str, columns: str | None) -> None:
    by = "NONE" if columns is None else f"({columns})"
    _alter(spark, address, f"CLUSTER BY {by}", f"columns that Delta can cluster by (`cluster_by`), found {columns}")


def _alter(spark: SparkSession, address: str, change: str, expected: str) -> None:
    try:
        spark.sql(f"ALTER TABLE {table_at(address)} {change}")
    except AnalysisException as fault:
        said = str(fault).strip().split("\n", 1)[0]
        raise Refused(
            about_table(address, f"expected {expected}; Delta says: {said}. Change that in the rule file")
        ) from fault
    sync_table(address)


def _text(value: str) -> str:
    """A value as a literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
