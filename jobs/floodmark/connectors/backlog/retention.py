"""How long the sources of a rule retain its unread input, according to their logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.retention import Limit, nearest
from floodmark.core.protocol.entry import NOWHERE

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home


def limits(rule: Rule, home: Home, head: Head) -> dict[str, Limit]:
    """By stream with unread input, the limit that expires first. Input of an open epoch or backfill counts as unread.

    A rule that each run rebuilds reads the data present then, and needs no history.
    """
    found: dict[str, Limit] = {}
    if rule.rebuild:
        return found
    lines = head.lines_needed
    for name, source in sources(rule, home).items():
        line = lines.get(name, NOWHERE)
        limit = None if line == NOWHERE else nearest(source.forgets(line, time.time_ns() // 1000))
        if limit is not None:
            found[name] = limit
    return found
