"""Create a rule's Delta tables, empty them for a new generation, and seal them against the old one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.core.protocol.records.rows import Written
from floodmark.core.protocol.recovery import SEAL
from floodmark.errors import Fenced, ReplayDiffers
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.syncing import sync_commit, sync_table
from floodmark.spark.session.session import refuse_leaked_transaction
from floodmark.spark.write.appending import Appending
from floodmark.spark.write.layouts import loosen, set_properties
from floodmark.spark.write.sites import Attempt, Site, said_of


def seal(spark: SparkSession, site: Site) -> None:
    """Make every later write under the site's app id ineffective, permanently."""
    if tablelog.recorded_version(site.address, site.app) == SEAL:
        return
    commit = Appending(spark, site.address, site.app).commit(SEAL, said_of(site, SEAL, Attempt(-1, 0, "seal")))
    if commit is not None:
        sync_commit(site.address, commit)
    if tablelog.recorded_version(site.address, site.app) != SEAL:
        raise Fenced(f"{site.name}: the seal of the old generation did not take")


def _overwrite(frame: DataFrame, site: Site, attempt: Attempt, partitions: Sequence[str]) -> None:
    """Replace the table's rows and columns in one commit as version 0; does nothing if that is already recorded."""
    refuse_leaked_transaction(frame.sparkSession)
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy(*partitions)
    writer = writer.option("txnAppId", site.app).option("txnVersion", "0")
    writer.option("userMetadata", said_of(site, 0, attempt)).save(site.address)


def empty(spark: SparkSession, site: Site, schema: StructType, partitions: Sequence[str] = ()) -> Written:
    """A new generation's first commit: it empties the table and gives it the rule's current columns."""
    if tablelog.recorded_version(site.address, site.app) is None:
        _overwrite(spark.createDataFrame([], schema), site, Attempt(0, 0, "empty"), partitions)
    found = tablelog.our_commit(site.address, site.app, 0)
    if found.metadata["intent"] != "empty":
        raise ReplayDiffers(f"{site.name}: expected the commit that empties the table, found {found.metadata}")
    sync_commit(site.address, found.commit)
    table = tables.open_table(site.address)
    assert table is not None
    _refit(spark, site.address, table, str(tables.owner_of(table)), schema, partitions)
    return Written(version=0, commit=found.commit, rows=0)


def create(
    spark: SparkSession,
    address: str,
    schema: StructType,
    owner: str,
    properties: Mapping[str, str] | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Create the table with its owner in one commit, or take over an empty table that has no owner.

    A table that a killed run created gets the columns and partitions that it would have now.
    """
    tables.create(address, _nullable(schema).json(), {tables.OWNER: owner, **(properties or {})}, partitions)
    found = tables.open_table(address)
    if found is not None and tables.owner_of(found) is None:
        set_properties(spark, address, {tables.OWNER: owner, tables.ADOPTED: tables.ADOPTED_EMPTY})
    elif found is not None:
        _refit(spark, address, found, owner, schema, partitions)
    sync_table(address)


def fit_empty(spark: SparkSession, address: str, schema: StructType) -> None:
    """Give a table that the rule owns the current columns, if it is empty."""
    table = tables.open_table(address)
    assert table is not None
    _refit(spark, address, table, str(tables.owner_of(table)), schema, ())


def _refit(
    spark: SparkSession, address: str, table: DeltaTable, owner: str, schema: StructType, partitions: Sequence[str]
) -> None:
    """Give an empty table the current columns and partitions, if a killed run created it with others."""
    wanted = _nullable(schema)
    if not tables.is_misfit(table, owner, wanted.json(), partitions):
        return
    loosen(spark, address)
    refuse_leaked_transaction(spark)
    writer = spark.createDataFrame([], wanted).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").partitionBy(*partitions).save(address)
    sync_table(address)


def _nullable(schema: StructType) -> StructType:
    """The columns, nested ones too, without the source's metadata and NOT NULL: a source may drop its NOT NULL."""
    fresh = StructType()
    for field in schema.toNullable():
        fresh = fresh.add(field.name, field.dataType, True)
    return fresh
