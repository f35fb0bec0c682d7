"""Judge the results of a play: each copy alone, against the undisturbed run, and against plain batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from floodmark.audit.certificate import audit
from floodmark.connectors.ports.registry import account
from floodmark.connectors.relay.holding import held_by
from floodmark.core.protocol.crashpoints import RELAY_POINTS
from floodmark.ledger.home import Home
from floodmark.proving.faultplan import CORRECTED, REFERENCE, Case, ReplayCase
from floodmark.proving.judge import verdicts
from floodmark.proving.judge.copystate import CopyState
from floodmark.proving.judge.verdicts import Check, Verdict, worst
from floodmark.proving.play.played import Played
from floodmark.proving.scratch import clocked, not_in_batch, replaces

UNDISTURBED = "the undisturbed run"
CORRECTION = "the correction without a fault"
BATCH = "plain batch over the rows folded"
CLOCK = "the results may contain the time of day at which their epoch ran, so two runs may differ"


@dataclass(frozen=True)
class Judged:
    """One copy: its fault and its checks. `planned`, `fired`: crash points."""

    name: str
    point: str
    fault: str
    checks: list[Check]
    planned: int = 0
    fired: int = 0
    attempts: int = 0
    epochs: int = 0
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        return worst(check.verdict for check in self.checks)


@dataclass
class Matrix:
    """All copies judged."""

    played: Played
    copies: list[Judged] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        return worst(one.verdict for one in self.copies)

    @property
    def planned(self) -> int:
        return sum(one.planned for one in self.copies)

    @property
    def fired(self) -> int:
        return sum(one.fired for one in self.copies)


def judged(played: Played, doing: Callable[[str, int, int], None] = lambda what, done, of: None) -> Matrix:
    """Judge every copy: the undisturbed run first, the replays, then the cases. `doing`: called with the progress."""
    judge = _Judge(played)
    tasks: list[Callable[[], Judged]] = [
        judge.undisturbed,
        *(partial(judge.replay, replay) for replay in played.replays),
        *([judge.corrected] if CORRECTED in played.ends else []),
        *(partial(judge.case, case) for case in played.cases),
    ]
    copies = []
    for number, task in enumerate(tasks):
        doing("comparing", number, len(tasks))
        copies.append(task())
    return Matrix(played, copies)


class _Judge:
    def __init__(self, played: Played):
        self._played, self._rule = played, played.rule
        self._reference = CopyState(played, REFERENCE)
        self._corrected = CopyState(played, CORRECTED)
        self._sampled = {one["stream"]: int(one["rows"]) for one in played.streams}
        self._rewritten = self._sampled | {one["stream"]: int(one["rows"]) for one in played.rewrites}

    @property
    def _sinks(self) -> list[tuple[int, str, Any]]:
        """Place, name and declaration of each sink that keeps rows: Delta tables and targets."""
        return [(i, f"sink {i}", sink) for i, sink in enumerate(self._rule.sinks) if sink.address is not None]

    def undisturbed(self) -> Judged:
        left = self._reference
        checks = [*self._common(left), *self._by_batch(left), *self._empty(left)]
        return self._judged(left, "", "undisturbed", checks)

    def _empty(self, left: CopyState) -> Iterator[Check]:
        """Sinks without rows: comparing nothing with nothing proves nothing."""
        for i, name, _ in self._sinks:
            if not left.sink(i):
                yield verdicts.not_compared(name, "it holds no row of the sample; take more with --rows")

    def replay(self, replay: ReplayCase) -> Judged:
        left = CopyState(self._played, replay.name)
        told = self._played.ends[replay.name]
        checks = [verdicts.ended(told)]
        if told.get("type") == "InputFault":
            checks = [
                verdicts.not_compared("the replay", f"with these epochs the rule refuses its input: {told['error']}")
            ]
        elif told["code"] == 0:
            checks += [*self._common(left), *self._replayed(left), *self._by_batch(left)]
        return self._judged(left, replay.title, "replayed", checks)

    def corrected(self) -> Judged:
        """The copy that corrected its results without a fault."""
        left, told = self._corrected, self._played.ends[CORRECTED]
        checks = [verdicts.ended(told)]
        if told["code"] == 0:
            done = len(left.corrections), left.rewritten("left"), left.rewritten("came"), left.deferred
            checks += [verdicts.corrected(*done), *self._common(left, self._rewritten), *self._by_batch(left)]
        return self._judged(left, "", "corrected", checks)

    def case(self, case: Case) -> Judged:
        left = CopyState(self._played, case.name)
        fired = self._played.fired.get(case.name, 0)
        stray = self._played.strays.get(case.name)
        checks = [verdicts.fired(fired, len(case.kills), stray), verdicts.ended(self._played.ends[case.name])]
        if case.fault == "stopped":
            checks.append(_beside(case.point)(self._played.retries.get(case.name)))
        if case.how == "correct":
            checks += [*self._common(left, self._rewritten), *self._tables(left, self._corrected, CORRECTION)]
        else:
            checks += [*self._common(left), *self._tables(left, self._reference, UNDISTURBED)]
        return self._judged(left, case.point, case.fault, checks, len(case.kills), fired)

    def _judged(
        self, left: CopyState, point: str, fault: str, checks: list[Check], planned: int = 0, fired: int = 0
    ) -> Judged:
        seconds = float(self._played.ends[left.case].get("seconds", 0.0))
        attempts = sum(epoch.attempts for epoch in left.epochs)
        return Judged(left.case, point, fault, checks, planned, fired, attempts, len(left.epochs), seconds)

    def _common(self, left: CopyState, sampled: dict[str, int] | None = None) -> Iterator[Check]:
        """Checks of every copy: its ledger accounts for all rows of the sample, and its certificate is good."""
        yield verdicts.balanced(left.counted("read"), sampled or self._sampled)
        home = self._played.scratch.home
        held = partial(held_by, Home(home, left.case))
        found = audit(left.case, home, deep=True, accounts=account, targets=held)
        findings = [] if found is None else [finding.what for finding in found.findings]
        yield verdicts.certified(None if found is None else found.verdict, findings)

    def _tables(self, left: CopyState, reference: CopyState, to: str) -> Iterator[Check]:
        """Compare everything that a fault could damage with a copy without one, which has the same epochs."""
        if clocked(self._rule):
            yield verdicts.not_compared("sinks and state", CLOCK)
        elif left.lost:
            yield from self._beside_lost(left)
        else:
            yield from self._against(left, reference, to)

    def _against(self, left: CopyState, reference: CopyState, to: str) -> Iterator[Check]:
        for i, name, sink in self._sinks:
            if sink.on_reset == "keep" and left.was_reset:
                continue  # it has the rows of both generations; the audit knows of them
            again = left.again or sink.outbox is not None
            yield verdicts.delivered(name, left.sink(i), reference.sink(i), to, sink.qos, again)
        if not self._sinks:
            yield verdicts.not_compared("sinks", "the rule has no Delta sink, and console output cannot be compared")
        for table in ("late", "dead"):
            yield verdicts.equal(table, left.own(table), reference.own(table), to)
        mine, theirs = left.state(), reference.state()
        for table in sorted({*mine, *theirs}):
            yield verdicts.equal(f"state {table}", mine.get(table), theirs.get(table), to)
        yield verdicts.equal("epochs (offsets, counts, watermark, results)", left.facts(), reference.facts(), to)
        if left.corrections or reference.corrections:
            what = "corrections (rows that left and came, what was recomputed)"
            yield verdicts.equal(what, left.corrected(), reference.corrected(), to)

    def _beside_lost(self, left: CopyState) -> Iterator[Check]:
        """At qos 0: the rows of lost epochs are counted, and no result is duplicated or invented."""
        lost = sum(epoch.end["lost"] for epoch in left.epochs if epoch.result == "lost")
        yield Check("losses are counted", "proven", f"epochs lost: {', '.join(map(str, left.lost))}; rows lost: {lost}")
        for i, name, sink in self._sinks:
            why = "epochs were lost, and rows of one key replace each other" if sink.key else self._no_batch(left, i)
            if why:
                yield verdicts.not_compared(name, why)
                continue
            of_each = {epoch.number: left.batch(i, epoch.number) for epoch in left.epochs}
            yield verdicts.beside_lost(name, left.sink(i), of_each, left.lost)

    def _replayed(self, left: CopyState) -> Iterator[Check]:
        """With other epochs, the sinks are the same if no row is late."""
        late = self._reference.late, left.late
        for i, name, _ in self._sinks:
            if clocked(self._rule):
                yield verdicts.not_compared(name, CLOCK)
            elif late == (0, 0):
                yield verdicts.equal(name, left.sink(i), self._reference.sink(i), UNDISTURBED)
            elif self._no_batch(left, i):
                why = f"other epochs divide late rows differently ({late[0]} undisturbed, {late[1]} here)"
                yield verdicts.not_compared(name, f"{why}, and there is no batch result: {self._no_batch(left, i)}")

    def _by_batch(self, left: CopyState) -> Iterator[Check]:
        """Compare sinks with the rule's SQL in plain Spark batch, if available. Lost epochs have a separate check."""
        failed = self._played.ends[left.case].get("batch")
        for i, name, sink in self._sinks:
            if not self._no_batch(left, i):
                yield verdicts.delivered(f"{name}, by batch", left.sink(i), left.batch(i), BATCH, sink.qos)
            elif failed:
                yield verdicts.not_compared(f"{name}, by batch", failed["error"])

    def _no_batch(self, left: CopyState, place: int) -> str | None:
        """Why batch gives no result for a sink."""
        if self._rule.late == "drop" and left.late:
            return "late rows were not kept, so the processed rows are unknown"
        if replaces(self._rule, self._rule.sinks[place]):
            return "rows of one key replace each other"
        told = self._played.ends[left.case].get("batch")
        return not_in_batch(self._rule) or (told["error"] if told else None)


def _beside(point: str) -> Callable[[dict[str, Any] | None], Check]:
    """How a retry is judged while a copy is stopped at a point. A relay and a computation hold no lock."""
    if point in RELAY_POINTS:
        return verdicts.shipped_beside
    return verdicts.left_beside if point == "backfill.computed" else verdicts.refused
