"""Rows that a target refused: how they look, and which of them it can still get."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.relay.aside import Aside
from floodmark.connectors.relay.backlogs import refused_by
from floodmark.connectors.relay.contents import compared, rows_of, with_types
from floodmark.connectors.relay.relaying import layout_of, sink_of
from floodmark.core.protocol.places import PREFIX
from floodmark.core.relay.portions import Portion, portions, redelivery_in
from floodmark.core.relay.positions import Position
from floodmark.core.relay.redeliveries import RefusedRow, still_due, whole_in
from floodmark.core.rules.sinks.outboxes import ASIDE
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.ledger.delta.datafiles import query

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from floodmark.core.rules.model import Sink
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader


class RefusedRows:
    """Of the target of one sink."""

    def __init__(self, sink: Sink, home: Home, ledger: LedgerReader):
        self._sink, self._home, self._ledger = sink_of(ledger, sink), home, ledger
        self._outbox = cast("Path", home.outbox(sink))
        self.target = PREFIX + str(sink.address)

    def shown(self, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """How many there are, and the newest of them; `_replayed`: the ledger's row of the replay that named it."""
        tables = self._aside.tables()
        count = sum(query(one, "SELECT count(*) AS rows FROM t")[0]["rows"] for one in tables)
        newest = f"SELECT * FROM t ORDER BY _seq DESC, _number DESC LIMIT {limit:d}"  # noqa: S608 - ours
        rows = sorted((row for one in tables for row in query(one, newest)), key=_id_of, reverse=True)[:limit]
        names = dict.fromkeys(name for row in rows for name in row)
        ordered = [*(name for name in names if name not in ASIDE), *ASIDE]
        known = {one: row.seq for row in self._ledger.since(0) for one in self._named(row)}
        return count, [
            {**{name: row.get(name) for name in ordered}, "_replayed": known.get(_id_of(row))} for row in rows
        ]

    def _named(self, row: Any) -> Sequence[tuple[int, int]]:
        found = redelivery_in(row, self.target)
        return found.rows if found else ()

    def due(self) -> list[RefusedRow]:
        """Those that the target lacks and may still get. Raises HistoryGone if the outbox no longer tells."""
        return self.sifted()[0]

    def sifted(self) -> tuple[list[RefusedRow], set[tuple[int, int]]]:
        """The same, and those that the target lacks and never gets: something later has decided about them."""
        ids = refused_by(self._sink, self._home, self._ledger)
        if not ids:
            return [], set()
        first = min(seq for seq, _ in ids)
        rows = self._ledger.since(first - 1)
        whole = {row.seq for row in rows if whole_in(row, self.target)}
        later = portions(rows, self.target, Position(self._ledger.id, seq=first))
        seen = ((one, self._keys(one)) for one in later)
        due = still_due(self._rows(ids, whole), seen, self._sink.newest is not None)
        return due, ids - {one.id for one in due}

    def supersede(self, ids: set[tuple[int, int]]) -> None:
        """Have these no longer count as undelivered."""
        self._aside.supersede(ids)

    def _keys(self, one: Portion) -> Mapping[Any, bool]:
        """The keys that a portion has changed, and whether it took their rows away: not those of rows it left out."""
        layout = replace(self._layout, newest=None)
        if not layout.key:
            return {}
        columns = [*layout.key, DELETE_COLUMN]
        found = self._aside.rows(one.again, columns) if one.again else rows_of(self._outbox, one.commit, columns)
        rows = enumerate(compared(self._typed(found), layout))
        return {key: gone for number, (key, _, gone) in rows if (one.position.seq, number) not in self._refused}

    def _rows(self, ids: set[tuple[int, int]], whole: Collection[int]) -> Iterator[RefusedRow]:
        """`whole`: the ledger's rows whose rows take their keys' places."""
        layout, in_order = self._layout, iter(sorted(ids))
        columns = [*(column.name for column in layout.columns), *([DELETE_COLUMN] if layout.key else [])]
        for batch in self._typed(self._aside.rows(sorted(ids), columns)):
            times, rows = _times(batch), compared(iter((batch,)), layout)
            for place, (key, order, gone) in enumerate(rows):
                seq, number = next(in_order)
                instants = {name: at for name, values in times.items() if (at := values[place]) is not None}
                yield RefusedRow(seq, number, key, instants, gone, bool(key) and seq in whole, order)

    def _typed(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """With the types of now: a reset may have changed them."""
        return with_types(str(self._sink.address), found, self._layout.columns)

    @cached_property
    def _refused(self) -> set[tuple[int, int]]:
        return self._aside.ids()

    @property
    def _aside(self) -> Aside:
        return Aside(str(self._sink.address), self._outbox)

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(self._sink, self._outbox)


def _id_of(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["_seq"], row["_number"]


def _times(batch: pa.RecordBatch) -> dict[str, list[int | None]]:
    """The microseconds of all instants, by column in small letters."""
    import pyarrow as pa

    fields = (one for one in batch.schema if pa.types.is_timestamp(one.type))
    return {one.name.lower(): batch.column(one.name).cast(pa.int64()).to_pylist() for one in fields}
