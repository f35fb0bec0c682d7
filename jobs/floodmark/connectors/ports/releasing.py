"""What sources of a rule keep where their rows come from: named when it is retired, removed when it is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.ports.registry import sources
from floodmark.errors import FloodmarkError, NotOwned, Refused, RunFailed

OLDER = "the home is an older copy, as another source or a sink shows: the home that goes on may need it"

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home


def kept_elsewhere(rule: Rule, home: Home) -> list[str]:
    """What stays there while nobody runs the rule, for people."""
    return [what for one in sources(rule, home).values() if (what := one.remains()) is not None]


def release(rule: Rule, home: Home, leave: bool, is_older: bool = False) -> dict[str, str]:
    """Remove it, for a rule that is dropped. The rule's lock is held.

    Raises RunFailed if that fails, and Refused if another copy of the home needs it, before anything else is dropped.
    `leave`: return the reasons instead, by the stream's name. `is_older`: whether a sink shows that the home is an
    older copy. If a sink or a source does, all sources keep theirs: the live home may not have read on in each.
    """
    found = sources(rule, home)
    faults = _faults(found, lambda one: one.check_release(), leave)
    if is_older or any(isinstance(fault, NotOwned) for fault in faults.values()):
        kept = [name for name, one in found.items() if name not in faults and one.remains() is not None]
        faults |= dict.fromkeys(kept, NotOwned(OLDER))
    else:
        free = {name: one for name, one in found.items() if name not in faults}
        faults |= _faults(free, lambda one: one.release(), leave)
    return {name: _told(found[name], fault) for name, fault in faults.items()}


def _faults(found: Mapping[str, Source], take: Callable[[Source], None], leave: bool) -> dict[str, FloodmarkError]:
    """Take a step for each stream. Returns the errors of those that fail; unless `leave`, it raises the first."""
    faults = dict[str, FloodmarkError]()
    for name, one in found.items():
        try:
            take(one)
        except FloodmarkError as fault:
            if not leave:
                raise _with_the_way_on(one, fault) from fault
            faults[name] = fault
    return faults


def _with_the_way_on(one: Source, fault: FloodmarkError) -> FloodmarkError:
    if isinstance(fault, Refused):
        return Refused(f"{_told(one, fault)}. Leave it there with --leave-others")
    return RunFailed(f"{_told(one, fault)}. Retry; or leave it there with --leave-others, and remove it yourself")


def _told(one: Source, fault: FloodmarkError) -> str:
    return f"{fault}. Not removed: {one.remains()}"
