"""Write sites: every table of a rule, written once for each epoch under the generation's app id.

A site asks for the version that its table has recorded before it writes, and the pure table in
`core.protocol.recovery` says what to do with it. A skipped write is therefore known and compared, never assumed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.presence import Presence
from floodmark.core.protocol.records.rows import Written
from floodmark.core.protocol.recovery import SEAL, Step, backfill_version, before_backfill, before_write, version_of
from floodmark.core.rules.sinks.upserts import Effect, Upsert
from floodmark.errors import Fenced, ReplayDiffers
from floodmark.ledger.delta import comparing, datafiles, tablelog, tables
from floodmark.ledger.delta.syncing import sync_commit, sync_table
from floodmark.ledger.delta.tablelog import OurCommit
from floodmark.spark.session.faults import of_table
from floodmark.spark.session.session import refuse_leaked_transaction
from floodmark.spark.write.appending import Appending
from floodmark.spark.write.layouts import add_columns, loosen, set_properties
from floodmark.spark.write.replacing import Replacing, ReplacingAll, Span
from floodmark.spark.write.upserting import Upserting

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """One table that an epoch may write. `name` stands in the ledger; `role` in the crash points.

    `upsert`: how rows are merged into it; `span`: those that they replace; `whole`: they replace all; none of these:
    they are appended. `exact`: its floating point is a copy of the input. `adds_columns`: those that the rows have and
    the table has not.
    """

    name: str
    role: str
    address: str
    app: str
    writes_again: bool = False
    upsert: Upsert | None = None
    exact: bool = False
    span: Span | None = None
    adds_columns: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Work:
    """What an attempt at an epoch wants written at one site; `frame` None: nothing.

    A site that gets nothing is asked all the same: it must not have recorded this epoch.
    """

    site: Site
    frame: DataFrame | None


@dataclass(frozen=True)
class Attempt:
    """Which epoch, which try at it, and the hash of the intent that every commit carries.

    `backfill`: the number of the one that stands after that epoch, if it is the attempt at a backfill.
    """

    epoch: int
    number: int
    intent: str
    backfill: int | None = None


@dataclass(frozen=True)
class Prepared:
    """What a site is to commit: `rows` that `begun` has written to files, or computed, by `step`; None: nothing."""

    site: Site
    step: Step
    rows: int
    begun: Appending | None


def write(work: Work, attempt: Attempt) -> Written | None:
    """Write the rows unless they are there; None where there are none (one that takes rows away is made all the same).

    Raises what `before_write` and `before_backfill` raise.
    """
    return finish(prepare(work, attempt), attempt)


def prepare(work: Work, attempt: Attempt) -> Prepared:
    """Write the rows to files that no version of the table names yet, or only compute them where they are there.

    Has no effect, so what fails here leaves nothing open. Raises what `before_write` and `before_backfill` raise.
    """
    with of_table(work.site.name):
        return _prepared(work, attempt)


def finish(prepared: Prepared, attempt: Attempt) -> Written | None:
    """Commit what was written, or compare it with what is there; None where there is nothing to commit."""
    with of_table(prepared.site.name):
        return _finished(prepared, attempt)


def _prepared(work: Work, attempt: Attempt) -> Prepared:
    site, frame = work.site, work.frame
    if frame is None:
        return Prepared(site, _step(site, attempt), 0, None)
    if site.adds_columns:
        add_columns(frame.sparkSession, site.address, frame.schema)
    # Begun before the table is asked what it has recorded: so no commit can slip in between unseen.
    begun = _begin(frame.sparkSession, site, attempt)
    step = _step(site, attempt)
    if step is Step.COMPARE:
        return Prepared(site, step, begun.compute(frame), begun)
    begun.check_types(site.name, frame.schema)
    return Prepared(site, step, begun.write(frame), begun)


def _finished(prepared: Prepared, attempt: Attempt) -> Written | None:
    site, rows, begun = prepared.site, prepared.rows, prepared.begun
    if prepared.step is Step.COMPARE:
        return _compared(site, attempt, rows, begun)
    if begun is None or not (rows or attempt.backfill or site.whole):
        return None
    comparing.check_before_commit(site.name, begun.moves(), begun.promised())
    return _committed(begun, site, attempt, rows)


def _begin(session: SparkSession, site: Site, attempt: Attempt) -> Appending:
    if site.span is not None:
        return Replacing(session, site.address, site.app, site.span)
    if site.whole:
        return ReplacingAll(session, site.address, site.app)
    if site.upsert is None:
        return Appending(session, site.address, site.app, site.exact)
    return Upserting(session, site.address, site.app, site.upsert, f"{site.name}, epoch {attempt.epoch}")


def _step(site: Site, attempt: Attempt) -> Step:
    recorded = tablelog.recorded_version(site.address, site.app)
    if attempt.backfill is not None:
        return before_backfill(recorded, attempt.epoch, attempt.backfill)
    return before_write(recorded, attempt.epoch, attempt.number, site.writes_again)


def _version(site: Site, attempt: Attempt) -> int:
    if attempt.backfill is not None:
        return backfill_version(attempt.epoch, attempt.backfill)
    return version_of(attempt.epoch, attempt.number, site.writes_again)


def _committed(begun: Appending, site: Site, attempt: Attempt, rows: int) -> Written:
    """Commit what was written, and VERIFY what the log says of it."""
    version = _version(site, attempt)
    commit = begun.commit(version, _said(site, version, attempt, begun.facts()))
    if commit is not None:
        found = tablelog.commit_at(site.address, commit, site.app, version)
        if found is not None:  # else another process has put its own commit in the place of ours
            comparing.same_files(site.name, found, begun.promised())
            return _with(_verified(site, found, attempt, rows), begun.digest, begun.results)
    elif tablelog.recorded_version(site.address, site.app) == version:  # a twin of this attempt's epoch was faster
        return _compared(site, attempt, rows, begun)
    raise Fenced(f"{site.name}: another writer came between; this attempt's write had no effect")


def _compared(site: Site, attempt: Attempt, rows: int, begun: Appending | None) -> Written:
    """What an earlier attempt wrote, if it is what this one computed (`begun`; None: nothing) and is still there.

    At qos 1 a commit of this very attempt is a twin's, and its rows are not looked at.
    """
    found = tablelog.our_commit(site.address, site.app, _version(site, attempt))
    verified = _verified(site, found, attempt, rows)
    comparing.same_files(site.name, found, Effect.said(found.metadata))
    if begun is None or site.writes_again:
        return verified
    comparing.same_rows(site.name, found, begun.digest, begun.results)
    now = tablelog.rows_now(site.address, found.commit)
    comparing.still_there(site.name, found, now)
    return _with(verified, _held(site, found, begun, now), begun.results)


def _held(site: Site, found: OurCommit, begun: Appending, now: Presence) -> Digest:
    """The digest of the rows in the commit's files, found to be what it wrote.

    Once others have joined these files (OPTIMIZE) and removed them (VACUUM), the log proves as much as can be proven:
    what the commit wrote, and that its rows have only been carried to other files since.
    """
    if now.joined and datafiles.lacks_files(site.address, found.commit) and "digest" in found.metadata:
        _LOG.warning(
            "%s: the files of commit %s were joined and removed by others; its rows are proven by the log alone",
            site.name, found.commit,
        )  # fmt: skip
        return comparing.said_digest(found)
    held = begun.held(found.commit)
    comparing.same_content(site.name, found, held, begun.digest, begun.results)
    return held


def _with(written: Written, digest: Digest, results: Digest | None) -> Written:
    return written.model_copy(update={"digest": digest, "results": results})


def _verified(site: Site, found: OurCommit, attempt: Attempt, rows: int) -> Written:
    """VERIFY: the commit that the table holds is of this intent, has as many rows as this attempt computed."""
    comparing.same_effect(site.name, found, attempt.intent, rows)
    sync_commit(site.address, found.commit)
    return Written(version=found.metadata["version"], commit=found.commit, rows=found.rows)


def _said(site: Site, version: int, attempt: Attempt, facts: Mapping[str, Any] | None = None) -> str:
    """The metadata that every commit of ours carries."""
    said = {"app": site.app, "version": version, "epoch": attempt.epoch, "attempt": attempt.number}
    if attempt.backfill is not None:
        said["backfill"] = attempt.backfill
    return json.dumps({**said, "intent": attempt.intent, **(facts or {})}, separators=(",", ":"))


def seal(spark: SparkSession, site: Site) -> None:
    """Turn every later write under the site's app id into nothing, for good."""
    if tablelog.recorded_version(site.address, site.app) == SEAL:
        return
    commit = Appending(spark, site.address, site.app).commit(SEAL, _said(site, SEAL, Attempt(-1, 0, "seal")))
    if commit is not None:
        sync_commit(site.address, commit)
    if tablelog.recorded_version(site.address, site.app) != SEAL:
        raise Fenced(f"{site.name}: the seal of the old generation did not take")


