"""A backfill: compute a past interval from what epochs have read, and replace its results in the sinks.

1. COMPUTE  without the rule's lock: run the current SQL over what the sources hold up to the end of an epoch. Late rows
            are included, dead ones are not. The results are persisted.
2. FILES    with the lock, if the computation is still valid: files for the sinks, which no table names yet.
3. INTENT   a ledger row with everything but the rows.
4. WRITE    one commit in each Delta sink removes the rows of the interval and adds the results. VERIFY as in an epoch.
5. COMMIT   ledger row. Offsets, watermark and state are unchanged.

An open backfill is finished before anything else: it is computed again from its intent, and compared.

A correction is a backfill of what rewrites of a source touched (`correcting`). It also replaces what is not yet final
in the state.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.delta.lookups import pinned_now
from floodmark.connectors.preflight import check_kept, check_sources
from floodmark.core.lifecycle.backfills import Interval, windows_of
from floodmark.core.lifecycle.corrections import still_there
from floodmark.core.protocol import engine
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.places import TableName, name_at
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Replaced, Restated, Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.lookedup import SameVersions
from floodmark.core.protocol.records.rows import Counts, LogSums, Pinned, Written
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.rules.sinks.upserts import Effect
from floodmark.core.sql.timecolumn import TimeColumn
from floodmark.errors import ReplayDiffers
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.fold.fold import Folded, Moment
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.rule.backfill import asread
from floodmark.spark.rule.backfill.asread import Input
from floodmark.spark.rule.backfill.rereading import PastRows, at_hand, restated_rows, spelt
from floodmark.spark.rule.backfill.taking import taken
from floodmark.spark.rule.checks.partitionvalues import with_fit_partitions
from floodmark.spark.rule.generation import Plan, ids_of, sites_of, statuses
from floodmark.spark.session.jvm import materialised, without_rows
from floodmark.spark.session.parallel import side_by_side
from floodmark.spark.session.session import engine_of
from floodmark.spark.write import sites
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.replacing import Part, Span
from floodmark.spark.write.sites import Attempt, Prepared, Site, Work


@dataclass(frozen=True)
class Recomputed:
    """What a backfill writes to the sinks.

    sinks: the address of each, by the ledger's name. rows: by that name, what each of them and each state table gets.
    replaced: likewise, the rows of the table that these replace; a sink without any is merged into by its key. held:
    frames that are persisted until `release`. ranges: of the sources, which a retry reads again.
    """

    session: SparkSession
    plan: Plan
    intent: Backfill
    sinks: Mapping[str, str]
    rows: Mapping[str, DataFrame]
    replaced: Mapping[str, Part]
    held: Sequence[DataFrame]
    ranges: Sequence[tuple[Entry, Entry]]

    def release(self) -> None:
        for rows in self.held:
            rows.unpersist()


@dataclass(frozen=True)
class Correction:
    """What a correction has besides a backfill; fields as in `Backfill`."""

    rewrites: dict[str, Rewritten]
    state: dict[str, Replaced]
    maxima: dict[str, int | None]
    log_sums: LogSums = field(default_factory=dict)


def compute(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    """The results of an interval as of the head. Raises InputFault if the SQL fails on one of its rows."""
    check_sources(plan.rule, home, head)
    return computed(PastRows(session, plan, home, head), interval, pinned_now(plan.rule))


def computed(
    past: PastRows, interval: Interval, lookups: dict[str, Pinned], correction: Correction | None = None
) -> Recomputed:
    """The results of an interval from the rows of the past, whatever the ledger's own head.

    lookups: the versions of lookup tables to read, unless the interval is of what each epoch has read.
    """
    session, plan, home, head = past.session, past.plan, past.home, past.head
    low = None if interval.low == interval.begin else interval.low
    span = Restated(
        begin=interval.begin, end=interval.end, low=low, high=interval.high, upto=head.epoch, gaps=interval.gaps
    )

    def read(epochs: SameVersions | None) -> tuple[Batch, dict[str, Counts]]:
        found = at_hand(past.in_span(span, epochs))
        past.held.append(found)
        return past.living_in(found, span, epochs)

    of = asread.read_input(plan, home, head, interval, lookups, read)
    results = check_results(_results(session, plan, of, interval), plan.expectations, plan.rule.rule, session)
    assert results.rows is not None
    rows = results.rows.persist(StorageLevel.MEMORY_AND_DISK)
    with_fit_partitions(rows, plan, session)
    state = _state(session, plan, of.batches[0], head, correction.state) if correction is not None else {}
    sinks = {name_at(head, at): at for at in plan.sinks}
    found = {name: taken(plan, at, rows, head.generation, head.epoch) for name, at in sinks.items()} | state
    intent = intended(
        session,
        plan,
        head,
        span,
        correction,
        column=_named(plan, interval.time_column),
        shift=interval.time_column.shift,
        counts=of.counts,
        restated=restated_rows(past, span, of.counts),
        digests=of.digests,
        results=Digesting(plan.output).of(rows),
        taken={name: Digesting(one.schema).of(one) for name, one in found.items() if one is not rows},
        expected=results.counts,
        lookups=lookups,
        then=of.then,
    )
    replaced = _spans(plan, intent, sinks)
    return Recomputed(session, plan, intent, sinks, found, replaced, [*past.held, rows, *state.values()], past.ranges)


def intended(
    session: SparkSession, plan: Plan, head: Head, span: Restated, correction: Correction | None, **computed: Any
) -> Backfill:
    """The intent of a backfill of the head. `computed`: the fields that depend on its rows and results."""
    return Backfill(
        **span.model_dump(),
        number=len(head.backfills) + 1,
        entry=head.entry.text(),
        watermark=head.watermark,
        rule=plan.rule.to_json(),
        rule_hash=plan.rule.hash,
        engine=engine_of(session),
        **({} if correction is None else vars(correction)),
        **computed,
    )


def recompute(session: SparkSession, plan: Plan, home: Home, head: Head) -> Recomputed:
    """Compute the open backfill of an interval from its intent. Raises ReplayDiffers if it differs from the intent."""
    recorded = head.backfill
    assert recorded is not None
    column = TimeColumn(recorded.column, recorded.shift)
    bounds = (recorded.begin, recorded.end, recorded.first, recorded.high)
    windows, then = windows_of(plan.rule), bool(recorded.then)
    interval = Interval(*bounds, column, windows, final=True, gaps=recorded.gaps, then=then)
    check_sources(plan.rule, home, head)  # epochs may have come between, and have read more than the backfill
    correction = correction_of(recorded) if recorded.rewrites else None
    past = PastRows(session, plan, home, head_of(recorded, head), corrected=correction is not None)
    found = computed(past, interval, recorded.lookups, correction)
    return as_intended(recorded, found)


def head_of(recorded: Backfill, head: Head) -> Head:
    """The head as of which an open backfill reads. Up to format 9 no intent said its watermark."""
    watermark = head.watermark if recorded.watermark is None else recorded.watermark
    return replace(head, epoch=recorded.upto, entry=Entry.parse(recorded.entry), watermark=watermark)


def as_intended(recorded: Backfill, found: Recomputed) -> Recomputed:
    """An open backfill that was computed again. Raises ReplayDiffers if it differs from its intent."""
    with engine.named(recorded.engine, found.intent.engine):
        _same(found.plan.rule.rule, recorded, found.intent)
    return replace(found, intent=recorded)


def correction_of(recorded: Backfill) -> Correction:
    """What the intent of a correction fixes."""
    return Correction(recorded.rewrites, recorded.state, recorded.maxima, recorded.log_sums)


@dataclass(frozen=True)
class BackfillResult:
    """A finished backfill, or a rehearsal. `sinks`: by address, the number of new rows and of those that they replace.

    moves: of a rehearsal, by address, what the sink would lose and gain.
    """

    intent: Backfill
    sinks: dict[str, tuple[int, int]]
    moves: dict[str, Moves] = field(default_factory=dict)


@dataclass(frozen=True)
class Moves:
    """How many rows a sink would lose and gain; of each some, as JSON by column. A row in both is in neither."""

    loses: int
    gains: int
    lost: list[dict[str, Any]]
    gained: list[dict[str, Any]]


def replace_interval(done: Recomputed, home: Home, ledger: Ledger) -> BackfillResult:
    """FILES, INTENT, WRITE, VERIFY and COMMIT; the caller holds the rule's lock."""
    begun, rule = time.monotonic(), done.plan.rule.rule
    head = ledger.begun
    intent = done.intent.model_copy(update={"number": len(head.backfills) + 1})  # others may have finished since
    reopened = head.backfill is not None
    if reopened:
        head = _announce(ledger, rule, intent)
    else:  # upkeep may have removed since what a retry would have to read again
        check_sources(done.plan.rule, home, head)
        for one in done.ranges:
            check_kept(done.plan.rule, home, *one)
    attempt = Attempt(head.epoch, max(1, head.attempt), intent.digest, intent.number)
    aimed = _aimed(done, home, ledger.id, head)
    prepared = side_by_side(partial(sites.prepare, Work(site, done.rows[site.name]), attempt) for site in aimed)
    if not reopened:
        head = _announce(ledger, rule, intent)
    written = {one.site.name: _replaced(done.plan, one, attempt, intent) for one in prepared}
    effects = {site.name: _effect(site, written[site.name]) for site in aimed}
    removed = {name: effect.deleted for name, effect in effects.items()}
    reach(rule, "backfill.commit.before", head.epoch)
    seconds = {"write": round(time.monotonic() - begun, 3)}
    new = ids_of(statuses(site for site in aimed if site.role == "state" and site.name not in head.table_ids))
    ended = {"tables": written, "removed": removed, "table_ids": new, "seconds": seconds}
    ledger.end_backfill(Backfilled(number=intent.number, intent=intent.digest, **ended))
    reach(rule, "backfill.commit.after", head.epoch)
    sinks = {site.address: effects[site.name] for site in aimed if site.role != "state"}
    return BackfillResult(
        intent, {at: (one.inserted + one.updated, one.updated + one.deleted) for at, one in sinks.items()}
    )


