"""A Delta table as a source. Only the functions that take a session need a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import floor
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.connectors.delta import mapping
from floodmark.connectors.delta.expiry import expiring, is_due
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.opening import open_existing
from floodmark.connectors.delta.rewrites import (
    described,
    entry_gone,
    files_moved,
    is_fed,
    is_skipped,
    newest_alike,
    rewriting,
    why_stopped,
)
from floodmark.connectors.ports.source import Backlog, Planned, check_passed
from floodmark.core.committimes import first_from
from floodmark.core.lifecycle.retention import Limit
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import about, about_table
from floodmark.errors import HistoryGone, NotThereYet
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.committimes import check_none_held, commit_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.model import StartAt
    from floodmark.core.rules.rule import EpochLimits, Stream


MOST = 2**31 - 1  # files that Delta takes as a limit
UNDO = "`floodmark abandon` undoes the open epoch, and the next run corrects its rows, too; or start"


class DeltaSource(Planned):
    """A Delta table that a rule reads. It is rewindable; an offset is (version, file)."""

    def __init__(self, name: str, stream: Stream):
        self.name = name
        self.declared = stream
        self.address = location(stream.address)

    def table(self) -> DeltaTable:
        return open_existing(f"stream {self.name}", self.address, self.declared.rule)

    def columns(self) -> dict[str, str]:
        return tables.columns_of(self.table())

    def start(self) -> str:
        now, table, start = datetime.now(UTC), self.table(), self.declared.start
        if start == "earliest":
            return self._at(table, table.version(), snapshot=True)
        if start == "latest":
            return self._at(table, table.version() + 1)
        return self._at(table, starting_version(self.name, table, self.address, start, now))

    def _at(self, table: DeltaTable, version: int, snapshot: bool = False) -> str:
        # Delta rejects (0, -1, false) as a committed offset; the snapshot of version 0 has the same rows.
        return self._line(DeltaOffset(tables.table_id(table), version, -1, snapshot or version == 0))

    def _line(self, at: DeltaOffset) -> str:
        return at.line()

    def end(self) -> str:
        """The offset at which all present data is read, provided the first snapshot is."""
        table = self.table()
        return self._at(table, table.version() + 1)

    def in_snapshot(self, line: str) -> bool:
        return DeltaOffset.parse(line).snapshot

    def identity(self, line: str) -> str:
        return DeltaOffset.parse(line).table_id

    def describe(self, line: str) -> str:
        return describe_offset(DeltaOffset.parse(line))

    def news(self, line: str, upto: str | None = None) -> bool:
        """Whether data beyond the offset `line` has been committed (and not beyond `upto`, if given)."""
        at = DeltaOffset.parse(line)
        newest = self.table().version() if upto is None else DeltaOffset.parse(upto).newest_read
        if at.snapshot and self._paths_at(at.version):
            return True
        return any(True for _ in self._fresh(at, newest))

    def backlog(self, line: str, rebuilt: bool = False) -> Backlog:
        """Commits with data that are not folded yet; a first snapshot counts as one."""
        at, newest = DeltaOffset.parse(line), self.table().version()
        fresh = list(self._fresh(at, newest))
        if not rebuilt:
            self._refuse_removed(fresh)
        commits = len(fresh) + int(bool(at.snapshot and self._paths_at(at.version)))
        facts = {"version": at.version, "newest": newest, "commits": commits, "in_snapshot": at.snapshot}
        return Backlog(commits, "commits", _behind(commits, newest, at.snapshot), facts)

    def _fresh(self, at: DeltaOffset, newest: int) -> Iterator[tablelog.DataCommit]:
        """The commits up to version `newest` with data beyond the offset; a first snapshot is not included."""
        taken = {at.version: at.index + 1}  # files of a version that is half read
        commits = tablelog.data_commits(self.address, at.version + at.snapshot, newest)
        found = (commit for commit in commits if commit.adds > taken.get(commit.version, 0) or commit.removes)
        return (commit for commit in found if not is_skipped(commit, self.declared))

    def check_appended(self, line: str) -> None:
        """Raise HistoryGone if a commit removes rows that are folded or pending, unless the rule says what to do."""
        at = DeltaOffset.parse(line)
        self._refuse_removed(self._fresh(at, self.table().version()))
        if not self._takes_in(at) or self.rewrite(line) is None:
            self.check_readable(line)

    def _takes_in(self, at: DeltaOffset) -> bool:
        """Whether a correction can take in all that is not read yet: no version is read in part."""
        return self.declared.on_rewrite == "correct" and at.index < 0 and not at.snapshot

    def check_readable(self, since: str, upto: str | None = None) -> None:
        way = UNDO if upto and self.declared.on_rewrite == "correct" else "Start"
        problem = mapping.unreadable(self._layouts(since, DeltaOffset.parse(upto).newest_read if upto else None), way)
        if problem is not None:
            raise self._gone(problem)

    def _layouts(self, since: str, upto: int | None = None) -> list[mapping.Layout]:
        return mapping.known_layouts(self.address, DeltaOffset.parse(since).version, self.table(), self._as_of, upto)

    def rewrite(self, since: str, upto: str | None = None) -> Rewrite | None:
        at = DeltaOffset.parse(since)
        newest = self.table().version() if upto is None else DeltaOffset.parse(upto).newest_read
        commits = rewriting(self._fresh(at, newest))
        if not commits:
            return None
        for version in (commit.version for commit in commits if commit.gone):
            raise self._gone(entry_gone(version))
        first, found = commits[0].version, self._layouts(since)
        if self._takes_in(at) and not all(map(found[-1].fits, found)):  # Spark's stream would not get there
            first = next(self._fresh(at, newest)).version
        ends = (first, commits[-1].version + 1)
        begin, end = (DeltaOffset(at.table_id, version, -1, False).line() for version in ends)
        return Rewrite(since=begin, upto=end, commits=tuple(described(self.address, one) for one in commits))

    def passed_over(self, begin: str, end: str) -> tuple[str, ...]:
        at, upto = DeltaOffset.parse(begin), DeltaOffset.parse(end).newest_read
        if self.declared.on_rewrite != "skip" or at.newest_read >= upto:
            return ()
        commits = list(tablelog.data_commits(self.address, at.newest_read + 1, upto))
        self._refuse_removed(commits)
        return tuple(described(self.address, commit) for commit in commits if commit.removes)

    def _refuse_removed(self, commits: Iterable[tablelog.DataCommit]) -> None:
        problem = next(filter(None, (why_stopped(commit, self.declared) for commit in commits)), None)
        if problem is not None:
            raise self._gone(problem)

    def _gone(self, problem: str) -> HistoryGone:
        return HistoryGone(about(f"stream {self.name}", self.address, problem))

    def waiting(self, line: str | None, enough: int | None = None) -> int:
        """Bytes of the files beyond the offset `line` (None: of all files); a partly read version counts in full."""
        table, at = self.table(), None if line is None else DeltaOffset.parse(line)
        if at is None:
            return datafiles.size_of(table)
        whole = datafiles.size_of(self._as_of(at.version)) if at.snapshot else 0
        return _size(whole, self._fresh(at, table.version()), enough)

    def bytes_a_row(self) -> float | None:
        """Bytes a row in the newest version, by its statistics; None if these are missing."""
        return datafiles.bytes_a_row(self.table())

    def _paths_at(self, version: int) -> set[str]:
        """The files of the table at a version."""
        return set(datafiles.values_of(self._as_of(version).get_add_actions()["path"]))

    def _as_of(self, version: int) -> DeltaTable:
        """The table at a version. Its newest version was just read, so a failure concerns the older part of its log."""
        table = self.table()
        with tables.delta_errors(self.address):
            try:
                table.load_as_version(version)
            except DeltaError as fault:
                tables.check_gone(self.address, fault)
                raise _forgotten(self.name, self.address, version, str(fault)) from fault
        return table

    def forgets(self, line: str, now_us: int) -> list[Limit]:
        """Limits from the table's log, on what lies beyond the offset `line`: its log entries and replaced files."""
        at, table = DeltaOffset.parse(line), self.table()
        fresh = [commit.version for commit in self._fresh(at, table.version())]
        whole = self._paths_at(at.version) if at.snapshot else set[str]()
        corrects = self.declared.on_rewrite == "correct"
        if tables.table_id(table) != at.table_id:
            return []
        return expiring(self.name, self.address, table, at, fresh, needed=whole, compares=corrects, now_us=now_us)

    def is_to_follow(self, line: str, now_us: int) -> bool:
        return is_due(self.address, DeltaOffset.parse(line), self.table, now_us)

    def log_sum(self, line: str) -> str | None:
        """Of the newest log entry that is read at the offset `line`; None if none is read, or the entry is gone."""
        return tablelog.log_sum(self.address, DeltaOffset.parse(line).newest_read)

    def is_another(self, line: str, log_sum: str | None = None) -> bool:
        """Whether the table was recreated, cloned or restored since it was read; arguments as for `check_identity`."""
        table, at = self.table(), DeltaOffset.parse(line)
        return (
            tables.table_id(table) != at.table_id or table.version() < at.newest_read or self._is_split(line, log_sum)
        )

    def _is_split(self, line: str, known: str | None) -> bool:
        """Whether the newest entry that was read is now another commit. An entry that is gone counts as the same."""
        found = None if known is None else self.log_sum(line)
        return found is not None and found != known

    def check_identity(self, line: str, log_sum: str | None) -> None:
        """Refuse a table that was recreated or cloned at the same address, or that lost commits that were read.

        `line`: the offset up to which it was read; `log_sum`: its value at that time, if known.
        """
        table, at = self.table(), DeltaOffset.parse(line)
        found, known = tables.table_id(table), at.table_id
        if found != known:
            raise self._gone(
                f"expected the table with id {known}, found {found}: it was "
                "recreated or cloned. Restore the table, or start over with `floodmark reset`"
            )
        if table.version() < at.newest_read:
            raise self._gone(
                f"version {at.newest_read} of the table was read, its newest is now "
                f"{table.version()}: it lost commits, and the commits that replace them would be skipped. Restore "
                "the table's log, or start over with `floodmark reset`"
            )
        if self._is_split(line, log_sum):
            raise self._gone(
                f"version {at.newest_read} of the table is not the commit that was read: an "
                "older copy of the table was restored and written to, and its commits up to this version would be "
                "skipped. Restore the table's log, or start over with `floodmark reset`"
            )

    def check_columns(self, line: str, read: Iterable[str]) -> None:
        problem = mapping.problem(self.table(), self._as_of, DeltaOffset.parse(line).newest_read, read)
        if problem is not None:
            raise self._gone(problem)

    def stream(self, spark: SparkSession, limits: EpochLimits) -> DataFrame:
        options = _limited(limits)
        if self.declared.on_rewrite != "stop":  # an epoch of a rule that corrects is checked not to span a rewrite
            options["skipChangeCommits"] = "true"
        return spark.readStream.format("delta").options(**options).load(self.address)

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        """Where a read of whole versions that starts at `since` ends, within its limits; a first snapshot is one."""
        at, end = DeltaOffset.parse(since), DeltaOffset.parse(upto)
        version = at.version + 1 if at.snapshot else _full(self._fresh(at, end.newest_read), limits)
        return upto if version is None else self._line(DeltaOffset(at.table_id, version, -1, False))

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        at, upto = DeltaOffset.parse(begin), DeltaOffset.parse(end)
        if at.snapshot and at.index < 0 and not upto.snapshot and self.declared.on_rewrite != "skip":
            return self._as_read(spark, upto)
        return self._range(spark, begin, end)

    def _range(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        from floodmark.connectors.planning.range import planned_range

        found = planned_range(spark, self, begin, end)
        return self.whole(spark).limit(0) if found is None else found

    def _as_read(self, spark: SparkSession, upto: DeltaOffset) -> DataFrame:
        """All rows up to an offset. What was only added to, or corrected since, holds them in the version before."""
        from floodmark.connectors.planning.versionrows import rows_at

        whole = rows_at(spark, self.address, newest_alike(self.address, upto.version - 1, self.table().version()))
        return (
            whole if upto.index < 0 else whole.unionAll(self._range(spark, replace(upto, index=-1).line(), upto.line()))
        )

    def changes(self, spark: SparkSession, rewrite: Rewrite) -> tuple[DataFrame, DataFrame]:
        from floodmark.connectors.planning.versionrows import rows_fed, rows_of_both

        first, upto = (DeltaOffset.parse(line).version for line in (rewrite.since, rewrite.upto))
        if is_fed(self.table(), self.address, first):
            return rows_fed(spark, self.address, first, upto - 1)
        left, came = files_moved(self.address, self.table(), self._as_of, first, upto - 1)
        return rows_of_both(spark, self.address, left, came)

    def whole(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.address)


def _size(whole: int, commits: Iterator[tablelog.DataCommit], enough: int | None) -> int:
    """`whole`, and the bytes of commits until it is `enough`: to know one more is to read its log entry."""
    while (enough is None or whole < enough) and (commit := next(commits, None)) is not None:
        whole += commit.size
    return whole


def _forgotten(name: str, address: str, version: int, info: str) -> HistoryGone:
    return HistoryGone(
        about(
            f"stream {name}",
            address,
            f"expected version {version} of the table, of which rows are still to be read; its log no longer reaches "
            f"back to it ({info.strip().splitlines()[0]}). Restore the table's log, or start over with `floodmark "
            "reset`; give the source a longer `delta.logRetentionDuration`",
        )
    )


def _limited(limits: EpochLimits) -> dict[str, str]:
    """Options for Spark. Delta's default limit of 1000 files an epoch would apply otherwise."""
    found = {"maxFilesPerTrigger": str(min(limits.max_files or MOST, MOST))}
    return found | ({"maxBytesPerTrigger": str(limits.max_bytes)} if limits.max_bytes else {})


def _full(commits: Iterable[tablelog.DataCommit], limits: EpochLimits) -> int | None:
    """The version before which a limit is reached; None if all commits fit. The first one always fits."""
    size = taken = 0
    for commit in commits:
        before, size, taken = taken, size + commit.size, taken + max(commit.adds, 1)  # a removal is read, too
        bounds = ((size, limits.max_bytes), (taken, limits.max_files))
        if before and any(most is not None and found > most for found, most in bounds):
            return commit.version
    return None


def starting_version(stream: str, table: DeltaTable, address: str, start: StartAt, now: datetime) -> int:
    """The version at which a stream with this `start` begins. Raises NotThereYet. `now`: before the table was read."""
    if start.version is None:
        moment = datetime.fromisoformat(str(start.timestamp))
        found = first_not_before(table, address, moment)
        if found > table.version():
            check_passed(stream, moment, now)
        return found
    if start.version > table.version():
        raise NotThereYet(
            f"stream {stream}: expected version {start.version} (`start`), newest found is {table.version()}: name an "
            "existing version, or wait for this one"
        )
    return start.version


def first_not_before(table: DeltaTable, address: str, moment: datetime) -> int:
    """The first version committed at or after `moment`; if all are older, the next version to be committed."""
    times = commit_times(table, address)
    found = first_from(times, floor(moment.timestamp() * 1000))
    if found is not None and found == min(times) > 0:
        check_none_held(address, found)
        shown = datetime.fromtimestamp(times[found] / 1000, UTC).isoformat()
        raise HistoryGone(
            about_table(
                address,
                f"expected the log back to {moment.isoformat()} (`start`), found it from version {found} on, of "
                f"{shown}: name a later time",
            )
        )
    return table.version() + 1 if found is None else found


def describe_offset(at: DeltaOffset) -> str:
    """The position up to which a table is read, in words."""
    if at.snapshot:
        return f"snapshot of version {at.version}" + (f", {at.index + 1} files" if at.index >= 0 else "")
    return f"before version {at.version}" if at.index < 0 else f"version {at.version}, {at.index + 1} files"


def _behind(commits: int, newest: int, in_snapshot: bool) -> str:
    if not commits:
        return f"nothing new (table version {newest})"
    shown = "1 commit" if commits == 1 else f"{commits} commits"
    return f"{shown} with new data up to table version {newest}" + (
        ", still in its first snapshot" if in_snapshot else ""
    )
