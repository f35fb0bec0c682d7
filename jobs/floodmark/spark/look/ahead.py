"""Compute the results of a rule's next epoch, from new data and present state. Writes nothing, takes no lock.

All new data counts as one epoch, whatever limits the rule declares.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.delta.lookups import pinned_now
from floodmark.connectors.places import check_same_sinks
from floodmark.connectors.planning.rewrites import rewrites
from floodmark.connectors.ports.registry import check_rereads, sources
from floodmark.core.lifecycle.life import check_living
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.expectations import ExpectationResult, uncommitted_results
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts, total
from floodmark.core.protocol.recovery import Gate, at_the_gate
from floodmark.core.protocol.watermark import advance, hear, holding, merge
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused
from floodmark.ledger.forgetting import check_forget_ended
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import ledger_in
from floodmark.spark.fold.fold import Folded, Moment
from floodmark.spark.fold.state import state_rows
from floodmark.spark.look.preview import Values, values_of
from floodmark.spark.read import lookuprows
from floodmark.spark.read.batch import Batch, Limits, latest_times
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.rule.analysis import analyse
from floodmark.spark.rule.backfill.rereading import reread
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.faults import explained


@dataclass(frozen=True)
class NextEpoch:
    """`rows`: the first results, with values as in JSON; `more`: there are others. `expected`: the outcome of each
    expectation. Watermarks in microseconds."""

    epoch: int
    counts: Counts
    expected: list[ExpectationResult]
    before: int | None
    after: int | None
    columns: list[tuple[str, str]]
    rows: list[Values]
    more: bool


def look_ahead(root: SparkSession, rule: Rule, home: Path, rows: int) -> NextEpoch:
    """What a run would do now with all new data, and at most `rows` of the rows that it would write.

    Raises Refused if a run would first have to finish something, and what else keeps a run from its start.
    """
    check_rereads(rule)
    place = Home(home, rule.rule)
    ledger = ledger_in(place)
    head = ledger.head if ledger else None
    check_living(head, rule.rule)
    if head is not None:
        check_forget_ended(place, head)
        _refuse_unfinished(head, rule, place)
    if rule.rebuild:  # it reads everything again, without state
        head = None
    with explained(rule.rule):
        session, plan = analyse(root, rule, place, head, gaining=True)
        batch, moment = _read(session, plan, place, head)
        folded = _fold(session, plan, place, head, batch, moment)
        try:
            results = check_results(folded.output, plan.expectations, rule.rule, session)
            found = [] if results.rows is None else values_of(results.rows, rows + 1)
        finally:
            folded.release()
    columns = [(field.name, field.dataType.simpleString()) for field in plan.output]
    shown, told = found[:rows], uncommitted_results(rule, batch.counts, results.counts)
    return NextEpoch(
        moment.epoch, total(batch.counts), told, moment.before, moment.after, columns, shown, len(found) > rows
    )


def _refuse_unfinished(head: Head, rule: Rule, home: Home) -> None:
    if at_the_gate(head) is not Gate.PLAN:
        raise Refused(
            f"rule {rule.rule}: an epoch, a backfill or a reset is unfinished, and a run would finish that first, so "
            "what follows is not known. `floodmark run` finishes it; `floodmark status` shows what it is"
        )
    if not rule.rebuild:
        check_same_sinks(head, rule)
    if rewrites(rule, home, head):
        raise Refused(
            f"rule {rule.rule}: rows of a source were removed or changed, and a run would correct that first. "
            f"`floodmark correct {rule.rule} --dry-run` shows what it would replace"
        )


def _read(session: SparkSession, plan: Plan, home: Home, head: Head | None) -> tuple[Batch, Moment]:
    """READ of all new data, and the Moment of its epoch."""
    rule, shape, clock = plan.rule, plan.fold.shape, int(time.time() * 1000)
    found = sources(rule, home).values()
    begun = head.entry if head else Entry(clock, tuple(source.start() for source in found))
    frame = reread(session, plan, home, begun, Entry(clock, tuple(source.end() for source in found)))
    before = head.watermark if head else None
    latest = latest_times(rule, shape, clock)
    batch = Batch(frame, rule, shape, Limits(rule.late_below(before), latest))
    epoch, lost = (head.epoch + 1, head.lost) if head else (1, ())
    return batch, Moment(epoch, before, watermark_after(rule, head, batch, clock * 1000), lost, clock * 1000)


def watermark_after(rule: Rule, head: Head | None, batch: Batch, clock: int) -> int | None:
    """The watermark after an epoch that reads all new data: the watermark waits again for streams with new rows."""
    before, maxima, heard = (head.watermark, head.maxima, head.heard) if head else (None, {}, {})
    lateness = holding(rule, hear(heard, batch.speaking, clock), clock)
    return advance(before, merge(maxima, batch.maxima), lateness, in_snapshot=False)


def _fold(session: SparkSession, plan: Plan, place: Home, head: Head | None, batch: Batch, moment: Moment) -> Folded:
    fold = plan.fold
    state = {
        name: partial(state_rows, session, place.state(head.generation, name), schema, fold.time_of(name))
        if head
        else _empty
        for name, schema in fold.tables.items()
    }
    lookuprows.show(session, plan.rule, pinned_now(plan.rule), partial(fold.since, batch, state, moment))
    return fold.fold(batch, state, session, moment)


def _empty(needed_from: int | None) -> DataFrame | None:
    return None
