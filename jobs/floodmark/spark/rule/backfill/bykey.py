"""Recompute by key: the results of some keys, from all rows that these keys have.

Running totals, the first rows of a key, and single rows in a sink with a key are corrected so. No interval of time
bounds their results, but each depends on the rows of one key alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.connectors.preflight import check_sources
from floodmark.core.lifecycle.backfills import Interval
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.records.backfills import Backfill, Restated
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.home import Home
from floodmark.spark.fold.fold import FEW, Moment
from floodmark.spark.read.batch import NO_LIMIT, Batch, Limits
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.rule.backfill.backfilling import Correction, Recomputed, intended
from floodmark.spark.rule.backfill.rereading import PastRows
from floodmark.spark.rule.backfill.taking import keys_for, merged
from floodmark.spark.rule.checks.partitionvalues import with_fit_partitions
from floodmark.spark.rule.generation import Plan
from floodmark.spark.write.replacing import OfKeys


def compute(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    """The results of all keys that have rows in the interval, as of the head. Raises as `computed`."""
    check_sources(plan.rule, home, head)
    return of_interval(PastRows(session, plan, home, head), interval.begin, interval.end)


def of_interval(past: PastRows, begin: int, end: int, recorded: Backfill | None = None) -> Recomputed:
    """The same, whatever the ledger's own head. `recorded`: the intent, if it is computed again."""
    span = Restated(begin=begin, end=end, high=end, upto=past.head.epoch)
    rows = past.in_span(span)
    if recorded is None:
        past.living_in(rows, span)  # a row on which the SQL fails touches no key, so nothing else would stop at it
    return _computed(past, rows, span, None, recorded)


def computed(
    past: PastRows, changed: DataFrame, correction: Correction, recorded: Backfill | None = None
) -> Recomputed:
    """What the keys of rows that left and came (`changed`) have, by the rows of the past.

    recorded: the intent, if it is computed again. Raises InputFault if the SQL fails on one of their rows, or several
    results have one key.
    """
    span = Restated(begin=0, end=0, high=0, upto=past.head.epoch)  # time does not bound it
    return _computed(past, changed, span, correction, recorded)


def _computed(
    past: PastRows, changed: DataFrame, span: Restated, correction: Correction | None, recorded: Backfill | None
) -> Recomputed:
    session, plan, head = past.session, past.plan, past.head
    at = _moment(head)
    touched = _kept(touched_by(session, plan, changed, head))
    sinks = {name_at(head, address): address for address in plan.sinks}
    keys = {name: _kept(keys_for(plan, address, touched)) for name, address in sinks.items()}
    kept = _kept(touched.selectExpr(*state_keys(plan)).distinct()) if plan.fold.tables else touched
    own = _own_rows(plan, kept if plan.fold.tables else None, list(keys.values()), recorded)
    batch, counts = past.living(own.of)
    folded = plan.fold.of_keys(batch, kept, session, at)
    results = check_results(folded.output, plan.expectations, plan.rule.rule, session)
    assert results.rows is not None
    with_fit_partitions(results.rows, plan, session)
    rows = {name: _kept(rows) for name, rows in folded.changes.items()}
    state = {f"state/{name}": one for name, one in rows.items()}
    found = {
        name: _kept(merged(plan, address, OfKeys(keys[name]).of(results.rows), keys[name], head.generation, head.epoch))
        for name, address in sinks.items()
    }
    intent = intended(
        session,
        plan,
        head,
        span,
        correction,
        column="",
        shift=0,
        counts=counts,
        restated=dict.fromkeys(plan.rule.streams, 0),
        digests=batch.digests,
        results=Digesting(plan.output).of(results.rows.limit(0)),
        taken={name: _digesting(one).of(one) for name, one in (found | state).items()},
        expected=results.counts,
        keys={name: one.count() for name, one in keys.items()} | {name: kept.count() for name in state},
        of_keys=own.keys is not None,
    )
    replaced = {name: OfKeys(kept) for name in state}
    held = [*past.held, touched, kept, *keys.values(), *own.held, *rows.values(), *found.values()]
    return Recomputed(session, plan, intent, sinks, found | state, replaced, held, past.ranges)


@dataclass(frozen=True)
class OwnRows:
    """The rows that touched keys have. keys: None for all rows; else by the columns of the rule's frame. `held`: as in
    `Recomputed`."""

    keys: DataFrame | None
    held: list[DataFrame] = field(default_factory=list)

    def of(self, rows: DataFrame) -> DataFrame:
        if self.keys is None:
            return rows
        self.held.append(_kept(OfKeys(F.broadcast(self.keys)).of(rows)))
        return self.held[-1]


def _own_rows(plan: Plan, kept: DataFrame | None, sinks: Sequence[DataFrame], recorded: Backfill | None) -> OwnRows:
    """Only the rows of touched keys, if these are few and the SQL passes them on unchanged; else all rows.

    kept: the keys of the state, if there is any. sinks: those of each sink. recorded: the intent, if there is one.
    """
    if recorded is not None and not recorded.of_keys:
        return OwnRows(None)
    shown = plan.fold.state_keys if kept is not None else {name: name for name in sinks[0].columns}
    alike = all(set(one.columns) == set(shown) for one in sinks)
    columns = _carried(plan, shown.values()) if kept is not None or alike else None
    if not columns:
        return OwnRows(None)
    keys = (sinks[0] if kept is None else kept).select(
        *(F.col(quoted(key)).alias(column) for key, column in zip(shown, columns, strict=True))
    )
    few = recorded is not None or keys.count() <= FEW
    return OwnRows(keys if few else None)


def _carried(plan: Plan, shown: Iterable[str]) -> list[str] | None:
    """The columns of the rule's frame with these columns of the result; None if not each is a column of one stream."""
    if len(plan.fold.shape.streams) > 1:
        return None
    ((name, schema),) = plan.fold.shape.streams.items()
    carried, there = plan.rule.query.carried, {one.lower(): one for one in schema.names}
    found = [there.get(carried.of(column) or "") for column in shown]
    return [plan.fold.shape.prefix(name) + one for one in found if one] if all(found) else None


def touched_by(session: SparkSession, plan: Plan, rows: DataFrame, head: Head) -> DataFrame:
    """The results that these rows of the rule's frame touch, as of the head; a result may repeat."""
    return plan.fold.touched(_unlimited(plan, rows), session, _moment(head))


def _moment(head: Head) -> Moment:
    return Moment(head.newest_effect, head.watermark, head.watermark, head.lost, head.entry.clock_ms * 1000)


def _unlimited(plan: Plan, rows: DataFrame) -> Batch:
    """Rows of the rule's frame, of which none is late, ahead of the clock, or left out by an expectation.

    Epochs may have folded what today's expectations leave out. Rows on which the SQL fails gave no result.
    """
    rule = plan.rule.model_copy(update={"on_error": "dead"})
    shape = dataclasses.replace(plan.fold.shape, expectations={})
    return Batch(rows, rule, shape, Limits(None, dict.fromkeys(plan.rule.streams, NO_LIMIT)))


def state_keys(plan: Plan) -> Iterator[str]:
    """SQL for the key's columns, as the state names them."""
    return (f"{quoted(shown)} AS {quoted(key)}" for key, shown in plan.fold.state_keys.items())


def _digesting(rows: DataFrame) -> Digesting:
    """The digest that a merge of these rows has: without what says whether a row removes its key."""
    return Digesting(StructType([field for field in rows.schema if field.name != DELETE_COLUMN]))


def _kept(rows: DataFrame) -> DataFrame:
    return rows.persist(StorageLevel.MEMORY_AND_DISK)
