"""Write sites: every table of a rule, written once for each epoch under the generation's app id.

A site asks for the version that its table has recorded before it writes, and the pure table in `core.recovery` says
what to do with it. A skipped write is therefore known and compared, never assumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.records import Written
from floodmark.core.recovery import SEAL, Step, before_write, version_of
from floodmark.errors import Fenced, ReplayDiffers, WrongColumn
from floodmark.ledger import tables
from floodmark.spark.session import refuse_leaked_transaction

ROWS_IN_A_FILE = 500_000


def files_for(rows: int) -> int:
    """How many files to write at most so many rows to: few for readers, enough for the cores."""
    return 1 + rows // ROWS_IN_A_FILE


def app_id(ledger: str, generation: int, token: str, role: str) -> str:
    """Who writes: the ledger's table id, the generation with its token, and the write site's role."""
    return f"floodmark/{ledger}/g{generation}-{token}/{role}"


@dataclass(frozen=True)
class Site:
    """One table that an epoch may write. `name` stands in the ledger; `role` in the crash points."""

    name: str
    role: str
    address: str
    app: str
    writes_again: bool = False


@dataclass(frozen=True)
class Work:
    """What an attempt at an epoch wants written at one site. `rows`: how many; None: some, counted as they are written.

    A site without rows is asked all the same: it must not have recorded this epoch.
    """

    site: Site
    frame: DataFrame | None
    rows: int | None = None

    @classmethod
    def of(cls, site: Site, frame: DataFrame | None) -> Work:
        """`frame`: rows, at least one; None: there are none."""
        return cls(site, frame, 0 if frame is None else None)

    @property
    def given(self) -> DataFrame:
        assert self.frame is not None
        return self.frame


@dataclass(frozen=True)
class Attempt:
    """Which epoch, which try at it, and the hash of the intent that every commit carries."""

    epoch: int
    number: int
    intent: str


def write(work: Work, attempt: Attempt) -> Written | None:
    """Write the rows unless they are there; None where there are none. Raises what `before_write` raises."""
    site, version = work.site, version_of(attempt.epoch, attempt.number, work.site.writes_again)
    recorded = tables.recorded_version(site.address, site.app)
    step = before_write(recorded, attempt.epoch, attempt.number, site.writes_again, work.rows != 0)
    if step is Step.NOTHING:
        return None
    counted = None
    if step is Step.WRITE:
        counted = Observation()
        append(work.given.observe(counted, F.count(F.lit(1)).alias("rows")), site, version, attempt)
    return verify(work, version, attempt, counted)


def verify(work: Work, version: int, attempt: Attempt, counted: Observation | None) -> Written:
    """What the table says was written is what this attempt computed: intent and number of rows."""
    site = work.site
    if tables.recorded_version(site.address, site.app) != version:
        raise Fenced(f"{site.name}: another writer came between; this attempt's write had no effect")
    found = tables.our_commit(site.address, site.app, version)
    mine = found.metadata["attempt"] == attempt.number
    tables.same_effect(site.name, found, attempt.intent, _computed(work, counted if mine else None))
    return Written(version=version, commit=found.commit, rows=found.rows)


def _computed(work: Work, counted: Observation | None) -> int:
    """How many rows this attempt has. A write that its table skipped counted none: then they are computed again."""
    if work.rows is not None:
        return work.rows
    return int(counted.get["rows"]) if counted is not None else work.given.count()


def append(frame: DataFrame, site: Site, version: int, attempt: Attempt, mode: str = "append") -> None:
    """One Delta commit under (app, version); nothing where the table has recorded that version already."""
    refuse_leaked_transaction(frame.sparkSession)
    said = {"app": site.app, "version": version, "epoch": attempt.epoch, "attempt": attempt.number}
    writer = (
        frame.write.format("delta")
        .mode(mode)
        .option("txnAppId", site.app)
        .option("txnVersion", str(version))
        .option("userMetadata", json.dumps({**said, "intent": attempt.intent}, separators=(",", ":")))
    )
    if mode == "overwrite":
        writer = writer.option("overwriteSchema", "true")
    writer.save(site.address)


def seal(spark: SparkSession, site: Site) -> None:
    """Turn every later write under the site's app id into nothing, for good."""
    if tables.recorded_version(site.address, site.app) == SEAL:
        return
    schema = spark.read.format("delta").load(site.address).schema
    append(spark.createDataFrame([], schema), site, SEAL, Attempt(-1, 0, "seal"))
    if tables.recorded_version(site.address, site.app) != SEAL:
        raise Fenced(f"{site.name}: the seal of the old generation did not take")


def empty(spark: SparkSession, site: Site, schema: StructType) -> Written:
    """A new generation's first commit: the table without rows, with the columns the rule gives now."""
    if tables.recorded_version(site.address, site.app) is None:
        append(spark.createDataFrame([], schema), site, 0, Attempt(0, 0, "empty"), mode="overwrite")
    found = tables.our_commit(site.address, site.app, 0)
    if found.metadata["intent"] != "empty":
        raise ReplayDiffers(f"{site.name}: expected the commit that empties the table, found {found.metadata}")
    return Written(version=0, commit=found.commit, rows=0)


def create(
    spark: SparkSession, address: str, schema: StructType, owner: str, properties: Mapping[str, str] | None = None
) -> None:
    """Make the table with its owner in one commit; an empty table that nobody owns is taken over."""
    tables.create(address, _nullable(schema).json(), {tables.OWNER: owner, **(properties or {})})
    found = tables.open_table(address)
    if found is not None and tables.owner_of(found) is None:
        spark.sql(f"ALTER TABLE delta.`{address}` SET TBLPROPERTIES ('{tables.OWNER}' = '{owner}')")


def _nullable(schema: StructType) -> StructType:
    fresh = StructType()
    for field in schema:
        fresh = fresh.add(field.name, field.dataType, True)
    return fresh


def check_columns(spark: SparkSession, name: str, address: str, schema: StructType) -> None:
    """Refuse a table whose columns are not the ones the rule gives, naming the difference."""
    if tables.open_table(address) is None:
        return
    has = {field.name: field.dataType.simpleString() for field in spark.read.format("delta").load(address).schema}
    gives = {field.name: field.dataType.simpleString() for field in schema}
    if has != gives:
        wrong = [f"{column}: table {has.get(column, 'none')}, rule {gives.get(column, 'none')}"
                 for column in {**has, **gives} if has.get(column) != gives.get(column)]  # fmt: skip
        raise WrongColumn(
            f"{name}: the table's columns are not the rule's ({'; '.join(wrong) or 'another order'}). Name another "
            "sink, change the SQL, or begin anew with `floodmark reset`"
        )
