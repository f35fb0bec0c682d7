"""Join result rows with the table's rows by key: the frames of an upsert.

A key's columns are `k0`, `k1`, … and its row is the struct `row`, so that no name of the result can conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.rules.sinks.upserts import Upsert
from floodmark.core.sql.words.lexis import quoted

INSERT, UPDATE, DELETE = "insert", "update", "delete"
FILE = {"file": "file_name"}  # the file that holds a row of the table
PLACE = FILE | {"path": "file_path", "at": "row_index"}  # and the row's index in it, if Delta provides that
CHANGE = "_change_type"  # Delta writes rows with a value here to the change feed, not to the table


def keys_of(upsert: Upsert, table: str = "") -> list[Column]:
    """`k0`, `k1`, … of a frame, or of the one with the alias `table`."""
    return [F.col(f"{table}.k{i}" if table else f"k{i}") for i in range(len(upsert.key))]


def packed(frame: DataFrame, upsert: Upsert, columns: Sequence[str]) -> list[Column]:
    """The key's columns, and `row` with these columns sorted by name: a result's columns may change their order."""
    keys = [F.col(quoted(column)).alias(f"k{i}") for i, column in enumerate(upsert.key)]
    return [*keys, F.struct(*(F.col(quoted(column)) for column in sorted(columns))).alias("row")]


def one_for_each_key(frame: DataFrame, upsert: Upsert) -> DataFrame:
    """Key, `row`, `times`: how often the key occurs, and `gone`: it deletes the key's row.

    The remaining row is the largest by `newest`, then by all columns; without `newest`, one row is expected.
    """
    gone = F.expr(f"coalesce({upsert.delete}\n, false)" if upsert.delete else "false").alias("gone")
    rows = frame.select(*packed(frame, upsert, upsert.columns or frame.columns), gone)
    staying = F.max(_order("row", upsert))["row"] if upsert.newest else F.first("row")
    times = F.count(F.lit(1)).alias("times")
    return rows.groupBy(*keys_of(upsert)).agg(times, F.first("gone").alias("gone"), staying.alias("row"))


def _order(row: str, upsert: Upsert) -> Column:
    """The value by which rows of one key are compared: nulls are smallest, so a row without `newest` is the oldest.

    `row` comes last, so that the maximum contains it, with its stamps; these say nothing about a row's age.
    """
    newest = F.col(f"{row}.{quoted(str(upsert.newest))}").alias("newest")
    plain = [F.col(row).dropFields(*upsert.stamps).alias("plain")] if upsert.stamps else []
    return F.struct(newest, *plain, F.col(row).alias("row"))


def matching_rows(table: DataFrame, wanted: DataFrame, upsert: Upsert, place: Mapping[str, str]) -> DataFrame:
    """The table's rows with a wanted key: key, `row`, its place, and `rows`: how many have this key.

    `row` has all columns only if `newest` compares them.
    """
    columns = table.columns if upsert.newest else list(upsert.key)
    places = [of_file(table, told).alias(name) for name, told in place.items()]
    found = _joined(table.select(*packed(table, upsert, columns), *places), wanted, upsert, "left_semi")
    firsts = [F.first(column).alias(column) for column in ("row", *place)]
    return found.groupBy(*keys_of(upsert)).agg(F.count(F.lit(1)).alias("rows"), *firsts)


def of_file(table: DataFrame, field: str) -> Column:
    """A field of Spark's metadata for the row's file. The table may have a column named `_metadata`, too."""
    return table.metadataColumn("_metadata").getField(field)


def changes(rows: DataFrame, found: DataFrame, upsert: Upsert, place: Mapping[str, str]) -> DataFrame:
    """The rows that change the table: `effect`, key, `row`, and the table row's place and `rows`."""
    both = _joined(rows, found, upsert, "left")
    others = [f"other.{name}" for name in (*place, "rows")]
    effects = both.select(_effect(upsert).alias("effect"), *keys_of(upsert, "one"), "one.row", *others)
    # The shuffle keeps the rows for later actions.
    return effects.where("effect IS NOT NULL").repartition(*keys_of(upsert))


def _effect(upsert: Upsert) -> Column:
    absent, gone, newer = F.col("other.file").isNull(), F.col("one.gone"), F.lit(True)
    if upsert.newest:
        newer = _newer(upsert)
    return F.when(absent & ~gone, INSERT).when(~absent & gone, DELETE).when(~absent & newer, UPDATE)


def _newer(upsert: Upsert) -> Column:
    one, other = _order("one.row", upsert), _order("other.row", upsert)
    return one.dropFields("row") > other.dropFields("row") if upsert.stamps else one > other


def without(table: DataFrame, keys: DataFrame, upsert: Upsert) -> DataFrame:
    """The table's rows with none of the keys."""
    rows = table.select(*packed(table, upsert, table.columns))
    return _joined(rows, keys, upsert, "left_anti").select("row.*")


def feed(changes: DataFrame, table: DataFrame, effects: DataFrame, upsert: Upsert) -> DataFrame:
    """The rows of the table's change feed: each row added and each removed. `effects`: effect and key."""
    rows = table.select(*packed(table, upsert, table.columns))
    goes = _joined(rows, effects.where(F.col("effect") != INSERT), upsert, "inner").select(
        "row.*", _change_type("preimage")
    )
    return goes.unionByName(changes.where(F.col("effect") != DELETE).select("row.*", _change_type("postimage")))


def _change_type(image: str) -> Column:
    return F.when(F.col("effect") == UPDATE, f"update_{image}").otherwise(F.col("effect")).alias(CHANGE)


def _joined(one: DataFrame, other: DataFrame, upsert: Upsert, how: str) -> DataFrame:
    same = " AND ".join(f"one.k{i} <=> other.k{i}" for i in range(len(upsert.key)))
    return one.alias("one").join(other.alias("other"), F.expr(same), how)
