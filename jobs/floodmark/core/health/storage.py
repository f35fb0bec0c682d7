"""Checks the rules folder, the home, its ledgers and locks, and the free space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from floodmark.core.health.checks import Check, failed, ok, warning
from floodmark.core.lifecycle.retention import Limit
from floodmark.errors import FloodmarkError

# With less, the next epoch or spill may not fit; a rule's own need is unknown here.
LITTLE, VERY_LITTLE = 2_000_000_000, 200_000_000


@dataclass(frozen=True)
class Holder:
    """The holder of a rule's lock: `text` in words; `orphan`: whether its driver is gone and its JVM still alive."""

    text: str
    orphan: bool


def rule_files(folder: str, good: int, bad: Mapping[str, str]) -> list[Check]:
    """`bad`: file -> reason."""
    if not good and not bad:
        return [warning("rules", f"rule files in {folder}", "none", "`floodmark init` writes an example")]
    faults = [failed(f"rule file {name}", "a rule", why, "fix it: `floodmark validate`") for name, why in bad.items()]
    return [ok("rules", f"{good} valid in {folder}"), *faults] if good else faults


def no_rules_folder(folder: str) -> Check:
    fix = "name the folder in FLOODMARK_RULES, an absolute path for Airflow's processes"
    return failed("rules", f"a folder of rule files at {folder}", "none", fix)


def home(path: str, exists: bool, named: bool, fault: FloodmarkError | None) -> Check:
    """`named`: whether FLOODMARK_HOME or --home sets it, with a whole path.

    fault: from the probe for a lasting, atomic store.
    """
    if fault is not None:
        expected = "a persistent, writable folder that lets only one writer create a file"
        return failed("home", expected, str(fault), "fix it, or name another in FLOODMARK_HOME")
    if not named:
        expected = "FLOODMARK_HOME, the same for the command line and for Airflow"
        said = f"no whole path: {path}, which depends on the working directory"
        return warning("home", expected, said, "set FLOODMARK_HOME to a path from the root")
    return ok("home", path if exists else f"{path}: the first run creates it")


def ledgers(states: Mapping[str, str | FloodmarkError | None]) -> list[Check]:
    """`states`: rule -> its epoch in words, None if it has not run, or the error of its ledger."""
    bad = {rule: state for rule, state in states.items() if isinstance(state, FloodmarkError)}
    read = sum(isinstance(state, str) for state in states.values())
    fresh = sum(state is None for state in states.values())
    faults = [_unreadable(rule, fault) for rule, fault in bad.items()]
    return [ok("ledgers", f"{read} readable, {fresh} rules have not run yet"), *faults] if read or fresh else faults


def _unreadable(rule: str, fault: FloodmarkError) -> Check:
    return failed(f"ledger of {rule}", "a ledger that can be read", str(fault), "see docs/reference/storage.md")


def unread(limits: Mapping[str, Iterable[Limit]]) -> list[Check]:
    """`limits`: rule -> for how long its sources keep unread input."""
    late = [(rule, one) for rule, found in limits.items() for one in found if one.warns]
    checks = [
        warning(f"input of {rule}", "read within half of the source's retention time", one.text(), "as it says")
        for rule, one in late
    ]
    return checks or [ok("input", "no source will soon remove input that a rule has not read")]


def locks(holders: Mapping[str, Holder | None]) -> list[Check]:
    """`holders`: rule -> holder of its lock; None: nobody holds it, but a run that died has left its owner file."""
    checks = [_lock(rule, holder) for rule, holder in holders.items()]
    return checks or [ok("locks", "no rule is held")]


def _lock(rule: str, holder: Holder | None) -> Check:
    name = f"lock of {rule}"
    if holder is None:
        return ok(name, "free: its last run died; the next one finishes its open work")
    if not holder.orphan:
        return ok(name, holder.text)
    fix = "let it end, or kill the JVM: the next run finishes its open work"
    return warning(name, "nobody, or a run with a driver", holder.text, fix)


def room(what: str, path: str, free: int) -> Check:
    """`free`: bytes left on the file system of `path`."""
    name, said = f"room for {what}", f"{free / 1e9:.1f} GB at {path}"
    if free >= LITTLE:
        return ok(name, said)
    fix = f"make room on the file system of {path}"
    if free >= VERY_LITTLE:
        return warning(name, f"at least {LITTLE / 1e9:.0f} GB", said, fix)
    return failed(name, f"at least {VERY_LITTLE / 1e9:.1f} GB", said, fix)
