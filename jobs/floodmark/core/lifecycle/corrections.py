"""Decides what a correction recomputes, after rows of a source were removed or changed. Times are in microseconds.

Results that epochs have written are replaced in the sinks, and the rows that others still need in the state. Nothing
outside of the interval depends on the rows that left and came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from floodmark.core.lifecycle.backfills import Interval, reach_of, reasons_in_sinks, window_of
from floodmark.core.protocol.records.backfills import Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused


def touched_interval(rule: Rule, oldest: int, newest: int) -> Interval:
    """The interval of all results that depend on a row between these event times, both included."""
    window, reach = window_of(rule), reach_of(rule)
    oldest, newest = oldest - reach.after_us, newest + reach.before_us
    if window is None:
        return Interval.of(rule, oldest, newest + 1, final=True)
    begin = window.start_from(oldest - window.size_us + 1)
    return Interval.of(rule, begin, window.start_at(newest) + window.slide_us, final=True)


def nothing_touched(rule: Rule) -> Interval:
    """An interval without any result, which depends on no row."""
    return replace(Interval.of(rule, 0, 0, final=True), low=0, high=0)


def check_correctable(rule: Rule, head: Head) -> None:
    """Raise Refused where the rule's progress does not let its results be corrected, with the ways that work."""
    found = next(reasons_in_sinks(rule, head), None)
    if found is not None:
        raise Refused(
            f"rule {rule.rule}: a source was rewritten, and the rule cannot be corrected: {found}. Nothing was read. "
            f"Instead, `floodmark reset {rule.rule}` recomputes everything from the start of the input, and "
            "`on_rewrite: skip` at the stream passes such commits over"
        )


def counts_of(rewrites: Mapping[str, Rewritten]) -> tuple[int, int]:
    """How many rows left and came, over all streams."""
    return sum(one.left.rows for one in rewrites.values()), sum(one.came.rows for one in rewrites.values())
