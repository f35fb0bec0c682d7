"""Keyed user state: a rule's class gets each row once the watermark has passed it, and keeps values by key.

Waiting rows are stored unchanged. Values are appended with their epoch, and a key's newest value is valid; a deleted
value is a row marked as deleted. An epoch reads only the values of the keys that it touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from pyspark import StorageLevel, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import floodmark
from floodmark.core.process.context import CLOCK_TIMERS, TIMERS, Declaration, Times
from floodmark.core.rules.rule import Process, Rule
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.fold.fold import Fold, Folded, Moment, Rejected, StateReader
from floodmark.spark.fold.process.processframes import Frames
from floodmark.spark.fold.process.turns import OUTPUT, REJECTED, Work, worker
from floodmark.spark.read.batch import Batch, united
from floodmark.spark.read.shape import Shape, instant
from floodmark.spark.session.constants import uncompiled_constant
from floodmark.spark.session.session import pin_hash_seed


class Processed(Fold):
    def __init__(self, rule: Rule, shape: Shape, process: Process):
        super().__init__(rule, shape)
        self._process, self._frames = process, Frames(rule, shape, process)

    def output_schema(self, session: SparkSession) -> StructType:
        return self._frames.output

    @property
    def tables(self) -> dict[str, StructType]:
        waiting = {name: StructType([*schema.fields]).add("_epoch", "long") for name, schema in self._streams.items()}
        return waiting | {name: self._frames.table(name) for name in self._process.tables}

    @property
    def _streams(self) -> dict[str, StructType]:
        return self.shape.streams

    def time_of(self, table: str) -> str | None:
        return self._frames.event_time(table) if table in self._streams else None

    def needed_from(self, watermark: int | None) -> int | None:
        """Applies to waiting rows; for values, time does not decide."""
        return watermark

    def fold(self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment) -> Folded:
        waiting = {name: self._waiting(batch, name, at) for name in self._streams if _any_waits(batch, name, at)}
        given = self._worker_input(batch, state, session, at)
        if given is None:
            return Folded(None, waiting)
        held = self._worker_output(given, at).persist(StorageLevel.MEMORY_AND_DISK)
        parts = _parts(held)
        output = self._frames.results(held.where(f"part = {OUTPUT}")) if OUTPUT in parts else None
        changed = [name for i, name in enumerate(self._process.tables) if i in parts]
        changes = {name: self._frames.changes(name, held, at.epoch) for name in changed}
        rejected = {
            name: Rejected(parts[REJECTED - i], self._frames.rejected(name, held))
            for i, name in enumerate(self._streams)
            if REJECTED - i in parts
        }
        return Folded(output, waiting | changes, held, rejected)

    def _waiting(self, batch: Batch, name: str, at: Moment) -> DataFrame:
        rows = self._live(name, batch.folded(name), at.after)
        return rows.selectExpr("*", f"{uncompiled_constant(f'{at.epoch}L', f'`{self.time_of(name)}`')} AS _epoch")

    def live(self, table: str, rows: Mapping[str, DataFrame], watermark: int | None) -> DataFrame:
        return self._live(table, rows[table], watermark)

    def _live(self, table: str, rows: DataFrame, watermark: int | None) -> DataFrame:
        if table in self._streams:
            return rows if watermark is None else rows.where(f"NOT ({self._is(self.time_of(table), '<', watermark)})")
        names, all_of_it = self._frames.names_of(table), F.struct(*(F.col(quoted(name)) for name in rows.columns))
        newest = rows.groupBy(*(F.col(quoted(name)) for name in names)).agg(F.max_by(all_of_it, "_epoch").alias("_new"))
        found = newest.select("_new.*").where("NOT _deleted")
        ttl = self._process.ttl_us.get(table)
        if ttl is None or watermark is None:
            return found
        return found.where(f"NOT ({self._is('_at', '<=', watermark - ttl)})")

    def _is(self, column: str | None, sign: str, moment: int, zoned: bool = False) -> str:
        time = instant(moment, "timestamp") if zoned else self.instant(moment)
        return f"`{column}` {sign} {uncompiled_constant(time, f'`{column}`')}"

    def _worker_input(
        self, batch: Batch, state: Mapping[str, StateReader], session: SparkSession, at: Moment
    ) -> DataFrame | None:
        """Rows that are due, and the values of all keys with rows or timers due; None if nothing can be due."""
        if at.after is None or (at.before == at.after and not self._process.clock_timers):
            return None
        rows = [self._frames.row(name, found) for name in self._streams for found in self._due(batch, state, name, at)]
        readers = {name: state[name](None) for name in self._process.tables}
        stored = {name: at.committed(found) for name, found in readers.items() if found is not None}
        touching = [row.select(*self._frames.layout.key_columns) for row in rows]
        touching += [self._frames.keys(timers) for timers in self._timers_due(stored, at)]
        if not touching:
            return None
        touched = reduce(DataFrame.unionAll, touching).distinct()
        values = [self._frames.value(name, found) for name, found in stored.items()]
        return self._frames.worker_input(session, rows, [_of_keys(united(values), touched)] if values else [])

    def _due(self, batch: Batch, state: Mapping[str, StateReader], name: str, at: Moment) -> Iterator[DataFrame]:
        """New and waiting rows with `before` <= event time < `after`."""
        if at.after is None or at.before == at.after:
            return
        new, kept = batch.folded(name), state[name](at.before)
        column = self.time_of(name)
        if batch.counts[name].folded:
            yield new.where(self._is(column, "<", at.after))
        if kept is not None:
            waited = self._live(name, at.committed(kept), at.before)
            yield waited.where(self._is(column, "<", at.after))

    def _timers_due(self, stored: Mapping[str, DataFrame], at: Moment) -> Iterator[DataFrame]:
        """Rows of timers that fire, and some outdated ones, which only cause their keys to be read.

        A timer before the previous watermark has fired, moved or been deleted.
        """
        if TIMERS in stored and at.after is not None and at.before is not None and at.before < at.after:
            timers = stored[TIMERS]
            yield timers.where(f"{self._is('at', '<', at.after)} AND NOT ({self._is('at', '<', at.before)})")
        if CLOCK_TIMERS in stored:
            timers = self._live(CLOCK_TIMERS, stored[CLOCK_TIMERS], None)
            yield timers.where(self._is("at", "<=", at.clock, zoned=True))

    def _worker_output(self, given: DataFrame, at: Moment) -> DataFrame:
        """The frame that the class computes from `given`."""
        process, schema = self._process, self._frames.worker_output_schema()
        work = Work(
            layout=self._frames.layout,
            source=process.source,
            file=process.file,
            name=process.name,
            output=process.output,
            declared=Declaration(process.state, process.ttl_us, process.timers, process.clock_timers),
            times=Times(at.before, at.after, at.clock, zoned=self._frames.time == "timestamp"),
            rejects=self.rule.on_error == "dead",
            schema=to_arrow_schema(schema, timezone="UTC"),
        )
        pin_hash_seed(given.sparkSession)
        # Executors need no copy of this package: the code that they call is pickled into the plan.
        cloudpickle.register_pickle_by_value(floodmark)  # type: ignore[no-untyped-call]
        return given.mapInArrow(worker(work), schema)


def _parts(held: DataFrame) -> dict[int, int]:
    """The number of rows of each part. The class runs here: once, before anything is written."""
    try:
        return {row["part"]: row["count"] for row in held.groupBy("part").count().collect()}
    except BaseException:
        held.unpersist()
        raise


def _any_waits(batch: Batch, name: str, at: Moment) -> bool:
    newest = batch.maxima[name]
    return newest is not None and (at.after is None or newest >= at.after)


def _of_keys(values: DataFrame, touched: DataFrame) -> DataFrame:
    """The values of the keys in `touched`; keys may contain nulls."""
    other = touched.toDF(*(f"t_{name}" for name in touched.columns))
    equal = (F.col(name).eqNullSafe(F.col(f"t_{name}")) for name in touched.columns)
    same = reduce(lambda one, more: one & more, equal)
    return values.join(other, same, "left_semi")
