"""The options of a play, the receiver of its progress, and its observations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from floodmark.core.protocol.crashpoints import CORRECTION_POINTS
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused
from floodmark.proving.faultplan import KINDS, REPLAYS, Baseline, Case, ReplayCase, Skipped
from floodmark.proving.scratch import Scratch


@dataclass(frozen=True)
class Wish:
    """The user's options. `only`: points; `kinds`: faults."""

    rows: int
    only: Collection[str] = ()
    kinds: Collection[str] = KINDS
    master: str = "local[*]"
    close_until: str | None = None

    @property
    def corrects(self) -> bool:
        """Whether faults of corrections may be among the wanted ones."""
        return bool(set(self.kinds) - {REPLAYS}) and (not self.only or bool({*self.only} & {*CORRECTION_POINTS}))


class ProgressListener(Protocol):
    """Receives the progress of a play."""

    def say(self, text: str) -> None: ...

    def doing(self, what: str, done: int = 0, of: int = 0) -> None: ...


@dataclass
class Played:
    """The observations, with outcomes as the worker reports them.

    fired: how many of its crash points each case reached. ends: how the last run of each copy ended; retries: how the
    retry beside a stopped driver ended; strays: how a run ended that did not reach its point. killed: processes.
    rewrites: of each stream whose input copies rewrite, its rows before and those that left and came.
    """

    rule: Rule
    scratch: Scratch
    ground: Baseline
    files: int
    streams: list[dict[str, Any]]
    versions: dict[str, str]
    cases: list[Case] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    replays: list[ReplayCase] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    retries: dict[str, dict[str, Any]] = field(default_factory=dict)
    rewrites: list[dict[str, Any]] = field(default_factory=list)
    strays: dict[str, dict[str, Any]] = field(default_factory=dict)
    killed: int = 0
    seconds: float = 0.0


class NothingFinal(Refused):
    """A sample without a result: comparing nothing with nothing proves nothing."""