def _results(session: SparkSession, plan: Plan, of: Input, interval: Interval) -> DataFrame:
    """The rule's results of the interval from this input."""
    rows = sum(counts.folded for counts in of.counts.values())
    column, shift = _named(plan, interval.time_column), interval.time_column.shift
    within = _span_of(plan, column, shift, interval)
    found = asread.results(session, plan, of.shares)
    if plan.rule.query.sessions:  # Spark would apply the condition to single rows, before they are merged
        found = materialised(found, session)
    return found.where(within.holds).coalesce(files_for(rows))


def _state(
    session: SparkSession, plan: Plan, batch: Batch, head: Head, replaced: Mapping[str, Replaced]
) -> dict[str, DataFrame]:
    """The rows that state has of these, as if one epoch had folded all of them; by the ledger's name."""
    if not replaced:
        return {}
    folded = folded_anew(session, plan, batch, head, head.watermark)
    if plan.rule.query.lone_sessions is not None:  # of a session, its rows alone show whether state needs them
        spans = {TableName.parse(name).rest: _replaced_in(plan, name, one) for name, one in replaced.items()}
        changes = {name: spans[name].of(rows) for name, rows in folded.changes.items()}
        folded = replace(folded, changes=changes)
    return state_in(folded, session, plan)


def folded_anew(session: SparkSession, plan: Plan, batch: Batch, head: Head, since: int | None) -> Folded:
    """What one epoch, as the first one, would make of these rows: its results are those that are final after `since`.

    since: a watermark in microseconds; None: before all.
    """
    at = Moment(head.newest_effect, since, head.watermark, head.lost, head.entry.clock_ms * 1000)
    return plan.fold.fold(batch, dict.fromkeys(plan.fold.tables, _no_rows), session, at)


