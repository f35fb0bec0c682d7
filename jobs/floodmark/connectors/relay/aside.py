"""The rows that a target refused: a Delta table in the rule's home that has each of them once, for good.

After a reset that has given a column another type, what was there lies in an older table beside it, under a name of its
own. All of them count.

A row is known by its portion and its number there. It is written before the position moves, and from then on no relay
sends it with its portion: so it is here or in the target, whatever ends a relay.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from floodmark.connectors.relay.contents import fitted, picked
from floodmark.core.relay.positions import Position
from floodmark.core.relay.redeliveries import Id, Sifted
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

    from floodmark.connectors.ports.target import Operation

_TYPES = dict(zip(ASIDE, ("string", "long", "long", "long", "long", "timestamp"), strict=True))
FORGOTTEN = (
    ": if `floodmark forget` has removed them (`floodmark epochs RULE` lists it), fill the target anew by a "
    "reset or `floodmark backfill --all`"
)
_OLDER = "-until-"  # then a number
Ids = Collection[Id]


@dataclass(frozen=True)
class Refusal:
    """Rows of one portion: `rows`, with the outbox's columns; of each its number, and why it was refused."""

    position: Position
    rows: pa.Table
    reasons: Mapping[int, str]


def refusal_of(one: Operation, reasons: Mapping[int, str]) -> Refusal:
    """Rows of a portion, by their place in it, as what is set aside."""
    numbers = list(itertools.islice(one.numbers(), max(reasons) + 1))
    places = sorted(reasons)
    return Refusal(one.position, picked(one.rows(), places), {numbers[place]: reasons[place] for place in places})


def older_of(folder: Path) -> list[Path]:
    """The older tables beside the one in `folder`."""
    return list(folder.parent.glob(f"{folder.name}{_OLDER}*"))


def newest_of(name: str) -> str:
    """The name of the table beside which one of this name is, if that is an older one; else the same name."""
    return name.partition(_OLDER)[0]


class Aside:
    """The refused rows of the target at `address`. `outbox`: the folder of its outbox."""

    def __init__(self, address: str, outbox: Path):
        self._address, self._outbox = address, outbox
        self.folder = outbox.parent.parent / "undelivered" / outbox.name

    def tables(self) -> list[DeltaTable]:
        """The newest first: one that becomes an older one meanwhile is there twice, and never missing."""
        found = [self._newest(), *(tables.open_table(str(one)) for one in older_of(self.folder))]
        return [one for one in found if one is not None]

    def ids(self) -> set[Id]:
        """All rows that are here."""
        found = (row for table in self.tables() for row in query(table, "SELECT _seq, _number FROM t"))
        return {(one["_seq"], one["_number"]) for one in found}

    def left(self) -> set[Id]:
        """Those that may still come, as far as a replay has found."""
        return self.ids() - self.superseded()

    def superseded(self) -> set[Id]:
        """Those that never come any more, as far as a replay has found."""
        file = self._superseded
        return {(seq, number) for seq, number in json.loads(file.read_text())} if file.exists() else set()

    def supersede(self, ids: Ids) -> None:
        """Note that something later has decided about these rows. Without the note, a replay finds them again."""
        if ids:
            with self._locked():
                known = sorted(self.superseded() | set(ids))
                fresh = self._superseded.with_name(f"{self._superseded.name}.{os.getpid()}")
                fresh.write_text(json.dumps(known))
                fresh.replace(self._superseded)

    @property
    def _superseded(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.superseded")

    def sifted(self) -> Sifted | None:
        """What a relay has noted last; None: nothing that can be read, and the ledger says it all."""
        try:
            return Sifted.parse(self._sifted.read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def note(self, found: Sifted) -> None:
        """Note which rows the target lacks, if possible. Without the note, looks read more of the ledger."""
        fresh = self._sifted.with_name(f"{self._sifted.name}.{uuid4().int}")
        with suppress(OSError):
            fresh.write_text(found.text())
            fresh.replace(self._sifted)

    @property
    def _sifted(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.sifted")

    def add(self, refused: Collection[Refusal]) -> int:
        """Add the rows that are not here yet, in one commit; returns how many. Durable when it returns."""
        self.folder.parent.mkdir(exist_ok=True)  # a home that was renamed or dropped meanwhile is not made again
        with self._locked():
            known = self.ids()
            parts = [_noted(one, known) for one in refused]
            return self._append([one for one in parts if one is not None])

    def rows(self, ids: Ids, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """These rows, in this order. Raises HistoryGone if one is not here."""
        import pyarrow as pa

        if not ids:
            return
        parts = [picked for table in self.tables() if (picked := _picked(table, ids)).num_rows]
        there = {one: place for place, one in enumerate(one for part in parts for one in _ids_in(part))}
        if len(there) != len(ids):
            problem = f"expected {len(ids)} rows that it refused at {self.folder}, found {len(there)}"
            raise HistoryGone(about_sink(self._address, f"{problem}{FORGOTTEN}; else restore the home"))
        now = (self._as_now(part, columns) for part in parts)
        yield from pa.concat_tables(now, promote_options="default").take([there[one] for one in ids]).to_batches()

    def _as_now(self, rows: pa.Table, columns: list[str]) -> pa.Table:
        """Rows with the types that the outbox has now: NULL in a column that they lack. Raises WrongColumn."""
        import pyarrow as pa

        types = {field.name: field.type for field in self._schema}
        there = {name: rows[name] for name in columns if name in rows.column_names}
        fit = {name: fitted(self._address, name, one, types.get(name, one.type)) for name, one in there.items()}
        return pa.table({name: fit.get(name, pa.nulls(rows.num_rows, types.get(name))) for name in columns})

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
        """Make the table an older one if rows of now do not fit it: a reset has given a column another type."""
        import pyarrow as pa

        table, now = self._newest(), {field.name: field.type for field in self._schema}
        there = [] if table is None else pa.schema(table.schema().to_arrow())
        if any(now.get(one.name, one.type) != one.type for one in there):
            numbers = (int(one.name.rpartition("-")[2]) for one in older_of(self.folder))
            self.folder.rename(self.folder.with_name(f"{self.folder.name}{_OLDER}{max(numbers, default=0) + 1}"))

    def _newest(self) -> DeltaTable | None:
        return tables.open_table(str(self.folder)) if self.folder.exists() else None

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


def _picked(table: DeltaTable, ids: Ids) -> pa.Table:
    """Those of the rows that are in a table."""
    import pyarrow as pa

    rows, wanted = pa.table(table.to_pyarrow_table()), set(ids)
    return rows.take(pa.array([place for place, one in enumerate(_ids_in(rows)) if one in wanted], pa.int64()))


def _ids_in(rows: pa.Table) -> list[Id]:
    return list(zip(rows["_seq"].to_pylist(), rows["_number"].to_pylist(), strict=True))


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
