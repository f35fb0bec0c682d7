"""A Delta table as a source. Only the functions that take a session need a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from math import floor
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.opening import open_existing
from floodmark.connectors.ports.source import Backlog, Planned
from floodmark.core.committimes import first_from
from floodmark.core.lifecycle.retention import DEFAULTS, FILES, LOG, Limit, retention_us
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import about, about_table
from floodmark.errors import HistoryGone, NotThereYet
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.committimes import commit_times
from floodmark.ledger.delta.storefaults import passing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.rule import EpochLimits, Stream


class DeltaSource(Planned):
    """A Delta table that a rule reads. It is rewindable; an offset is (version, file)."""

    def __init__(self, name: str, stream: Stream):
        self.name = name
        self.declared = stream
        self.address = location(stream.address)

    def table(self) -> DeltaTable:
        return open_existing(f"stream {self.name}", self.address, self.declared.rule)

    def columns(self) -> dict[str, str]:
        """Column name → Delta type name."""
        return tables.columns_of(self.table())

    def start(self) -> str:
        """The offset at which a generation starts, as a line of an offset-log entry."""
        table, start = self.table(), self.declared.start
        if start == "earliest":
            return self._at(table, table.version(), snapshot=True)
        if start == "latest":
            return self._at(table, table.version() + 1)
        return self._at(table, self._version(table, start))

    def _version(self, table: DeltaTable, start: Any) -> int:
        if start.version is not None:
            if start.version > table.version():
                raise NotThereYet(
                    f"stream {self.name}: expected version {start.version} (`start`), newest found is "
                    f"{table.version()}: name an existing version, or wait for this one"
                )
            return int(start.version)
        return first_not_before(table, self.address, datetime.fromisoformat(start.timestamp))

    def _at(self, table: DeltaTable, version: int, snapshot: bool = False) -> str:
        # Delta rejects (0, -1, false) as a committed offset; the snapshot of version 0 has the same rows.
        return DeltaOffset(tables.table_id(table), version, -1, snapshot or version == 0).line()

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
        if at.snapshot and self._has_files(at.version):
            return True
        return any(True for _ in self._fresh(at, newest))

    def backlog(self, line: str, rebuilt: bool = False) -> Backlog:
        """Commits with data that are not folded yet; a first snapshot counts as one."""
        at, newest = DeltaOffset.parse(line), self.table().version()
        fresh = list(self._fresh(at, newest))
        if not rebuilt:
            self._refuse_removed(fresh)
        commits = len(fresh) + int(at.snapshot and self._has_files(at.version))
        facts = {"version": at.version, "newest": newest, "commits": commits, "in_snapshot": at.snapshot}
        return Backlog(commits, "commits", _behind(commits, newest, at.snapshot), facts)

    def _fresh(self, at: DeltaOffset, newest: int) -> Iterator[tablelog.DataCommit]:
        """The commits up to version `newest` with data beyond the offset; a first snapshot is not included."""
        taken = {at.version: at.index + 1}  # files of a version that is half read
        commits = tablelog.data_commits(self.address, at.version + at.snapshot, newest)
        return (commit for commit in commits if commit.adds > taken.get(commit.version, 0) or commit.removes)

    def check_appended(self, line: str) -> None:
        """Raise HistoryGone if a commit removes rows that are folded or pending."""
        self._refuse_removed(self._fresh(DeltaOffset.parse(line), self.table().version()))

    def _refuse_removed(self, commits: Iterable[tablelog.DataCommit]) -> None:
        found = next((commit for commit in commits if commit.removes and commit.metadata is not None), None)
        if found is not None:
            raise self._gone(
                f"version {found.version} of the table removes or changes existing rows: "
                f"{self._who(found.metadata or {})}. Rows that the rule has processed cannot be undone, so nothing "
                "more is read: start over from the table's current content with `floodmark reset`"
            )

    def _gone(self, problem: str) -> HistoryGone:
        return HistoryGone(about(f"stream {self.name}", self.address, problem))

    def _who(self, info: dict[str, Any]) -> str:
        """Who made a commit that removes rows, and why, according to its metadata."""
        rule = f"rule {self.declared.rule}" if self.declared.rule else "the rule that writes it"
        if not str(info.get("app", "")).startswith("floodmark/"):
            return "something other than a rule did it, and Floodmark reads only added rows"
        if info.get("intent") == "empty":
            return f"{rule} was reset"
        if "backfill" in info:
            return f"{rule} has replaced the results of an interval, in its backfill {info['backfill']}"
        return (
            f"{rule} upserts rows by key, or replaces all of them in each run, so read its table as a lookup table "
            "(`lookups`), not as a stream"
        )

    def waiting(self, line: str | None) -> int:
        """Bytes of the files beyond the offset `line` (None: of all files); a partly read version counts in full."""
        table = self.table()
        at = None if line is None else DeltaOffset.parse(line)
        if at is None:
            return datafiles.size_of(table)
        size = sum(commit.size for commit in self._fresh(at, table.version()))
        return size + (datafiles.size_of(self._as_of(at.version)) if at.snapshot else 0)

    def bytes_a_row(self) -> float | None:
        """Bytes a row in the newest version, by its statistics; None if these are missing."""
        table = self.table()
        counts = [file.rows for file in datafiles.files_of(table)]
        rows = sum(count for count in counts if count is not None)
        return datafiles.size_of(table) / rows if rows and None not in counts else None

    def _has_files(self, version: int) -> bool:
        return bool(self._paths_at(version))

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
                if passing(str(fault)):
                    raise
                raise self._forgotten(version, str(fault)) from fault
        return table

    def _forgotten(self, version: int, info: str) -> HistoryGone:
        return self._gone(
            f"expected version {version} of the table, whose first snapshot is only partly "
            f"read; its log no longer reaches back to it ({info.strip().splitlines()[0]}). Restore the table's log, "
            "or start over with `floodmark reset`; give the source a longer `delta.logRetentionDuration`"
        )

    def forgets(self, line: str, now_us: int) -> list[Limit]:
        """Limits from the table's log, on what lies beyond the offset `line`: its log entries and replaced files."""
        at = DeltaOffset.parse(line)
        table = self.table()
        newest, first = table.version(), at.version + at.snapshot
        fresh = [commit.version for commit in self._fresh(at, newest)]
        whole = self._paths_at(at.version) if at.snapshot else set[str]()
        if tables.table_id(table) != at.table_id or not (fresh or whole):
            return []
        info = table.metadata().configuration
        kept = {name: retention_us(self.address, name, info.get(name) or DEFAULTS[name]) for name in (LOG, FILES)}
        moves = {version: tablelog.moved(self.address, version) for version in range(min([first, *fresh]), newest + 1)}
        needed, removed = set(whole), list[int]()
        for version, move in moves.items():
            if move is None:
                return [Limit(self.name, LOG, kept[LOG], kept[LOG], lost=version in fresh)]
            removed += [at_us for path, at_us in move.removed.items() if path in needed]
            needed |= move.added if version in fresh else set()
        oldest = moves[min(fresh)] if fresh else None
        written = [oldest.written_us] if oldest else [tablelog.written_us(self.address, at.version)]
        found = [Limit(self.name, LOG, now_us - one, kept[LOG]) for one in written if one is not None]
        return found + [Limit(self.name, FILES, now_us - one, kept[FILES]) for one in removed]

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

    def stream(self, spark: SparkSession, limits: EpochLimits) -> DataFrame:
        # Delta's default limit of 1000 files an epoch would apply otherwise.
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", str(limits.max_files or 2**31 - 1))
        if limits.max_bytes:
            reader = reader.option("maxBytesPerTrigger", str(limits.max_bytes))
        return reader.load(self.address)

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        from floodmark.connectors.planning.range import planned_range

        found = planned_range(spark, self, begin, end)
        return self.whole(spark).limit(0) if found is None else found

    def whole(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.address)


def first_not_before(table: DeltaTable, address: str, moment: datetime) -> int:
    """The first version committed at or after `moment`; if all are older, the next version to be committed."""
    times = commit_times(table, address)
    found = first_from(times, floor(moment.timestamp() * 1000))
    if found is not None and found == min(times) > 0:
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
