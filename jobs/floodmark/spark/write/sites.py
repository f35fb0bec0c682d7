"""Write sites: every table of a rule, written once for each epoch under the generation's app id.

A site reads the version that its sink has recorded before it writes, and the pure table in `core.protocol.recovery`
decides what to do. So a skipped write is known and compared, never assumed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from floodmark.connectors.ports.sink import Layout, Transaction, Writable, Writer
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.presence import Presence
from floodmark.core.protocol.records.rows import Written
from floodmark.core.protocol.recovery import (
    ATTEMPTS,
    SEAL,
    Step,
    backfill_version,
    before_backfill,
    before_write,
    version_of,
)
from floodmark.core.rules.sinks.upserts import Effect, Upsert
from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced, ReplayDiffers
from floodmark.ledger import comparing
from floodmark.ledger.comparing import Committed
from floodmark.ledger.delta.datafiles import HOLDS_FROM
from floodmark.spark.session.faults import of_table
from floodmark.spark.write.replacing import Part
from floodmark.spark.write.tablesink import TableWriter

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """One table that an epoch may write. The ledger uses its `name`, crash points its `role`.

    `upsert`: how rows are merged into it; `span`: the rows that they replace; `whole`: they replace all; otherwise they
    are appended. `exact`: its floating point is a copy of the input. `adds_columns`: the table gets columns that it
    lacks. `opens`: the sink through which it is written.
    """

    name: str
    role: str
    address: str
    app: str
    writes_again: bool = False
    upsert: Upsert | None = None
    exact: bool = False
    span: Part | None = None
    adds_columns: bool = False
    whole: bool = False
    opens: Callable[[Site], Writer] = field(default=lambda site: TableWriter(site.address, site))

    @property
    def writer(self) -> Writer:
        return self.opens(self)


@dataclass(frozen=True)
class Work:
    """What an attempt at an epoch writes at one site; `frame` None: nothing.

    A site that gets nothing is checked, too: it must not have recorded this epoch.
    """

    site: Site
    frame: DataFrame | None


@dataclass(frozen=True)
class Attempt:
    """The epoch, the number of the attempt, and the hash of the intent that every commit carries.

    `backfill`: for an attempt at a backfill after that epoch, the backfill's number.
    """

    epoch: int
    number: int
    intent: str
    backfill: int | None = None


@dataclass(frozen=True)
class Prepared:
    """What a site is to commit: `rows` that `begun` (None: nothing) wrote to files, or only computed, by `step`."""

    site: Site
    step: Step
    rows: int
    begun: Transaction | None


def write(work: Work, attempt: Attempt) -> Written | None:
    """Write the rows unless they exist; None if there are none (a write that removes rows is committed all the same).

    Raises as `before_write` and `before_backfill`.
    """
    return finish(prepare(work, attempt), attempt)


def prepare(work: Work, attempt: Attempt) -> Prepared:
    """Write the rows to files that no version of the table names yet, or only compute them if they exist.

    Has no effect, so a failure here leaves nothing open. Raises as `before_write` and `before_backfill`.
    """
    with of_table(work.site.name):
        return _prepared(work, attempt)


def finish(prepared: Prepared, attempt: Attempt) -> Written | None:
    """Commit what was written, or compare it with what exists; None if there is nothing to commit."""
    with of_table(prepared.site.name):
        return _finished(prepared, attempt)


def _prepared(work: Work, attempt: Attempt) -> Prepared:
    site, frame = work.site, work.frame
    if frame is None:
        return Prepared(site, _step(site, attempt), 0, None)
    # Begun before the table is asked what it has recorded: so no commit can slip in between unseen.
    begun = site.writer.begin(frame, f"{site.name}, epoch {attempt.epoch}")
    step = _step(site, attempt)
    if step is Step.COMPARE:
        return Prepared(site, step, begun.compute(frame), begun)
    begun.check_types(site.name, frame)
    return Prepared(site, step, begun.write(frame), begun)


def _finished(prepared: Prepared, attempt: Attempt) -> Written | None:
    site, rows, begun = prepared.site, prepared.rows, prepared.begun
    if prepared.step is Step.COMPARE:
        return _compared(site, attempt, rows, begun)
    if begun is None or not (rows or attempt.backfill or site.whole):
        return None
    comparing.check_before_commit(site.name, begun.moves(), begun.expected_effect())
    return _committed(begun, site, attempt, rows)


def _step(site: Site, attempt: Attempt) -> Step:
    recorded = site.writer.recorded_version()
    if attempt.backfill is not None:
        return before_backfill(recorded, attempt.epoch, attempt.backfill)
    return before_write(recorded, attempt.epoch, attempt.number, site.writes_again)


def _version(site: Site, attempt: Attempt) -> int:
    if attempt.backfill is not None:
        return backfill_version(attempt.epoch, attempt.backfill)
    return version_of(attempt.epoch, attempt.number, site.writes_again)


def check_not_overtaken(site: Site, epoch: int) -> None:
    """Raise Fenced if another driver has written a later epoch to a state table, which this one is about to rewrite."""
    recorded = site.writer.recorded_version()
    if recorded is not None and recorded // ATTEMPTS > epoch:
        raise Fenced(
            about_named(
                site.name, f"expected no epoch after {epoch}, found {recorded // ATTEMPTS}: another run went on"
            )
        )


def _committed(begun: Transaction, site: Site, attempt: Attempt, rows: int) -> Written:
    """Commit what was written, and VERIFY it against the log."""
    version = _version(site, attempt)
    commit = begun.commit(version, commit_metadata(site, version, attempt, begun.facts()))
    if commit is not None:
        found = site.writer.committed_at(commit, version)
        if found is not None:  # else another process has put its own commit in the place of ours
            comparing.check_same_files(site.name, found, begun.expected_effect())
            return _with(_verified(site, found, attempt, rows), begun.digest, begun.results)
    elif site.writer.recorded_version() == version:  # a twin of this attempt's epoch was faster
        return _compared(site, attempt, rows, begun)
    raise Fenced(about_named(site.name, "another writer committed in between; this attempt's write had no effect"))


def _compared(site: Site, attempt: Attempt, rows: int, begun: Transaction | None) -> Written:
    """What an earlier attempt wrote, if it equals what this one computed (`begun`; None: nothing) and still exists.

    At qos 1, a commit of this same attempt is a twin's, and its rows are not compared.
    """
    found = site.writer.committed(_version(site, attempt))
    verified = _verified(site, found, attempt, rows)
    comparing.check_same_files(site.name, found, Effect.from_metadata(found.metadata))
    if begun is None or site.writes_again:
        return verified
    comparing.check_same_rows(site.name, found, begun.digest, begun.results)
    now = site.writer.presence(found.commit)
    comparing.check_rows_present(site.name, found, now)
    return _with(verified, _content_digest(site, found, begun, now), begun.results)


def _content_digest(site: Site, found: Committed, begun: Transaction, now: Presence) -> Digest:
    """The digest of the rows in the commit's files, after a check that these are what it wrote.

    Once others have joined these files (OPTIMIZE) and removed them (VACUUM), only the log is left as proof. It shows
    what the commit wrote, and that its rows have only been moved to other files since.
    """
    if now.joined and site.writer.lacks_files(found.commit) and "digest" in found.metadata:
        _LOG.warning(
            "%s: the files of commit %s were joined and removed by others; its rows are proven by the log alone",
            site.name, found.commit,
        )  # fmt: skip
        return comparing.recorded_digest(found)
    held = begun.digest_of_commit(found.commit)
    if held.rows == 0 and "digest" in found.metadata and comparing.recorded_digest(found).rows == 0:
        return comparing.recorded_digest(found)  # without a file nothing tells which columns are floating point
    comparing.check_same_content(site.name, found, held, begun.digest, begun.results)
    return held


def _with(written: Written, digest: Digest, results: Digest | None) -> Written:
    return written.model_copy(update={"digest": digest, "results": results})


def _verified(site: Site, found: Committed, attempt: Attempt, rows: int) -> Written:
    """VERIFY: the table's commit has this intent, and as many rows as this attempt computed."""
    comparing.check_same_effect(site.name, found, attempt.intent, rows)
    site.writer.settle(found.commit)
    return Written(version=found.metadata["version"], commit=found.commit, rows=found.rows)


