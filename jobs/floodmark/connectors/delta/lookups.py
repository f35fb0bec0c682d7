"""Lookup tables: which version an epoch reads, and since when each version has been valid. No JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.connectors.columns import refuse_window_column
from floodmark.connectors.delta.opening import open_existing
from floodmark.core.lifecycle.zones import far_text
from floodmark.core.protocol.records.rows import Pinned
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import about
from floodmark.errors import HistoryGone, Refused, WrongColumn
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.committimes import changes_since
from floodmark.ledger.delta.datafiles import file_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Intent
    from floodmark.core.rules.rule import Lookup, Rule

ADDED = BEGIN, END = "_valid_from", "_valid_to"  # columns of a table with `history`
MOST_VERSIONS = 500  # Spark scans each separately, with some tenth of a second of planning
FOR_EVER = 253_402_300_799_999_999  # the last microsecond of the year 9999
NO_ROWS = FOR_EVER - 1  # `since` of an epoch without rows: no version matters, and the newest has the columns
NO_TIMES = FOR_EVER  # of one whose rows have no event time: only tables that rows meet otherwise matter
RESET, ABANDON = "start over with `floodmark reset`", "roll the open epoch back with `floodmark abandon`"


@dataclass(frozen=True)
class VersionSpan:
    """A version of a table, and the time in which it was the newest: microseconds since 1970, [begin, end)."""

    version: int
    begin: int
    end: int


class LookupTable:
    """A Delta table in which a rule looks rows up."""

    def __init__(self, name: str, lookup: Lookup):
        self.name, self.lookup = name, lookup
        self.address = location(lookup.address)

    def table(self) -> DeltaTable:
        return open_existing(f"lookup {self.name}", self.address)

    def newest(self) -> Pinned:
        """The version that an epoch reads if it starts now."""
        table = self.table()
        return Pinned(table=tables.table_id(table), version=table.version())

    def has(self, pinned: Pinned, newest: Pinned) -> bool:
        """Whether the log has this version of the same table. CREATE OR REPLACE gives the table a new id, and leaves
        the log as it is."""
        if newest.version < pinned.version:
            return False
        return newest.table == pinned.table or self._id_of(pinned.version) == pinned.table

    def check(
        self, pinned: Pinned, newest: Pinned | None = None, way: str = RESET, sums: Mapping[str, str] | None = None
    ) -> None:
        """Refuse a table other than the one that epochs have read, or an older state of it. Raises HistoryGone.

        newest: the table as it is now. way: what to do if it cannot be restored. sums: the log sums of what was read.
        """
        found = newest or self.newest()
        if not self.has(pinned, found):
            raise self._gone(
                f"expected version {pinned.version} of the table with id {pinned.table}, found {found.version} of "
                f"{found.table}: it was recreated or restored. Restore the table, or {way}"
            )
        if self.is_split(pinned, sums or {}):
            raise self._gone(
                f"expected in version {pinned.version} of the table the commit that was read, found another: an older "
                f"copy of the table was restored and written to. Restore the table's log, or {way}"
            )

    def is_split(self, pinned: Pinned, sums: Mapping[str, str]) -> bool:
        """Whether the version is now another commit. One whose log entry is gone, or has no sum, counts as the same."""
        known = sums.get(pinned.sum_of(self.name))
        return known is not None and tablelog.log_sum(self.address, pinned.version) not in (None, known)

    def _id_of(self, version: int) -> str | None:
        """The table's id in a version; None if its log no longer has that."""
        try:
            return tables.table_id(DeltaTable(self.address, version=version))
        except (OSError, DeltaError) as failed:
            tables.check_gone(self.address, failed)
            return None

    def check_readable(self, version: int) -> None:
        """Raise HistoryGone unless a version's log and files are there, RunFailed if the disk or the store fails."""
        try:
            fault = next(file_faults(DeltaTable(self.address, version=version)), "")
        except (OSError, DeltaError) as failed:
            tables.check_gone(self.address, failed)
            fault = f"version {version} is no longer in its log"
        if fault:
            raise self._gone(f"expected version {version}, which epochs have read, but {fault}: restore it")

    def _gone(self, problem: str) -> HistoryGone:
        return HistoryGone(about(f"lookup {self.name}", self.address, problem))

    def versions_since(self, newest: int, since: int | None, undated: str = "") -> list[VersionSpan]:
        """The versions up to `newest` that were valid at or after `since` (None: all), oldest first.

        undated: why all are needed although there are rows of a known time; empty where they are not. Raises
        HistoryGone if the log does not reach back that far, RunFailed if an upkeep has yet to put its entries back,
        Refused if there are too many.
        """
        since = since if since is None else min(since, FOR_EVER)  # Spark knows later times
        since = since if not undated or since == NO_ROWS else None
        begins = self._begins(newest, since)
        ends = [later for _, later in list(begins.items())[1:]]
        found = [
            VersionSpan(version, begin, end)
            for (version, begin), end in zip(begins.items(), [*ends, FOR_EVER], strict=True)
            if since is None or end >= since  # BETWEEN includes the end
        ]
        self._check_reach(min(begins), begins[min(begins)], since, undated)
        if len(found) > MOST_VERSIONS:
            raise Refused(
                f"lookup {self.name}: expected at most {MOST_VERSIONS} versions to look back to, found {len(found)}"
                f"{f', because {undated}' if undated else ''}. Keep the history in the table itself, with columns for "
                "the start and end of a row's validity, and join by those, without `history`"
            )
        return found

    def _begins(self, newest: int, since: int | None) -> dict[int, int]:
        """When each version with other rows than the one before was committed, in microseconds; those before the
        newest one that is older than `since` do not matter."""
        times = changes_since(self.table(), self.address, newest, since)
        if not times:
            raise self._gone(f"the table's log has no entries left up to version {newest}")
        return {version: time * 1000 for version, time in times.items()}

    def _check_reach(self, oldest: int, begin: int, since: int | None, undated: str) -> None:
        if oldest == 0 or (since is not None and since >= begin):
            return
        wanted, way = "to version 0", "Exclude older rows with the stream's `where`"
        if since is not None:
            wanted = f"to {far_text(since)}Z, the rows' event times or their windows' starts"
        if undated:
            wanted += f", because {undated}"
            way = f"Write EVENT_TIME < {END} in the join, with the name of the event time (with state, reset then)"
        raise HistoryGone(
            f"lookup {self.name}: expected the table's log back {wanted}; found it from version {oldest} on, of "
            f"{far_text(begin)}Z: earlier content is not known. {way}, or join by columns of the table that say when a "
            "row is valid"
        )


