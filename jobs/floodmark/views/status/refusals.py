"""Why a rule's file, or its sinks, do not fit its newest generation."""

from __future__ import annotations

from floodmark.connectors.places import check_same_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Rule
from floodmark.errors import FloodmarkError


def refused(rule: Rule, head: Head) -> str | None:
    """Why the next run will stop: an edit of the rule, or a sink that cannot be opened. A rule with `rebuild` begins a
    generation that fits."""
    try:
        if not rule.rebuild:
            check_same_sinks(head, rule)
    except FloodmarkError as fault:  # a sink that cannot be opened, too: all else is to be shown
        return str(fault)
    return None
