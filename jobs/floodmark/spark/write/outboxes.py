"""Outboxes as what a rule writes: rows are appended, whatever they do to the target."""

from __future__ import annotations

from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import BooleanType, StructType

from floodmark.connectors.ports.registry import open_sink
from floodmark.connectors.ports.sink import Layout, Way, Writable
from floodmark.connectors.relay.outbox import OutboxSink
from floodmark.core.rules.kinds import sink_can
from floodmark.core.rules.rule import Sink
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.rules.sinks.upserts import Effect, Upsert
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.home import Home
from floodmark.spark.session.jvm import materialised
from floodmark.spark.write import layouts
from floodmark.spark.write.appending import Appending
from floodmark.spark.write.merging import keyed
from floodmark.spark.write.merging.upserting import keyed_digesting, refuse_several, several
from floodmark.spark.write.tablesink import TableSink, TableWriter, create

# A portion is found by its log entry, however long its target is down: Spark cuts nothing, `maintain` what was shipped.
_PROPERTIES = {"delta.enableExpiredLogCleanup": "false"}


def writable(one: Sink, home: Home | None) -> Writable:
    """A rule's sink, with a session. `home`: the rule's; None in a look without one."""
    can = sink_can(one.kind)
    if can.table:
        return TableSink(str(one.address))
    if can.target:
        return Outbox(one, None if home is None else home.outbox(one))
    return cast("Writable", open_sink(one, home))


class Outbox(OutboxSink, Writable):
    """The outbox of a target, with a session."""

    @property
    def _table(self) -> TableSink:
        return TableSink(str(self.folder))

    def writer(self, way: Way) -> OutboxWriter:
        return OutboxWriter(str(self.folder), way)

    def check_columns(self, spark: SparkSession, layout: Layout) -> None:
        self._table.check_columns(spark, self._with_marks(layout))

    def make(self, spark: SparkSession, layout: Layout, owner: str) -> None:
        self.check(owner)
        create(spark, str(self.folder), self._with_marks(layout).columns, owner, _PROPERTIES)

    def lay_out(self, spark: SparkSession, layout: Layout) -> None:
        """An outbox has no layout of its own."""

    def empty(self, spark: SparkSession, layout: Layout, app: str, metadata: str) -> None:
        self._table.empty(spark, self._with_marks(layout), app, metadata)

    def frame(self, spark: SparkSession) -> DataFrame:
        return self._table.frame(spark)

    def _with_marks(self, layout: Layout) -> Layout:
        if not self.sink.key:
            return layout
        return Layout(StructType(list(layout.columns)).add(DELETE_COLUMN, BooleanType()))


class OutboxWriter(TableWriter):
    """An outbox, as one writer sees it. Whatever a write does to the target, it only adds rows to the outbox."""

    def begin(self, frame: DataFrame, where: str) -> Appending:
        session, address, way = frame.sparkSession, self._address, self._way
        if way.adds_columns:
            layouts.add_columns(session, address, frame.drop(DELETE_COLUMN).schema)
        if way.span is not None:
            return Restated(session, address, way.app, bool(way.upsert))
        if way.upsert is not None:
            return Changes(session, address, way.app, way.upsert, where)
        return Appending(session, address, way.app, way.exact)


class Portion(Appending):
    """A transaction whose rows do something else to the target than to be added. `keyed`: each row has a mark."""

    def __init__(self, session: SparkSession, address: str, app: str, keyed: bool = True):
        super().__init__(session, address, app)
        self._keyed = keyed

    def check_types(self, name: str, frame: DataFrame) -> None:
        super().check_types(name, frame.withColumn(DELETE_COLUMN, F.lit(True)) if self._keyed else frame)


class Restated(Portion):
    """The rows that replace those of an interval."""

    def write(self, frame: DataFrame) -> int:
        rows = self.compute(frame)
        self.effect = Effect(rows, inserted=rows)
        super().write(frame.withColumn(DELETE_COLUMN, F.lit(False)) if self._keyed else frame)
        return rows

    def compute(self, frame: DataFrame) -> int:
        self.results = self._digesting(frame).of(frame)
        return self.results.rows


class Changes(Portion):
    """One row for each key that changes. `where`: the prefix of error messages."""

    def __init__(self, session: SparkSession, address: str, app: str, upsert: Upsert, where: str):
        super().__init__(session, address, app)
        self._upsert, self._where = upsert, where

    def write(self, frame: DataFrame) -> int:
        each = materialised(keyed.one_for_each_key(frame, self._upsert), self._session)
        results, keys = self._checked(each)
        self.effect = Effect(results, inserted=keys)
        columns = [name for name in frame.columns if name != DELETE_COLUMN]
        marked = each.select("row.*", F.col("gone").alias(DELETE_COLUMN))
        super().write(marked.select(*map(quoted, columns), DELETE_COLUMN))
        return results

    def compute(self, frame: DataFrame) -> int:
        return self._checked(keyed.one_for_each_key(frame, self._upsert))[0]

    def _checked(self, each: DataFrame) -> tuple[int, int]:
        """How many results there are, and how many keys.

        Computes the digest of each key's remaining row. Raises InputFault if nothing says which that is.
        """
        digesting = keyed_digesting(each)
        counts = [*several(self._upsert), F.coalesce(F.sum("times"), F.lit(0)).alias("results")]
        found = digesting.hashed(each).agg(*counts, *map(F.expr, digesting.measures())).head()
        assert found is not None
        self.results = digesting.digest(found.asDict())
        refuse_several(self._where, self._upsert, found.asDict())
        return int(found["results"]), int(found["keys"])
