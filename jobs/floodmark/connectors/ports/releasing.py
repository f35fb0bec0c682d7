"""What sources of a rule keep where their rows come from: named when it is retired, removed when it is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.ports.registry import sources
from floodmark.errors import FloodmarkError, Refused, RunFailed

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home


def kept_elsewhere(rule: Rule, home: Home) -> list[str]:
    """What stays there while nobody runs the rule, for people."""
    return [what for one in sources(rule, home).values() if (what := one.remains()) is not None]


def release(rule: Rule, home: Home, leave: bool) -> list[str]:
    """Remove it, for a rule that is dropped. The rule's lock is held.

    Raises RunFailed if that fails, and Refused if another copy of the home needs it, before anything else is dropped.
    `leave`: return the reasons instead.
    """
    left = []
    for one in sources(rule, home).values():
        try:
            one.release()
        except FloodmarkError as fault:
            said = f"{fault}. Not removed: {one.remains()}"
            if not leave and isinstance(fault, Refused):
                raise Refused(f"{said}. Leave it there with --leave-others") from fault
            if not leave:
                raise RunFailed(
                    f"{said}. Retry; or leave it there with --leave-others, and remove it yourself"
                ) from fault
            left.append(said)
    return left
