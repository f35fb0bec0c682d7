"""A backfill: compute a past interval from what epochs have read, and replace its results in the sinks.

1. COMPUTE  without the rule's lock: run the current SQL over what the sources hold up to the end of an epoch. Late rows
            are included, dead ones are not. The results are persisted.
2. FILES    with the lock, if the computation is still valid: files for the sinks, which no table names yet.
3. INTENT   a ledger row with everything but the rows.
4. WRITE    one commit in each Delta sink removes the rows of the interval and adds the results. VERIFY as in an epoch.
5. COMMIT   ledger row. Offsets, watermark and state are unchanged.

An open backfill is finished before anything else: it is computed again from its intent, and compared.

A correction is a backfill of what a rewrite of a source touches (`correcting`). It reads the sources as they are behind
the rewrite, and replaces what is not yet final in the state.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.preflight import check_sources
from floodmark.core.lifecycle.backfills import Interval, window_of
from floodmark.core.protocol import engine
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Replaced, Restated, Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import LogSums, Written
from floodmark.core.sql.timecolumn import TimeColumn
from floodmark.errors import ReplayDiffers
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.fold.fold import Moment, StateReader
from floodmark.spark.read.batch import Batch
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.rule.backfill.rereading import read_interval, restated_rows, spelt
from floodmark.spark.rule.checks.partitionvalues import with_fit_partitions
from floodmark.spark.rule.generation import Plan, sites_of
from floodmark.spark.session.jvm import without_rows
from floodmark.spark.session.session import engine_of
from floodmark.spark.write import sites
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.replacing import Span
from floodmark.spark.write.sinkframes import rows_for_sink
from floodmark.spark.write.sites import Attempt, Prepared, Site, Work
from floodmark.spark.write.tablesink import writable


@dataclass(frozen=True)
class Recomputed:
    """What a backfill writes to the sinks. `rows` are persisted until `release`; `names`: the ledger's, by address.

    state: the rows that a correction writes to state tables, by the ledger's name, persisted likewise.
    """

    session: SparkSession
    plan: Plan
    intent: Backfill
    rows: DataFrame
    names: Mapping[str, str]
    state: Mapping[str, DataFrame]

    def release(self) -> None:
        for rows in (self.rows, *self.state.values()):
            rows.unpersist()


@dataclass(frozen=True)
class Correction:
    """What a correction has besides a backfill; fields as in `Backfill`."""

    rewrites: dict[str, Rewritten]
    state: dict[str, Replaced]
    maxima: dict[str, int | None]
    log_sums: LogSums


def compute(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    """The results of an interval as of the head. Raises InputFault if the SQL fails on one of its rows."""
    check_sources(plan.rule, head)
    return computed(session, plan, home, head, interval)


def computed(
    session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval, correction: Correction | None = None
) -> Recomputed:
    """The results of an interval from the sources at the head's offsets, whatever the ledger's own head."""
    low = None if interval.low == interval.begin else interval.low
    span = Restated(begin=interval.begin, end=interval.end, low=low, high=interval.high, upto=head.epoch)
    batch, counts = read_interval(session, plan, home, head, span, correction is not None or head.corrections > 0)
    results = check_results(
        _results(session, plan, batch, interval, head.watermark), plan.expectations, plan.rule.rule, session
    )
    assert results.rows is not None
    rows = results.rows.persist(StorageLevel.MEMORY_AND_DISK)
    with_fit_partitions(rows, plan, session)
    state = {} if correction is None else _state(session, plan, batch, head)
    shaped = {address: _rows_for(plan, address, rows, head.generation, head.epoch) for address in plan.sinks}
    intent = Backfill(
        **span.model_dump(),
        number=len(head.backfills) + 1,
        entry=head.entry.text(),
        column=_named(plan, interval.time_column),
        shift=interval.time_column.shift,
        counts=counts,
        restated=restated_rows(session, plan, home, head, span),
        digests=batch.digests,
        results=Digesting(plan.output).of(rows),
        taken={name_at(head, at): Digesting(one.schema).of(one) for at, one in shaped.items() if one is not rows}
        | {name: Digesting(one.schema).of(one) for name, one in state.items()},
        expected=results.counts,
        rule=plan.rule.to_json(),
        rule_hash=plan.rule.hash,
        engine=engine_of(session),
        **({} if correction is None else vars(correction)),
    )
    return Recomputed(session, plan, intent, rows, {at: name_at(head, at) for at in plan.sinks}, state)


def recompute(session: SparkSession, plan: Plan, home: Home, head: Head) -> Recomputed:
    """Compute the open backfill from its intent. Raises ReplayDiffers if it differs from the intent."""
    recorded = head.backfill
    assert recorded is not None
    column = TimeColumn(recorded.column, recorded.shift)
    bounds = (recorded.begin, recorded.end, recorded.first, recorded.high)
    interval = Interval(*bounds, column, window_of(plan.rule), final=True)
    check_sources(plan.rule, head)  # epochs may have come between, so what was read goes further than the backfill
    then = replace(head, epoch=recorded.upto, entry=Entry.parse(recorded.entry))
    found = computed(session, plan, home, then, interval, _correction(recorded))
    with engine.named(recorded.engine, found.intent.engine):
        _same(plan.rule.rule, recorded, found.intent)
    return replace(found, intent=recorded)


def _correction(recorded: Backfill) -> Correction | None:
    """What the intent of a correction fixes; None for a backfill."""
    if not recorded.rewrites:
        return None
    return Correction(recorded.rewrites, recorded.state, recorded.maxima, recorded.log_sums)


@dataclass(frozen=True)
class BackfillResult:
    """A finished backfill. `sinks`: by address, the number of new rows and of the rows that they replace."""

    intent: Backfill
    sinks: dict[str, tuple[int, int]]


def replace_interval(done: Recomputed, home: Home, ledger: Ledger) -> BackfillResult:
    """FILES, INTENT, WRITE, VERIFY and COMMIT; the caller holds the rule's lock."""
    begun, rule = time.monotonic(), done.plan.rule.rule
    head = ledger.begun
    intent = done.intent.model_copy(update={"number": len(head.backfills) + 1})  # others may have finished since
    reopened = head.backfill is not None
    if reopened:
        head = _announce(ledger, rule, intent)
    attempt = Attempt(head.epoch, max(1, head.attempt), intent.digest, intent.number)
    aimed = _aimed(done, home, ledger.id, head)
    rows_by_site = {site.name: _rows_of(done, site, head.generation) for site in aimed}
    prepared = [sites.prepare(Work(site, rows_by_site[site.name]), attempt) for site in aimed]
    if not reopened:
        head = _announce(ledger, rule, intent)
    written = {one.site.name: _replaced(done.plan, one, attempt, intent) for one in prepared}
    removed = {site.name: _removed(site, written[site.name]) for site in aimed}
    reach(rule, "backfill.commit.before", head.epoch)
    seconds = {"write": round(time.monotonic() - begun, 3)}
    ends = Backfilled(number=intent.number, intent=intent.digest, tables=written, removed=removed, seconds=seconds)
    ledger.end_backfill(ends)
    reach(rule, "backfill.commit.after", head.epoch)
    sinks = (site for site in aimed if site.name not in done.state)
    return BackfillResult(intent, {site.address: (written[site.name].rows, removed[site.name]) for site in sinks})


