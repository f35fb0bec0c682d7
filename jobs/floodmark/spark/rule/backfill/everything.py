"""Recompute all results of a rule, as if one epoch had folded all rows that its epochs have read.

So is corrected what no interval of time and no key bounds, such as windows of rows and classes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.delta.lookups import pinned_now
from floodmark.connectors.preflight import check_sources
from floodmark.core.lifecycle.backfills import EVERYTHING, Interval
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.records.backfills import Backfill, Restated
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.lookedup import SameVersions
from floodmark.core.protocol.records.rows import Counts, Pinned
from floodmark.errors import InputFault
from floodmark.ledger.home import Home
from floodmark.spark.fold.fold import Folded
from floodmark.spark.read import lookuprows
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.rule.backfill import asread
from floodmark.spark.rule.backfill.backfilling import (
    Correction,
    Recomputed,
    as_intended,
    correction_of,
    folded_anew,
    head_of,
    intended,
    state_in,
)
from floodmark.spark.rule.backfill.rereading import PastRows, restated_rows
from floodmark.spark.rule.backfill.taking import taken
from floodmark.spark.rule.checks.partitionvalues import with_fit_partitions
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.constants import AS_JSON
from floodmark.spark.session.jvm import without_rows
from floodmark.spark.write.replacing import Everything


def compute(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    """All results as of the head. Raises InputFault if the rule fails on one of the rows."""
    check_sources(plan.rule, home, head)
    return computed(PastRows(session, plan, home, head), interval, pinned_now(plan.rule))


def recompute(session: SparkSession, plan: Plan, home: Home, head: Head, recorded: Backfill) -> Recomputed:
    """Compute the open backfill from its intent. Raises ReplayDiffers if it differs from the intent."""
    check_sources(plan.rule, home, head)
    correction = correction_of(recorded) if recorded.rewrites else None
    interval = replace(EVERYTHING, then=bool(recorded.then))
    past = PastRows(session, plan, home, head_of(recorded, head), corrected=correction is not None)
    found = computed(past, interval, recorded.lookups, correction)
    return as_intended(recorded, found)


def computed(
    past: PastRows, interval: Interval, lookups: dict[str, Pinned], correction: Correction | None = None
) -> Recomputed:
    """All results from the rows of the past, whatever the ledger's own head. Raises as `compute`.

    lookups: the versions of lookup tables to read, unless the interval is of what each epoch has read.
    """
    session, plan, home, head = past.session, past.plan, past.home, past.head
    span = Restated(begin=EVERYTHING.begin, end=EVERYTHING.end, high=EVERYTHING.high, upto=head.epoch, whole=True)

    def read(epochs: SameVersions | None) -> tuple[Batch, dict[str, Counts]]:
        return past.living(epochs=epochs)

    of = asread.read_input(plan, home, head, interval, lookups, read)
    lookuprows.show(session, plan.rule, lookups, partial(lookuprows.first_moments, of.batches[0]))
    folded = folded_anew(session, plan, of.batches[0], head, None)
    _refuse_rejected(plan, folded)
    output = asread.results(session, plan, of.shares) if interval.then else folded.output
    results = check_results(output, plan.expectations, plan.rule.rule, session)
    found = without_rows(session, plan.output) if results.rows is None else results.rows
    rows = found.persist(StorageLevel.MEMORY_AND_DISK)
    with_fit_partitions(rows, plan, session)
    state = state_in(folded, session, plan)
    sinks = {name_at(head, at): at for at in plan.sinks}
    each = {name: taken(plan, at, rows, head.generation, head.epoch) for name, at in sinks.items()} | state
    intent = intended(
        session,
        plan,
        head,
        span,
        correction,
        column="",
        shift=0,
        counts=of.counts,
        restated=restated_rows(past, span, of.counts),
        digests=of.digests,
        results=Digesting(plan.output).of(rows),
        taken={name: Digesting(one.schema).of(one) for name, one in each.items() if one is not rows},
        expected=results.counts,
        lookups=lookups,
        then=of.then,
    )
    held = [*past.held, rows, *state.values(), *([folded.held] if folded.held is not None else [])]
    return Recomputed(session, plan, intent, sinks, each, dict.fromkeys(each, Everything()), held, past.ranges)


def _refuse_rejected(plan: Plan, folded: Folded) -> None:
    """Raise InputFault if the rule's class rejects rows: they have been folded, and cannot die any more."""
    for name, rejected in folded.rejected.items():
        row = rejected.rows.select(F.to_json(F.struct("*"), AS_JSON)).head()  # Python may lack its values
        assert row is not None
        raise InputFault(
            f"rule {plan.rule.rule}, stream {name}: its class rejects {rejected.count} rows that were folded before, "
            f"such as {row[0]}; nothing was replaced. Mend the class, correct these rows in the source, or leave "
            "them out by an expectation with `on_fail: drop`. Values that Python lacks need `--set` in a replay"
        )
