"""`floodmark abandon`, killed by a real SIGKILL at each of its steps: finished or not begun, and nothing is left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from support.compared import same
from support.flow import START, Flow, event, rows_of
from support.killing import SHAPES, expected
from support.lifekilling import killed, said

from floodmark.audit.certificate import audit
from floodmark.core.protocol.crashpoints import ABANDON_POINTS

OPENED = ("sink0.after", "commit.before", "state.after", "sink1.after", "intent.after")
SHORT = ("abandon.sink.after",)


def portion(number: int) -> list[dict[str, object]]:
    """Two windows' rows, none of them late."""
    return [event(120 * number + seconds, k, 1.5, number) for seconds, k in ((0, "a"), (10, "b"), (70, "a"))]


def is_batch(flow: Flow, portions: int) -> None:
    """Both sinks hold what the oracle gives over all of the input, and all of it is proven."""
    events = [one for number in range(portions) for one in portion(number)]
    final = START + timedelta(seconds=120 * (portions - 1) + 70 - 30)
    for sink in (flow.sink(0), flow.sink(1)):
        found = [tuple(row[name] for name in SHAPES["windowed"]) for row in rows_of(sink)]
        same(found, expected("windowed", events, final))
    certificate = audit(flow.name, flow.home, deep=True)
    assert certificate is not None
    assert (certificate.verdict, [one.what for one in certificate.findings]) == ("proven", [])


def check_kills(place: Path, qos: int, points: Sequence[str]) -> None:
    flow = Flow(place, stream={"start": {"version": 0}}, settings={"epoch": {"max_files": 1}, "qos": qos})
    flow.arrive(portion(0))
    flow.write_rule()
    said(flow, "run", flow.name)
    for number, (point, opened) in enumerate(zip(points, itertools.cycle(OPENED)), 1):
        flow.arrive(portion(number))
        killed(flow, opened, "run", flow.name)
        killed(flow, point, "abandon", flow.name, "--yes")
        if point == "abandon.before":
            said(flow, "abandon", flow.name, "--yes")
        said(flow, "run", flow.name)
        head = flow.ledger().head
        assert head is not None and len(head.abandoned) == number, point
        is_batch(flow, number + 1)


@pytest.mark.prove
def test_an_abandon_that_is_killed_is_finished_by_the_next_run(place: Path) -> None:
    check_kills(place, 2, SHORT)


@pytest.mark.prove
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_abandon_that_is_killed_at_every_step_is_finished_or_has_not_begun(place: Path, qos: int) -> None:
    check_kills(place, qos, ABANDON_POINTS)