def lookup_tables(rule: Rule) -> dict[str, LookupTable]:
    """The rule's lookup tables by name."""
    return {name: LookupTable(name, lookup) for name, lookup in rule.lookups.items()}


def pinned_now(rule: Rule) -> dict[str, Pinned]:
    """The versions that an epoch reads if it starts now."""
    return {name: table.newest() for name, table in lookup_tables(rule).items()}


def pinned_after(rule: Rule, head: Head) -> dict[str, Pinned]:
    """The versions that the epoch after the head reads if it starts now. Raises as `check_same_lookups`."""
    found = pinned_now(rule)
    check_same_lookups(rule, head, found)
    return found


def log_sums(rule: Rule, pinned: Mapping[str, Pinned]) -> dict[str, str | None]:
    """The sum of each version's log entry, by its name in the ledger; None where the entry is gone."""
    found = lookup_tables(rule)
    return {one.sum_of(name): tablelog.log_sum(found[name].address, one.version) for name, one in pinned.items()}


def check_same_lookups(rule: Rule, head: Head, newest: Mapping[str, Pinned] | None = None) -> None:
    """Check that a table with `history` is the one that epochs have read. Raises HistoryGone.

    One that was made anew has no versions of earlier times, and rows of these times would find nothing in it. Without
    `history`, rows meet what the table holds now, whichever it is. `newest`: the tables as they are now.
    """
    for name, table in lookup_tables(rule).items():
        read = head.looked_up.get(name)
        if read is not None and table.lookup.history and not (rule.rebuild or _points_elsewhere(name, rule, head)):
            table.check(read, newest[name] if newest else None, sums=head.log_sums)


def check_open_lookups(rule: Rule, intent: Intent) -> None:
    """Check that the logs have the versions that the open epoch reads. Raises HistoryGone. `rule`: as of its intent.

    Without `history`, the epoch after an abandoned one reads the new table.
    """
    for name, table in lookup_tables(rule).items():
        way = RESET if table.lookup.history else ABANDON
        table.check(intent.lookups[name], way=way, sums=intent.log_sums)


def _points_elsewhere(name: str, rule: Rule, head: Head) -> bool:
    """Whether an edit of SQL without state names another table, or only now asks for its history."""
    old, new = head.rule.lookups.get(name), rule.lookups[name]
    return not rule.query.stateful and (old is None or (old.address, old.history) != (new.address, new.history))


def changed_since(rule: Rule, pinned: Mapping[str, Pinned], sums: Mapping[str, str]) -> str | None:
    """The first lookup table whose rows may have changed since these versions; None if there is none. sums: their log
    sums, which tell an older copy that has grown back to a version."""
    for name, one in lookup_tables(rule).items():
        then, now = pinned.get(name), one.newest()
        if then is None or then.table != now.table or now.version < then.version:
            return name
        if one.is_split(then, sums) or any(tablelog.data_commits(one.address, then.version + 1, now.version)):
            return name
    return None


def check_lookups(rule: Rule) -> None:
    """Check that lookup tables exist, and that none has a column that hides the SQL's window or that `history` adds."""
    for name, table in lookup_tables(rule).items():
        columns = tables.columns_of(table.table())
        refuse_window_column(rule, f"lookup {name}", columns)
        _refuse_own_times(name, table, columns)


def _refuse_own_times(name: str, table: LookupTable, columns: Iterable[str]) -> None:
    """Raise WrongColumn if the table has a column that `history` adds."""
    taken = [column for column in columns if column.lower() in ADDED] if table.lookup.history else []
    if taken:
        raise WrongColumn(
            f"lookup {name}: expected a table without {' and '.join(taken)}, because `history` adds "
            f"{' and '.join(ADDED)}, the start and end of a row's validity: rename these columns in the table, or "
            "join by them without `history`"
        )
