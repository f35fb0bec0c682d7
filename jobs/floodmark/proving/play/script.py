"""Run the play: an undisturbed run, every fault on its own copy, the recovery of all. It judges nothing.

Many copies share one application. Each waits at its own crash point; one signal kills them all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from subprocess import Popen
from typing import Any

import floodmark
from floodmark import errors
from floodmark.audit.ledger.story import Story
from floodmark.audit.logreader import read_ledger
from floodmark.connectors.delta.lookups import pinned_now
from floodmark.core.protocol.places import PREFIX
from floodmark.core.rules.kinds import can_of, targets
from floodmark.core.rules.rule import Rule
from floodmark.errors import FloodmarkError, Refused, RunFailed
from floodmark.proving.faultplan import (
    CORRECTED,
    NOT_ASKED,
    REFERENCE,
    REPLAYS,
    Baseline,
    Case,
    counted,
    cut,
    plan_cases,
    replays,
    shipped,
    target,
    undisturbed,
    waves,
)
from floodmark.proving.play.applications import Applications
from floodmark.proving.play.orders import REWRITES, SAMPLE, STARTED, Orders
from floodmark.proving.play.played import NothingFinal, Played, ProgressListener, Wish
from floodmark.proving.play.wave import Wave
from floodmark.proving.scratch import Scratch, copy_of, corrected_copy, not_corrected

MOST_TOGETHER = 64  # copies in one application: each holds a session and a thread
MOST_RELAYS = 32  # with targets: each may hold a connection, too, and a server takes some hundred
FIRST = "undisturbed"  # the first application


class Play:
    """One play of one rule."""

    def __init__(self, rule: Rule, wish: Wish, scratch: Scratch, teller: ProgressListener):
        self._rule, self._wish, self._scratch, self._teller = rule, wish, scratch, teller
        self._run = Applications(rule.rule, wish, scratch, teller)
        self._begun = time.monotonic()
        self._start_up = 0.0
        self._pace = 0.0  # seconds for one epoch of one copy, once Spark is warm

    def run(self) -> Played:
        """Run the whole play. Raises the errors that the user would get, and RunFailed if the play breaks off."""
        self._scratch.write_rule(self._rule)
        lookups = pinned_now(self._rule)
        found = self._undisturbed()
        found.cases, found.skipped = plan_cases(found.ground, self._wish.only, self._wish.kinds)
        _refuse_nothing(found, self._wish)
        for case in found.cases:
            copied = corrected_copy if case.how == "correct" else copy_of
            self._scratch.write_rule(copied(self._rule, case.name, self._scratch, found.files))
        if found.cases:
            self._announce(found)
        groups = self._groups(found)
        for number, wave in enumerate(groups, 1):
            Wave(
                self._run, found, wave, f"wave{number}", f"group {number} of {len(groups)}: " if groups[1:] else ""
            ).play()
        self._check_lookups(lookups)
        found.seconds = time.monotonic() - self._begun
        return found

    def _undisturbed(self) -> Played:
        """Take the sample, and do the undisturbed run, the replays and a correction."""
        self._teller.doing("starting Spark")
        replayed = REPLAYS in self._wish.kinds
        uncorrected = not_corrected(self._rule) if self._wish.corrects else NOT_ASKED
        with self._run.application(self._first_orders(replayed, uncorrected is None)) as process:
            outcome = self._run.until(process, FIRST, STARTED)
            self._start_up = time.monotonic() - self._begun
            self._teller.doing("taking the sample")
            streams = self._sampled(process)
            rows = max(one["rows"] for one in streams)
            copies = list(undisturbed(rows, replayed))
            others = ", and replays with other epochs" if replayed else ""
            self._run.see_ended(process, FIRST, copies, f"undisturbed run{others}")
            ends = {name: self._run.ended(FIRST, name) for name in copies}
            raise_outcome(ends[REFERENCE], self._rule.rule)
            ground = replace(self._ground(), uncorrected=uncorrected)
            corrected = self._corrected(process) if uncorrected is None else None
        versions = {"floodmark": floodmark.__version__, "python": sys.version.split()[0], **_versions(outcome)}
        files = cut(rows)[1]
        replayings = replays(files) if replayed else []
        found = Played(self._rule, self._scratch, ground, files, streams, versions, replays=replayings, ends=ends)
        if corrected is not None:
            self._aim_at_corrections(found, corrected)
        return found

    def _first_orders(self, replayed: bool, corrects: bool) -> Orders:
        name, rows, corrections = self._rule.rule, self._wish.rows, [CORRECTED] if corrects else []
        return self._run.orders(
            FIRST, (), sampled=name, rows=rows, replays=replayed, batch=True, corrections=corrections
        )

    def _corrected(self, process: Popen[bytes]) -> dict[str, Any]:
        """How a copy ended that corrected its results after a rewrite; with the `rewrites`, if there was one."""
        what = "correction after a rewrite of the sample"
        self._teller.doing(what)
        prepared = self._run.until(process, FIRST, REWRITES)
        if prepared["code"]:
            return prepared
        self._run.see_ended(process, FIRST, [CORRECTED], what)
        return {**self._run.ended(FIRST, CORRECTED), "rewrites": prepared["streams"]}

    def _aim_at_corrections(self, found: Played, end: dict[str, Any]) -> None:
        """Note how the corrected copy ended, and whether faults can hit corrections like it."""
        if end.get("type") in ("InputFault", "Refused"):
            self._leave_out_corrections(found, f"the rule refuses to correct a rewritten sample: {end['error']}")
            return
        found.ends[CORRECTED] = end
        found.rewrites = end.get("rewrites", [])
        if end["code"]:
            self._leave_out_corrections(found, f"a copy failed to correct a rewritten sample: {end['error']}")
            return
        for one in found.rewrites:
            self._teller.say(
                f"stream {one['stream']}: {one['left']} rows leave and {one['came']} come in the copies that are to "
                "correct their results"
            )
        tables = self._corrected_tables()
        if not tables:
            self._leave_out_corrections(
                found, "no row that the rewrite of the sample changes is one that the rule reads"
            )
        state = any(name.startswith("state/") for name in tables)
        found.ground = replace(found.ground, corrects_state=state)

    def _leave_out_corrections(self, found: Played, why: str) -> None:
        found.ground = replace(found.ground, uncorrected=why)
        self._teller.say(f"corrections are left out: {why}")

    def _corrected_tables(self) -> set[str]:
        """The tables in which the copy without a fault has corrected rows."""
        ledger = read_ledger(str(self._scratch.home / CORRECTED / "ledger"))
        assert ledger is not None
        done = [one for one in Story(ledger[1]).generations[-1].backfills if one.result == "committed"]
        return {name for one in done for name in one.end["tables"]}

    def _sampled(self, process: Popen[bytes]) -> list[dict[str, Any]]:
        outcome = self._run.until(process, FIRST, SAMPLE)
        raise_outcome(outcome, self._rule.rule)
        for one in outcome["streams"]:
            self._teller.say(
                f"stream {one['stream']}: {one['rows']} rows of {one['table']} in {one['commits']} commits"
            )
            if one["note"]:
                self._teller.say(f"  {one['note']}")
        streams: list[dict[str, Any]] = outcome["streams"]
        return streams

    def _ground(self) -> Baseline:
        """The facts of the undisturbed run. Raises Refused if a proof would prove nothing."""
        found = read_ledger(str(self._scratch.home / REFERENCE / "ledger"))
        assert found is not None
        generation = Story(found[1]).generations[-1]
        epochs = generation.epochs
        if not any(epoch.end["output_rows"] for epoch in epochs):
            raise NothingFinal(
                f"rule {self._rule.rule}: no result became final in the sample, so there is nothing to compare. "
                f"Take more with --rows (now {self._wish.rows} of each stream), or close open windows at the end with "
                "--close-until T"
            )
        self._pace = min(sum(epoch.end["seconds"].values()) for epoch in epochs)
        sinks = sum(sink.address is not None for sink in self._rule.sinks)
        state = any(name.startswith("state/") for name in generation.begun["table_ids"])
        aim = target([len(epoch.end["tables"]) for epoch in epochs])
        output = sum(epoch.end["output_rows"] for epoch in epochs)
        self._teller.say(f"undisturbed run: {len(epochs)} epochs, {output} results; faults hit epoch {aim}")
        relays = tuple(sink.qos for sink in targets(self._rule))
        portion = shipped([self._rows_for_targets(epoch.end["tables"]) for epoch in epochs])
        return Baseline(self._rule.qos, sinks, state, len(epochs), aim, relays, portion, _unreset(self._rule))

    def _rows_for_targets(self, tables: Mapping[str, Any]) -> int:
        """`tables`: what an epoch of the undisturbed run wrote."""
        outboxes = [PREFIX + str(sink.address) for sink in targets(self._scratch.rule(REFERENCE))]
        return sum(tables[name]["rows"] for name in outboxes if name in tables)

    def _groups(self, found: Played) -> list[list[Case]]:
        return waves(found.cases, MOST_RELAYS if found.ground.relays else MOST_TOGETHER)

    def _announce(self, found: Played) -> None:
        kills = sum(len(case.kills) for case in found.cases)
        epochs = sum(found.ground.epochs * (1 if case.how == "run" else 2) + len(case.kills) for case in found.cases)
        groups = len(self._groups(found))
        seconds = epochs * self._pace + 5 * groups * self._start_up
        self._teller.say(
            f"{counted(len(found.cases), 'case')}, {counted(kills, 'fault')}, in {counted(groups, 'group')} of "
            f"applications: about {max(1, round(seconds / 60))} min"
        )

    def _check_lookups(self, before: dict[str, Any]) -> None:
        """Copies read the user's own lookup tables: a change during the play makes their results incomparable."""
        changed = [name for name, now in pinned_now(self._rule).items() if now != before[name]]
        if changed:
            raise RunFailed(
                f"rule {self._rule.rule}: expected lookup tables that stay as they are while this runs, found "
                f"{', '.join(changed)} changed: run it again while nobody writes to them"
            )