def _overwrite(frame: DataFrame, site: Site, attempt: Attempt, partitions: Sequence[str]) -> None:
    """The rows as all of the table, with their columns, in one commit as version 0; nothing where that is recorded."""
    refuse_leaked_transaction(frame.sparkSession)
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy(*partitions)
    writer = writer.option("txnAppId", site.app).option("txnVersion", "0")
    writer.option("userMetadata", _said(site, 0, attempt)).save(site.address)


def empty(spark: SparkSession, site: Site, schema: StructType, partitions: Sequence[str] = ()) -> Written:
    """A new generation's first commit: the table without rows, with the columns the rule gives now."""
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
    """Make the table with its owner in one commit; an empty table that nobody owns is taken over.

    One that a killed run has made is made what it would be now.
    """
    tables.create(address, _nullable(schema).json(), {tables.OWNER: owner, **(properties or {})}, partitions)
    found = tables.open_table(address)
    if found is not None and tables.owner_of(found) is None:
        set_properties(spark, address, {tables.OWNER: owner, tables.ADOPTED: tables.ADOPTED_EMPTY})
    elif found is not None:
        _refit(spark, address, found, owner, schema, partitions)
    sync_table(address)


def fit_empty(spark: SparkSession, address: str, schema: StructType) -> None:
    """Give a table of the rule's own today's columns, where it holds nothing."""
    table = tables.open_table(address)
    assert table is not None
    _refit(spark, address, table, str(tables.owner_of(table)), schema, ())


def _refit(
    spark: SparkSession, address: str, table: DeltaTable, owner: str, schema: StructType, partitions: Sequence[str]
) -> None:
    """Give a table that holds nothing the columns and partitions of today, where a killed run had others."""
    wanted = _nullable(schema)
    if not tables.is_misfit(table, owner, wanted.json(), partitions):
        return
    loosen(spark, address)
    refuse_leaked_transaction(spark)
    writer = spark.createDataFrame([], wanted).write.format("delta").mode("overwrite")
    writer.option("overwriteSchema", "true").partitionBy(*partitions).save(address)
    sync_table(address)


def _nullable(schema: StructType) -> StructType:
    """The columns without what their source says of them, nested ones too: a source may drop its NOT NULL."""
    fresh = StructType()
    for field in schema.toNullable():
        fresh = fresh.add(field.name, field.dataType, True)
    return fresh
