"""Where the epochs before a rewrite end: the rule's limits hold there, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.byhand import begun
from support.flow import Flow, event

from floodmark.connectors.planning.epochends import next_end
from floodmark.connectors.planning.rewrites import rewrites
from floodmark.connectors.ports.registry import sources
from floodmark.core.rules.rule import EpochLimits


@pytest.mark.parametrize(("limits", "epochs"), [(EpochLimits(), 1), (EpochLimits(max_files=2), 3)])
def test_what_was_added_before_a_rewrite_is_read_within_the_limits(
    place: Path, limits: EpochLimits, epochs: int
) -> None:
    flow = Flow(place.resolve(), stream={"on_rewrite": "correct"}, sinks=1)
    head = begun(flow).begun
    for second in range(5):
        flow.arrive([event(second, "b")])
    DeltaTable(flow.source).delete("k = 'b'")
    (rewrite,) = rewrites(flow.rule(), flow.place, head).values()
    (source,) = sources(flow.rule(), flow.place).values()
    ends = [*head.entry.offsets]
    while source.news(ends[-1], rewrite.since):
        ends.append(next_end(source, ends[-1], rewrite.since, limits))
    assert (len(ends) - 1, ends[-1]) == (epochs, rewrite.since)
    assert next_end(source, ends[-1], rewrite.since, limits) == rewrite.since
