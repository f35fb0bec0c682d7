"""Read the rows of a generation's epochs again, for a backfill: those of an interval, without the dead ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructField, StructType

from floodmark.connectors.preflight import check_kept
from floodmark.core.lifecycle.corrections import (
    Parts,
    grain_of,
    has_passed_over,
    keep_late,
    may_be_cut,
    spanning,
    still_there,
    times_of,
    uncut,
)
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
from floodmark.spark.read.frames import read_range, tagged
from floodmark.spark.read.replaying import dead_rows
from floodmark.spark.read.shape import Shape, instant, time_type
from floodmark.spark.rule.backfill.deadcolumns import Compared, Text, compared, texts_of, wider
from floodmark.spark.rule.backfill.deadrows import (
    THERE,
    Originals,
    check_still_malformed,
    check_sure,
    of_epochs,
    replays_of,
    without,
)
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.jvm import bytes_not_passed_over

FEW = 64 << 20  # bytes of files
# Rows of the rule's frame, the columns of it to find them by, and the same by stream
Removed = tuple[DataFrame, list[StructField], Compared]
Some = Callable[[DataFrame], DataFrame]


def at_hand(rows: DataFrame) -> DataFrame:
    """The rows, persisted unless they are many: a backfill passes over them several times."""
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)  # first, so that Delta searches its files once
    return kept if bytes_not_passed_over(kept) <= FEW else kept.unpersist()


def within(plan: Plan, rows: DataFrame, span: Restated) -> DataFrame:
    """Those of these rows, of the rule's frame, on which the interval depends."""
    return rows.where(_within(span)).where(_stored_within(plan, span))


