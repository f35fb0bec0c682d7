"""Why a rule's file, or its sinks, do not fit its newest generation."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.connectors.places import check_same_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Rule
from floodmark.errors import FloodmarkError, RuleChanged


@dataclass(frozen=True)
class Stop:
    """Why the next run will stop. `is_edit`: by an edit of the rule; otherwise, a sink cannot be opened."""

    said: str
    is_edit: bool


def refused(rule: Rule, head: Head) -> Stop | None:
    """None: it runs. A rule with `rebuild` begins a generation that fits."""
    try:
        if not rule.rebuild:
            check_same_sinks(head, rule)
    except FloodmarkError as fault:  # a sink that cannot be opened, too: all else is to be shown
        return Stop(str(fault), isinstance(fault, RuleChanged))
    return None
