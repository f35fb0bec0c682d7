"""What tests of a rule's life over one kind of source share: its rows, what they give, and what the rule holds."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

from floodmark.audit.certificate import audit
from support.flow import Flow, event, rows_of
from support.oracle import ordered, tumbling

WINDOWS = ("start", "k", "c", "total", "top")


def some(count: int = 20, seed: int = 1) -> list[dict[str, Any]]:
    """Rows in order of time, but for a few seconds."""
    random = Random(seed)
    return [event(i * 10 + random.randrange(-9, 10), random.choice("ab"), float(i), i) for i in range(count)]


def windows(flow: Flow, events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The windows of these rows that are final by the rule's watermark, as a plain program has them."""
    head = flow.ledger().head
    assert head is not None and head.watermark is not None
    return tumbling(events, datetime.fromtimestamp(head.watermark / 1e6, UTC))


def sink(flow: Flow, number: int = 0, names: tuple[str, ...] = WINDOWS) -> list[tuple[Any, ...]]:
    return ordered(tuple(row[name] for name in names) for row in rows_of(flow.sink(number)))


def verdict(flow: Flow) -> str:
    """The auditor's, which finds nothing."""
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    assert not found.findings
    return found.verdict
