"""Whether a rule's event times have a zone: it decides how they are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.core.records import Head
    from floodmark.core.rules import Rule


def zoned(rule: Rule, head: Head | None) -> bool:
    """As far as the ledger tells; a rule that has not run is taken to have zones, as most have."""
    columns = head.begun_with.columns if head else {}
    times = {name: stream.event_time.name.lower() for name, stream in rule.streams.items() if stream.event_time}
    kinds = [kind for name, time in times.items() for column, kind in columns.get(name, ()) if column.lower() == time]
    return "timestamp_ntz" not in kinds
