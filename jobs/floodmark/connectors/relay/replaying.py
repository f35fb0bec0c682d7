"""Rows that a target refused: how they look, and which of them it can still get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.relay.aside import Aside
from floodmark.connectors.relay.backlogs import refused_by
from floodmark.connectors.relay.contents import rows_of
from floodmark.connectors.relay.relaying import layout_of, sink_of
from floodmark.core.protocol.places import PREFIX
from floodmark.core.relay.portions import Portion, micros_of, portions, redelivery_in
from floodmark.core.relay.positions import Position
from floodmark.core.relay.redeliveries import RefusedRow, still_due
from floodmark.core.rules.sinks.outboxes import ASIDE
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.ledger.delta.datafiles import query

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        tables = Aside(str(self._sink.address), self._outbox).tables()
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

    def due(self) -> list[tuple[int, int]]:
        """Those that the target lacks and may still get. Raises HistoryGone if the outbox no longer tells."""
        return self.sifted()[0]

    def sifted(self) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
        """The same, and those that the target lacks and never gets: something later has decided about them."""
        ids = refused_by(self._sink, self._home, self._ledger)
        if not ids:
            return [], set()
        first = min(seq for seq, _ in ids)
        later = portions(self._ledger.since(first), self.target, Position(self._ledger.id, seq=first))
        seen = ((one, self._keys(one)) for one in later)
        due = still_due(self._rows(ids), seen, self._sink.newest is not None)
        return due, ids - set(due)

    def supersede(self, ids: set[tuple[int, int]]) -> None:
        """Have these no longer count as undelivered."""
        Aside(str(self._sink.address), self._outbox).supersede(ids)

    def _keys(self, one: Portion) -> Mapping[Any, bool]:
        """The keys that a portion changes, and whether it takes their rows away."""
        key = self._layout.key
        if not key:
            return {}
        columns = [*key, DELETE_COLUMN]
        aside = Aside(str(self._sink.address), self._outbox)
        found = aside.rows(one.again, columns) if one.again else rows_of(self._outbox, one.commit, columns)
        rows = (row for batch in found for row in batch.to_pylist())
        return {tuple(row[name] for name in key): bool(row[DELETE_COLUMN]) for row in rows}

    def _rows(self, ids: set[tuple[int, int]]) -> Iterator[RefusedRow]:
        columns, in_order = [column.name for column in self._layout.columns], sorted(ids)
        found = Aside(str(self._sink.address), self._outbox).rows(in_order, columns)
        rows = (row for batch in found for row in batch.to_pylist())
        for (seq, number), row in zip(in_order, rows, strict=True):
            times = {name.lower(): micros for name, value in row.items() if (micros := micros_of(value)) is not None}
            yield RefusedRow(seq, number, tuple(row[name] for name in self._layout.key), times)

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(self._sink, self._outbox)


def _id_of(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["_seq"], row["_number"]
