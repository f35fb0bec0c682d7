"""Reads INTERVAL literals as lengths of time."""

from __future__ import annotations

from sqlglot import exp

from floodmark.core.text.durations import DAY, parse_duration


def length_of(node: exp.Expr) -> int:
    """Microseconds. Raises ValueError unless the node is an interval of fixed length, in one unit."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise ValueError(f"expected a length such as INTERVAL '5' MINUTES, found {node.sql('spark')}")
    unit = node.args.get("unit")
    return parse_duration(f"{node.this.name} {unit.name if isinstance(unit, exp.Var) else ''}".strip())


def slack_of(length: int) -> int:
    """By how much the distance that Spark moves a timestamp may differ from `length`, in microseconds.

    Spark counts whole days by the calendar. A day has 23 to 25 hours where clocks change, and a calendar may skip a
    day.
    """
    return DAY if abs(length) >= DAY else 0
