"""The rows of files, with what is malformed in them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.avro.schemas import Node, columns_in, record_in, schema_of
from floodmark.connectors.avro.widening import widened
from floodmark.connectors.planning.avromisfits import fitted, may_misfit, misfit_in
from floodmark.connectors.planning.jsonrows import CORRUPT, found, is_malformed, read_list, read_object
from floodmark.connectors.ports.source import MALFORMED, SHOWN
from floodmark.core.text.addresses import is_object
from floodmark.core.text.ddl import Column as Declared
from floodmark.core.text.ddl import Type, text_of

RAW = "_floodmark_raw"  # the text of a record that is malformed
BOM = "\ufeff"  # what some begin a file of UTF-8 with
_TEXT, _READ, _END = "_floodmark_text", "_floodmark_read", "_floodmark_end"
_UNUSED = "\x01"  # what no text has
ALONE = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True)
class Records:
    """What files hold. `options`: for Spark's reader. `columns`: in the files; `folders`: in names of folders.

    plain: whether each line of JSON is an object alone, or of CSV without quotes. head: the schema of Avro in the head
    of each. untyped: columns, in lower case, that have no type in Parquet, and no value.
    """

    format: str
    options: Mapping[str, str]
    columns: tuple[Declared, ...]
    folders: tuple[Declared, ...]
    plain: bool = False
    head: str = ""
    untyped: frozenset[str] = frozenset()

    @property
    def is_text(self) -> bool:
        """Whether any of them can be malformed, as texts."""
        return self.format in ("json", "csv", "text")

    @property
    def record(self) -> Node | None:
        """The columns as Avro has them, if the decoder may cut some of their values off."""
        found = record_in(json.dumps(schema_of(self.columns))) if self.format == "avro" else None
        return found if found is not None and may_misfit(found) else None

    @property
    def has_malformed(self) -> bool:
        return self.is_text or self.record is not None or bool(self.folders)


def rows_of(
    spark: SparkSession,
    records: Records,
    root: str,
    paths: Sequence[str],
    plain: Collection[str] = (),
    heads: Mapping[str, str] = {},
    untyped: Mapping[str, frozenset[str]] = {},
) -> DataFrame:
    """The records of files, with their columns, those of folders, and MALFORMED where records can be malformed.

    root: the address of their folder. paths: below it. plain: see `Records.plain`.
    heads: the schemas in the heads of files of Avro, if there is a `Records.record`. untyped: see `Records.untyped`.
    """
    if not paths:
        return _none(spark, records)
    names = frozenset(one.name.lower() for one in records.columns)
    parts: dict[tuple[bool, str, frozenset[str]], list[str]] = {}
    for one in paths:
        parts.setdefault((one in plain, heads.get(one, ""), names.intersection(untyped.get(one, ()))), []).append(one)
    found = [
        _rows(spark, replace(records, plain=kind[0], head=kind[1], untyped=kind[2]), root, part)
        for kind, part in parts.items()
    ]
    return reduce(DataFrame.unionAll, found)


def _rows(spark: SparkSession, records: Records, root: str, paths: Sequence[str]) -> DataFrame:
    read = [
        F.lit(None).cast(str(one.type)).alias(one.name)
        if one.name.lower() in records.untyped
        else F.col(_quoted(one.name))
        for one in records.columns
    ]
    path, record = _path(root), records.record
    folders = {one: _folder(path, one) for one in records.folders}
    cast = [folder.try_cast(str(one.type)).alias(one.name) for one, folder in folders.items()]
    problems = [_misfit(path, one, folder) for one, folder in folders.items()]
    if records.is_text:
        problems.append(_malformed(path, read))
    if record is not None:
        misfit = misfit_in({one.name: F.col(_quoted(one.name)) for one in records.columns}, record)
        problems.append(F.substring(F.concat(F.lit("file "), path, F.lit(": "), misfit), 1, SHOWN))
        read = [fitted(value, part.node).alias(part.name) for value, part in zip(read, record.parts, strict=True)]
    hidden = [F.coalesce(*problems).alias(MALFORMED)] if problems else []
    return _loaded(spark, records, root, paths).select(*read, *cast, *hidden)


def _none(spark: SparkSession, records: Records) -> DataFrame:
    nulls = [F.lit(None).cast(str(one.type)).alias(one.name) for one in (*records.columns, *records.folders)]
    hidden = [F.lit(None).cast("string").alias(MALFORMED)] if records.has_malformed else []
    return spark.range(0).select(*nulls, *hidden)


def _loaded(spark: SparkSession, records: Records, root: str, paths: Sequence[str]) -> DataFrame:
    """The records, with RAW if they can be malformed, and Spark's `_metadata` of their files."""
    if records.format == "json" and not records.plain:
        return _of_json(spark, records, root, paths)
    if records.format == "csv" and not records.plain and "multiLine" not in records.options:
        return _of_csv(spark, records, root, paths)
    if records.format == "text":
        lines, is_text = _opened(spark, "text", {}, "value STRING", root, paths), F.is_valid_utf8("value")
        value, raw = F.when(is_text, F.col("value")).alias("value"), F.when(~is_text, F.col("value")).alias(RAW)
        return lines.select("_metadata", value, raw)
    wide, options = _widened(records)
    schema = [f"{_quoted(one.name)} {wide.get(one.name.lower(), one.type)}" for one in records.columns]
    if records.is_text:
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}
        schema.append(f"{RAW} STRING")
    return _opened(spark, records.format, options, ", ".join(schema), root, paths)


