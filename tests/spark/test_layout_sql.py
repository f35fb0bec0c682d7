"""What stands in the statements that lay a table out: no address and no name of a column is SQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

from floodmark.connectors.ports.sink import Layout
from floodmark.errors import InputFault, WrongColumn
from floodmark.ledger.delta import tables
from floodmark.spark.write import layouts
from floodmark.spark.write.rewriting import LiveFile, rows_of
from floodmark.spark.write.tablesink import TableSink


class Heard:
    """A session that only keeps what it is told; no JVM is needed to read a statement."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def sql(self, text: str) -> None:
        self.said.append(text)


def test_backquotes_of_an_address_end_nothing(tmp_path: Path) -> None:
    address, heard = str(tmp_path / "a` SET TBLPROPERTIES ('x' = 'y') --"), Heard()
    write_deltalake(address, pa.table({"k": ["a"]}))
    layouts.set_properties(cast(SparkSession, heard), address, {"delta.enableDeletionVectors": "true"})
    quoted = address.replace("`", "``")
    assert heard.said == [f"ALTER TABLE delta.`{quoted}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"]


def test_names_inside_of_a_type_are_quoted(tmp_path: Path) -> None:
    odd = StructType([StructField("a: int> COMMENT 'x", IntegerType()), StructField("b`c", LongType())])
    kind = MapType(StringType(), ArrayType(odd))
    heard, address = Heard(), str(tmp_path / "out")
    write_deltalake(address, pa.table({"k": ["a"]}))
    layouts.add_columns(cast(SparkSession, heard), address, StructType([StructField("m", kind)]))
    inside = "map<string, array<struct<`a: int> COMMENT 'x`: int, `b``c`: bigint>>>"
    assert heard.said == [f"ALTER TABLE delta.`{address}` ADD COLUMNS (`m` {inside})"]


@pytest.mark.parametrize(
    ("declared", "refused"),
    [("char(5)", True), ("struct<c:varchar(3),d:char(4)>", True), ("varchar(9)", False), ("struct<char:int>", False)],
)
def test_a_column_that_spark_pads_is_refused(tmp_path: Path, declared: str, refused: bool) -> None:
    address, said = str(tmp_path / "out"), {"__CHAR_VARCHAR_TYPE_STRING": declared}
    inner = StructType([StructField("k", StringType(), True, said)])
    nested = StructType([StructField("s", ArrayType(inner))])
    for schema, way in ((inner, "ALTER COLUMN `k` TYPE STRING"), (nested, "Drop the column")):
        tables.create(f"{address}/{schema.names[0]}", schema.json(), {})
        made = layouts.schema_of(f"{address}/{schema.names[0]}")
        if not refused:
            layouts.refuse_padded(address, made)
            continue
        with pytest.raises(WrongColumn, match=f"found CHAR in {schema.names[0]}: .*{way}"):
            layouts.check_columns(cast(SparkSession, None), "out", f"{address}/{schema.names[0]}", inner)


class Outrun(Heard):
    """A session before whose first statement another writer adds a row. It sets properties, and removes none."""

    def sql(self, text: str) -> None:
        super().sql(text)
        if len(self.said) == 1:
            address = text.split("`")[1]
            write_deltalake(address, pa.table({"n": [1]}), mode="append")
            given = dict(re.findall(r"'([^']+)' = '([^']+)'", text))
            DeltaTable(address).alter.set_table_properties(given, raise_if_not_exists=False)


@pytest.mark.parametrize("outrun", [True, False])
def test_a_table_that_gets_rows_while_it_is_taken_over_is_given_back(tmp_path: Path, outrun: bool) -> None:
    address, heard = str(tmp_path / "out"), Outrun() if outrun else Heard()
    columns = StructType([StructField("n", LongType())])
    tables.create(address, columns.json(), {})
    TableSink(address).make(cast(SparkSession, heard), Layout(columns), "me")
    taken = f"ALTER TABLE delta.`{address}` SET TBLPROPERTIES ('floodmark.owner' = 'me', 'floodmark.adopted' = 'empty')"
    back = f"ALTER TABLE delta.`{address}` UNSET TBLPROPERTIES IF EXISTS ('floodmark.owner', 'floodmark.adopted')"
    assert heard.said == ([taken, back] if outrun else [taken])


def test_a_file_without_statistics_is_named_with_the_way_on() -> None:
    file = LiveFile({"path": "k=1/part-0.parquet", "stats": '{"tightBounds": true}'})
    with pytest.raises(InputFault, match=r"expected statistics of file part-0\.parquet .* `floodmark reset`"):
        rows_of(file)