def _no_rows(_: int | None) -> None:
    """A state table without any row."""


def state_in(folded: Folded, session: SparkSession, plan: Plan) -> dict[str, DataFrame]:
    """The rows of each state table, by the ledger's name."""
    found = {name: folded.changes.get(name, without_rows(session, kind)) for name, kind in plan.fold.tables.items()}
    return {f"state/{name}": rows.persist(StorageLevel.MEMORY_AND_DISK) for name, rows in found.items()}


def _named(plan: Plan, time_column: TimeColumn) -> str:
    """The column that determines a result's interval, as the sinks spell it."""
    return spelt(time_column.column, plan.output.names)


def _spans(plan: Plan, intent: Backfill, sinks: Iterable[str]) -> dict[str, Part]:
    """The rows of the interval in each sink, and those that a correction replaces in each state table."""
    found: dict[str, Part] = {}
    for name in sinks:
        found[name] = _span_of(plan, intent.column, intent.shift, intent)
    return found | {name: _replaced_in(plan, name, one) for name, one in intent.state.items()}


def _replaced_in(plan: Plan, name: str, replaced: Replaced) -> Span:
    """The rows that a correction replaces in a state table."""
    kind = plan.fold.tables[TableName.parse(name).rest][replaced.column].dataType.simpleString()
    return Span(replaced.column, kind, replaced.begin, replaced.end)


