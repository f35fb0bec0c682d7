"""Read the rows of a generation's epochs again, for a backfill: those of an interval, without the dead ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Restated
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.lookedup import SameVersions
from floodmark.core.protocol.records.rows import Counts
from floodmark.core.rules.rule import Stream
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import HistoryGone
from floodmark.ledger.delta import tables
from floodmark.ledger.home import Home
from floodmark.spark.read.batch import NO_LIMIT, Batch, Limits, united
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.read.frames import read_range, tagged
from floodmark.spark.read.replaying import replayed
from floodmark.spark.read.shape import Shape, instant, time_type
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import bytes_not_passed_over

FEW = 64 << 20  # bytes of files
TIMES, PLACE = "_floodmark_times", "_floodmark_place"
TAGS = ("_k", "_t", "_e", "_x", "_m")  # computed for a row, beside its stream and columns


def living_in(
    rows: DataFrame,
    session: SparkSession,
    plan: Plan,
    home: Home,
    head: Head,
    span: Restated,
    corrected: bool,
    epochs: SameVersions | None = None,
) -> tuple[Batch, dict[str, Counts]]:
    """These rows, on which the interval depends, with their counts; dead ones are counted and left out.

    corrected: dead rows may have left a source since. epochs: that have read the rows, if not all have.
    """
    dead = None
    if has_rows(home.dead):
        dead = quarantined_rows(session, plan, home.dead, head, *_numbers(head, epochs)).where(_within(span))
    return _living(plan, rows, dead, corrected)


def at_hand(rows: DataFrame) -> DataFrame:
    """The rows, persisted unless they are many: a backfill passes over them several times."""
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)  # first, so that Delta searches its files once
    return kept if bytes_not_passed_over(kept) <= FEW else kept.unpersist()


def read_rows(
    session: SparkSession, plan: Plan, home: Home, head: Head, span: Restated, epochs: SameVersions | None = None
) -> DataFrame:
    """The same rows, with the dead ones."""
    return within(plan, _read(session, plan, home, head, epochs), span)


def within(plan: Plan, rows: DataFrame, span: Restated) -> DataFrame:
    """Those of these rows, of the rule's frame, on which the interval depends."""
    return rows.where(_within(span)).where(_stored_within(plan, span))


def read_all(
    session: SparkSession,
    plan: Plan,
    home: Home,
    head: Head,
    corrected: bool,
    of: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    epochs: SameVersions | None = None,
) -> tuple[Batch, dict[str, Counts]]:
    """All rows that the generation's epochs have read, likewise. `of`: gives some of them."""
    dead = None
    if has_rows(home.dead):
        dead = of(quarantined_rows(session, plan, home.dead, head, *_numbers(head, epochs)))
    return _living(plan, of(_read(session, plan, home, head, epochs)), dead, corrected)


def _read(session: SparkSession, plan: Plan, home: Home, head: Head, epochs: SameVersions | None) -> DataFrame:
    begin, end = (Entry.parse(head.begun_with.entry), head.entry) if epochs is None else (epochs.begin, epochs.end)
    replays = reread_replays(session, plan, home, head, *_numbers(head, epochs))
    return reduce(DataFrame.unionByName, [reread(session, plan, home, begin, end), *replays])


def _numbers(head: Head, epochs: SameVersions | None) -> tuple[int, int]:
    """The first epoch and the last one whose rows are read."""
    return (1, head.epoch) if epochs is None else (epochs.first, epochs.upto)


def _living(plan: Plan, rows: DataFrame, dead: DataFrame | None, corrected: bool) -> tuple[Batch, dict[str, Counts]]:
    gone = dict.fromkeys(plan.rule.streams, 0)
    if dead is not None:
        gone = _by_stream(plan, dead)
    if dead is not None and any(gone.values()):
        left = without(rows, dead, _stopping(plan))
        before, after = _by_stream(plan, rows), _by_stream(plan, left)
        found = {name: count - after[name] for name, count in before.items()}
        if not corrected:
            _check_all_found(plan, sum(gone.values()), sum(found.values()))
        rows, gone = left, found
    # A row that would be dead now, but was not then, can no longer be quarantined: it stops the backfill.
    rule = plan.rule.model_copy(update={"on_error": "fail"})
    strict = {name: one.strict() for name, one in plan.fold.shape.expectations.items()}
    limits = Limits(None, dict.fromkeys(plan.rule.streams, NO_LIMIT))
    batch = Batch(rows, rule, dataclasses.replace(plan.fold.shape, expectations=strict), limits)
    return batch, {name: _with_dead(counts, gone[name]) for name, counts in batch.counts.items()}


def _within(span: Restated) -> str:
    edges = ((uncompiled_constant(f"{at}L", "_t") for at in reads) for reads in span.reads)
    return "(" + " OR ".join("(_t >= {} AND _t < {})".format(*each) for each in edges) + ")"


