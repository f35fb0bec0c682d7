"""New rows of an append-only table, without a slot: by the numbers of their transactions. Only `frame` needs a JVM.

Numbers are given when a transaction starts, so rows with a low number may be committed late. An offset is therefore the
lowest number of a transaction that still runs: all below it have ended. (A snapshot's list of running transactions
would not do: it has no subtransactions, whose numbers a row may have.)
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.connectors.sources.postgres.offsets import RowsOffset, is_due, safe_until
from floodmark.connectors.sources.postgres.queries import beyond, count_of, distance, number_parts, numbered
from floodmark.connectors.sources.postgres.server.forming import another_column, form_of
from floodmark.connectors.sources.postgres.server.kept import durably
from floodmark.connectors.sources.postgres.table import RESET, TableSource
from floodmark.errors import HistoryGone, Refused, RunFailed

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.connectors.sources.postgres.server.catalog import Table
    from floodmark.core.rules.model import Stream
    from floodmark.core.rules.rule import EpochLimits

_NOW = """
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
  coalesce(pg_stat_get_tuples_updated(%s::oid), 0), coalesce(pg_stat_get_tuples_deleted(%s::oid), 0),
  (SELECT concat_ws(' ', extract(epoch FROM a.stats_reset), extract(epoch FROM d.stats_reset))
   FROM pg_stat_archiver a, pg_stat_database d WHERE d.datname = current_database())
