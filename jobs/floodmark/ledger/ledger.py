"""The ledger's only client: a Delta table of intents and commits, written by delta-rs.

delta-rs records an app transaction but never skips by it, so safety comes from the handle: the table is loaded once, at
the gate, and that very handle commits. If another writer commits a ledger row in between, the next commit on it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from floodmark.core.lifecycle.life import check_living
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Deferred
from floodmark.core.protocol.records.chain import RESTORE, chained, check_chained
from floodmark.core.protocol.records.following import follow, read_head
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.headtext import head_from_text, head_to_text
from floodmark.core.protocol.records.rows import (
    Abandoned,
    Abandoning,
    Commit,
    Intent,
    Kind,
    Life,
    Lost,
    Record,
    Row,
    Seal,
)
from floodmark.core.text.tablenames import about_ledger, problem_in
from floodmark.errors import Fenced, LedgerBroken, RunFailed, TableBroken
from floodmark.ledger.delta.damage import torn_newest
from floodmark.ledger.delta.datafiles import query, root_of
from floodmark.ledger.delta.pastcommits import trim
from floodmark.ledger.delta.storefaults import cannot_take, make_room
from floodmark.ledger.delta.syncing import sync_commit, sync_table
from floodmark.ledger.delta.tablelog import recorded_in
from floodmark.ledger.delta.tables import ANEW, open_table, table_id, with_room
from floodmark.ledger.home import Home, check_not_lost

if TYPE_CHECKING:
    import pyarrow as pa

APP = "floodmark.ledger"
COLUMNS = ("seq", "kind", "generation", "token", "epoch", "attempt", "run", "at", "body", "prev", "hash")
COMPACT_ABOVE = 100  # files: loading 200 one-row files takes 0.2 s, 600 take 0.6 s
REMEMBER_EVERY = 100  # rows
PORTION = 5000  # rows that are read at once: 115 MB if the rule's text has 20 kB
RETAINED_ENTRIES = 1000  # of its log: every load lists them all
RETAINED_HOURS = 1  # of files that a rewrite replaced: earlier loads of the ledger may still read them


@cache
def schema() -> pa.Schema:
    """Columns of a ledger.

    Only writers import pyarrow: that takes a third of a second, and reading does not need it.
    """
    import pyarrow as pa

    numbers, texts = ("seq", "generation", "epoch", "attempt"), ("kind", "token", "run", "at", "body", "prev", "hash")
    kinds = {**dict.fromkeys(numbers, pa.int64()), **dict.fromkeys(texts, pa.string())}
    return pa.schema([pa.field(name, kinds[name], nullable=False) for name in COLUMNS])


# The rows are authoritative and never deleted. Of the table's log, the newest entries are kept, for a year at most.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 365 days",
    "delta.enableExpiredLogCleanup": "true",
    "delta.checkpointInterval": "50",
    "delta.appendOnly": "false",
}


class LedgerReader:
    """A ledger as it was when loaded. Its rows are read, and checked, on first use."""

    def __init__(self, address: str, table: DeltaTable, known: LedgerReader | None = None):
        self.address = address
        self.id = table_id(table)
        self._table = table
        self.head: Head | None = known.head if known else self._read_head()
        self._check_id()

    @classmethod
    def load(cls, address: str) -> LedgerReader | None:
        """The ledger at `address`; None if there is none. Raises LedgerBroken if it cannot be read."""
        with _of_the_ledger(address):
            table = open_table(address)
            return None if table is None else cls(address, table)

    @property
    def begun(self) -> Head:
        """The head, for callers that know that a generation has started."""
        if self.head is None:
            raise AssertionError("no generation has begun")
        return self.head

    @cached_property
    def rows(self) -> list[Row]:
        """All rows, the oldest first, chained up to the head. Raises LedgerBroken."""
        return list(self.each())

    def each(self) -> Iterator[Row]:
        """The same one by one, so that few are in memory: whoever stops earlier has not checked the rest."""
        seq = 0
        for row in chained(self._each(1)):
            yield row
            seq = row.seq
        self._check_newest(seq)

    def newest(self, count: int) -> list[Row]:
        """The newest `count` rows, the oldest first, chained up to the head. Raises LedgerBroken."""
        if self.head is None:
            return []
        first = max(1, self.head.seq - count + 1)
        rows = _read(self._table, first)
        check_chained(rows, first, rows[0].prev if rows and first > 1 else "")
        if (rows[-1].hash if rows else "") != self.head.hash:
            raise LedgerBroken(about_ledger(self.address, f"its newest rows are not those of its head; {RESTORE}"))
        return rows

    def since(self, seq: int) -> list[Row]:
        """The rows after number `seq`, the oldest first. Their chain to earlier rows is not checked."""
        return _read(self._table, seq + 1)

    def _each(self, first: int) -> Iterator[Row]:
        """The rows from number `first` on, the oldest first, unchecked. What the log has not recorded is read, too."""
        at, recorded = first, self._recorded()
        while at + PORTION <= recorded and (portion := _read(self._table, at, at + PORTION)):
            yield from portion
            at += PORTION
        yield from _read(self._table, at)

    def _read_head(self) -> Head | None:
        """The head, read from the cached head on if the ledger still has that row; otherwise from all rows."""
        known = _recall(self.address)
        rows = self._each(known.seq if known else 1)
        row = next(rows, None) if known else None
        is_there = known and row and (row.seq, row.hash, row.digest()) == (known.seq, known.hash, known.hash)
        head = read_head(rows, known) if is_there else read_head(self._each(1))
        self._check_newest(head.seq if head else 0)
        return head

    def _check_id(self) -> None:
        """Raise LedgerBroken if the ledger's id was changed: by it every table knows its rule."""
        said = self.head.begun_with.ledger if self.head else None
        if said is not None and said != self.id:
            raise LedgerBroken(
                about_ledger(
                    self.address,
                    f"its id is {self.id} in the log and {said} in its rows: an entry or a "
                    f"checkpoint of the log was changed; {RESTORE}",
                )
            )

    def _check_newest(self, seq: int) -> None:
        """Raise LedgerBroken unless the log has recorded as many rows."""
        counted = self._recorded()
        if counted != seq:
            raise LedgerBroken(
                about_ledger(
                    self.address,
                    f"expected {counted} rows by its log, found {seq}: an entry of the log or "
                    f"a file of rows was changed; {RESTORE}",
                )
            )

    def _recorded(self) -> int:
        """The rows that the log has recorded."""
        with _of_the_ledger(self.address):
            return recorded_in(self._table, APP) or 0