def _widened(records: Records) -> tuple[dict[str, Type], dict[str, str]]:
    """The types that columns of Avro files are read as, by name, and the options for them."""
    if not records.head or records.record is None:
        return {}, dict(records.options)
    text = json.dumps(widened(json.loads(records.head)))
    narrow = {part.name.lower() for part in records.record.parts if may_misfit(part.node)}
    types = {one.name.lower(): one.type for one in columns_in(text, narrow)}
    return types, {**records.options, "avroSchema": text}


def _of_json(spark: SparkSession, records: Records, root: str, paths: Sequence[str]) -> DataFrame:
    """Each line is an object; with `multiLine`, each file is one, or a list of them. Blank lines are left out."""
    options = dict(records.options)
    whole = options.pop("multiLine", "false")
    texts = _opened(spark, "text", {"wholetext": whole}, "value STRING", root, paths)
    marked = F.startswith("value", F.lit(BOM))
    unmarked = F.when(marked, F.substring("value", 2, 2**31 - 1)).otherwise(F.col("value"))
    texts, text = texts.select("_metadata", "value", unmarked.alias(_TEXT)), F.col(_TEXT)
    read = read_list if whole == "true" else read_object
    parsed = texts.where(F.btrim(text, F.lit(" \t\r\n")) != "").withColumn(_READ, read(text, records.columns, options))
    bad = is_malformed(F.col(_READ), F.col("value"))
    if whole == "true":
        bad = bad | F.exists(found(F.col(_READ)), lambda one: one.isNull())
        parsed = parsed.withColumn(RAW, F.when(bad, text))
        rows = F.when(F.col(RAW).isNull(), found(F.col(_READ))).otherwise(F.array(F.lit(None)))
        return parsed.select("_metadata", RAW, F.inline(rows))
    values = [found(F.col(_READ))[one.name].alias(one.name) for one in records.columns]
    return parsed.select("_metadata", *values, F.when(bad, text).alias(RAW))


def _of_csv(spark: SparkSession, records: Records, root: str, paths: Sequence[str]) -> DataFrame:
    """Each line is a record. One more value is put behind it, which a quote that is not closed swallows."""
    options = dict(records.options)
    by_line = {one: text for one, text in options.items() if one in ("header", "comment")}
    by_line |= {"delimiter": _UNUSED, "quote": "", "escape": "", "columnNameOfCorruptRecord": RAW}
    lines = _opened(spark, "csv", by_line, f"{_TEXT} STRING, {RAW} STRING", root, paths)
    line = F.coalesce(RAW, _TEXT)  # RAW: one with an _UNUSED
    schema = f"{text_of(records.columns)}, {_END} STRING, {CORRUPT} STRING"
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    whole = F.concat(line, F.lit(options.get("delimiter", ",")), F.lit(_END))
    parsed = lines.select("_metadata", line.alias(_TEXT), F.from_csv(whole, schema, options).alias(_READ))
    bad = F.col(f"{_READ}.{CORRUPT}").isNotNull() | ~F.col(f"{_READ}.{_END}").eqNullSafe(F.lit(_END))
    values = [F.col(f"{_READ}.{_quoted(one.name)}") for one in records.columns]
    return parsed.select("_metadata", *values, F.when(bad, F.col(_TEXT)).alias(RAW))


def _opened(
    spark: SparkSession, kind: str, options: Mapping[str, str], schema: str, root: str, paths: Sequence[str]
) -> DataFrame:
    reader = spark.read.format(kind).options(**options).option("recursiveFileLookup", "true").schema(schema)
    with _listed_here(spark, root):
        return reader.load([_literal(f"{root}/{path}") for path in paths])


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
    """The text of a column that folders have (`day=2026-01-01`), as Hive escapes it; null where a file has none.

    Names are compared as SQL compares columns, in either case.
    """
    found = F.regexp_extract(path, rf"(?:^|/)(?i:\Q{column.name}\E)=([^/]*)/", 1)
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
    text = F.concat(F.lit("file "), path, F.lit(": "), F.make_valid_utf8(F.col(RAW)))
    return F.when(F.col(RAW).isNotNull(), F.concat(F.substring(text, 1, SHOWN), F.substring(every, 1, 0)))
