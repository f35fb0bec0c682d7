"""A correction: what rows that left a source, and rows that came in their place, change of a rule's results.

0. DEFER    with the rule's lock, between two epochs: a ledger row puts the offsets behind the rewrite. Epochs go on.
1. DIFFER   the rows of the files that the rewrites removed and added; those in both are passed over.
2. TOUCH    the interval of all results that depend on one of the others (`core.lifecycle.corrections`), or their keys.
3. COMPUTE  these from what the sources hold up to the end of an epoch, like a backfill (`backfilling`, `bykey`); all
            results, where neither an interval nor keys bound them (`everything`).

Steps 1 to 3 need no lock. Then it is a backfill (`backfilling.replace_interval`), whose last row ends the deferral.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.connectors.delta.lookups import pinned_now
from floodmark.connectors.ports.registry import sinks, sources
from floodmark.connectors.preflight import check_sources
from floodmark.core.lifecycle.backfills import EVERYTHING, Interval, scope_now
from floodmark.core.lifecycle.corrections import (
    check_correctable,
    grain_of,
    nothing_touched,
    times_of,
    touched_interval,
    without_results,
)
from floodmark.core.protocol.digests import LOW, MIDDLE, Digest, digest_of
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Replaced, Rewrite, Rewritten
from floodmark.core.protocol.records.following import after_rewrites
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.watermark import merge
from floodmark.core.rules.checks.recomputing import Scope, scope_of
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import InputFault
from floodmark.ledger.home import Home
from floodmark.spark.read.batch import BY_EXPECTATION, NO_LIMIT, latest_times
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.read.frames import tagged
from floodmark.spark.read.narrowing import narrowed
from floodmark.spark.rule.backfill import backfilling, bykey, everything, sessions
from floodmark.spark.rule.backfill.backfilling import (
    Correction,
    Recomputed,
    as_intended,
    computed,
    correction_of,
    head_of,
)
from floodmark.spark.rule.backfill.rereading import PastRows, late_times, uncut_by
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.jvm import bytes_read, materialised

NET = "_floodmark_net"  # how many more times a row came than it left
SIDES = {"left": -1, "came": 1}
MUCH = 32 << 20  # bytes: from here on it pays to pass over copied rows first
UNKNOWN = 1 << 62  # bytes: what Spark says of a change feed, which has no copied rows
BUCKETS = 1 << 18


@dataclass(frozen=True)
class Difference:
    """The rows of one stream that left and came. `oldest`, `newest`: event times of both. `latest`: of what came;
    `reached`: of those among them that an epoch would fold. timeless: how many came without an event time.

    each: one row for each of them, with its event time (`_t`). rows: the same with the columns of the rule's frame, if
    those show what is touched: keys, or sessions.
    """

    left: Digest
    came: Digest
    oldest: int | None
    newest: int | None
    latest: int | None
    reached: int | None
    timeless: int
    each: DataFrame
    rows: DataFrame | None = None


def check_can_correct(plan: Plan, home: Home, head: Head, rewritten: Collection[str] = ()) -> None:
    """Raise Refused where neither the rule's progress nor its sinks let a correction replace results.

    rewritten: the streams whose rewrites are not deferred yet.
    """
    check_correctable(plan.rule, head, rewritten=rewritten)
    for sink in sinks(plan.rule, home).values():
        sink.check_replaceable()


def compute(session: SparkSession, plan: Plan, home: Home, head: Head, clock_ms: int) -> Recomputed:
    """What the deferred rewrites change, as of the head. Raises Refused and InputFault."""
    check_can_correct(plan, home, head)
    check_sources(plan.rule, home, head)
    then = replace(head, entry=Entry(clock_ms, head.entry.offsets))
    past = PastRows(session, plan, home, then, corrected=True)
    differences = {name: _difference(past, name, ones) for name, ones in head.deferred.items()}
    _refuse_dead(plan, differences, clock_ms)
    correction = Correction(
        rewrites={name: _rewritten(head.deferred[name], one) for name, one in differences.items()},
        state={},
        maxima=merge(head.maxima, {name: one.reached for name, one in differences.items()}),
    )
    scope, lookups = scope_now(plan.rule, head), pinned_now(plan.rule)
    if scope is Scope.KEYS:
        return _by_key(past, differences, correction)
    interval = _touched(past, differences) if scope is Scope.INTERVAL else None
    if interval is None:
        check_correctable(plan.rule, head, Scope.ALL, ())
        return _holding(everything.computed(past, EVERYTHING, lookups, correction), differences)
    correction = replace(correction, state=_state_spans(plan, interval, head.watermark))
    return _holding(computed(past, interval, lookups, correction), differences)


def _holding(done: Recomputed, differences: Mapping[str, Difference]) -> Recomputed:
    """What was computed, which releases the rows that left and came, too."""
    return replace(done, held=[*done.held, *(one.each for one in differences.values())])


def recompute(session: SparkSession, plan: Plan, home: Home, head: Head) -> Recomputed:
    """Compute the open backfill or correction from its intent. Raises ReplayDiffers if it differs from the intent."""
    recorded = head.backfill
    assert recorded is not None
    if recorded.whole:
        return everything.recompute(session, plan, home, head, recorded)
    if not recorded.keys:
        return backfilling.recompute(session, plan, home, head)
    check_sources(plan.rule, home, head)
    then = head_of(recorded, head)
    if not recorded.rewrites:
        past = PastRows(session, plan, home, then)
        found = bykey.of_interval(past, recorded.begin, recorded.end, recorded)
        return as_intended(recorded, found)
    past = PastRows(session, plan, home, then, corrected=True)
    differences = {
        name: _difference(past, name, _followed(head.deferred.get(name, ()), one))
        for name, one in recorded.rewrites.items()
    }
    return as_intended(recorded, _by_key(past, differences, correction_of(recorded), recorded))


def _rewritten(rewrites: Sequence[Rewrite], found: Difference) -> Rewritten:
    commits = tuple(commit for one in rewrites for commit in one.commits)
    return Rewritten(since=rewrites[0].since, upto=rewrites[-1].upto, commits=commits, left=found.left, came=found.came)


def _followed(deferred: Sequence[Rewrite], recorded: Rewrite) -> Sequence[Rewrite]:
    """The rewrites of a stream that an open correction follows. Up to format 9 it is one, which was not deferred."""
    return deferred[: len(deferred) - len(after_rewrites(deferred, recorded))] if deferred else [recorded]


def _by_key(
    past: PastRows,
    differences: Mapping[str, Difference],
    correction: Correction,
    recorded: Backfill | None = None,
) -> Recomputed:
    if recorded is None:
        _refuse_bad(past, differences)
    changed = _changed(past, differences)
    return _holding(bykey.computed(past, changed, correction, recorded), differences)


def _refuse_bad(past: PastRows, differences: Mapping[str, Difference]) -> None:
    """Raise InputFault for a row that came and cannot be folded. It may touch no key, by which it would be found."""
    came = (one.each.where(f"{NET} > 0").select("row.*").drop(NET) for one in differences.values())
    past.living(rows=reduce(DataFrame.unionByName, came))


def _changed(past: PastRows, differences: Mapping[str, Difference]) -> DataFrame:
    """The rows that left and came, and what replays have made of these."""
    rows = reduce(DataFrame.unionByName, [one.rows for one in differences.values() if one.rows is not None])
    made = past.made_of(rows)
    return rows if made is None else rows.unionByName(made)


def _difference(past: PastRows, name: str, rewrites: Sequence[Rewrite]) -> Difference:
    """The net of all these rewrites of a stream: a row that one brought and another removed is in neither side."""
    plan, clock = past.plan, past.head.entry.clock_ms * 1000
    stream, shape = plan.rule.streams[name], plan.fold.shape
    sides = [side for one in rewrites for side in zip(SIDES.values(), _sides(past, name, one), strict=True)]
    frames = [
        tagged(narrowed(rows, shape.older.get(name, {})), stream, name, shape, clock).selectExpr(
            "*", f"{sign} AS {NET}"
        )
        for sign, rows in sides
    ]
    kept = reduce(DataFrame.unionAll, frames).where("_k OR _e IS NOT NULL")
    past.check_told_apart(kept)
    whole = scope_of(plan.rule) is Scope.KEYS or plan.rule.query.lone_sessions is not None or bool(past.head.replays)
    each = _net(kept, [field.name for field in shape.columns(name)], shape.prefix(name), whole, _folds(plan, name))
    each = each.persist(StorageLevel.MEMORY_AND_DISK)
    found = _measured(each).head()
    assert found is not None
    timeless = found["timeless"] if stream.event_time is not None else 0
    times = (found["oldest"], found["newest"], found["latest"], found["reached"], timeless)
    rows = each.select("row.*").drop(NET) if whole else None
    return Difference(_digest(found, "left"), _digest(found, "came"), *times, each, rows)


def _sides(past: PastRows, name: str, rewrite: Rewrite) -> tuple[DataFrame, DataFrame]:
    """The rows that left and came, copied ones among them."""
    foreseen = past.plan.foreseen.get(name)
    if foreseen is not None:
        return foreseen.left, foreseen.came
    return sources(past.plan.rule, past.home)[name].changes(past.session, rewrite)


def _folds(plan: Plan, name: str) -> str:
    """SQL: whether the stream's expectations let an epoch fold a row."""
    expected = plan.fold.shape.expectations.get(name)
    left_out = 0 if expected is None else sum(map(expected.bits, BY_EXPECTATION.values()))
    return f"coalesce(_x & {left_out}L, 0L) = 0"


