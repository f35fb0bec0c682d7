"""The ledger's one client: a Delta table of intents and commits, written by delta-rs.

delta-rs records an app transaction but never skips by it, so safety comes from the handle: the table is loaded once, at
the gate, and that very handle commits. Whoever commits a ledger row in between makes the next commit on it fail.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from floodmark.core.records import Commit, Head, Intent, Kind, Lost, Row, Seal, follow, read_head
from floodmark.errors import Fenced
from floodmark.ledger.tables import open_table, query, table_id

if TYPE_CHECKING:
    import pyarrow as pa

APP = "floodmark.ledger"
COLUMNS = ("seq", "kind", "generation", "token", "epoch", "attempt", "run", "at", "body", "prev", "hash")
COMPACT_ABOVE = 100  # files: loading 200 one-row files takes 0.2 s, 600 take 0.6 s


@cache
def schema() -> pa.Schema:
    """Columns of a ledger. Only who writes imports pyarrow: it takes a third of a second, and reading needs none."""
    import pyarrow as pa

    numbers, texts = ("seq", "generation", "epoch", "attempt"), ("kind", "token", "run", "at", "body", "prev", "hash")
    kinds = {**dict.fromkeys(numbers, pa.int64()), **dict.fromkeys(texts, pa.string())}
    return pa.schema([pa.field(name, kinds[name], nullable=False) for name in COLUMNS])


# Rows are the truth and are never deleted; the log of how they came is kept a year, for the auditor.
CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 365 days",
    "delta.enableExpiredLogCleanup": "true",
    "delta.checkpointInterval": "50",
    "delta.appendOnly": "false",
}


class LedgerReader:
    """A ledger as it stood when it was loaded."""

    def __init__(self, address: str, table: DeltaTable):
        self.address = address
        self.id = table_id(table)
        self._table = table
        self.rows = _read(table)
        self.head: Head | None = read_head(self.rows)

    @classmethod
    def load(cls, address: str) -> LedgerReader | None:
        table = open_table(address)
        return None if table is None else cls(address, table)


class Ledger(LedgerReader):
    """A ledger that one run writes. `run` names the writer in every row."""

    def __init__(self, address: str, table: DeltaTable, run: str):
        super().__init__(address, table)
        self._run = run
        if len(table.file_uris()) > COMPACT_ABOVE:
            table.optimize.compact()

    @classmethod
    def open(cls, address: str, run: str) -> Ledger:
        """Load the ledger at `address`; an empty one is created where there is none."""
        if open_table(address) is None:
            Path(address).parent.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(address, schema(), mode="ignore", configuration=CONFIGURATION)
        return cls(address, DeltaTable(address), run)

    def begin(self, generation: int, token: str, commit: Commit) -> Head:
        return self._put("commit", commit, generation, token, 0, 1)

    def intend(self, intent: Intent) -> Head:
        """Write an epoch's intent; where it is open already, the same again with the next attempt."""
        head = self._living()
        return self._put("intent", intent, head.generation, head.token, head.epoch + 1, head.attempt + 1)

    def commit(self, commit: Commit) -> Head:
        head = self._living()
        return self._put("commit", commit, head.generation, head.token, head.epoch + 1, head.attempt)

    def lose(self, lost: Lost) -> Head:
        head = self._living()
        return self._put("lost", lost, head.generation, head.token, head.epoch + 1, head.attempt)

    def seal(self, seal: Seal) -> Head:
        head = self._living()
        return self._put("seal", seal, head.generation, head.token, head.epoch, 1)

    def _living(self) -> Head:
        if self.head is None:
            raise AssertionError("no generation has begun")
        return self.head

    def _put(
        self, kind: Kind, body: Intent | Commit | Lost | Seal, generation: int, token: str, epoch: int, attempt: int
    ) -> Head:
        """Append one row and return the new head. Raises Fenced where another writer came first."""
        seq, prev = (self.head.seq, self.head.hash) if self.head else (0, "")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = body.model_dump_json()
        row = Row(seq + 1, kind, generation, token, epoch, attempt, self._run, now, text, prev).sealed()
        head = follow(self.head, row)
        self._append(row)
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

    def _settle(self, row: Row, fault: Exception) -> None:
        """After an unclear outcome, let the table say whether our row is there."""
        found = Ledger(self.address, DeltaTable(self.address), self._run)
        if not any(other.hash == row.hash for other in found.rows):
            last = found.rows[-1] if found.rows else None
            by = f"; its newest row ({last.kind} of epoch {last.epoch}) is by {last.run}" if last else ""
            raise Fenced(f"the ledger {self.address} did not take {row.kind} of epoch {row.epoch}{by}") from fault
        self._table = found._table


def _read(table: DeltaTable) -> list[Row]:
    return [Row(**row) for row in query(table, "SELECT * FROM t ORDER BY seq")]
