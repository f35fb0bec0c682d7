"""What `plan` says of state that a rule keeps forever."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.flow import Flow

from floodmark.views.statewords import describe_state

FROM_THE_FIRST_ROW = "SELECT *, count(*) OVER (PARTITION BY v ORDER BY at) AS c FROM events"
ANY_TIME_APART = "SELECT a.k, a.v, b.v AS w FROM events AS a JOIN events AS b ON a.k = b.k"


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (FROM_THE_FIRST_ROW, "OVER counts from the first row"),
        (ANY_TIME_APART, "JOIN has no bound in time"),
    ],
)
def test_it_names_the_clause_that_keeps_all_rows(place: Path, sql: str, why: str) -> None:
    flow = Flow(place, sql=sql)
    flow.settings = {"unbounded": True}
    assert f"and all earlier rows, forever, because {why} (`unbounded: true`)" in list(describe_state(flow.rule()))