def _net(rows: DataFrame, columns: list[str], prefix: str, whole: bool, folds: str) -> DataFrame:
    """The rows that left and came, by their hash: how often (NET), and their event time (`_folded`: if `folds`).
    `whole`: with a `row`."""
    own = StructType([rows.schema[prefix + name] for name in columns])
    hashed = Digesting(own, exact=True).hashed(rows)
    if MUCH < bytes_read(rows) < UNKNOWN:
        hashed = _without_copies(hashed)
    kept = [F.first(F.struct(*map(quoted, rows.columns))).alias("row")] if whole else []
    times = [
        F.max("_t").alias("_t"),
        F.max("_e").alias("_e"),
        F.max(F.expr(f"CASE WHEN {folds} THEN _t END")).alias("_folded"),
    ]
    each = hashed.groupBy(HASH).agg(F.sum(NET).alias(NET), *times, *kept)
    return each.where(f"{NET} <> 0")


def _without_copies(hashed: DataFrame) -> DataFrame:
    """The rows, without most of those that a rewrite has only copied to another file.

    Rows are summed up by some bits of their hash, which takes little memory. Where the rows that left and came have the
    same number and the same sums, they are the same rows.
    """
    bits = f"{HASH} & {BUCKETS - 1}L"
    halves = (f"shiftrightunsigned({HASH}, 32)", f"{HASH} & {LOW}L")
    sums = [f"sum({NET}) <> 0", *(f"sum(({half}) * {NET}) <> 0" for half in halves)]
    found = hashed.groupBy(F.expr(bits).alias("bits")).agg(F.expr(" OR ".join(sums)).alias("differ"))
    differing = materialised(found.where("differ").select("bits"), hashed.sparkSession)
    return hashed.join(F.broadcast(differing), F.expr(f"({bits}) = bits"), "left_semi")


