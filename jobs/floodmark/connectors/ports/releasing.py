"""What sources of a rule keep where their rows come from: named when it is retired, removed when it is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.ports.registry import source
from floodmark.errors import FloodmarkError, RunFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home


def kept_elsewhere(rule: Rule, home: Home) -> list[str]:
    """What stays there while nobody runs the rule, for people."""
    return [what for one in _sources(rule, home) if (what := one.remains()) is not None]


def release(rule: Rule, home: Home, leave: bool) -> list[str]:
    """Remove it, for a rule that is dropped. The rule's lock is held.

    Raises RunFailed if that fails, before anything else is dropped. `leave`: return the reasons instead.
    """
    left = []
    for one in _sources(rule, home):
        try:
            one.release()
        except FloodmarkError as fault:
            said = f"{fault}. Not removed: {one.remains()}"
            if not leave:
                raise RunFailed(
                    f"{said}. Retry; or leave it there with --leave-others, and remove it yourself"
                ) from fault
            left.append(said)
    return left


def _sources(rule: Rule, home: Home) -> Iterator[Source]:
    return (source(name, stream, home.source(name)) for name, stream in rule.streams.items())