def commit_metadata(site: Site, version: int, attempt: Attempt, facts: Mapping[str, Any] | None = None) -> str:
    """The metadata that each of our commits carries."""
    said = {"app": site.app, "version": version, "epoch": attempt.epoch, "attempt": attempt.number}
    if attempt.backfill is not None:
        said["backfill"] = attempt.backfill
        if site.role == "state":  # a correction leaves what that epoch and later ones see
            said[HOLDS_FROM] = attempt.epoch
    return json.dumps({**said, "intent": attempt.intent, **(facts or {})}, separators=(",", ":"))


def seal(spark: SparkSession, site: Site) -> None:
    """Turn every later write under the site's app id into nothing, for good."""
    writer = site.writer
    if writer.recorded_version() == SEAL:
        return
    commit = writer.seal(spark, SEAL, commit_metadata(site, SEAL, Attempt(-1, 0, "seal")))
    if commit is not None:
        writer.settle(commit)
    if writer.recorded_version() != SEAL:
        raise Fenced(about_named(site.name, "the seal of the old generation had no effect"))


def empty(spark: SparkSession, site: Site, sink: Writable, layout: Layout) -> Written:
    """A new generation's first commit: the sink without rows, laid out as the rule has it now."""
    sink.empty(spark, layout, site.app, commit_metadata(site, 0, Attempt(0, 0, "empty")))
    found = site.writer.committed(0)
    if found.metadata["intent"] != "empty":
        raise ReplayDiffers(
            about_named(site.name, f"expected the commit that empties the table, found {found.metadata}")
        )
    site.writer.settle(found.commit)
    return Written(version=0, commit=found.commit, rows=0)
