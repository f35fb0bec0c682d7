"""INTERVAL literals, as lengths of time."""

from __future__ import annotations

from sqlglot import exp

from floodmark.core.text.durations import DAY, parse_duration


def length_of(node: exp.Expr) -> int:
    """Microseconds. Raises ValueError for what is not an interval of a fixed length, in one unit."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise ValueError(f"expected a length such as INTERVAL '5' MINUTES, found {node.sql('spark')}")
    unit = node.args.get("unit")
    return parse_duration(f"{node.this.name} {unit.name if isinstance(unit, exp.Var) else ''}".strip())


def slack_of(length: int) -> int:
    """By how much a length may differ from what Spark moves a timestamp by: it counts whole days by the calendar.

    So a day has 23 to 25 hours where clocks are changed; and a calendar may leave a day out.
    """
    return DAY if abs(length) >= DAY else 0