@dataclass(frozen=True)
class PastRows:
    """The rows that a generation's epochs up to the head's have read, in the rule's frame, as the sources hold them.

    given: the plan of the rule. corrected: for a correction. replaying: for a replay, which also reads dead rows that
    left by a commit that was passed over. held: frames that are persisted. ranges: of the sources, as they were read.
    """

    session: SparkSession
    given: Plan
    home: Home
    head: Head
    corrected: bool = False
    replaying: bool = False
    held: list[DataFrame] = field(default_factory=list)
    ranges: list[tuple[Entry, Entry]] = field(default_factory=list)

    @property
    def rewritten(self) -> bool:
        """Whether rows may have left a source since. Then what a replay made of a dead row that has left counts no
        more."""
        passed_over = not self.replaying and has_passed_over(self.given.rule, self.head)
        return self.corrected or self.head.is_rewritten or passed_over

    @cached_property
    def plan(self) -> Plan:
        """The plan by which they are read: with all columns that can tell a dead row from others."""
        if not has_rows(self.home.dead) or not self._by_all:
            return self.given
        return wider(self.session, self.given, self.home, self._texts, self._table.schema)

    def all(self, epochs: SameVersions | None = None) -> DataFrame:
        """All of them, dead ones included. epochs: that have read the rows, if not all have."""
        begin, end = self._entries if epochs is None else (epochs.begin, epochs.end)
        dead = self.dead if self.head.replays else None
        replays = [] if dead is None else replays_of(self.plan, dead, self.head, *self._numbers(epochs))
        read = self._reread(begin, end)
        if has_rows(self.home.dead):
            first, upto = self._numbers(epochs)
            check_still_malformed(self.plan, self._table.where(of_epochs(self.head, first, upto)), read)
        return reduce(DataFrame.unionByName, [read, *replays])

    def _reread(self, begun: Entry, end: Entry) -> DataFrame:
        check_kept(self.plan.rule, self.home, begun, end)
        self.ranges.append((begun, end))
        return reread(self.session, self.plan, self.home, begun, end)

    def in_span(self, span: Restated, epochs: SameVersions | None = None) -> DataFrame:
        """Those on which the interval depends."""
        return within(self.plan, self.all(epochs), span)

    def living_in(
        self, rows: DataFrame, span: Restated, epochs: SameVersions | None = None
    ) -> tuple[Batch, dict[str, Counts]]:
        """These rows, on which the interval depends, with their counts; dead ones are counted and left out."""
        return self._living(rows, lambda dead: dead.where(_within(span)), epochs)

    def living(
        self, of: Some = lambda rows: rows, epochs: SameVersions | None = None, rows: DataFrame | None = None
    ) -> tuple[Batch, dict[str, Counts]]:
        """All rows, likewise, or these `rows`. `of`: gives some of them."""
        return self._living(of(self.all(epochs) if rows is None else rows), of, epochs)

    def made_of(self, changed: DataFrame) -> DataFrame | None:
        """What replays have made of dead rows that are among these rows, which left a source or came."""
        if not self.head.replays or not has_rows(self.home.dead):
            return None
        found = Originals(self.plan, self.head, self._compared, changed, self.held, every=True).marked(self._table)
        made = replays_of(self.plan, found.where(THERE).drop(THERE), self.head, 1, self.head.epoch)
        return reduce(DataFrame.unionByName, made).where("_k AND _e IS NULL")

    def check_told_apart(self, changed: DataFrame) -> None:
        """Raise HistoryGone if dead rows may be among these rows, which left a source or came, or were copied, and may
        differ in what cannot be compared."""
        if has_rows(self.home.dead):
            for removed, alike, how in self._removed(lambda rows: rows, None):
                check_sure(self.plan, changed, removed, alike, how)

    def quarantined(self, table: str) -> DataFrame:
        """All rows of the late or dead table, in the rule's frame."""
        rows = dead_rows(self.session, table).where(of_epochs(self.head, 1, self.head.epoch))
        return quarantined_rows(self.plan, rows)

    def close(self) -> None:
        for rows in self.held:
            rows.unpersist()

    def _living(self, rows: DataFrame, of: Some, epochs: SameVersions | None) -> tuple[Batch, dict[str, Counts]]:
        dead = list(self._removed(of, epochs)) if has_rows(self.home.dead) else []
        return _living(self.plan, rows, dead, self.rewritten)

    def _removed(self, of: Some, epochs: SameVersions | None) -> Iterator[Removed]:
        """The dead rows that these epochs quarantined, in the rule's frame, and the columns to compare.

        Where each dead row is there, with all that the SQL reads, the SQL's columns do, whichever expectations have
        come since.
        """
        shape = self.plan.fold.shape
        # A row that died again in a replay is found again only among what that replay reads.
        table = self.dead if self.rewritten and self.head.replays else self._table
        assert table is not None
        rows = table.where(of_epochs(self.head, *self._numbers(epochs)))
        for how in self._compared if self._by_all else [_by_sql(self.plan)]:
            columns = [
                StructField(shape.prefix(name) + one.name, one.dataType)
                for name, fields in how.columns.items()
                for one in fields
            ]
            yield of(quarantined_rows(self.plan, rows.where(how.which))), columns, how

    @cached_property
    def _by_all(self) -> bool:
        """Whether dead rows are found by all that they hold, not by what the SQL reads.

        Somebody may have corrected a column that the SQL does not read. And the SQL may read one that it did not when
        rows died, which have NULL there.
        """
        return self.rewritten or any(text.lacks(self.given.fold.shape.streams) for text in self._texts)

    @property
    def _entries(self) -> tuple[Entry, Entry]:
        return Entry.parse(self.head.begun_with.entry), self.head.entry

    def _numbers(self, epochs: SameVersions | None) -> tuple[int, int]:
        """The first epoch and the last one whose rows are read."""
        return (1, self.head.epoch) if epochs is None else (epochs.first, epochs.upto)

    @cached_property
    def dead(self) -> DataFrame | None:
        """The rows of the dead table, if rewritten those that the sources still hold; None if there is no table."""
        if tables.open_table(self.home.dead) is None:
            return None
        if not self.rewritten or not has_rows(self.home.dead):
            return self._table
        read = self._reread(*self._entries)
        found = Originals(self.plan, self.head, self._compared, read, self.held).marked(self._table)
        return found.where(THERE).drop(THERE)

    @property
    def _table(self) -> DataFrame:
        return dead_rows(self.session, self.home.dead)

    @cached_property
    def _texts(self) -> list[Text]:
        return list(texts_of(self.home, self.head))

    @cached_property
    def _compared(self) -> list[Compared]:
        return compared(self.plan, self.home, self._texts, self._table.schema)


def _by_sql(plan: Plan) -> Compared:
    """Dead rows of all epochs, by what the SQL reads."""
    streams = plan.fold.shape.streams
    return Compared("true", {name: list(schema) for name, schema in streams.items()}, {name: [] for name in streams})


def _living(plan: Plan, rows: DataFrame, dead: Sequence[Removed], rewritten: bool) -> tuple[Batch, dict[str, Counts]]:
    gone, left = dict.fromkeys(plan.rule.streams, 0), rows
    for removed, alike, how in dead:
        check_sure(plan, left, removed, alike, how)
        gone = {name: gone[name] + count for name, count in _by_stream(plan, removed).items()}
        left = without(left, removed, _stopping(plan), alike)
    if any(gone.values()):
        before, after = _by_stream(plan, rows), _by_stream(plan, left)
        found = {name: count - after[name] for name, count in before.items()}
        if not rewritten:
            _check_all_found(plan, sum(gone.values()), sum(found.values()))
        rows, gone = left, found
    # A row that would be dead now, but was not then, can no longer be quarantined: it stops the backfill.
    rule = plan.rule.model_copy(update={"on_error": "fail"})
    strict = {name: one.strict() for name, one in plan.fold.shape.expectations.items()}
    limits = Limits(None, dict.fromkeys(plan.rule.streams, NO_LIMIT))
    batch = Batch(rows, rule, dataclasses.replace(plan.fold.shape, expectations=strict), limits, again=True)
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


