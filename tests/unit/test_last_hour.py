"""Where is my last hour? Said at the end of every run: what is open, what it waits for, and who holds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.byhand import begun, folded, keep
from support.flow import OVER, TUMBLING, Flow
from test_lives import call, facts

ZERO = 978_307_200_000_000  # 2001-01-01T00:00:00Z
SECOND = 1_000_000


def idle(place: Path, sql: str, name: str = "counted") -> Flow:
    """A rule with rows in three minutes and nothing new; its watermark is in the first of them."""
    flow = Flow(place.resolve(), name, sql)
    folded(flow, begun(flow), 1, ZERO + 40 * SECOND, ZERO + 10 * SECOND)
    keep(flow, 1, 10, 70, 130)
    return flow


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal; elsewhere an idle run is to cost next to nothing."""
    monkeypatch.setattr("floodmark.cli.shared.output.is_terminal", lambda: True)


def test_a_run_with_nothing_new_says_which_windows_are_open(place: Path) -> None:
    flow = idle(place, TUMBLING)
    assert (
        "3 windows are open, the oldest 2001-01-01T00:00:00Z to 2001-01-01T00:01:00Z, the newest 2001-01-01T00:02:00Z "
        "to 2001-01-01T00:03:00Z. The oldest is final at watermark 2001-01-01T00:01:00Z; the watermark is "
        "2001-01-01T00:00:10Z, held back by stream events (its newest event is at 2001-01-01T00:00:40Z, its lateness "
        "30 seconds): an event at 2001-01-01T00:01:30Z or later advances it"
    ) in call(flow, "run", "counted")
    found = facts(flow, "run", "counted")["rules"]["counted"]["open_windows"]
    assert (found["count"], found["newest_end"]) == (3, "2001-01-01T00:03:00Z")


def test_it_says_which_rows_wait(place: Path) -> None:
    flow = idle(place, OVER)
    assert "3 rows wait, the oldest of 2001-01-01T00:00:10Z. Results that depend on it are final at watermark" in call(
        flow, "run", "counted"
    )
    assert facts(flow, "run", "counted")["rules"]["counted"]["waiting"]["rows"] == 3


@pytest.mark.parametrize("command", ["status", "run"])
def test_of_a_chained_stream_it_says_whose_rows_are_waited_for(place: Path, command: str) -> None:
    flow = idle(place, TUMBLING)
    first = Flow(place.resolve(), "first", "SELECT at, k, v, n FROM events", sinks=1)
    first.write_rule()
    (place / "lake" / "counted_events").rename(place / "lake" / "first_out0")
    flow.stream = {"delta": None, "rule": "first"}
    flow.write_rule()
    said = call(flow, command, "counted")
    assert "its lateness 30 seconds; rule first writes it, and may be waiting itself)" in said
