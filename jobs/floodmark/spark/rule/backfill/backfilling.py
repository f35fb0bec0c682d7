"""A backfill: compute a past interval from what epochs have read, and replace its results in the sinks.

1. COMPUTE  without the rule's lock: run the current SQL over what the sources hold up to the end of an epoch. Late rows
            are included, dead ones are not. The results are persisted.
2. FILES    with the lock, if the computation is still valid: files for the sinks, which no table names yet.
3. INTENT   a ledger row with everything but the rows.
4. WRITE    one commit in each Delta sink removes the rows of the interval and adds the results. VERIFY as in an epoch.
5. COMMIT   ledger row. Offsets, watermark and state are unchanged.

An open backfill is finished before anything else: it is computed again from its intent, and compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.preflight import check_sources
from floodmark.core.lifecycle.backfills import Interval, window_of
from floodmark.core.protocol import engine
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Backfill, Backfilled, Counts, Restated, Written
from floodmark.core.sql.timecolumn import TimeColumn
from floodmark.errors import HistoryGone, ReplayDiffers
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.read.batch import NO_LIMIT, Batch, Limits
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.read.expectationchecks import check_results
from floodmark.spark.rule.backfill.rereading import quarantined_rows, reread, reread_replays, without
from floodmark.spark.rule.checks.partitionvalues import with_fit_partitions
from floodmark.spark.rule.generation import Plan, sites_of
from floodmark.spark.session.session import engine_of
from floodmark.spark.write import sites
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.replacing import Span
from floodmark.spark.write.sinkframes import rows_for_sink
from floodmark.spark.write.sites import Attempt, Prepared, Site, Work
from floodmark.spark.write.tablesink import writable


@dataclass(frozen=True)
class Recomputed:
    """What a backfill writes to the sinks. `rows` are persisted until `release`; `names`: the ledger's, by address."""

    session: SparkSession
    plan: Plan
    intent: Backfill
    rows: DataFrame
    names: Mapping[str, str]

    def release(self) -> None:
        self.rows.unpersist()