def _measured(each: DataFrame) -> DataFrame:
    """One row: how many rows left and came, the sums of their hashes, and their event times."""
    measures = [
        "min(_t) AS oldest",
        "max(_t) AS newest",
        f"max(CASE WHEN {NET} > 0 THEN _t END) AS latest",
        f"max(CASE WHEN {NET} > 0 THEN _folded END) AS reached",
        f"coalesce(sum(CASE WHEN _t IS NULL THEN greatest({NET}, 0L) END), 0L) AS timeless",
    ]
    for side, sign in SIDES.items():
        times = f"greatest({NET} * {sign}, 0L)"
        measures.append(f"coalesce(sum({times}), 0L) AS {side}_rows")
        for half, bits in (("high", f"shiftrightunsigned({HASH}, 32)"), ("low", f"{HASH} & {LOW}L")):
            measures.append(f"sum((({bits}) - {MIDDLE}L) * {times}) AS {side}_{half}")
    return each.selectExpr(*measures)


def _digest(found: Any, side: str) -> Digest:
    return digest_of(found[f"{side}_rows"], found[f"{side}_high"], found[f"{side}_low"], {})


def _refuse_dead(plan: Plan, differences: Mapping[str, Difference], clock_ms: int) -> None:
    """Raise InputFault for a row that came and would be dead in an epoch, for its event time."""
    latest = latest_times(plan.rule, plan.fold.shape, clock_ms)
    for name, one in differences.items():
        about = f"rule {plan.rule.rule}, stream {name}: a rewrite of the source has brought"
        ways = f"or give this up with `floodmark correct {plan.rule.rule} --skip --stream {name}`"
        if one.timeless:
            raise InputFault(
                f"{about} {one.timeless} rows without an event time: it is NULL, or an expression fails. No result was "
                f"changed. Correct them in the source, {ways}"
            )
        if one.latest is not None and one.latest > latest[name]:
            raise InputFault(
                f"{about} a row with an event time further ahead of the clock than max_ahead allows. No result was "
                f"changed. Correct the row in the source, raise `max_ahead`, {ways}"
            )


