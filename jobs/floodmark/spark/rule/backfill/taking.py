"""What a sink takes of recomputed results: one row for each key, if it has one."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN, upsert_into
from floodmark.core.rules.sinks.upserts import Upsert
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.rule.generation import Plan
from floodmark.spark.write.merging import keyed
from floodmark.spark.write.merging.upserting import refuse_several, several
from floodmark.spark.write.replacing import OfKeys
from floodmark.spark.write.sinkframes import rows_for_sink


def taken(plan: Plan, address: str, results: DataFrame, generation: int, epoch: int) -> DataFrame:
    """The rows that a sink holds of these results, which are all that its keys have. The epoch is their stamp.

    Raises InputFault if several have one key, and nothing says which of them is to remain.
    """
    rows, upsert = _rows(plan, address, results, generation, epoch), upsert_of_sink(plan, address)
    if upsert is None:
        return rows
    each = _one_for_each_key(plan, address, rows, upsert)
    return each.where("NOT gone").select("row.*").select(*map(quoted, upsert.columns or rows.columns))


def merged(plan: Plan, address: str, results: DataFrame, keys: DataFrame, generation: int, epoch: int) -> DataFrame:
    """What is merged into a sink: for each of the keys its row, or a row that removes it (DELETE_COLUMN).

    results: all that the keys have. keys: as `keys_for` returns them. Raises as `taken`.
    """
    upsert = upsert_of_sink(plan, address)
    assert upsert is not None
    rows = _rows(plan, address, results, generation, epoch)
    each = _one_for_each_key(plan, address, rows, upsert).select("row.*", F.col("gone").alias(DELETE_COLUMN))
    gone = OfKeys(each.select(*map(quoted, upsert.key))).others(keys).withColumn(DELETE_COLUMN, F.lit(True))
    return each.unionByName(gone, allowMissingColumns=True)


def keys_for(plan: Plan, address: str, results: DataFrame) -> DataFrame:
    """The keys that these results have in a sink, each once."""
    upsert = upsert_of_sink(plan, address)
    assert upsert is not None
    return results.select(*map(quoted, upsert.key)).distinct()


def staying(rows: DataFrame) -> DataFrame:
    """The rows that do not remove their key's row."""
    return rows.where(f"NOT {DELETE_COLUMN}") if DELETE_COLUMN in rows.columns else rows


def upsert_of_sink(plan: Plan, address: str) -> Upsert | None:
    """How results are merged into a sink; None for one that is appended to."""
    sink = plan.sinks[address]
    return upsert_into(sink, plan.sink_columns(sink), plan.output.names)


def _rows(plan: Plan, address: str, results: DataFrame, generation: int, epoch: int) -> DataFrame:
    return rows_for_sink(results, plan.sink_columns(plan.sinks[address]), generation, epoch)


def _one_for_each_key(plan: Plan, address: str, rows: DataFrame, upsert: Upsert) -> DataFrame:
    each = keyed.one_for_each_key(rows, upsert)
    found = each.agg(*several(upsert)).head()
    assert found is not None
    refuse_several(f"sink {plan.sinks[address].label}", upsert, found.asDict())
    return each
