"""The rows of files, with what is malformed in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.ports.source import MALFORMED, SHOWN
from floodmark.core.text.addresses import is_object
from floodmark.core.text.ddl import Column as Declared

RAW = "_floodmark_raw"  # the text of a record that is malformed
ALONE = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True)
class Records:
    """What files hold. `options`: for Spark's reader. `columns`: in the files; `folders`: in names of folders."""

    format: str
    options: Mapping[str, str]
    columns: Sequence[Declared]
    folders: Sequence[Declared]

    @property
    def is_text(self) -> bool:
        """Whether they are parsed, so that any of them can be malformed."""
        return self.format in ("json", "csv")


def rows_of(spark: SparkSession, records: Records, root: str, paths: Sequence[str]) -> DataFrame:
    """The records of files, with their columns, those of folders, and MALFORMED where records can be malformed.

    root: the address of their folder. paths: below it.
    """
    if not paths:
        return _none(spark, records)
    read = [F.col(_quoted(one.name)) for one in records.columns]
    path = _path(root)
    folders = {one: _folder(path, one) for one in records.folders}
    cast = [folder.try_cast(str(one.type)).alias(one.name) for one, folder in folders.items()]
    problems = [_misfit(path, one, folder) for one, folder in folders.items()]
    if records.is_text:
        problems.append(_malformed(path, read))
    hidden = [F.coalesce(*problems).alias(MALFORMED)] if problems else []
    return _loaded(spark, records, root, paths).select(*read, *cast, *hidden)


def _none(spark: SparkSession, records: Records) -> DataFrame:
    nulls = [F.lit(None).cast(str(one.type)).alias(one.name) for one in (*records.columns, *records.folders)]
    hidden = [F.lit(None).cast("string").alias(MALFORMED)] if records.is_text or records.folders else []
    return spark.range(0).select(*nulls, *hidden)


def _loaded(spark: SparkSession, records: Records, root: str, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.format(records.format).options(**records.options).option("recursiveFileLookup", "true")
    schema = [f"{_quoted(one.name)} {one.type}" for one in records.columns]
    if records.is_text:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", RAW)
        schema.append(f"{RAW} STRING")
    with _listed_here(spark, root):
        return reader.schema(", ".join(schema)).load([_literal(f"{root}/{path}") for path in paths])


@contextmanager
def _listed_here(spark: SparkSession, root: str) -> Iterator[None]:
    """Have the driver look up local files. A Spark job for it, as from 32 files on, takes seconds for 1,000 files.

    Of objects, the executors ask for many at once.
    """
    if is_object(root):
        yield
        return
    before = str(spark.conf.get(ALONE))
    spark.conf.set(ALONE, str(2**31 - 1))
    try:
        yield
    finally:
        spark.conf.set(ALONE, before)


def _literal(path: str) -> str:
    """The path as Hadoop reads it, without the patterns that it would find in it."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _quoted(name: str) -> str:
    return f"`{name}`"


def _path(root: str) -> Column:
    """The file of a record, below the folder."""
    whole = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return F.substring(whole, F.locate(f"{root}/", whole) + F.lit(len(root) + 1), F.lit(2**31 - 1))


def _folder(path: Column, column: Declared) -> Column:
    """The text of a column that folders have (`day=2026-01-01`), as Hive escapes it; null where a file has none."""
    found = F.regexp_extract(path, f"(?:^|/){column.name}=([^/]*)/", 1)
    value = F.coalesce(F.try_url_decode(F.replace(found, F.lit("+"), F.lit("%2B"))), found)
    return F.when(~found.isin("", "__HIVE_DEFAULT_PARTITION__"), value)


def _misfit(path: Column, column: Declared, folder: Column) -> Column:
    kind = str(column.type)
    text = F.concat(F.lit("file "), path, F.lit(f": expected {kind.upper()} for {column.name}, found "), folder)
    return F.when(folder.isNotNull() & folder.try_cast(kind).isNull(), F.substring(text, 1, SHOWN))


def _malformed(path: Column, columns: Sequence[Column]) -> Column:
    """The text of a malformed record, with its file.

    Spark parses only the columns that a query names, and finds only their faults. All are named here, so that a record
    is malformed for every query or for none.
    """
    every = F.concat(*(column.isNull().cast("string") for column in columns))
    text = F.concat(F.lit("file "), path, F.lit(": "), F.col(RAW))
    return F.when(F.col(RAW).isNotNull(), F.concat(F.substring(text, 1, SHOWN), F.substring(every, 1, 0)))
