"""A rule with a target that is behind, made by hand: its ledger, its outbox and what its relays remember."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from floodmark.connectors.relay.aside import Aside, Refusal
from floodmark.connectors.relay.backlogs import Undelivered, undelivered
from floodmark.connectors.relay.memory import remember_fault, remember_shipped
from floodmark.core.protocol.records.rows import Counts, Row, Written
from floodmark.core.relay.positions import Position
from floodmark.core.rules.model import Sink
from support.byhand import begun, commit, intent
from support.flow import SCHEMA, Flow, event

NAME = "public.orders"
ROWS = 4  # of each epoch


class Behind:
    """A rule with a target, and as many epochs as `run` is told. `outbox`: the target's keys of that name."""

    def __init__(self, root: Path, name: str = "counted", table: str = NAME, **outbox: Any):
        self.flow = Flow(root, name)
        target = {"postgres": {"connection": "shop", "table": table}, **({"outbox": outbox} if outbox else {})}
        self.flow.settings = {"sinks": [{"delta": self.flow.sink()}, target]}
        self.ledger = begun(self.flow)
        self.outbox = self.flow.place.outbox(self.target)
        write_deltalake(str(self.outbox), pa.Table.from_pylist([], schema=SCHEMA))

    @property
    def target(self) -> Sink:
        return self.flow.rule().sinks[1]

    def run(self, top: int, watermark: int | None = None) -> None:
        """One epoch more. `top`: the newest event time that it has read."""
        rows = pa.Table.from_pylist([event(one) for one in range(ROWS)], schema=SCHEMA)
        write_deltalake(str(self.outbox), rows, mode="append")
        number = self.flow.ledger().head.epoch + 1  # type: ignore[union-attr]
        found = intent(self.flow, 1, watermark, top, Counts(read=ROWS, folded=ROWS))
        self.ledger.intend(found)
        written = {
            f"sink/{self.target.address}": Written(
                version=number, commit=DeltaTable(str(self.outbox)).version(), rows=ROWS
            )
        }
        self.ledger.commit(commit(found, output=ROWS).model_copy(update={"tables": written}))

    def ship(self, seconds: float = 0.5) -> None:
        """The target gets what is committed."""
        head = self.row
        place = Position(self.ledger.id, head.generation, head.token, head.epoch, head.seq, head.hash)
        assert self.outbox is not None
        remember_shipped(self.outbox, place, ROWS, ROWS, seconds)

    def fail(self, said: str) -> None:
        assert self.outbox is not None
        remember_fault(self.outbox, said)

    def refuse(self, *numbers: int) -> None:
        """The target has refused these rows of the newest epoch."""
        assert self.outbox is not None
        head = self.row
        place = Position(self.ledger.id, head.generation, head.token, head.epoch, head.seq, head.hash)
        rows = pa.Table.from_pylist([event(one) for one in numbers], schema=SCHEMA)
        Aside(str(self.target.address), self.outbox).add([Refusal(place, rows, dict.fromkeys(numbers, "too large"))])

    @property
    def row(self) -> Row:
        """The ledger's newest."""
        return self.flow.ledger().newest(1)[0]

    @property
    def lacks(self) -> Undelivered:
        [found] = undelivered(self.flow.rule(), self.flow.place, self.flow.ledger())
        return found