FROM pg_current_snapshot() s"""

COUNTED_AFTER = 11  # seconds: a session that does nothing counts what it did within 10

# A row where the server counts what happens to rows.
_COUNTS = "SELECT WHERE current_setting('track_counts')::bool AND NOT pg_is_in_recovery()"


class SnapshotsSource(TableSource, Stepped):
    """A table to which rows are only added. `keep`: a folder in the rule's home; None for a look without one."""

    def __init__(self, name: str, stream: Stream, keep: Path | None):
        super().__init__(name, stream)
        self._keep = keep

    def _now(self, asked: psycopg.Connection[Any], of: Table) -> tuple[RowsOffset, int]:
        """Where everything that has ended is read, and the number of the next transaction."""
        if of.kind != "r":
            raise Refused(
                f"{self._about}: expected a table with rows of its own for `by: snapshots`, found a partitioned one, "
                f"{of.title}: read it by slot, or its partitions one by one"
            )
        row = asked.execute(_NOW, (of.oid, of.oid)).fetchone()
        assert row is not None
        before, following, updated, deleted, era = row
        form = form_of(asked, of)
        return RowsOffset(self._place(of), before, updated, of.storage, of.layout, form, era, deleted), following

    def _counted(self, asked: psycopg.Connection[Any], of: Table, upto: RowsOffset) -> int:
        """How many rows the table has of the transactions that are read up to there."""
        found = asked.execute(count_of(of, 0, upto.before).encode()).fetchone()
        assert found is not None
        return int(found[0])

    def start(self) -> str:
        with self._asking() as (asked, of):
            now = self._now(asked, of)[0]
        return (now if self._starts_at == "latest" else now.at(0)).line()

    def end(self) -> str:
        with self._asking() as (asked, of):
            now = self._now(asked, of)[0]
            return replace(now, rows=self._counted(asked, of, now)).line()

    def take_start(self) -> str:
        with self._asking() as (asked, of):
            self._keep_safe(asked, of)
            now = self._now(asked, of)[0]
            latest = self._starts_at == "latest"
            return (replace(now, rows=self._counted(asked, of, now)) if latest else now.at(0)).line()

    def take_end(self, since: str) -> str:
        read = RowsOffset.parse(since)
        with self._asking() as (asked, of):
            now, following = self._now(asked, of)
            self._check(asked, of, read, now, following)
            if is_due(self._safe, following):
                self._keep_safe(asked, of)
            return replace(now, rows=self._counted(asked, of, now)).line()

    @property
    def _safe(self) -> int:
        """The number of a transaction up to which new rows can be told from old ones; 0 if that is unknown."""
        path = self._keep and self._keep / "numbers.json"
        return int(json.loads(path.read_text())["safe"]) if path and path.exists() else 0

    def _keep_safe(self, asked: psycopg.Connection[Any], of: Table) -> None:
        """Find it, which reads the whole table, and keep it in the rule's home."""
        assert self._keep is not None, "a look keeps nothing"
        row = asked.execute(distance(of).encode()).fetchone()
        ahead, following = (None, None) if row is None else row
        if following is None:
            following = self._now(asked, of)[1]
        durably(self._keep / "numbers.json", {"safe": safe_until(int(following), ahead)})

    def _check(
        self, asked: psycopg.Connection[Any], of: Table, read: RowsOffset, now: RowsOffset, following: int
    ) -> None:
        self._refuse_another(of, read, now)
        safe = self._safe
        if safe and following > safe:
            raise HistoryGone(
                f"{self._about}: table {of.title}: expected transactions up to number {safe}, found {following}: "
                "numbers of rows have come around, so that old rows cannot be told from new ones. Read the table by "
                f"slot, or {RESET} and run the rule more often"
            )
        if read.is_counted_anew(now):
            self._check_kept(asked, of, read)
        elif read.may_be_updated(now) and read.rows != self._counted(asked, of, read):
            raise HistoryGone(
                f"{self._about}: table {of.title}: expected a table to which rows are only added, found "
                f"{now.updated - read.updated} rows that were updated: each would be read again as another row. Read "
                f"the table by slot; or {RESET}"
            )
        other = another_column(read.form, now.form)
        if other is not None:
            raise HistoryGone(f"{self._about}: table {of.title}: {other}. Restore it, or {RESET}")
        self._check_not_written_anew(asked, of, read, now)

    def _check_not_written_anew(
        self, asked: psycopg.Connection[Any], of: Table, read: RowsOffset, now: RowsOffset
    ) -> None:
        if read.may_be_written_anew(now) and not self._has_rows(asked, of, read.at(0), read):
            raise HistoryGone(
                f"{self._about}: table {of.title}: expected rows that were read before, found none of them, and that "
                "the table was altered: such a statement writes all rows anew, as if it had added them. Read the table "
                f"by slot; or {RESET}"
            )

    def _check_kept(self, asked: psycopg.Connection[Any], of: Table, read: RowsOffset) -> None:
        """Where the server has no count of updates since: no row was updated if all that were read are still there."""
        left = self._counted(asked, of, read)
        if read.rows != left:
            known = "" if read.rows is None else f"{read.rows} rows as they were read, found {left}, and "
            raise HistoryGone(
                f"{self._about}: table {of.title}: expected {known}the server's count of updates since, found that it "
                "began anew: the server crashed, another one took over, or pg_stat_reset was called. Rows that were "
                f"updated would be read again as others. Read the table by slot; or {RESET}"
            )

    def _check_none_updated(self, asked: psycopg.Connection[Any], of: Table, read: RowsOffset, now: RowsOffset) -> None:
        """Before rows are read: an update whose new row is among them took an old one away, by then."""
        is_checked = read.rows is None or read.is_counted_anew(now) or read.may_be_updated(now)
        lacks = 0 if is_checked else read.lacks(now, self._counted(asked, of, read))
        if lacks and asked.execute(_COUNTS).fetchone() is None:  # a row without columns is false
            raise HistoryGone(
                f"{self._about}: table {of.title}: expected the {read.rows} rows that were read before, found that "
                f"{lacks} are gone, and that the server counts no updates and deletes: it is a standby, or "
                "track_counts is off. Rows that were updated would be read again as others. Read the table by slot; "
                f"or {RESET}, from a primary server with track_counts on"
            )
        if lacks:
            raise RunFailed(
                f"{self._about}: table {of.title}: expected the {read.rows} rows that were read before, found that "
                f"{lacks} are gone, and that the server has not counted yet whether they were deleted or updated. It "
                "does so within seconds, if track_counts is on. Retry: after deletes the run goes on, else it stops"
            )

    def _check_as_counted(self, asked: psycopg.Connection[Any], of: Table, upto: RowsOffset) -> None:
        """Rows that no copy has yet may be updated, and then belong to a later one. Waits for the count of deletes."""
        until = time.monotonic() + COUNTED_AFTER
        while upto.rows is not None:
            now, left = self._now(asked, of)[0], self._counted(asked, of, upto)
            if not upto.is_stale(now, left):
                return
            if upto.is_touched(now) or time.monotonic() > until:
                raise RunFailed(
                    f"{self._about}: table {of.title}: expected the {upto.rows} rows that were counted before they "
                    f"were read, found {left}: rows were updated meanwhile. Nothing of this copy was kept; retry"
                )
            time.sleep(1)

    def check_copied(self, end: str) -> None:
        """Tasks read on their own, so rows may be updated until then, and be left out."""
        with self._asking() as (asked, of):
            self._check_as_counted(asked, of, RowsOffset.parse(end))

    def news(self, since: str, upto: str | None = None) -> bool:
        read = RowsOffset.parse(since)
        if upto is not None:
            return RowsOffset.parse(upto).before > read.before
        with self._asking() as (asked, of):
            now, following = self._now(asked, of)
            self._check(asked, of, read, now, following)
            return now.before > read.before and self._has_rows(asked, of, read, now)

    def _has_rows(self, asked: psycopg.Connection[Any], of: Table, read: RowsOffset, now: RowsOffset) -> bool:
        found = asked.execute(f"{numbered(of, read.before, now.before)} LIMIT 1".encode()).fetchone()
        return found is not None

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        """Up to so many rows; a transaction is not divided."""
        read, end = RowsOffset.parse(since), RowsOffset.parse(upto)
        if limits.max_rows is None:
            return upto
        with self._asking() as (asked, of):
            found = asked.execute(beyond(of, read.before, end.before, limits.max_rows).encode()).fetchone()
        if found is None or found[0] is None:
            return upto
        return end.step(int(found[0]), int(found[1])).line()

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        read = RowsOffset.parse(since)
        with self._asking() as (asked, of):
            now, following = self._now(asked, of)
            if not rebuilt:
                self._check(asked, of, read, now, following)
            count = asked.execute(count_of(of, read.before, now.before).encode()).fetchone()
            waits = asked.execute(count_of(of, now.before, following).encode()).fetchone()
        assert count is not None and waits is not None
        text = f"{count[0]:,} rows" if count[0] else "nothing new"
        text += f"; {waits[0]:,} more wait for a transaction that still runs" if waits[0] else ""
        facts = {"rows": count[0], "behind_open_transactions": waits[0], "deleted": now.deleted}
        return Backlog(int(count[0]), "rows", text, facts)

    def waiting(self, since: str | None, enough: int | None = None) -> int:
        with self._asking() as (_, of):
            return of.size

    def describe(self, offset: str) -> str:
        before = RowsOffset.parse(offset).before
        return f"transactions below {before}" if before else "before the first row"

    def identity(self, offset: str) -> str:
        return RowsOffset.parse(offset).place.text

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        with self._asking() as (asked, of):
            return self._difference(of, RowsOffset.parse(offset), self._now(asked, of)[0]) is not None

    def check_identity(self, offset: str, log_sum: str | None) -> None:
        with self._asking() as (asked, of):
            self._refuse_another(of, RowsOffset.parse(offset), self._now(asked, of)[0])

    def check_appended(self, since: str) -> None:
        with self._asking() as (asked, of):
            now, following = self._now(asked, of)
            self._check(asked, of, RowsOffset.parse(since), now, following)

    def _refuse_another(self, of: Table, read: RowsOffset, now: RowsOffset) -> None:
        problem = self._difference(of, read, now)
        if problem is not None:
            raise HistoryGone(f"{self._about}: table {of.title}: {problem}. Restore it, or {RESET}")

    def _difference(self, of: Table, read: RowsOffset, now: RowsOffset) -> str | None:
        """Why it is not the table that was read."""
        found = read.place.difference(now.place)
        if found is None and now.before < read.before:
            return (
                f"it was read up to transaction {read.before}, and the server is at {now.before}: it is an older copy"
            )
        return found

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        """The rows as they are when they are read: none that was deleted since."""
        from floodmark.connectors.sources.postgres.rows import nothing_of, rows_of

        read, upto = RowsOffset.parse(begin), RowsOffset.parse(end)
        with self._asking() as (asked, of):
            reading = self._reading(asked, of)
            if read.before >= upto.before:
                return nothing_of(spark, reading)
            now, following = self._now(asked, of)
            self._refuse_another(of, upto, now)
            self._check(asked, of, read, now, following)
            self._check_not_written_anew(asked, of, upto, now)
            self._check_none_updated(asked, of, read, now)
            self._check_as_counted(asked, of, upto)
            parts = number_parts(reading, read.before, upto.before, spark.sparkContext.defaultParallelism)
            return rows_of(spark, self._database, reading, parts, {})