def ledger_in(home: Home) -> LedgerReader | None:
    """The ledger of a home; None if the rule has not run. Raises LedgerBroken, also if it is gone."""
    found = LedgerReader.load(home.ledger)
    if found is None:
        check_not_lost(home)
    return found


@contextmanager
def _of_the_ledger(address: str) -> Iterator[None]:
    """Turn TableBroken into LedgerBroken, with the ways out for a ledger."""
    try:
        yield
    except TableBroken as fault:
        torn = torn_newest(address)
        found = problem_in(str(fault), address).removesuffix(f"; {ANEW}")  # without its ledger no rule can be reset
        ways = f"{ONE_ROW_LESS.format(torn) if torn else ''}{RESTORE}"
        raise LedgerBroken(about_ledger(address, f"{found}; {ways}")) from fault


# A newest row that a power loss cut off had no effect yet, or its epoch's effects are found and compared.
ONE_ROW_LESS = (
    "the newest row was written only in part: move {} away, and the ledger ends one row earlier. The next run then "
    "compares the tables with what it computes again. Otherwise, "
)


class Ledger(LedgerReader):
    """A ledger that one run writes. `run` names the writer in every row."""

    def __init__(self, address: str, table: DeltaTable, run: str, known: LedgerReader | None = None):
        super().__init__(address, table, known)
        self._run = run

    @classmethod
    def open(cls, address: str, run: str, known: LedgerReader | None = None) -> Ledger:
        """Load the ledger at `address`, or create an empty one if there is none. Keeps it quick to load.

        known: the ledger, loaded while nobody else could write it; it is not read again.
        """
        with _of_the_ledger(address):
            table = known._table if known else open_table(address)
            if table is None:
                Path(address).parent.mkdir(parents=True, exist_ok=True)
                DeltaTable.create(address, schema(), mode="ignore", configuration=CONFIGURATION)
                sync_table(address)
                table = DeltaTable(address)
            ledger = cls(address, table, run, known)
            ledger._tidy(COMPACT_ABOVE)
        return ledger

    def tidy(self) -> None:
        """Compact files and log now; `open` does it only once there are many files."""
        self._tidy(1)

    def _tidy(self, above: int) -> None:
        """Keep few files, few log entries and a cached head. It first reads all rows, and so checks them."""
        known = _recall(self.address)
        many = len(self._table.file_uris()) > above
        fresh = (self.head.seq if self.head else 0) - (known.seq if known else 0)
        if not many and fresh < REMEMBER_EVERY:
            return
        for _ in self.each():
            pass
        if self.head is not None:
            _remember(self.address, self.head)
        if many:
            with with_room(partial(_not_compacted, self.address)):
                self._table.optimize.compact()
                sync_commit(self.address, self._table.version())
                self._vacuum()
                self._table.create_checkpoint()
                trim(self.address, self._table.version() - RETAINED_ENTRIES)

    def _vacuum(self) -> None:
        """Remove replaced files, and files that a killed writer left without a commit. These never contain rows."""
        before = self._table.version()
        self._table.vacuum(RETAINED_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
        for version in range(before + 1, self._table.version() + 1):
            sync_commit(self.address, version)

    def begin(self, generation: int, token: str, commit: Commit) -> Head:
        check_living(self.head)
        begun = commit.model_copy(update={"ledger": self.id})
        return self._append_row("commit", begun, generation, token, 0, 1)

    def intend(self, intent: Intent) -> Head:
        """Write an epoch's intent; if it is already open, write it again with the next attempt."""
        head = self._living()
        return self._append_row("intent", intent, head.generation, head.token, head.epoch + 1, head.attempt + 1)

    def commit(self, commit: Commit) -> Head:
        head = self._living()
        return self._append_row("commit", commit, head.generation, head.token, head.epoch + 1, head.attempt)

    def lose(self, lost: Lost) -> Head:
        head = self._living()
        return self._append_row("lost", lost, head.generation, head.token, head.epoch + 1, head.attempt)

    def abandon(self) -> Head:
        """Announce that the open epoch will be taken back; from here on it cannot end otherwise."""
        head = self._living()
        assert head.open is not None
        said = Abandoning(intent=head.open.digest)
        return self._append_row("abandoning", said, head.generation, head.token, head.epoch + 1, head.attempt)

    def take_back(self, done: Abandoned) -> Head:
        """Write the end of an epoch that was taken back."""
        head = self._living()
        return self._append_row("abandoned", done, head.generation, head.token, head.epoch + 1, head.attempt)

    def seal(self, seal: Seal) -> Head:
        head = self._living()
        return self._append_row("seal", seal, head.generation, head.token, head.epoch, 1)

    def start_backfill(self, backfill: Backfill) -> Head:
        """Write a backfill's intent; if it is already open, write it again with the next attempt."""
        head = self._living()
        return self._append_row("backfill", backfill, head.generation, head.token, head.epoch, head.attempt + 1)

    def end_backfill(self, done: Backfilled) -> Head:
        head = self._living()
        return self._append_row("backfilled", done, head.generation, head.token, head.epoch, head.attempt)

    def defer(self, found: Deferred) -> Head:
        """Put the offsets behind rewrites of sources, which are to be corrected later."""
        head = self._living()
        return self._append_row("deferred", found, head.generation, head.token, head.epoch, head.attempt)

    def live(self, life: Life) -> Head:
        """Write a step of the rule's lifecycle; an open epoch or backfill stays open."""
        head = self.begun
        return self._append_row("life", life, head.generation, head.token, head.epoch, head.attempt)

    def _living(self) -> Head:
        head = self.begun
        check_living(head)
        return head

    def _append_row(self, kind: Kind, body: Record, generation: int, token: str, epoch: int, attempt: int) -> Head:
        """Append one row and return the new head. Raises Fenced if another writer came first."""
        seq, prev = (self.head.seq, self.head.hash) if self.head else (0, "")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = body.model_dump_json()
        row = Row(seq + 1, kind, generation, token, epoch, attempt, self._run, now, text, prev).sealed()
        head = follow(self.head, row)
        self._append(row)
        if "rows" in self.__dict__:
            self.rows.append(row)
        self.head = head
        return head

    def _append(self, row: Row) -> None:
        import pyarrow as pa

        transaction = CommitProperties(app_transactions=[Transaction(APP, row.seq)])
        data = pa.Table.from_pylist([row.__dict__], schema=schema())
        try:
            write_deltalake(self._table, data, mode="append", commit_properties=transaction)
        except (DeltaError, OSError) as fault:
            self._settle(row, fault)
        sync_commit(self.address, self._table.version())

    def _settle(self, row: Row, fault: Exception) -> None:
        """After an unclear outcome, read from the table whether it has our row."""
        found = LedgerReader.load(self.address)
        head = found.head if found else None
        if found is not None and head is not None and head.hash == row.hash:
            self._table = found._table
            return
        if (head.hash if head else "") == row.prev:
            raise _store_failed(self.address, row, fault) from fault
        last = found.newest(1)[0] if found and head else None
        by = f"; its newest row ({last.kind} of epoch {last.epoch}) is by {last.run}" if last else ""
        what = f"it did not take {row.kind} of epoch {row.epoch}"
        raise Fenced(about_ledger(self.address, f"{what}{by}")) from fault


def _store_failed(address: str, row: Row, fault: Exception) -> RunFailed:
    """The error if no other writer came in between: the store refused the row."""
    said = str(fault).strip().split("\n", 1)[0]
    why = cannot_take(str(fault))
    what = f"it did not take {row.kind} of epoch {row.epoch}"
    problem = f"{what}: {why}; {make_room(why)}, then retry: {said}" if why else f"{what}: {said}; retry"
    return RunFailed(about_ledger(address, problem))


def _not_compacted(address: str, why: str) -> str:
    return about_ledger(address, f"it cannot be compacted: {why}")


def _memory(address: str) -> Path:
    return Path(f"{address}.head")


def _recall(address: str) -> Head | None:
    """The cached head; None if it cannot be read, because the rows have the same content."""
    try:
        return head_from_text(_memory(address).read_text())
    except (OSError, ValueError):
        return None


def _remember(address: str, head: Head) -> None:
    """Cache the head, if possible; without the cache it is read from all rows."""
    place = _memory(address)
    coming = place.with_suffix(".new")
    with suppress(OSError):
        coming.write_text(head_to_text(head))
        coming.replace(place)


def _read(table: DeltaTable, first: int, end: int | None = None) -> list[Row]:
    """The rows from number `first` on, those before `end`."""
    below = "" if end is None else f" AND seq < {end:d}"
    with _of_the_ledger(root_of(table).removeprefix("file://")):
        found = query(table, f"SELECT * FROM t WHERE seq >= {first:d}{below} ORDER BY seq")  # noqa: S608 - numbers
    return [Row(**row) for row in found]
