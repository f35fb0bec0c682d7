"""The values that an auditor reads from a ledger: generations with their epochs, backfills and deferred rewrites."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.audit.ledger.deferrals import SINCE, Deferral, Outstanding
from floodmark.audit.ledger.forgets import Forget


@dataclass
class Intended:
    """`result`: committed, lost, abandoned or open. `intent`, `end`: bodies of its intent row and of the row that ended
    it. `moved`: the later addresses of tables, by id, when its intent was written first."""

    generation: int
    number: int
    intent: Mapping[str, Any]
    intent_hash: str
    attempts: int
    moved: Mapping[str, str]
    result: str = "open"
    end: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rule(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.intent["rule"])
        return found


@dataclass(kw_only=True)
class Epoch(Intended):
    """`before`: body of the row that ended the epoch before it. `abandoning`: a row has announced that it is to be
    undone. `undigested`: the first attempts, by code whose commits name no digests."""

    before: Mapping[str, Any]
    abandoning: bool = False
    undigested: int = 0


@dataclass(kw_only=True)
class Backfill(Intended):
    """`epoch`: the one before it."""

    epoch: int

    @property
    def rewrites(self) -> Mapping[str, Any]:
        """By stream, the rewrite of its source that a correction follows; none of a backfill."""
        return dict(self.intent.get("rewrites", {}))

    @property
    def is_deferred(self) -> bool:
        """Whether a row before it put the offsets behind what it has read; else a correction does so itself."""
        return bool(self.intent.get("format", 0) >= SINCE)

    @property
    def moves(self) -> Mapping[str, Any]:
        """What it changes of the rule's status."""
        if not self.rewrites or self.result != "committed":
            return {}
        return {name: self.intent[name] for name in (("maxima",) if self.is_deferred else ("entry", "maxima"))}

    @property
    def is_whole(self) -> bool:
        """Whether it replaced all rows of each table."""
        return bool(self.intent.get("whole", False))

    @property
    def keys(self) -> Mapping[str, int]:
        """How many results or keys it has replaced in each table; none where it replaced an interval."""
        return dict(self.intent.get("keys", {}))

    def intervals(self, table: str) -> tuple[str, list[tuple[int, int]]]:
        """The column, and the bounds of each part that it replaces in a table, in the values of that column."""
        body = self.intent.get("state", {}).get(table) or self.intent
        edges = (body["begin"], *(at for gap in body.get("gaps", ()) for at in gap), body["end"])
        found = [at + body.get("shift", 0) for at in edges]
        return str(body["column"]), list(zip(found[::2], found[1::2], strict=True))


@dataclass
class Generation:
    """`begun`: body of the row that began it; `seal`: of the row that ended it, if any."""

    number: int
    token: str
    begun: Mapping[str, Any]
    epochs: list[Epoch] = field(default_factory=list)
    backfills: list[Backfill] = field(default_factory=list)
    forgets: list[Forget] = field(default_factory=list)
    deferrals: list[Deferral] = field(default_factory=list)
    outstanding: Outstanding = field(default_factory=Outstanding)
    seal: Mapping[str, Any] | None = None

    @property
    def is_forgetting(self) -> bool:
        """Whether a forget has not ended."""
        return bool(self.forgets) and self.forgets[-1].is_open

    @property
    def last(self) -> Mapping[str, Any]:
        """Its status: the body of the newest row that ended an epoch, or that began the generation."""
        return self.ended_at(len(self.epochs))

    def ended_at(self, epoch: int, before: int | None = None) -> Mapping[str, Any]:
        """The same as of the end of an epoch, and of the corrections that follow it; `before`: only of older ones."""
        return self.statuses_at(epoch, before)[-1]

    def statuses_at(self, epoch: int, before: int | None = None) -> list[Mapping[str, Any]]:
        """The statuses that it had one after the other since the end of an epoch, until the next one.

        before: until the backfill of this number began.
        """
        ended = [one for one in self.epochs[:epoch] if one.result != "open"]
        found, number = (ended[-1].end, ended[-1].number) if ended else (self.begun, 0)
        moves = [(one.number, 0, one.moves) for one in self.backfills if one.epoch == number and one.moves]
        moves += [(one.after, 1, {"entry": one.body["entry"]}) for one in self.deferrals if one.epoch == number]
        statuses = [found]
        for at, _, moved in sorted(moves, key=lambda one: one[:2]):
            if at < (before or 1 << 63):
                statuses.append({**statuses[-1], **_newer(statuses[-1], moved)})
        return statuses

    @property
    def streams(self) -> list[str]:
        """The streams, in the order of the newest entry."""
        return list(self.epochs[-1].rule["streams"] if self.epochs else json.loads(self.begun["rule"])["streams"])


def _newer(status: Mapping[str, Any], moved: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a row changes of a status. A correction may have been computed before the newest epochs."""
    if "entry" in moved or "maxima" not in moved:
        return moved
    reached = dict(status["maxima"])
    for name, at in moved["maxima"].items():
        if at is not None and (reached.get(name) is None or reached[name] < at):
            reached[name] = at
    return {"maxima": reached}


def forgot_in(generations: Iterable[Generation], folder: str) -> Forget | None:
    """The newest forget that has removed rows of an outbox, or of those that its target refused."""
    folders = (folder, folder.replace("outbox/", "undelivered/", 1))
    forgets = [forget for generation in generations for forget in generation.forgets]
    return next((one for one in reversed(forgets) if any(one.copies.get(name) for name in folders)), None)
