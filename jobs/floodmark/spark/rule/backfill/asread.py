"""The rows that a backfill processes, and the versions of lookup tables to compute their results with.

With the tables as they are now, all results have the same versions. With the tables as each epoch read them
(`Interval.then`), a result of a window has those of the epoch in which it became final, and a single row those of the
epoch that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.delta.lookups import LookupTable, lookup_tables
from floodmark.core.lifecycle.backfills import Interval, check_versions, may_have_written
from floodmark.core.protocol.digests import Digest, combined
from floodmark.core.protocol.records.backfills import LookedUp
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.lookedup import SameVersions, versions_read
from floodmark.core.protocol.records.rows import Counts, Pinned
from floodmark.core.protocol.tally import of_both
from floodmark.core.rules.rule import Rule
from floodmark.errors import HistoryGone, Refused, TableBroken
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.spark.fold.fold import typed
from floodmark.spark.read import lookuprows
from floodmark.spark.read.batch import Batch
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.faults import explained
from floodmark.spark.session.jvm import without_rows

# Reads the rows of some epochs, or of all (None).
Read = Callable[[SameVersions | None], tuple[Batch, dict[str, Counts]]]
NOW = "or leave out `lookups`, to read the lookup tables as they are now"


@dataclass(frozen=True)
class Share:
    """Results of these rows, with the versions of lookup tables that they are computed with.

    low, high: watermarks in microseconds: of a query with windows, the results that are final from after `low` up to
    `high`.
    """

    batch: Batch
    low: int | None
    high: int | None
    lookups: Mapping[str, Pinned]


@dataclass(frozen=True)
class Input:
    """batches: all rows. counts, digests: of them, by stream. then: the versions of the shares, if they differ."""

    batches: Sequence[Batch]
    counts: dict[str, Counts]
    digests: dict[str, Digest]
    shares: Sequence[Share]
    then: tuple[LookedUp, ...] = ()


def read_input(
    plan: Plan, home: Home, head: Head, interval: Interval, lookups: Mapping[str, Pinned], read: Read
) -> Input:
    """Read the rows of an interval. Raises Refused if its lookup tables cannot be read as epochs read them.

    lookups: the versions to read if they are not to be those of the epochs.
    """
    if not interval.then:
        batch, counts = read(None)
        return Input([batch], counts, batch.digests, [Share(batch, None, head.watermark, lookups)])
    ledger = LedgerReader.load(home.ledger)
    assert ledger is not None
    epochs = [one for one in versions_read(ledger.rows, head) if may_have_written(plan.rule, interval, one)]
    if plan.rule.query.windows or not epochs:
        return _of_windows(plan.rule, epochs, read)
    return _of_single_rows(plan.rule, epochs, read)


def _of_windows(rule: Rule, epochs: Sequence[SameVersions], read: Read) -> Input:
    """An epoch's results depend on rows of others, too."""
    _check_known(rule, epochs)
    batch, counts = read(None)
    shares = [Share(batch, one.low, one.high, one.lookups) for one in epochs]
    return Input([batch], counts, batch.digests, shares, tuple(one.recorded for one in epochs))


def _of_single_rows(rule: Rule, epochs: Sequence[SameVersions], read: Read) -> Input:
    """Each epoch's own rows. Of those without any in the interval, the versions do not matter."""
    with _or_now(rule.rule):
        found = [(one, *read(one)) for one in epochs]
    with_rows = [(one, batch) for one, batch, counts in found if any(count.folded for count in counts.values())]
    _check_known(rule, [one for one, _ in with_rows])
    counts = reduce(of_both, (counts for _, _, counts in found))
    batches = [batch for _, batch, _ in found]
    shares = [Share(batch, None, None, one.lookups) for one, batch in with_rows]
    then = tuple(one.recorded for one, _ in with_rows)
    return Input(batches, counts, combined(batch.digests for batch in batches), shares, then)


def _check_known(rule: Rule, epochs: Sequence[SameVersions]) -> None:
    """Raise Refused, or HistoryGone, unless each version that these epochs have read is there."""
    check_versions(rule, epochs)
    for name, table in lookup_tables(rule).items():
        now = table.newest()
        for one in epochs:
            _check_same(rule.rule, table, one, now)
        for version in {one.lookups[name].version for one in epochs if not table.lookup.history}:
            with _or_now(rule.rule):
                table.check_readable(version)


def _check_same(rule: str, table: LookupTable, epochs: SameVersions, now: Pinned) -> None:
    """Raise Refused if the epochs did not read the lookup table, or read another one under its name."""
    lookup, which = table.name, f"epochs {epochs.first} to {epochs.upto}"
    found = epochs.lookups.get(lookup)
    if found is None:
        raise Refused(f"rule {rule}: {which} did not read lookup {lookup}: name an interval after them, {NOW}")
    if found.table != now.table and not table.has(found, now):  # an older copy of it is refused when it is read
        raise Refused(
            f"rule {rule}: {which} have read lookup {lookup} in the table with id {found.table}, found that with id "
            f"{now.table}: it was recreated, or the rule's file names another one. Restore the table, {NOW}"
        )
    if table.is_split(found, epochs.log_sums):
        raise Refused(
            f"rule {rule}: {which} have read lookup {lookup} at version {found.version}, which is another commit now: "
            f"an older copy of the table was restored and written to. Restore the table, {NOW}"
        )


@contextmanager
def _or_now(rule: str) -> Iterator[None]:
    """Name the other way in errors of versions, and of input, that are gone."""
    try:
        with explained(rule):
            yield
    except (HistoryGone, TableBroken) as fault:
        raise HistoryGone(f"{fault}, {NOW}") from fault


def results(session: SparkSession, plan: Plan, shares: Sequence[Share]) -> DataFrame:
    """The results of all shares, by the rule's own SQL in batch."""
    windows = bool(plan.rule.query.windows)
    each = [_results(session, plan, one) for one in shares if one.high is not None or not windows]
    if not each:
        return without_rows(session, plan.output)
    return each[0] if len(each) == 1 else reduce(DataFrame.unionAll, (typed(one, plan.output) for one in each))


def _results(session: SparkSession, plan: Plan, share: Share) -> DataFrame:
    with _or_now(plan.rule.rule):
        lookuprows.show(session, plan.rule, share.lookups, partial(lookuprows.first_moments, share.batch))
    plan.fold.show(share.batch)
    if not plan.rule.query.windows or share.high is None:
        return lookuprows.results_of_rows(session, plan.rule)
    sql = plan.rule.query.bounded(
        share.low, share.high, lambda at, column: uncompiled_constant(plan.fold.instant(at), column)
    )
    return session.sql(sql)