def rehearsed(done: Recomputed) -> BackfillResult:
    """What the backfill would do now. Writes nothing."""
    span, intent = _span(done), done.intent
    held = {address: writable(sink).frame(done.session) for address, sink in done.plan.sinks.items()}
    return BackfillResult(
        intent,
        {at: (intent.of(done.names[at]).rows, rows.where(span.holds).count()) for at, rows in held.items()},
    )


def _rows_for(plan: Plan, address: str, rows: DataFrame, generation: int, epoch: int) -> DataFrame:
    """What of the results a sink takes; as its epoch stands that as of which the sources were read."""
    return rows_for_sink(rows, plan.sink_columns(plan.sinks[address]), generation, epoch)


def _rows_of(done: Recomputed, site: Site, generation: int) -> DataFrame:
    """What a site gets."""
    if site.name in done.state:
        return done.state[site.name]
    return _rows_for(done.plan, site.address, done.rows, generation, done.intent.upto)


def _results(session: SparkSession, plan: Plan, batch: Batch, interval: Interval, watermark: int | None) -> DataFrame:
    """The rule's own SQL over these rows, in batch: its results of the interval that epochs up to `watermark` wrote."""
    plan.fold.show(batch)
    query, sql = plan.rule.query, plan.rule.query.sql
    if query.windows:
        final_at = interval.low - 1 if watermark is None else watermark  # without a watermark nothing is final
        sql = query.bounded(None, final_at, lambda at, _: plan.fold.instant(at))
    rows = sum(counts.folded for counts in batch.counts.values())
    column, shift = _named(plan, interval.time_column), interval.time_column.shift
    within = _span_of(plan, column, shift, interval.begin, interval.end)
    return session.sql(sql).where(within.holds).coalesce(files_for(rows))