def compute(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    """The results of an interval as of the head. Raises InputFault if the SQL fails on one of its rows."""
    check_sources(plan.rule, head)
    return _computed(session, plan, home, head, interval)


def _computed(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Recomputed:
    span = Restated(begin=interval.begin, end=interval.end, high=interval.high, upto=head.epoch)
    batch, counts = _read(session, plan, home, head, span)
    results = check_results(_results(session, plan, batch, interval), plan.expectations, plan.rule.rule, session)
    assert results.rows is not None
    rows = results.rows.persist(StorageLevel.MEMORY_AND_DISK)
    with_fit_partitions(rows, plan, session)
    shaped = {address: _rows_for(plan, address, rows, head.generation, head.epoch) for address in plan.sinks}
    intent = Backfill(
        **span.model_dump(),
        number=len(head.backfills) + 1,
        entry=head.entry.text(),
        column=_named(plan, interval.time_column),
        shift=interval.time_column.shift,
        counts=counts,
        restated=_late(session, plan, home, head, span),
        digests=batch.digests,
        results=Digesting(plan.output).of(rows),
        taken={name_at(head, at): Digesting(one.schema).of(one) for at, one in shaped.items() if one is not rows},
        expected=results.counts,
        rule=plan.rule.to_json(),
        rule_hash=plan.rule.hash,
        engine=engine_of(session),
    )
    return Recomputed(session, plan, intent, rows, {at: name_at(head, at) for at in plan.sinks})


def recompute(session: SparkSession, plan: Plan, home: Home, head: Head) -> Recomputed:
    """Compute the open backfill from its intent. Raises ReplayDiffers if it differs from the intent."""
    recorded = head.backfill
    assert recorded is not None
    time_column = TimeColumn(recorded.column, recorded.shift)
    interval = Interval(recorded.begin, recorded.end, time_column, window_of(plan.rule), final=True)
    check_sources(plan.rule, head)  # epochs may have come between, so what was read goes further than the backfill
    then = replace(head, epoch=recorded.upto, entry=Entry.parse(recorded.entry))
    found = _computed(session, plan, home, then, interval)
    with engine.named(recorded.engine, found.intent.engine):
        _same(plan.rule.rule, recorded, found.intent)
    return replace(found, intent=recorded)


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
    rows_by_site = {
        site.name: _rows_for(done.plan, site.address, done.rows, head.generation, intent.upto) for site in aimed
    }
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
    return BackfillResult(intent, {site.address: (written[site.name].rows, removed[site.name]) for site in aimed})


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


def _read(session: SparkSession, plan: Plan, home: Home, head: Head, span: Restated) -> tuple[Batch, dict[str, Counts]]:
    """The rows on which the interval depends, with their counts; dead ones are counted and left out."""
    begun = Entry.parse(head.begun_with.entry)
    frames = [reread(session, plan, begun, head.entry), *reread_replays(session, plan, home, head, span.upto)]
    rows = reduce(DataFrame.unionByName, frames).where(_within(span))
    dead = quarantined_rows(session, plan, home.dead, head, span.upto).where(_within(span))
    gone = _by_stream(plan, dead)
    if any(gone.values()):
        rows = _less(plan, rows, dead, sum(gone.values()))
    # A row that would be dead now, but was not then, can no longer be quarantined: it stops the backfill.
    rule = plan.rule.model_copy(update={"on_error": "fail"})
    strict = {name: one.strict() for name, one in plan.fold.shape.expectations.items()}
    limits = Limits(None, dict.fromkeys(plan.rule.streams, NO_LIMIT))
    batch = Batch(rows, rule, replace(plan.fold.shape, expectations=strict), limits)
    return batch, {name: _with_dead(counts, gone[name]) for name, counts in batch.counts.items()}


def _within(span: Restated) -> str:
    return f"_t >= {span.begin}L AND _t < {span.high}L"


def _by_stream(plan: Plan, rows: DataFrame) -> dict[str, int]:
    found = {row["_s"]: row["count"] for row in rows.groupBy("_s").count().collect()}
    return {name: found.get(i, 0) for i, name in enumerate(plan.rule.streams)}


def _less(plan: Plan, rows: DataFrame, dead: DataFrame, expected: int) -> DataFrame:
    """The rows without the dead ones. Raises HistoryGone unless each dead row is among them."""
    left = without(rows, dead, _stopping(plan))
    found = rows.count() - left.count()
    if found != expected:
        raise HistoryGone(
            f"rule {plan.rule.rule}: expected the {expected} dead rows of the interval among what the sources hold, "
            f"found {found}: a source was rewritten, or the SQL reads columns that it did not read when these rows "
            f"died. Start over with `floodmark reset {plan.rule.rule}`"
        )
    return left


def _stopping(plan: Plan) -> str:
    """SQL: whether an expectation would stop the backfill at a row. Expectations may read columns that the SQL does
    not, which distinguish a dead row from one that is equal for the SQL."""
    expectations = plan.fold.shape.expectations
    found = (
        (i, expectations[name].strict().bits("fail"))
        for i, name in enumerate(plan.rule.streams)
        if name in expectations
    )
    return " OR ".join(f"(_s = {i} AND (_x & {bits}L) <> 0)" for i, bits in found) or "false"


def _with_dead(counts: Counts, dead: int) -> Counts:
    return counts.model_copy(update={"read": counts.read + dead, "dead": dead})


def _late(session: SparkSession, plan: Plan, home: Home, head: Head, span: Restated) -> dict[str, int]:
    """How many of the rows are in the late table."""
    return _by_stream(plan, quarantined_rows(session, plan, home.late, head, span.upto).where(_within(span)))


def _results(session: SparkSession, plan: Plan, batch: Batch, interval: Interval) -> DataFrame:
    """The rule's own SQL over these rows, in batch."""
    plan.fold.show(batch)
    query = plan.rule.query
    sql = query.sql if interval.window is None else query.bounded(*interval.bounds, lambda at, _: plan.fold.instant(at))
    rows = sum(counts.folded for counts in batch.counts.values())
    return session.sql(sql).coalesce(files_for(rows))


def _named(plan: Plan, time_column: TimeColumn) -> str:
    """The column that determines a result's interval, as the sinks spell it."""
    return next(name for name in plan.output.names if name.lower() == time_column.column.lower())


def _span(done: Recomputed) -> Span:
    """The rows of the interval, in a sink."""
    intent = done.intent
    kind = done.plan.output[intent.column].dataType.simpleString()
    return Span(intent.column, kind, intent.begin + intent.shift, intent.end + intent.shift)


def _aimed(done: Recomputed, home: Home, ledger: str, head: Head) -> list[Site]:
    """The sinks, each with the span of rows to replace; existing commits are compared at qos 1, too."""
    found = sites_of(done.plan, home, ledger, head.generation, head.token, head).sinks
    return [replace(site, span=_span(done), writes_again=False) for site in found.values()]


def _announce(ledger: Ledger, rule: str, intent: Backfill) -> Head:
    reach(rule, "backfill.intent.before", ledger.begun.epoch)
    head = ledger.start_backfill(intent)
    reach(rule, "backfill.intent.after", head.epoch)
    return head


def _replaced(plan: Plan, prepared: Prepared, attempt: Attempt, intent: Backfill) -> Written:
    rule = plan.rule.rule
    reach(rule, "backfill.sink.before", attempt.epoch)
    written = sites.finish(prepared, attempt)
    assert written is not None and written.results is not None
    _check_same_results(plan, intent, prepared.site, written.results)
    reach(rule, "backfill.sink.after", attempt.epoch)
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
    if site.address not in plan.tables:
        differing = [] if before.rows == now.rows else [f"rows: {before.rows}, now {now.rows}"]
    _refuse(plan.rule.rule, recorded, differing)


def _refuse(rule: str, recorded: Backfill, differing: Sequence[str]) -> None:
    if differing:
        raise ReplayDiffers(
            f"rule {rule}, backfill {recorded.number}: computed again, it does not match its intent "
            f"({'; '.join(differing)}). Likely: a source was rewritten or lost files. Restore the source and run "
            f"again, or start over with `floodmark reset {rule}`"
        )
