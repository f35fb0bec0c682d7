"""The relay: ship what a rule has committed from the outbox of a target to the target, in order.

It holds no lock. Two relays of one target do no harm: each moves the position in the target's own transaction, from the
one that it has read, and the slower one fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import cast

from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.relay.contents import columns_in, rows_of
from floodmark.connectors.relay.memory import recall, remember, remember_fault, remember_shipped
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import PREFIX
from floodmark.core.relay.portions import Portion, batches, check_position, portions
from floodmark.core.relay.positions import Position
from floodmark.core.rules.kinds import sink_kind, targets
from floodmark.core.rules.model import Rule, Sink
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import LedgerBroken, Refused
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader


@dataclass(frozen=True)
class Shipped:
    """What a relay has shipped: portions, their rows, and the target's position afterwards."""

    portions: int
    rows: int
    position: Position


def target_of(sink: Sink, outbox: Path | None = None) -> Target:
    """The target of a sink that is one. `outbox`: its folder; None in a look without a home."""
    kind = sink_kind(sink.kind)
    assert kind.target is not None, f"{sink.kind} has no target"
    return cast("Target", kind.target(sink, outbox))


def target_named(rule: Rule, name: str) -> Sink:
    """The rule's target with this label. Raises Refused."""
    for sink in targets(rule):
        if sink.label == name:
            return sink
    known = ", ".join(sink.label for sink in targets(rule)) or "none"
    raise Refused(f"rule {rule.rule}: expected one of its targets ({known}), found {name}")


def layout_of(sink: Sink, folder: Path) -> Layout:
    """What a target holds, by its outbox in `folder`."""
    columns = columns_in(str(sink.address), folder)
    spelt = {one.name.lower(): one.name for one in columns}
    key = tuple(spelt[name.lower()] for name in sink.key)
    return Layout(columns, key, sink.newest and spelt[sink.newest.lower()], sink.adds_columns)


def check_targets(rule: Rule, home: Home, ledger: LedgerReader | None) -> None:
    """Check that each target can be reached, and is this ledger's or nobody's. Writes nothing. Raises as a relay."""
    for sink in targets(rule):
        with closing(target_of(sink, home.outbox(sink))) as target:
            position = target.position()
        if position is not None:
            _check(target, position, ledger)


def _check(target: Target, position: Position, ledger: LedgerReader | None) -> None:
    """Raise unless the position is one of the ledger's (None: there is none yet)."""
    rows = ledger.since(position.seq - 1) if ledger and ledger.head else []
    row = next((one for one in rows if one.seq == position.seq), None)
    newest = ledger.head.seq if ledger and ledger.head else 0
    check_position(target.address, position, ledger.id if ledger else "none yet", row, newest)


class Relay:
    """The relay of one target. `resend`: a target that was restored from a copy gets again what it lost."""

    def __init__(self, rule: Rule, sink: Sink, home: Home, resend: bool = False):
        self._rule, self._sink, self._resend, self._rebuilt = rule.rule, sink, resend, rule.rebuild
        self._folder, self._ledger_at = cast("Path", home.outbox(sink)), home.ledger
        self._target = target_of(sink, self._folder)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.close()

    def ship(self, tell: Callable[[Shipped], None] = lambda _: None) -> Shipped | None:
        """Ship all that is committed now; None if the rule has written nothing for the target yet.

        Raises what the target raises, and remembers it for `status`.
        """
        try:
            return self._ship(tell)
        except Exception as fault:
            remember_fault(self._folder, str(fault))
            raise

    def _ship(self, tell: Callable[[Shipped], None]) -> Shipped | None:
        ledger = LedgerReader.load(self._ledger_at)
        if ledger is None or ledger.head is None or not self._folder.exists():
            return None
        since = self._begin(ledger)
        found = portions(ledger.since(since.seq), PREFIX + str(self._sink.address), since, self._rebuilt)
        done, begun = Shipped(0, 0, since), time.monotonic()
        for batch in batches(found):
            epochs = [one.position.epoch for one in batch]
            reach(self._rule, "relay.before", *epochs)
            self._apply(batch, done.position)
            reach(self._rule, "relay.after", *epochs)
            rows = sum(one.rows for one in batch)
            done = Shipped(done.portions + len(batch), done.rows + rows, batch[-1].position)
            remember_shipped(self._folder, done.position, rows, done.rows, time.monotonic() - begun)
            tell(done)
        if not done.portions:
            remember(self._folder, since)
        return done

    def _begin(self, ledger: LedgerReader) -> Position:
        """The target's position, once it can be trusted."""
        position = self._target.claim(ledger.id, self._layout)
        _check(self._target, position, ledger)
        known = recall(self._folder).position
        if known is not None and known.ledger == position.ledger and known.seq > position.seq and not self._resend:
            raise LedgerBroken(
                about_sink(
                    self._target.address,
                    f"it had {known.words}, and has {position.words} now: it was restored from a copy, or its position "
                    f"was changed. If its rows are as of that position, `floodmark relay {self._rule} --target "
                    f"{self._sink.label} --resend` ships again what it lost",
                )
            )
        return position

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(self._sink, self._folder)

    def _apply(self, batch: Sequence[Portion], since: Position) -> None:
        """By the sink's qos: rows and position together; at 1 first the rows, at 0 first the position."""
        operations, upto = [self._operation(one) for one in batch], batch[-1].position
        epochs = [one.epoch for one in operations]
        send = partial(self._send, partial(reach, self._rule, "relay.sent", *epochs))
        if self._sink.qos == 2:
            return send(operations, since, upto)
        rows_first = self._sink.qos == 1
        send(*((operations, since, since) if rows_first else ([], since, upto)))
        reach(self._rule, "relay.between", *epochs)
        return send(*(([], since, upto) if rows_first else (operations, upto, upto)))

    def _send(self, sent: Callable[[], None], operations: Sequence[Operation], since: Position, upto: Position) -> None:
        self._target.apply(operations, self._layout, since, upto, sent)

    def _operation(self, one: Portion) -> Operation:
        columns = [column.name for column in self._layout.columns]
        columns += [DELETE_COLUMN] if self._layout.key else []
        rows = partial(rows_of, self._folder, one.commit, columns)
        token = f"{one.position.ledger}/{one.position.seq}"
        return Operation(token, one.position, one.empties, one.replaces, one.whole, one.rows, rows)