def _state(session: SparkSession, plan: Plan, batch: Batch, head: Head) -> dict[str, DataFrame]:
    """The rows that state has of these, as if one epoch had folded all of them; by the ledger's name."""
    at = Moment(head.epoch, head.watermark, head.watermark, head.lost, head.entry.clock_ms * 1000)
    nothing: dict[str, StateReader] = dict.fromkeys(plan.fold.tables, lambda _: None)
    changes = plan.fold.fold(batch, nothing, session, at).changes
    found = {name: changes.get(name, without_rows(session, table)) for name, table in plan.fold.tables.items()}
    return {f"state/{name}": rows.persist(StorageLevel.MEMORY_AND_DISK) for name, rows in found.items()}


def _named(plan: Plan, time_column: TimeColumn) -> str:
    """The column that determines a result's interval, as the sinks spell it."""
    return spelt(time_column.column, plan.output.names)


def _span(done: Recomputed) -> Span:
    """The rows of the interval, in a sink."""
    intent = done.intent
    return _span_of(done.plan, intent.column, intent.shift, intent.begin, intent.end)


def _span_of(plan: Plan, column: str, shift: int, begin: int, end: int) -> Span:
    """The rows whose `column`, less `shift`, lies in [begin, end)."""
    return Span(column, plan.output[column].dataType.simpleString(), begin + shift, end + shift)


def _aimed(done: Recomputed, home: Home, ledger: str, head: Head) -> list[Site]:
    """The tables, each with the span of rows to replace; existing commits are compared at qos 1, too.

    A sink that no epoch has written to yet has nothing to correct.
    """
    found = sites_of(done.plan, home, ledger, head.generation, head.token, head)
    state = ((name, site) for name, site in found.state.items() if site.name in done.state)
    sinks = (site for site in found.sinks.values() if not done.intent.rewrites or site.name in head.table_ids)
    return [
        *(replace(site, span=_state_span(done, name, site)) for name, site in state),
        *(replace(site, span=_span(done), writes_again=False) for site in sinks),
    ]


def _state_span(done: Recomputed, table: str, site: Site) -> Span:
    """The rows to replace in a state table."""
    replaced = done.intent.state[site.name]
    kind = done.plan.fold.tables[table][replaced.column].dataType.simpleString()
    return Span(replaced.column, kind, replaced.begin, replaced.end)


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


def _removed(site: Site, written: Written) -> int:
    found = site.writer.committed_at(written.commit, written.version)
    assert found is not None
    return int(found.metadata["deleted"])


def _same(rule: str, recorded: Backfill, found: Backfill) -> None:
    """Raise ReplayDiffers if a backfill, computed again, differs from its intent."""
    names = ("counts", "restated", "digests", "expected")
    _refuse(rule, recorded, [name for name in names if getattr(recorded, name) != getattr(found, name)])
    _refuse(rule, recorded, list(recorded.results.differences(found.results)))


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
