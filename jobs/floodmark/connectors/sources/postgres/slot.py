"""Changes of a table by a replication slot, behind a first snapshot of its rows. Only `frame` needs a JVM.

Its rows can be read until `landed` has said that they are durable elsewhere: then the server forgets them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.connectors.sources.postgres.decoding.pgoutput import lsn_text
from floodmark.connectors.sources.postgres.holding import Holder
from floodmark.connectors.sources.postgres.offsets import SlotOffset
from floodmark.connectors.sources.postgres.server import slots
from floodmark.connectors.sources.postgres.server.attaching import Sent
from floodmark.connectors.sources.postgres.server.catalog import MADE, Published, Table
from floodmark.connectors.sources.postgres.server.checking import (
    check_able,
    check_old_rows,
    check_published,
    check_slot,
    find_published,
)
from floodmark.connectors.sources.postgres.server.forming import form_of, what_the_log_lacks
from floodmark.connectors.sources.postgres.table import RESET, TableSource
from floodmark.core.lifecycle.retention import WAL, Limit
from floodmark.errors import HistoryGone

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.connectors.sources.postgres.queries import Reading
    from floodmark.core.rules.model import Stream
    from floodmark.core.rules.rule import EpochLimits

MOST_BEHIND = 64 << 20  # bytes of log that the server keeps for a slot whose table does not change


class SlotSource(TableSource, Stepped):
    """A table whose changes a rule reads. `keep`: the folder for the slot's name; None for a look without a home."""

    def __init__(self, name: str, stream: Stream, keep: Path | None):
        super().__init__(name, stream)
        self._holder = Holder(self._about, self._said, keep)
        self._found: dict[tuple[int, int], list[int]] = {}

    def _reading(self, asked: psycopg.Connection[Any], of: Table) -> Reading:
        """What the publication has of the table. Before the first run, also check whether a slot can be made."""
        named = self._holder.publication(asked)
        found = None if named is None else find_published(self._about, asked, of, named)
        if self._holder.kept is None:
            check_able(asked, self._about, of, makes=named is None)
        chosen = None if found is None else found.columns
        own = (one for one in of.columns if one.name not in of.generated and (chosen is None or one.name in chosen))
        return self._readable(of, tuple(own), None if found is None else found.where)

    # --- Offsets

    def _as_it_is(self, asked: psycopg.Connection[Any], of: Table, read: SlotOffset) -> SlotOffset:
        """With what the table and its publication are now."""
        named = self._holder.publication(asked)
        found = MADE if named is None else find_published(self._about, asked, of, named)
        return replace(read, form=form_of(asked, of), kinds=found.kinds, where=found.where)

    def start(self) -> str:
        with self._asking() as (asked, of):
            return SlotOffset(self._place(of), slots.now(asked) if self._starts_at == "latest" else 0).line()

    def end(self) -> str:
        with self._asking() as (asked, of):
            start = self._as_it_is(asked, of, SlotOffset(self._place(of)))
            found = self._holder.state(asked) if self._holder.kept else None
            if found is None:
                return start.at(slots.now(asked)).line()
            newest = slots.newest(asked, self._holder.names, found.confirmed)
            return start.at(newest.end if newest else found.confirmed).line()

    def take_start(self) -> str:
        with self._asking() as (asked, of):
            self._holder.forget_adopted()
            self._reading(asked, of)
            start = SlotOffset(self._place(of))
            if self._starts_at == "earliest":
                self._holder.check_is_new(asked, "write `start: latest`, drop the slot, or name another one")
                return start.line()
            start = self._as_it_is(asked, of, start)
            made = self._holder.make(self._database, asked, of)
            if made is None:
                return _taken(asked, start.of_unknown_identity(), self._holder.adopted(asked))
            slots.forget_exported(self._database, self._holder.names.slot)
            return _taken(asked, start, made.lsn)

    def take_end(self, since: str) -> str:
        """For a stream that has read nothing: makes the slot, and takes the first snapshot where it begins."""
        read = SlotOffset.parse(since)
        with self._asking() as (asked, of):
            if read.lsn == 0:
                now = self._as_it_is(asked, of, read)
                return _taken(asked, now, self._first_snapshot(asked, of))
            now = self._check_slot(asked, of, read)
            newest = slots.newest(asked, self._holder.names, read.lsn)
            if newest is not None:
                return _taken(asked, now, newest.end)
            return _taken(asked, now, slots.now(asked)) if self._is_far_behind(asked, read) else since

    def _first_snapshot(self, asked: psycopg.Connection[Any], of: Table) -> int:
        self._holder.forget_adopted()
        self._reading(asked, of)
        self._holder.check_is_new(asked, "drop the slot, or name another one, since the landing is there already")
        taken = self._holder.make(self._database, asked, of)
        assert taken is not None, "the slot is new"
        return taken.lsn

    def _is_far_behind(self, asked: psycopg.Connection[Any], read: SlotOffset) -> bool:
        """Whether the server keeps much of its log for the slot, although the table does not change."""
        found = self._holder.state(asked)
        confirmed = read.lsn if found is None else min(found.confirmed, read.lsn)
        return slots.now(asked) - confirmed > MOST_BEHIND

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        """The first snapshot is one step, whatever its size; so is a transaction."""
        if limits.max_rows is None:
            return upto
        read, end = SlotOffset.parse(since), SlotOffset.parse(upto)
        if read.lsn == 0:
            taken = self._holder.taken(self._database)
            return upto if taken is None else end.at(min(end.lsn, taken.lsn)).line()
        step = next((one for one in self._ends(read, end, limits.max_rows) if one > read.lsn), end.lsn)
        return end.step(read, step).line()

    def _ends(self, read: SlotOffset, upto: SlotOffset, most: int) -> list[int]:
        """Where steps end; the server decodes its log once for all steps up to the same end."""
        if (upto.lsn, most) not in self._found:
            with self._asking() as (asked, _):
                self._found[upto.lsn, most] = slots.ends(asked, self._holder.names, read.lsn, upto.lsn, most)
        return self._found[upto.lsn, most]

    def news(self, since: str, upto: str | None = None) -> bool:
        read = SlotOffset.parse(since)
        if upto is not None:
            return SlotOffset.parse(upto).lsn > read.lsn
        if read.lsn == 0:
            return True
        with self._asking() as (asked, of):
            self._check_slot(asked, of, read)
            return self._first(asked, read) is not None or self._is_far_behind(asked, read)

    def _first(self, asked: psycopg.Connection[Any], read: SlotOffset) -> slots.Transaction | None:
        """The first transaction that is not read."""
        found = self._holder.state(asked)
        is_first = found is not None and found.confirmed >= read.lsn and slots.sends_no_empty_transactions(asked)
        return slots.first(asked, self._holder.names, read.lsn, is_first)

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        read = SlotOffset.parse(since)
        with self._asking() as (asked, of):
            if read.lsn == 0:
                text = f"the first snapshot, of some {of.rows:,.0f} rows"
                return Backlog(max(1, of.size), "bytes", text, {"bytes": of.size, "seconds": 0})
            self._check_slot(asked, of, read)
            first = self._first(asked, read)
            size = max(1, slots.now(asked) - read.lsn)
        if first is None:
            return Backlog(0, "bytes", "nothing new", {"bytes": 0, "seconds": 0})
        waited = max(0, int(time.time() - first.at_us / 1e6))
        text = f"{size:,} bytes of log, the first change {waited:,} s old"
        return Backlog(size, "bytes", text, {"bytes": size, "seconds": waited})

    def waiting(self, since: str | None, enough: int | None = None) -> int:
        with self._asking() as (asked, of):
            read = None if since is None else SlotOffset.parse(since)
            return of.size if read is None or read.lsn == 0 else max(0, slots.now(asked) - read.lsn)

    def describe(self, offset: str) -> str:
        lsn = SlotOffset.parse(offset).lsn
        return f"LSN {lsn_text(lsn)}" if lsn else "before the first snapshot"

    # --- Whether what was read is as it was

    def identity(self, offset: str) -> str:
        return SlotOffset.parse(offset).place.text

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        with self._asking() as (asked, of):
            return self._difference(asked, of, SlotOffset.parse(offset)) is not None

    def check_identity(self, offset: str, log_sum: str | None) -> None:
        with self._asking() as (asked, of):
            self._refuse_another(asked, of, SlotOffset.parse(offset))

    def _refuse_another(self, asked: psycopg.Connection[Any], of: Table, read: SlotOffset) -> None:
        problem = self._difference(asked, of, read)
        if problem is not None:
            raise HistoryGone(f"{self._about}: table {of.title}: {problem}. Restore it, or {RESET}")

    def _difference(self, asked: psycopg.Connection[Any], of: Table, read: SlotOffset) -> str | None:
        """Why it is not the table that was read."""
        found, end = read.place.difference(self._place(of)), slots.now(asked)
        if found is None and end < read.lsn:
            return (
                f"it was read up to LSN {lsn_text(read.lsn)}, and the server's log ends at {lsn_text(end)}: it is an "
                "older copy"
            )
        return found

    def check_appended(self, since: str) -> None:
        read = SlotOffset.parse(since)
        if read.lsn:
            with self._asking() as (asked, of):
                self._check_slot(asked, of, read)

    def _check_slot(self, asked: psycopg.Connection[Any], of: Table, read: SlotOffset) -> SlotOffset:
        """Raise HistoryGone unless the slot sends all that has changed since. Returns it with what the table is now."""
        self._refuse_another(asked, of, read)
        check_slot(self._about, self._holder.names.slot, self._holder.state(asked), of, read.lsn)
        named, now = self._holder.names.publication, self._as_it_is(asked, of, read)
        had = MADE if self._holder.made_publication else Published(None, read.where, read.kinds)
        check_published(self._about, named, of, had, Published(None, now.where, now.kinds))
        check_old_rows(self._about, of, read.form, now.form, now.kinds)
        sent = Sent(self._holder.names, read.following, now.where, "insert" in now.kinds)
        problem = what_the_log_lacks(asked, of, read.form, now.form, "truncate" in now.kinds, sent)
        if problem is not None:
            raise HistoryGone(f"{self._about}: table {of.title}: {problem}. To read it again, {RESET}")
        return now

    def forgets(self, since: str, now_us: int) -> list[Limit]:
        """In bytes: the log that waits, and how much of it the server keeps for a slot."""
        with self._asking() as (asked, _):
            found = self._holder.state(asked) if self._holder.kept and SlotOffset.parse(since).lsn else None
            if found is not None and found.wal_status == "lost":
                return [Limit(self.name, WAL, 0, 0, lost=True)]
            if found is None or found.safe is None:
                return []
            waits = max(0, slots.now(asked) - found.confirmed)
            return [Limit(self.name, WAL, waits, waits + max(0, found.safe), in_bytes=True)]

    # --- What the server may forget

    def landed(self, offset: str) -> None:
        """All rows up to there are durable elsewhere. Called with the rule's lock held."""
        lsn = SlotOffset.parse(offset).lsn
        if lsn:
            self._holder.advance(self._database, lsn)

    def check_release(self, read: str | None = None) -> None:
        self._holder.check_release(self._database, None if read is None else SlotOffset.parse(read).lsn)

    def release(self, read: str | None = None) -> None:
        """Drop what was made in the database, for a rule that is dropped: a slot that nobody reads fills its disk."""
        self._holder.release(self._database, None if read is None else SlotOffset.parse(read).lsn)

    def remains(self) -> str | None:
        known = self._holder.kept
        if known is None or not known.made_slot:
            return None
        return (
            f"replication slot {known.slot} at connection {self._said.connection}, for which its server keeps all log "
            f"until SELECT pg_drop_replication_slot('{known.slot}')"
        )

    # --- Rows

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        from floodmark.connectors.sources.postgres.rows import nothing_of

        read, upto = SlotOffset.parse(begin), SlotOffset.parse(end)
        frames = list[Any]()
        with self._asking() as (asked, of):
            reading = self._reading(asked, of)
            if read.lsn == 0 and upto.lsn:
                taken = self._holder.snapshot(self._database)
                same = {"lsn": taken.lsn, "committed": taken.at_us}
                frames.append(self._snapshot_rows(spark, reading, taken.snapshot, taken.storage, same))
                read = read.at(taken.lsn)
            if read.lsn < upto.lsn:
                self._check_slot(asked, of, read)
                frames.append(self._changes(spark, asked, reading, read, upto))
            return reduce(lambda one, other: one.unionAll(other), frames) if frames else nothing_of(spark, reading)

    def _changes(
        self, spark: SparkSession, asked: psycopg.Connection[Any], reading: Reading, read: SlotOffset, upto: SlotOffset
    ) -> DataFrame:
        from floodmark.connectors.sources.postgres.queries import Part
        from floodmark.connectors.sources.postgres.rows import changes_of

        query = slots.messages(asked, self._holder.names, upto.lsn)
        part = Part(query, kept=slots.kept_since(asked, self._holder.names, read.lsn))
        return changes_of(spark, self._database, reading, part, (read.lsn, upto.lsn), read.form)


def _taken(asked: psycopg.Connection[Any], now: SlotOffset, lsn: int) -> str:
    """An offset that is taken just now."""
    return replace(now.at(lsn), following=slots.following(asked)).line()
