"""Relays beside a run: one thread for each target ships an epoch's rows while the next epoch folds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from floodmark.connectors.relay.memory import Lost, remember_fault
from floodmark.connectors.relay.relaying import Relay, Shipped
from floodmark.core.rules.kinds import sink_kind, targets
from floodmark.core.rules.model import Rule, Sink
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Busy, Fenced, RunFailed, exit_code, message
from floodmark.ledger.home import Home
from floodmark.ledger.renaming import check_not_renamed

LONGEST = 240.0  # seconds that a run's end waits for a call of a class, which may hang
AGAIN = 1.0  # seconds after which a relay looks whether another one has ended


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
    """Ship to every target of the rule what is committed, one after the other. Ends as a run's relays do."""
    return [_Beside(rule, sink, home).end() for sink in targets(rule)]


def ship_one(rule: Rule, sink: Sink, home: Home, resend: bool = False) -> Delivered:
    found = Delivered(sink.label)
    _ship(found, rule, sink, home, resend)
    return found


def _ship(
    found: Delivered,
    rule: Rule,
    sink: Sink,
    home: Home,
    resend: bool = False,
    tell: Callable[[Shipped], None] = lambda _: None,
) -> None:
    try:
        check_not_renamed(home)
        with Relay(rule, sink, home, resend) as relay:
            found.fault = None
            try:
                found.add(relay.ship(tell))
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
        self._since: float | None = None  # the last sign of life of a relay that is at work
        self._thread = threading.Thread(target=self._work, name=f"relay {sink.label}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    def end(self) -> Delivered:
        """Ship the rest, or try once more. A class that hangs is left alone: its thread ends with the process."""
        self._ends = True
        self._due.set()
        while self._thread.is_alive():
            left = self._left()
            if left is not None and left <= 0:
                return self._left_alone()
            self._thread.join(left)
        return self.found

    def _left(self) -> float | None:
        """Seconds to wait for; None: as long as it takes, because a target that is no class has time-outs."""
        if sink_kind(self._sink.kind).code is None:
            return None
        since = self._since
        return LONGEST if since is None else since + LONGEST - time.monotonic()

    def _left_alone(self) -> Delivered:
        problem = (
            f"expected a call of the class to return within {LONGEST / 60:g} minutes, found one that has not: the run "
            "ends without it, and what is left stays in the outbox. Give the calls of the class time-outs. "
            f"`floodmark relay {self._rule.rule}` waits for calls that take longer"
        )
        fault = RunFailed(about_sink(str(self._sink.address), problem))
        remember_fault(cast("Path", self._home.outbox(self._sink)), str(fault))
        return replace(self.found, fault=fault)

    def _work(self) -> None:
        """Ship when woken; after another relay, also unasked: the run may wait for room, and commit nothing before."""
        ended = False
        while not ended:
            self._due.wait(AGAIN if isinstance(self.found.fault, Busy | Fenced) else None)
            self._due.clear()
            ended = self._ends
            self._lives()
            _ship(self.found, self._rule, self._sink, self._home, tell=self._lives)
            self._since = None

    def _lives(self, *_: Shipped) -> None:
        self._since = time.monotonic()


@dataclass
class Shipping:
    """The relays beside one rule's run."""

    beside: list[_Beside] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)

    def wake(self) -> None:
        """Have them look for what is committed."""
        for one in self.beside:
            one.wake()


@contextmanager
def shipping(rule: Rule, home: Home, found: Shipping) -> Iterator[None]:
    """Relays that work until all that a run commits is shipped, or a target cannot take it. `found`: they are in it."""
    found.beside = [_Beside(rule, sink, home) for sink in targets(rule)]
    if any(sink.outbox_bytes is not None for sink in targets(rule)):
        found.wake()  # the run may wait for room before its first epoch
    try:
        yield
    finally:
        found.delivered = [one.end() for one in found.beside]
