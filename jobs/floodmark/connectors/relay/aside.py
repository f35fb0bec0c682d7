"""The rows that a target refused: a Delta table in the rule's home that has each of them once, for good.

A row is known by its portion and its number there. It is written before the position moves, and from then on no relay
sends it with its portion: so it is here or in the target, whatever ends a relay.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.relay.positions import Position
from floodmark.core.rules.sinks.outboxes import ASIDE
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import HistoryGone, RunFailed
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.datafiles import query
from floodmark.ledger.delta.storefaults import cannot_take
from floodmark.ledger.delta.syncing import sync_table

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_TYPES = dict(zip(ASIDE, ("string", "long", "long", "long", "long", "timestamp"), strict=True))
Ids = Collection[tuple[int, int]]  # rows, each by its portion's row of the ledger, and its number in the portion


@dataclass(frozen=True)
class Refusal:
    """Rows of one portion: `rows`, with the outbox's columns; of each its number, and why it was refused."""

    position: Position
    rows: pa.Table
    reasons: Mapping[int, str]


class Aside:
    """The refused rows of the target at `address`. `outbox`: the folder of its outbox."""

    def __init__(self, address: str, outbox: Path):
        self._address, self._outbox = address, outbox
        self.folder = outbox.parent.parent / "undelivered" / outbox.name

    def table(self) -> DeltaTable | None:
        return tables.open_table(str(self.folder)) if self.folder.exists() else None

    def ids(self) -> set[tuple[int, int]]:
        """All rows that are here."""
        table = self.table()
        found = [] if table is None else query(table, "SELECT _seq, _number FROM t")
        return {(one["_seq"], one["_number"]) for one in found}

    def add(self, refused: Collection[Refusal]) -> int:
        """Add the rows that are not here yet, in one commit; returns how many. Durable when it returns."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            known = self.ids()
            parts = [_noted(one, known) for one in refused]
            return self._append([one for one in parts if one is not None])

    def rows(self, ids: Ids, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """These rows, in this order. Raises HistoryGone if one is not here."""
        import pyarrow as pa

        table = self.table()
        places = {one: place for place, one in enumerate(ids)}
        found = None if table is None else pa.table(table.to_pyarrow_table())
        at = _ids_in(found)
        there = sorted((places[one], row) for row, one in enumerate(at) if one in places)
        if found is None or len(there) != len(places):
            problem = f"expected {len(places)} rows that it refused at {self.folder}, found {len(there)}"
            raise HistoryGone(about_sink(self._address, f"{problem}: restore the home"))
        rows = _as_now(found.take([row for _, row in there]), self._schema)
        yield from rows.select(columns).to_batches()

    def _append(self, parts: list[pa.Table]) -> int:
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake

        if not parts:
            return 0
        self._make_room()
        tables.create(str(self.folder), self._fields, {})
        rows = pa.concat_tables(parts, promote_options="default").cast(self._schema)
        newest = max(rows["_seq"].to_pylist())
        said = CommitProperties(app_transactions=[Transaction(f"floodmark/undelivered/{self.folder.name}", newest)])
        try:
            write_deltalake(str(self.folder), rows, mode="append", schema_mode="merge", commit_properties=said)
        except OSError as fault:
            why = cannot_take(str(fault)) or str(fault)
            problem = f"its undelivered rows cannot be written to {self.folder}: {why}. A retry writes them"
            raise RunFailed(about_sink(self._address, problem)) from fault
        sync_table(str(self.folder))
        return int(rows.num_rows)

    def _make_room(self) -> None:
        """Give the table another name if rows of now do not fit it: a reset has given a column another type."""
        import pyarrow as pa

        table, now = self.table(), {field.name: field.type for field in self._schema}
        there = [] if table is None else pa.schema(table.schema().to_arrow())
        if any(now.get(one.name, one.type) != one.type for one in there):
            newest = max((seq for seq, _ in self.ids()), default=0)
            self.folder.rename(self.folder.with_name(f"{self.folder.name}-until-{newest}"))

    @cached_property
    def _fields(self) -> str:
        """The columns, as Spark's JSON: those of the outbox as it is now, then ours."""
        table = tables.open_table(str(self._outbox))
        if table is None:
            raise HistoryGone(about_sink(self._address, f"expected its outbox at {self._outbox}, found none"))
        known = json.loads(table.schema().to_json())["fields"]
        ours = [{"name": name, "type": kind} for name, kind in _TYPES.items()]
        fields = [{"name": one["name"], "type": one["type"], "nullable": True, "metadata": {}} for one in known + ours]
        return json.dumps({"type": "struct", "fields": fields})

    @property
    def _schema(self) -> pa.Schema:
        import pyarrow as pa
        from deltalake import Schema

        return pa.schema(Schema.from_json(self._fields).to_arrow())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One relay writes at a time: another looks again afterwards."""
        with self.folder.with_name(f"{self.folder.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _as_now(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns that the outbox has now: NULL in one that has come since."""
    import pyarrow as pa

    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    }
    return pa.table(columns)


def _ids_in(rows: pa.Table | None) -> list[tuple[int, int]]:
    return [] if rows is None else list(zip(rows["_seq"].to_pylist(), rows["_number"].to_pylist(), strict=True))


def _noted(one: Refusal, known: Ids) -> pa.Table | None:
    """The rows that are not known yet, with our columns; None if there are none."""
    import pyarrow as pa

    position = one.position
    fresh = [(place, number) for place, number in enumerate(one.reasons) if (position.seq, number) not in known]
    if not fresh:
        return None
    places, numbers = zip(*fresh, strict=True)
    at = datetime.now(UTC)
    rows = one.rows.take(list(places))
    ours: dict[str, Any] = {
        "_reason": [one.reasons[number] for number in numbers],
        "_generation": [position.generation] * len(fresh),
        "_epoch": [position.epoch] * len(fresh),
        "_seq": [position.seq] * len(fresh),
        "_number": list(numbers),
        "_at": pa.array([at] * len(fresh), pa.timestamp("us", "UTC")),
    }
    for name, values in ours.items():
        rows = rows.append_column(name, pa.array(values) if isinstance(values, list) else values)
    return rows
