"""Delta tables as source and sink. The questions about them need no JVM; only the functions that take a session do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import floor
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.connectors.delta.reading import read_table
from floodmark.core.committimes import first_from
from floodmark.core.protocol.entry import DeltaOffset
from floodmark.core.rules.sinks.tableproperties import REFUSED, forgetful
from floodmark.core.rules.sinks.takings import appends_only
from floodmark.core.text.addresses import location
from floodmark.errors import HistoryGone, NotOwned, NotThereYet, Refused
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.committimes import commit_times
from floodmark.ledger.delta.storefaults import passing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.rule import EpochLimits, Rule, Sink, Stream


class DeltaSource:
    """A Delta table that a rule reads: rewindable, its place is (version, file)."""

    def __init__(self, name: str, stream: Stream):
        self.name = name
        self.stream = stream
        self.address = location(stream.address)

    def table(self) -> DeltaTable:
        return read_table(f"stream {self.name}", self.address, self.stream.rule)

    def columns(self) -> dict[str, str]:
        """Column name → Delta type name."""
        return tables.columns_of(self.table())

    def start(self) -> str:
        """The offset at which a generation begins, as a line of an offset-log entry."""
        table, start = self.table(), self.stream.start
        if start == "earliest":
            return self._at(table, table.version(), snapshot=True)
        if start == "latest":
            return self._at(table, table.version() + 1)
        return self._at(table, self._version(table, start))

    def _version(self, table: DeltaTable, start: Any) -> int:
        if start.version is not None:
            if start.version > table.version():
                raise NotThereYet(
                    f"stream {self.name}: expected version {start.version} (`start`), newest found is {table.version()}"
                    ": name one that is there, or wait until it is"
                )
            return int(start.version)
        return first_not_before(table, self.address, datetime.fromisoformat(start.timestamp))

    def _at(self, table: DeltaTable, version: int, snapshot: bool = False) -> str:
        # Delta refuses (0, -1, false) as an offset that was committed; the snapshot of version 0 is the same rows.
        return DeltaOffset(tables.table_id(table), version, -1, snapshot or version == 0).line()

    def end(self) -> str:
        """The offset at which all that is there now is read, once the first snapshot is."""
        table = self.table()
        return self._at(table, table.version() + 1)

    def in_snapshot(self, line: str) -> bool:
        return DeltaOffset.parse(line).snapshot

    def news(self, line: str, upto: int | None = None) -> bool:
        """Whether data beyond the offset `line` has been committed (not after version `upto`, where given)."""
        at = DeltaOffset.parse(line)
        newest = self.table().version() if upto is None else upto
        if at.snapshot and self._has_files(at.version):
            return True
        return any(True for _ in self.fresh(at, newest))

    def fresh(self, at: DeltaOffset, newest: int) -> Iterator[tablelog.DataCommit]:
        """The commits up to version `newest` that have data beyond the offset; a first snapshot is none of them."""
        taken = {at.version: at.index + 1}  # files of a version that is half read
        commits = tablelog.data_commits(self.address, at.version + at.snapshot, newest)
        return (commit for commit in commits if commit.adds > taken.get(commit.version, 0) or commit.removes)

    def check_appended(self, commits: Iterable[tablelog.DataCommit]) -> None:
        """Refuse a commit that takes rows away which are folded, or about to be. Raises HistoryGone."""
        found = next((commit for commit in commits if commit.removes and commit.said is not None), None)
        if found is not None:
            raise HistoryGone(
                f"stream {self.name}: version {found.version} of {self.address} takes away rows that were there: "
                f"{self._who(found.said or {})}. What is folded of them cannot be undone, so nothing more is read: "
                "begin anew from what the table holds now with `floodmark reset`"
            )

    def _who(self, said: dict[str, Any]) -> str:
        """What a commit that takes rows away was, by what it says of itself."""
        rule = f"rule {self.stream.rule}" if self.stream.rule else "the rule that writes it"
        if not str(said.get("app", "")).startswith("floodmark/"):
            return "something other than a rule did, and Floodmark folds what is added"
        if said.get("intent") == "empty":
            return f"{rule} was reset"
        if "backfill" in said:
            return f"{rule} has replaced the results of an interval, in its backfill {said['backfill']}"
        return (
            f"{rule} merges rows by their key, or replaces all of them in each run, so they can be looked up "
            "(`lookups`), and not folded"
        )

    def waiting(self, line: str | None) -> int:
        """Bytes of the files beyond the offset `line` (None: of all files); a half-read version counts whole."""
        table = self.table()
        at = None if line is None else DeltaOffset.parse(line)
        if at is None:
            return datafiles.size_of(table)
        size = sum(commit.size for commit in self.fresh(at, table.version()))
        return size + (datafiles.size_of(self._as_of(at.version)) if at.snapshot else 0)

    def bytes_a_row(self) -> float | None:
        """Of the newest version, by its statistics; None where they do not tell."""
        table = self.table()
        counts = [file.rows for file in datafiles.files_of(table)]
        rows = sum(count for count in counts if count is not None)
        return datafiles.size_of(table) / rows if rows and None not in counts else None

    def _has_files(self, version: int) -> bool:
        return bool(self.paths_at(version))

    def paths_at(self, version: int) -> set[str]:
        """The files of the table as it was at a version."""
        return set(datafiles.values_of(self._as_of(version).get_add_actions()["path"]))

    def _as_of(self, version: int) -> DeltaTable:
        """The table as it was; the newest was read before, so what fails here is the older part of its log."""
        table = self.table()
        with tables.reading(self.address):
            try:
                table.load_as_version(version)
            except DeltaError as fault:
                if passing(str(fault)):
                    raise
                raise self._forgotten(version, str(fault)) from fault
        return table

    def _forgotten(self, version: int, said: str) -> HistoryGone:
        return HistoryGone(
            f"stream {self.name}: expected version {version} of {self.address}, whose first snapshot is half read; its "
            f"log does not reach back to it any more ({said.strip().splitlines()[0]}). Put the table's log back, or "
            "begin anew with `floodmark reset`; give the source a longer `delta.logRetentionDuration`"
        )

    def newest(self) -> int:
        return self.table().version()

    def log_sum(self, line: str) -> str | None:
        """Of the newest log entry that is read at the offset `line`; None where nothing is, or the entry is gone."""
        return tablelog.log_sum(self.address, DeltaOffset.parse(line).newest_read)

    def is_another(self, line: str, log_sum: str | None = None) -> bool:
        """Whether the table was made anew, cloned or put back since it was read; arguments as for `check_identity`."""
        table, at = self.table(), DeltaOffset.parse(line)
        return (
            tables.table_id(table) != at.table_id or table.version() < at.newest_read or self._is_split(line, log_sum)
        )

    def _is_split(self, line: str, known: str | None) -> bool:
        """Whether the newest entry that was read is another commit by now. One that is gone tells nothing."""
        found = None if known is None else self.log_sum(line)
        return found is not None and found != known

    def check_identity(self, line: str, log_sum: str | None) -> None:
        """Refuse a table that was made anew or cloned under the same address, or that lost what was read of it.

        `line`: the offset up to which it was read; `log_sum`: as it was then, if that is known.
        """
        table, at = self.table(), DeltaOffset.parse(line)
        found, known = tables.table_id(table), at.table_id
        if found != known:
            raise HistoryGone(
                f"stream {self.name}: expected the table with id {known}, found {found} at {self.address}: it was made "
                "anew or cloned. Put the table back, or begin anew with `floodmark reset`"
            )
        if table.version() < at.newest_read:
            raise HistoryGone(
                f"stream {self.name}: version {at.newest_read} of {self.address} was read, its newest is now "
                f"{table.version()}: it lost commits, and what comes in their place would be passed over. Put the "
                "table's log back, or begin anew with `floodmark reset`"
            )
        if self._is_split(line, log_sum):
            raise HistoryGone(
                f"stream {self.name}: version {at.newest_read} of {self.address} is another commit than the one that "
                "was read: an older copy of the table was put back and written to, and what that holds up to there "
                "would be passed over. Put the table's log back, or begin anew with `floodmark reset`"
            )

    def read_stream(self, spark: SparkSession, limits: EpochLimits) -> DataFrame:
        # Delta's own default of 1000 files an epoch would be a limit that nobody asked for.
        reader = spark.readStream.format("delta").option("maxFilesPerTrigger", str(limits.max_files or 2**31 - 1))
        if limits.max_bytes:
            reader = reader.option("maxBytesPerTrigger", str(limits.max_bytes))
        return reader.load(self.address)

    def read_batch(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.address)


def first_not_before(table: DeltaTable, address: str, moment: datetime) -> int:
    """The first version committed at or after `moment`; the next one to come where all are older."""
    times = commit_times(table, address)
    found = first_from(times, floor(moment.timestamp() * 1000))
    if found is not None and found == min(times) > 0:
        shown = datetime.fromtimestamp(times[found] / 1000, UTC).isoformat()
        raise HistoryGone(
            f"{address}: expected the log back to {moment.isoformat()} (`start`), found it from version {found} on, of "
            f"{shown}: name a later time"
        )
    return table.version() + 1 if found is None else found


class DeltaSink:
    """A Delta table that a rule writes. It keeps each app id's last version, so a repeated write has no effect."""

    def __init__(self, address: str):
        self.address = location(address)

    def check(self, owner: str | None) -> None:
        """Refuse a table that is not `owner`'s (a ledger's id; None: no ledger yet). Writes nothing."""
        table = tables.open_table(self.address)
        if table is None:
            return
        found = tables.owner_of(table)
        if found is not None and found != owner:
            raise NotOwned(
                f"sink {self.address}: it belongs to another rule's ledger (id {found}; this rule's ledger: "
                f"{owner or 'none yet'}). A rule that was renamed, lost its home or runs from a second home looks like "
                "this. Give the home the new name, too (`floodmark rename OLD NEW`), put the old home or name back, or "
                "name another sink"
            )
        if found is None and not tables.is_empty(table):
            raise NotOwned(
                f"sink {self.address}: it holds rows that no ledger accounts for. Name an empty or a new table, or "
                f"take it over with the rows that it has: `floodmark adopt RULE {self.address}`"
            )
        self.check_remembers(table)

    def check_remembers(self, table: DeltaTable) -> None:
        """Refuse a table that would forget which versions of an app it has seen, or whose log is not where it lies."""
        if name := forgetful(table.metadata().configuration):
            raise Refused(
                f"sink {self.address}: {name} is set in the table, so no rule can write to it: {REFUSED[name]}. Unset "
                f"it (`ALTER TABLE ... UNSET TBLPROPERTIES ('{name}')`)"
            )

    def check_nothing_left(self, app: str, rule: str) -> None:
        """Refuse rows of an earlier generation, in a sink that joins the one whose `app` this is."""
        table = tables.open_table(self.address)
        if table is None or tables.is_empty(table) or tables.adopted_at(table) is not None:
            return
        if tablelog.recorded_in(table, app) is None:
            raise Refused(
                f"sink {self.address}: expected an empty table, found rows from before the last reset, which did not "
                f"empty it, for rule {rule} had no such sink then. Begin anew with `floodmark reset {rule}`, or name "
                "another sink"
            )

    def check_partitions(self, wanted: Sequence[str]) -> None:
        """Refuse a table that is partitioned otherwise than its sink says; its files would have to be written anew."""
        table = tables.open_table(self.address)
        found = None if table is None else tables.partitions_of(table)
        if found is not None and [name.lower() for name in found] != [name.lower() for name in wanted]:
            said = f"write `partition_by: [{', '.join(found)}]`" if found else "take `partition_by` out"
            raise Refused(
                f"sink {self.address}: expected a table partitioned by {', '.join(wanted) or 'nothing'} "
                f"(`partition_by`), found one partitioned by {', '.join(found) or 'nothing'}: {said}, or name another "
                "sink; where the table is the rule's own, `floodmark reset` lays it out anew"
            )

    def check_replaceable(self) -> None:
        """Refuse a table whose rows may not be taken away."""
        self.check_changeable()
        table = tables.open_table(self.address)
        if table is not None and tables.adopted_at(table) is not None:
            raise NotOwned(
                f"sink {self.address}: it was adopted with rows that are not the rule's, and those could be among the "
                "replaced ones; name another sink"
            )

    def check_changeable(self) -> None:
        """Refuse a table that only grows."""
        table = tables.open_table(self.address)
        if table is not None and (name := appends_only(table.metadata().configuration)):
            raise Refused(
                f"sink {self.address}: {name} is set, so no row of it can be replaced or taken away; set it to false "
                "in the table (ALTER TABLE ... SET TBLPROPERTIES)"
            )

    def check_can_be_emptied(self) -> None:
        """Refuse a table that only grows, or with rows that were there before the rule."""
        self.check_changeable()
        table = tables.open_table(self.address)
        if table is not None and tables.adopted_at(table) is not None:
            raise NotOwned(
                f"sink {self.address}: it was adopted with rows that are not the rule's, and a reset would take them "
                "away. Name another sink; or, with --keep-output, leave all rows of the sinks"
            )


def check_partitions(rule: Rule, made_by: str | None = None) -> None:
    """Refuse sinks whose tables are there, stay as they are, and are partitioned otherwise than the rule says.

    `made_by`: a ledger whose own tables do not stay as they are, as long as they hold nothing.
    """
    for address, sink in delta_sinks(rule).items():
        table = tables.open_table(address) if made_by else None
        if table is None or tables.owner_of(table) != made_by:
            DeltaSink(address).check_partitions(sink.partition_by)


def delta_sinks(rule: Rule) -> dict[str, Sink]:
    """The rule's Delta sinks by location, in the rule's order."""
    return {location(str(sink.address)): sink for sink in rule.sinks if sink.kind == "delta"}