def restated_rows(past: PastRows, span: Restated, counts: Mapping[str, Counts]) -> dict[str, int]:
    """How many of the rows are in the late table. `counts`: of the rows that are there now."""
    plan = past.plan
    if not has_rows(past.home.late):
        return dict.fromkeys(plan.rule.streams, 0)
    late = dead_rows(past.session, past.home.late).where(of_epochs(past.head, 1, span.upto))
    found = _by_stream(plan, quarantined_rows(plan, late).where(_within(span)))
    return still_there(found, counts) if past.rewritten else found


def reread(session: SparkSession, plan: Plan, home: Home, begun: Entry, end: Entry) -> DataFrame:
    """The rule's frame over the sources' rows between two entries; of a stream that is foreseen over all its rows."""
    foreseen = {i: plan.foreseen[name].rows for i, name in enumerate(plan.rule.streams) if name in plan.foreseen}
    return read_range(session, plan.rule, home, plan.fold.shape, begun, end, end.clock_ms * 1000, {**foreseen})


def late_times(past: PastRows) -> Parts | None:
    """When the late rows of `distinct` streams were, roughly; None: not all late rows were kept."""
    rule = past.plan.rule
    deduplicated = [i for i, stream in enumerate(rule.streams.values()) if stream.distinct is not None]
    if not deduplicated:
        return []
    if not keep_late(text.rule for text in texts_of(past.home, past.head)):
        return None
    if not has_rows(past.home.late):
        return []
    rows = past.quarantined(past.home.late).where(F.col("_s").isin(deduplicated))
    found = rows.agg(F.min("_t"), F.max("_t")).head()
    if found is None or found[0] is None:
        return []
    grain = grain_of(rule, *found)
    parts = rows.selectExpr(f"(_t - pmod(_t, {grain})) DIV {grain} AS part").distinct().collect()
    return [(begin, end + 1) for begin, end in times_of([row["part"] for row in parts], grain)]


def uncut_by(past: PastRows, parts: Parts, late: Parts) -> Parts:
    """The parts, widened so that they hold the results of a late row and of its duplicates, or none of them.

    late: the times of late rows.
    """
    rule = past.plan.rule
    times = may_be_cut(rule, parts, late)
    pairs = chain.from_iterable(_pairs(past, i, stream, times) for i, stream in enumerate(rule.streams.values()))
    return uncut(rule, parts, list(pairs)) if times else parts


def _pairs(past: PastRows, number: int, stream: Stream, times: Parts) -> Iterator[tuple[int, int]]:
    """The times of late rows of a stream, each with that of the last row which is a duplicate of it."""
    if stream.distinct is None:
        return
    shape, (name, within_us) = past.plan.fold.shape, (list(past.plan.rule.streams)[number], stream.distinct.within_us)
    keys = [quoted(shape.prefix(name) + spelt(key, shape.streams[name].names)) for key in stream.distinct.key]
    mine, named = f"_s = {number} AND _k AND _e IS NULL", [f"{key} AS _k{i}" for i, key in enumerate(keys)]
    span = spanning(times, 0, 0, past.head.epoch)
    late = past.quarantined(past.home.late).where(_within(span)).where(mine).selectExpr("_t AS _late", *named)
    read = past.in_span(spanning(times, 0, within_us + 1, past.head.epoch)).where(mine)
    rows = read.selectExpr("_t", *(one.replace("AS _k", "AS _o") for one in named))
    same = " AND ".join(f"_k{i} <=> _o{i}" for i in range(len(keys)))
    pairs = late.join(rows, F.expr(f"{same} AND _t > _late AND _t <= _late + {within_us}L"))
    grain = grain_of(past.plan.rule, times[0][0], times[-1][1])
    for row in pairs.groupBy(F.expr(f"_late DIV {grain}")).agg(F.min("_late"), F.max("_t")).collect():
        yield row[1], row[2]


def has_rows(table: str) -> bool:
    """Whether a late or dead table has any row: most have none, and its log tells without a Spark job."""
    found = tables.open_table(table)
    return found is not None and not tables.is_empty(found)


def quarantined_rows(plan: Plan, rows: DataFrame) -> DataFrame:
    """These rows of a late or dead table, with the columns of the rule's frame."""
    shape, frames = plan.fold.shape, []
    columns = Shape({name: shape.columns(name) for name in shape.streams})
    for name, stream in plan.rule.streams.items():
        mine = _with_all(rows.where(F.col("_stream") == name), shape.columns(name))
        frames.append(tagged(mine, _as_quarantined(stream), name, columns, None))
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