def _unreset(rule: Rule) -> str | None:
    """A target for which a reset is refused; None if there is none."""
    kept = (sink.label for sink in targets(rule) if sink.on_reset != "keep" and not can_of(sink).empties)
    return next(kept, None)


def _refuse_nothing(found: Played, wish: Wish) -> None:
    """Refuse a matrix without a case: "each fault fired" would be true for it, and prove nothing."""
    if not found.cases and set(wish.kinds) - {REPLAYS}:
        why = "; ".join(dict.fromkeys(f"{one.point}: {one.why}" for one in found.skipped))
        raise Refused(f"expected faults that can be tried on this rule and sample, found none: {why}")


def raise_outcome(outcome: dict[str, Any], rule: str) -> None:
    """Raise the error of a copy as its user would get it."""
    if not outcome["code"]:
        return
    kind = getattr(errors, outcome["type"], RunFailed)
    fault = kind if isinstance(kind, type) and issubclass(kind, FloodmarkError) else RunFailed
    raise fault(outcome["error"].replace(f"rule {REFERENCE}", f"rule {rule}"))


def _versions(outcome: dict[str, Any]) -> dict[str, str]:
    from importlib.metadata import version

    packages = {name: version(name) for name in ("delta-spark", "deltalake")}
    return {name: outcome[name] for name in ("spark", "java")} | packages
