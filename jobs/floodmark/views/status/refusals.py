"""Why a rule's file does not fit its newest generation."""

from __future__ import annotations

from floodmark.connectors.places import check_same_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Rule
from floodmark.errors import HistoryGone, RuleChanged


def refused(rule: Rule, head: Head) -> str | None:
    """Why the next run will refuse an edit of the rule. A rule with `rebuild` begins a generation that fits."""
    try:
        if not rule.rebuild:
            check_same_sinks(head, rule)
    except (RuleChanged, HistoryGone) as fault:
        return str(fault)
    return None
