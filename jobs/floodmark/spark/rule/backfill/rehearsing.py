"""What a backfill or a correction would do now. Writes nothing."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import DoubleType, FloatType, StringType, StructField, StructType

from floodmark.core.rules.sinks.sinkcolumns import STAMPS
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.rule.backfill.backfilling import BackfillResult, Moves, Recomputed
from floodmark.spark.rule.backfill.correcting import NET
from floodmark.spark.rule.backfill.taking import same_keys, staying
from floodmark.spark.session.constants import AS_JSON

SHOWN = 5  # rows of each kind
COMPARED = "_floodmark_compared"


def rehearsed(done: Recomputed) -> BackfillResult:
    """How many rows of each sink would be replaced by how many, and which of them differ."""
    found, moves = {}, {}
    for name, address in done.sinks.items():
        rows, held = done.rows[name], done.plan.writable(address).frame(done.session)
        before = done.replaced[name].of(held) if name in done.replaced else same_keys(done.plan, address, rows, held)
        after = staying(rows)
        found[address] = (after.count(), before.count())
        moves[address] = _moves(before, after)
    return BackfillResult(done.intent, found, moves)


def _moves(before: DataFrame, after: DataFrame) -> Moves:
    own = StructType([field for field in before.schema if field.name in after.columns and field.name not in STAMPS])
    sides = [
        rows.select(*(quoted(field.name) for field in own)).withColumn(NET, F.lit(sign))
        for rows, sign in ((before, -1), (after, 1))
    ]
    alike = StructType([StructField(f"{COMPARED}{i}", _compared(one).dataType) for i, one in enumerate(own)])
    rows = sides[0].unionAll(sides[1]).select("*", *(_value(one).alias(f"{COMPARED}{i}") for i, one in enumerate(own)))
    hashed = Digesting(alike, exact=True).hashed(rows)
    row = F.first(F.struct(*(F.col(quoted(field.name)) for field in own))).alias("row")
    each = hashed.groupBy(HASH).agg(F.sum(NET).alias(NET), row).where(f"{NET} <> 0").cache()
    counts = each.selectExpr(f"sum(greatest(-{NET}, 0))", f"sum(greatest({NET}, 0))").head()
    assert counts is not None
    found = Moves(counts[0] or 0, counts[1] or 0, _first(each, "<"), _first(each, ">"))
    each.unpersist()
    return found


def _compared(field: StructField) -> StructField:
    floats = isinstance(field.dataType, (FloatType, DoubleType))
    return StructField(field.name, StringType() if floats else field.dataType)


def _value(field: StructField) -> Column:
    """A column as it is compared: sums of floating point differ in their last digits by the order of addition."""
    column = F.col(quoted(field.name))
    return F.format_string("%.9e", column) if isinstance(field.dataType, (FloatType, DoubleType)) else column


def _first(each: DataFrame, side: str) -> list[dict[str, Any]]:
    texts = each.where(f"{NET} {side} 0").select(F.to_json("row", AS_JSON).alias("text"))
    return [json.loads(text) for (text,) in texts.orderBy("text").take(SHOWN)]