def _stored_within(plan: Plan, span: Restated) -> str:
    """The same condition, on the columns that the sources store. So files and row groups without such rows are passed
    over."""
    cases = []
    for i, (name, stream) in enumerate(plan.rule.streams.items()):
        stored, shape = "", plan.fold.shape
        if stream.event_time is not None and stream.event_time.expr is None:
            column = quoted(shape.prefix(name) + spelt(stream.event_time.name, shape.streams[name].names))
            kind = time_type(stream, shape.streams[name])
            assert kind is not None
            ranges = (
                f"({column} >= {instant(low, kind)} AND {column} < {instant(high, kind)})" for low, high in span.reads
            )
            stored = f" AND ({' OR '.join(ranges)})"
        cases.append(f"(_s = {i}{stored})")
    return " OR ".join(cases)


def spelt(column: str, names: Sequence[str]) -> str:
    return next(name for name in names if name.lower() == column.lower())


def _by_stream(plan: Plan, rows: DataFrame) -> dict[str, int]:
    found = {row["_s"]: row["count"] for row in rows.groupBy("_s").count().collect()}
    return {name: found.get(i, 0) for i, name in enumerate(plan.rule.streams)}


def _check_all_found(plan: Plan, expected: int, found: int) -> None:
    """Raise HistoryGone unless each dead row was among those that were read."""
    if found != expected:
        raise HistoryGone(
            f"rule {plan.rule.rule}: expected the {expected} dead rows of the interval among what the sources hold, "
            f"found {found}: a source was rewritten, or the SQL reads columns that it did not read when these rows "
            f"died. Start over with `floodmark reset {plan.rule.rule}`"
        )


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


def restated_rows(session: SparkSession, plan: Plan, home: Home, head: Head, span: Restated) -> dict[str, int]:
    """How many of the rows are in the late table."""
    if not has_rows(home.late):
        return dict.fromkeys(plan.rule.streams, 0)
    return _by_stream(plan, quarantined_rows(session, plan, home.late, head, 1, span.upto).where(_within(span)))


def reread(session: SparkSession, plan: Plan, home: Home, begun: Entry, end: Entry) -> DataFrame:
    """The rule's frame over the sources' rows between two entries; of a stream that is foreseen over all its rows."""
    foreseen = {i: plan.foreseen[name].rows for i, name in enumerate(plan.rule.streams) if name in plan.foreseen}
    return read_range(session, plan.rule, home, plan.fold.shape, begun, end, end.clock_ms * 1000, {**foreseen})


def reread_replays(session: SparkSession, plan: Plan, home: Home, head: Head, first: int, upto: int) -> list[DataFrame]:
    """The rows of each replay from epoch `first` to `upto`, with the columns of the same frame."""
    earlier = {epoch: replay for epoch, replay in head.replays.items() if epoch <= upto}
    found = []
    for epoch in sorted((one for one in earlier if one >= first), reverse=True):
        replay = earlier.pop(epoch)
        before = dataclasses.replace(head, replays=dict(earlier))
        found.append(replayed(session, plan.rule, plan.fold.shape, home.dead, before, replay, 0))
    return found


def has_rows(table: str) -> bool:
    """Whether a late or dead table has any row: most have none, and its log tells without a Spark job."""
    found = tables.open_table(table)
    return found is not None and not tables.is_empty(found)


def quarantined_rows(session: SparkSession, plan: Plan, table: str, head: Head, first: int, upto: int) -> DataFrame:
    """The rows that epochs from `first` to `upto` quarantined in a late or dead table, with the columns of the same
    frame. Rows of abandoned epochs, which are in the table too, don't count."""
    kept = f"_epoch BETWEEN {first} AND {upto}" + "".join(f" AND _epoch <> {epoch}" for epoch in head.lost)
    rows, shape = session.read.format("delta").load(table).where(kept), plan.fold.shape
    frames = []
    for name, stream in plan.rule.streams.items():
        mine = _with_all(rows.where(F.col("_stream") == name), shape.streams[name])
        frames.append(tagged(mine, _as_quarantined(stream), name, Shape(shape.streams), None))
    return united(frames)


def _as_quarantined(stream: Stream) -> Stream:
    """The stream, without `where` and `expr`: quarantined rows already have their event time."""
    time = stream.event_time and stream.event_time.model_copy(update={"expr": None})
    return stream.model_copy(update={"where": None, "event_time": time})


def _with_all(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with every column that the rule reads now; columns that it did not read then are null."""
    there = {name.lower() for name in rows.columns}
    lacking = [field for field in schema if field.name.lower() not in there]
    return rows.withColumns({field.name: F.lit(None).cast(field.dataType) for field in lacking})


def without(rows: DataFrame, removed: DataFrame, first: str) -> DataFrame:
    """The rows minus those of another such frame, each as often as it occurs there, compared by their columns.

    `first`: SQL condition of rows to remove before others with equal columns.
    """
    columns = [field for field in rows.schema if field.name in removed.columns and field.name not in TAGS]
    digesting = Digesting(StructType(columns), exact=True)
    often = digesting.hashed(removed).groupBy(HASH).agg(F.count(F.lit(1)).alias(TIMES))
    place = F.row_number().over(Window.partitionBy(HASH).orderBy(F.expr(f"coalesce({first}, false)").desc()))
    placed = digesting.hashed(rows).withColumn(PLACE, place).join(often, HASH, "left")
    return placed.where(f"{PLACE} > coalesce({TIMES}, 0)").select(*map(quoted, rows.columns))