def _touched(past: PastRows, differences: Mapping[str, Difference]) -> Interval | None:
    """The interval of all results that rows which left or came touch; None where it has to be everything."""
    plan, head, sessioned = past.plan, past.head, past.plan.rule.query.lone_sessions is not None
    changed = _changed(past, differences) if head.replays or sessioned else None
    each = [one.each for one in differences.values()]
    ends = [at for one in differences.values() for at in (one.oldest, one.newest)]
    if changed is not None and head.replays:
        each = [changed]
        ends += changed.selectExpr("min(_t)", "max(_t)").first() or ()
    known = [at for at in ends if at is not None]
    if not known:
        return nothing_touched(plan.rule)
    grain = grain_of(plan.rule, min(known), max(known))
    parts = [times.selectExpr(f"(_t - pmod(_t, {grain})) DIV {grain} AS part") for times in each]
    found = {row["part"] for row in reduce(DataFrame.unionAll, parts).distinct().collect()}
    times = times_of(found, grain)
    if changed is not None and sessioned:
        newest = max(at for at in (*known, *head.maxima.values()) if at is not None)
        return sessions.touched(past, [(begin, end + 1) for begin, end in times], changed, newest)
    needed = plan.fold.needed_from(head.watermark) if plan.fold.tables else NO_LIMIT
    return _uncut(past, touched_interval(plan.rule, times, needed))


def _uncut(past: PastRows, interval: Interval) -> Interval | None:
    """The interval; None if nothing says which rows were late, or if a late row of a `distinct` stream would count in
    part: with its results, without those of its duplicates; or in the state alone."""
    late = late_times(past)
    if not late:
        return None if late is None else interval
    edges = [interval.begin, *(edge for gap in interval.gaps for edge in gap), interval.end]
    parts = list(zip(edges[::2], edges[1::2], strict=True))
    kept = [(one.begin, one.end) for one in _state_spans(past.plan, interval, past.head.watermark).values()]
    alone = without_results(past.plan.rule, parts, late, kept)
    return interval if not alone and uncut_by(past, parts, late) == parts else None


def _state_spans(plan: Plan, interval: Interval, watermark: int | None) -> dict[str, Replaced]:
    """The rows of the interval that what is not final still needs of the state, by the ledger's name of the table."""
    needed = plan.fold.needed_from(watermark)
    if plan.rule.query.lone_sessions is not None:
        needed = interval.high if interval.final else sessions.opens_at(interval)
    begin, found = interval.low if needed is None else max(interval.low, needed), {}
    for name in plan.fold.tables if begin < interval.high else ():
        column = plan.fold.time_of(name)
        assert column is not None
        found[f"state/{name}"] = Replaced(column=column, begin=begin, end=interval.high)
    return found
