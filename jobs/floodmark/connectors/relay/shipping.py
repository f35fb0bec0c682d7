"""Relays beside a run: one thread for each target ships an epoch's rows while the next epoch folds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from floodmark.connectors.relay.memory import Lost
from floodmark.connectors.relay.relaying import Relay, Shipped
from floodmark.core.rules.kinds import targets
from floodmark.core.rules.model import Rule, Sink
from floodmark.errors import exit_code, message
from floodmark.ledger.home import Home


@dataclass
class Delivered:
    """What one target got. `fault`: why the last attempt failed; what is left then stays in the outbox, but for what is
    `lost`. refused: rows that were set aside."""

    target: str
    portions: int = 0
    rows: int = 0
    fault: Exception | None = None
    refused: int = 0
    lost: Lost = field(default_factory=Lost)

    def add(self, shipped: Shipped | None) -> None:
        if shipped is None:
            return
        self.portions += shipped.portions
        self.rows += shipped.rows
        self.refused += shipped.refused

    @property
    def exit_code(self) -> int:
        return 0 if self.fault is None else exit_code(self.fault)

    def text(self) -> str:
        """For people; '' if there was nothing to do."""
        done = f"{self.rows} rows of {_count(self.portions, 'portion')} shipped" if self.portions else ""
        done += f", {self.refused} refused and set aside" if self.refused else ""
        if self.lost.epochs:
            also = f"; {done}" if done else ""
            return f"target {self.target} may lack {self.lost.text}, lost at `qos: 0`: {self.lost.why}{also}"
        if self.fault is not None:
            return f"target {self.target} is behind{f' ({done})' if done else ''}: {message(self.fault)}"
        return f"target {self.target}: {done}" if done else ""

    def facts(self) -> dict[str, Any]:
        """For --json."""
        fault = None if self.fault is None else {"type": type(self.fault).__name__, "message": message(self.fault)}
        return {
            "target": self.target,
            "portions": self.portions,
            "rows": self.rows,
            "error": fault,
            "refused": self.refused,
            "lost": self.lost.rows,
            "lost_epochs": list(self.lost.epochs),
        }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def ship_all(rule: Rule, home: Home) -> list[Delivered]:
    """Ship to every target of the rule what is committed, one after the other."""
    return [ship_one(rule, sink, home) for sink in targets(rule)]


def ship_one(rule: Rule, sink: Sink, home: Home, resend: bool = False) -> Delivered:
    found = Delivered(sink.label)
    _ship(found, rule, sink, home, resend)
    return found


def _ship(found: Delivered, rule: Rule, sink: Sink, home: Home, resend: bool = False) -> None:
    try:
        with Relay(rule, sink, home, resend) as relay:
            found.fault = None
            try:
                found.add(relay.ship())
            finally:
                found.lost = found.lost.and_(relay.lost)
    except Exception as fault:  # it is told at the end
        found.fault = fault


class _Beside:
    """The relay of one target, in a thread."""

    def __init__(self, rule: Rule, sink: Sink, home: Home):
        self._rule, self._sink, self._home = rule, sink, home
        self.found = Delivered(sink.label)
        self._due, self._ends = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name=f"relay {sink.label}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    def end(self) -> Delivered:
        """Ship the rest, or try once more."""
        self._ends = True
        self._due.set()
        self._thread.join()
        return self.found

    def _work(self) -> None:
        ended = False
        while not ended:
            self._due.wait()
            self._due.clear()
            ended = self._ends
            _ship(self.found, self._rule, self._sink, self._home)


@dataclass
class Shipping:
    """The relays beside one rule's run."""

    beside: list[_Beside] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)

    def wake(self) -> None:
        """An epoch is committed."""
        for one in self.beside:
            one.wake()


@contextmanager
def shipping(rule: Rule, home: Home, found: Shipping) -> Iterator[None]:
    """Relays that work until all that a run commits is shipped, or a target cannot take it. `found`: they are in it."""
    found.beside = [_Beside(rule, sink, home) for sink in targets(rule)]
    try:
        yield
    finally:
        found.delivered = [one.end() for one in found.beside]