def _span_of(plan: Plan, column: str, shift: int, of: Interval | Backfill) -> Span:
    """The rows whose `column`, less `shift`, lies in an interval, and in none of its gaps."""
    gaps = tuple((begin + shift, end + shift) for begin, end in of.gaps)
    return Span(column, plan.output[column].dataType.simpleString(), of.begin + shift, of.end + shift, gaps)


def _aimed(done: Recomputed, home: Home, ledger: str, head: Head) -> list[Site]:
    """The tables, each with the rows to replace; existing commits are compared at qos 1, too.

    A sink that no epoch has written to yet has nothing to correct.
    """
    found = sites_of(done.plan, home, ledger, head.generation, head.token, head)
    state = (site for site in found.state.values() if site.name in done.rows)
    sinks = (site for site in found.sinks.values() if not done.intent.rewrites or site.name in head.table_ids)
    return [replace(_aim(done, site), writes_again=False) for site in (*state, *sinks)]


def _aim(done: Recomputed, site: Site) -> Site:
    """The site with what it replaces. A merge by key takes each row, as new as the sink's own or not."""
    if site.name in done.replaced:
        return replace(site, span=done.replaced[site.name])
    assert site.upsert is not None
    return replace(site, upsert=replace(site.upsert, newest=None, delete=DELETE_COLUMN))


def _announce(ledger: Ledger, rule: str, intent: Backfill) -> Head:
    reach(rule, "backfill.intent.before", ledger.begun.epoch)
    head = ledger.start_backfill(intent)
    reach(rule, "backfill.intent.after", head.epoch)
    return head


def _replaced(plan: Plan, prepared: Prepared, attempt: Attempt, intent: Backfill) -> Written:
    rule, what = plan.rule.rule, "state" if prepared.site.role == "state" else "sink"
    reach(rule, f"backfill.{what}.before", attempt.epoch)
    written = sites.finish(prepared, attempt)
    assert written is not None and written.results is not None
    _check_same_results(plan, intent, prepared.site, written.results)
    reach(rule, f"backfill.{what}.after", attempt.epoch)
    return written


def _effect(site: Site, written: Written) -> Effect:
    found = site.writer.committed_at(written.commit, written.version)
    effect = None if found is None else Effect.from_metadata(found.metadata)
    assert effect is not None
    return effect


def _same(rule: str, recorded: Backfill, found: Backfill) -> None:
    """Raise ReplayDiffers if a backfill, computed again, differs from its intent."""
    if found.restated == still_there(recorded.restated, recorded.counts):  # late rows that have left counted once
        found = found.model_copy(update={"restated": recorded.restated})
    names = ("counts", "restated", "digests", "expected", "keys", "then")
    _refuse(rule, recorded, [name for name in names if getattr(recorded, name) != getattr(found, name)])
    _refuse(rule, recorded, list(recorded.results.differences(found.results)))
    for name, digest in recorded.taken.items():
        _refuse(rule, recorded, [f"{name}: {what}" for what in digest.differences(found.of(name))])


def _check_same_results(plan: Plan, recorded: Backfill, site: Site, now: Digest) -> None:
    """The same of what one sink got. A sink that is no Delta table has digests of its own: their rows are compared."""
    before = recorded.of(site.name)
    differing = list(before.differences(now))
    if site.role != "state" and site.address not in plan.tables:
        differing = [] if before.rows == now.rows else [f"rows: {before.rows}, now {now.rows}"]
    _refuse(plan.rule.rule, recorded, differing)


def _refuse(rule: str, recorded: Backfill, differing: Sequence[str]) -> None:
    if differing:
        raise ReplayDiffers(
            f"rule {rule}, backfill {recorded.number}: computed again, it does not match its intent "
            f"({'; '.join(differing)}). Likely: a source was rewritten or lost files. Restore the source and run "
            f"again, or start over with `floodmark reset {rule}`"
        )
