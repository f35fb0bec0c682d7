"""Delta tables as what a rule writes: made, written in each way, emptied for a new generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.connectors.delta.sink import DeltaSink
from floodmark.connectors.ports.sink import Layout, Status, Way, Writable, Writer
from floodmark.core.protocol.presence import Presence
from floodmark.ledger.comparing import Committed
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.damage import log_faults
from floodmark.ledger.delta.syncing import sync_commit, sync_table
from floodmark.spark.session.session import refuse_leaked_transaction
from floodmark.spark.write import layouts
from floodmark.spark.write.appending import Appending
from floodmark.spark.write.merging.upserting import Upserting
from floodmark.spark.write.replacing import Replacing, ReplacingAll


class TableWriter(Writer):
    """A Delta table as one writer sees it."""

    def __init__(self, address: str, way: Way):
        self._address, self._way = address, way

    def status(self) -> Status | None:
        table = tables.open_table(self._address)
        return None if table is None else status_of(table, self._way.app)

    def faults(self) -> Iterable[str]:
        return log_faults(self._address)

    def recorded_version(self) -> int | None:
        return tablelog.recorded_version(self._address, self._way.app)

    def begin(self, frame: DataFrame, where: str) -> Appending:
        way, session = self._way, frame.sparkSession
        if way.adds_columns:
            layouts.add_columns(session, self._address, frame.schema)
        if way.span is not None:
            return Replacing(session, self._address, way.app, way.span)
        if way.whole:
            return ReplacingAll(session, self._address, way.app)
        if way.upsert is not None:
            return Upserting(session, self._address, way.app, way.upsert, where)
        return Appending(session, self._address, way.app, way.exact)

    def seal(self, spark: SparkSession, version: int, metadata: str) -> int | None:
        return Appending(spark, self._address, self._way.app).commit(version, metadata)

    def committed(self, version: int) -> Committed:
        return tablelog.our_commit(self._address, self._way.app, version)

    def committed_at(self, commit: int, version: int) -> Committed | None:
        return tablelog.commit_at(self._address, commit, self._way.app, version)

    def presence(self, commit: int) -> Presence:
        return tablelog.rows_now(self._address, commit)

    def lacks_files(self, commit: int) -> bool:
        return datafiles.lacks_files(self._address, commit)

    def settle(self, commit: int) -> None:
        sync_commit(self._address, commit)


def status_of(table: DeltaTable, app: str) -> Status:
    """The status of a table that is open, as a writer sees it."""
    adopted = tables.adopted_at(table)
    recorded, owner = tablelog.recorded_in(table, app), tables.owner_of(table) or ""
    return Status(tables.table_id(table), recorded, None if adopted is None else adopted + 1, owner)


class Refitting(Appending):
    """A transaction on the empty table at `address` that gives it other columns and partitions."""

    conflict = "io.delta.exceptions."  # of metadata, too

    def refit(self, version: int, schema: StructType, partitions: Sequence[str]) -> bool:
        """Commit; False, and nothing is changed, if the table has another version than this one."""
        if self._txn.readVersion() != version:
            return False
        self._txn.readWholeTable()  # rows that another writer adds until the commit are a conflict
        was = self._txn.metadata()
        named = was.id(), was.name(), was.description(), was.format()
        columns = schema.json(), self._seq(*partitions)
        self._txn.updateMetadataForTableOverwrite(was.copy(*named, *columns, was.configuration(), was.createdTime()))
        return self._commit([], self._write_operation("Overwrite", None)) is not None


class TableSink(DeltaSink, Writable):
    """A Delta table that a rule writes, with a session."""

    def writer(self, way: Way) -> TableWriter:
        return TableWriter(self.address, way)

    def check_columns(self, spark: SparkSession, layout: Layout) -> None:
        layouts.check_columns(spark, f"sink/{self.address}", self.address, layout.columns, layout.adds_columns)

    def make(self, spark: SparkSession, layout: Layout, owner: str) -> None:
        """Make it, or take over an empty one. Checked again after, against a race."""
        self.check(owner)
        create(spark, self.address, layout.columns, owner, partitions=layout.partitions)
        self.check(owner)

    def lay_out(self, spark: SparkSession, layout: Layout) -> None:
        """Give it the properties and clusters that it lacks."""
        layouts.lay_out(spark, self.address, layout.properties, layout.clusters)

    def empty(self, spark: SparkSession, layout: Layout, app: str, metadata: str) -> None:
        """Take all rows away, and give it the columns that the rule gives now."""
        layouts.loosen(spark, self.address)
        if tablelog.recorded_version(self.address, app) is None:
            self._overwrite(spark.createDataFrame([], layout.columns), layout.partitions, app, metadata)
        fit_empty(spark, self.address, layout.columns, layout.partitions)

    def _overwrite(self, frame: DataFrame, partitions: Sequence[str], app: str, metadata: str) -> None:
        """The rows as all of the table, with their columns, in one commit as version 0."""
        refuse_leaked_transaction(frame.sparkSession)
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer = writer.partitionBy(*partitions).option("txnAppId", app).option("txnVersion", "0")
        writer.option("userMetadata", metadata).save(self.address)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.address)


def create(
    spark: SparkSession,
    address: str,
    schema: StructType,
    owner: str,
    properties: Mapping[str, str] | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Make the table with its owner in one commit; an empty table that nobody owns is taken over.

    If another writer adds rows before that, the table is given back, and a check finds them. One that a killed run has
    made is made what it would be now.
    """
    tables.create(address, _nullable(schema).json(), {tables.OWNER: owner, **(properties or {})}, partitions)
    found = tables.open_table(address)
    if found is not None and tables.owner_of(found) is None:
        layouts.set_properties(spark, address, {tables.OWNER: owner, tables.ADOPTED: tables.ADOPTED_EMPTY})
        if not tables.is_empty(_opened(address)):
            layouts.unset_properties(spark, address, (tables.OWNER, tables.ADOPTED))
    elif found is not None:
        _refit(spark, address, found, owner, schema, partitions)
    sync_table(address)


def fit_empty(spark: SparkSession, address: str, schema: StructType, partitions: Sequence[str] = ()) -> None:
    """Give a table of the rule's own today's columns and partitions, where it holds nothing."""
    table = _opened(address)
    _refit(spark, address, table, str(tables.owner_of(table)), schema, partitions)


def _opened(address: str) -> DeltaTable:
    table = tables.open_table(address)
    assert table is not None
    return table


def _refit(
    spark: SparkSession, address: str, table: DeltaTable, owner: str, schema: StructType, partitions: Sequence[str]
) -> None:
    """Give a table that holds nothing the columns and partitions of today, where a killed run had others.

    If another commit comes between, the table is looked at again: it may hold rows now.
    """
    wanted = _nullable(schema)
    while tables.is_misfit(table, owner, wanted.json(), partitions):
        layouts.loosen(spark, address)
        refuse_leaked_transaction(spark)
        now = _opened(address)
        if not tables.is_empty(now):
            return
        if Refitting(spark, address, owner).refit(now.version(), wanted, partitions):
            return sync_table(address)
        table = _opened(address)


def _nullable(schema: StructType) -> StructType:
    """The columns without what their source says of them, nested ones too: a source may drop its NOT NULL."""
    fresh = StructType()
    for field in schema.toNullable():
        fresh = fresh.add(field.name, field.dataType, True)
    return fresh
