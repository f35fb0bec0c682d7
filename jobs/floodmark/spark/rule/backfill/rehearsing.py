"""What a backfill or a correction would do now. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import DoubleType, FloatType, StringType, StructField, StructType

from floodmark.core.rules.sinks.sinkcolumns import STAMPS
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.read.frames import Foreseen
from floodmark.spark.rule.backfill.backfilling import BackfillResult, Moves, Recomputed
from floodmark.spark.rule.backfill.correcting import NET
from floodmark.spark.rule.backfill.taking import keys_for, staying
from floodmark.spark.session.constants import AS_JSON
from floodmark.spark.session.jvm import materialised
from floodmark.spark.write.replacing import OfKeys, Part

SHOWN = 5  # rows of each kind
COMPARED = "_floodmark_compared"


@dataclass(frozen=True, kw_only=True)
class Rehearsed(BackfillResult):
    """What would be done. first_keys: of a rule that is recomputed by key, some of the keys, by the sink's address."""

    done: Recomputed
    first_keys: dict[str, list[dict[str, Any]]]


def rehearsed(done: Recomputed) -> Rehearsed:
    """How many rows of each sink would be replaced by how many, and which of them differ."""
    found, moves = {}, {}
    for name, address in done.sinks.items():
        held = done.plan.writable(address).frame(done.session)
        before, after = _replaced(done, name, address).of(held), staying(done.rows[name])
        found[address] = (after.count(), before.count())
        moves[address] = _moves(before, after)
    return Rehearsed(done.intent, found, moves, done=done, first_keys=_keys(done))


def foreseen(done: Recomputed) -> dict[str, Foreseen]:
    """Each sink that is a Delta table as it would be, by location."""
    return {
        address: _foreseen(done, name, address) for name, address in done.sinks.items() if address in done.plan.tables
    }


def _foreseen(done: Recomputed, name: str, address: str) -> Foreseen:
    held, replaced = done.plan.writable(address).frame(done.session), _replaced(done, name, address)
    after = staying(done.rows[name])
    own = {column.lower() for column in held.columns}
    came = after.select(*(quoted(column) for column in after.columns if column.lower() in own))
    left = replaced.of(held)
    return Foreseen(left, _alike(came, held), replaced.others(held).unionByName(_alike(came, held)))


def _alike(rows: DataFrame, table: DataFrame) -> DataFrame:
    """The rows with the columns of the table; one that they lack is null."""
    return table.limit(0).unionByName(rows, allowMissingColumns=True)


def shown_in(session: SparkSession, foreseen: Mapping[str, Foreseen]) -> dict[str, Foreseen]:
    """The same rows in another rule's session, as the session of the rule that would write them computes them."""
    return {
        name: Foreseen(*(materialised(rows, session) for rows in (one.left, one.came, one.rows)))
        for name, one in foreseen.items()
    }


def _keys(done: Recomputed) -> dict[str, list[dict[str, Any]]]:
    if done.intent.most_keys is None:
        return {}
    return {address: _first_keys(done, name, address) for name, address in done.sinks.items()}


def _first_keys(done: Recomputed, name: str, address: str) -> list[dict[str, Any]]:
    keys = keys_for(done.plan, address, done.rows[name])
    texts = keys.select(F.to_json(F.struct(*map(quoted, keys.columns)), AS_JSON).alias("text"))
    return [json.loads(text) for (text,) in texts.orderBy("text").take(SHOWN)]


def _replaced(done: Recomputed, name: str, address: str) -> Part:
    """Which rows of a sink are replaced."""
    return done.replaced[name] if name in done.replaced else OfKeys(keys_for(done.plan, address, done.rows[name]))


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
