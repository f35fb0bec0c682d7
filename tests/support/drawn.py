"""Random events in random runs with random crashes: what property tests of rules have in common."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from pyspark.sql import SparkSession

from support.flow import Flow, event
from support.running import crash, run

# Seconds at which windows, slides, slices and gaps end, and which a watermark reaches from another of them (by the
# lateness of half a minute, which `Flow` has); at the bound, one microsecond beside it, and a millisecond, to which
# statistics of files are cut. They are drawn three times as often as any others.
BOUNDS = (0, 5, 20, 30, 40, 60, 61, 90, 120, 121, 150, 180)
AT_BOUNDS = st.builds(
    lambda at, beside: max(0, at + beside),
    st.sampled_from(BOUNDS),
    st.sampled_from([0, 0, -0.000001, 0.000001, 0.000999, -0.001]),
)
SECONDS = AT_BOUNDS | AT_BOUNDS | AT_BOUNDS | st.integers(0, 400)
EVENTS = st.builds(
    event,
    st.none() | SECONDS,
    st.sampled_from(["a", "b", "é", None]),
    st.sampled_from([None, 0.1, -2.5, 1e9, float("nan")]) | st.floats(-100, 100),
    st.none() | st.integers(-5, 5),
)
POINTS = ["intent.after", "state.after", "sink0.before", "sink0.after", "sink1.after", "late.after", "commit.before",
          "commit.after", "intent.before"]  # fmt: skip
STEPS = st.lists(
    st.tuples(st.lists(EVENTS, min_size=1, max_size=12), st.none() | st.sampled_from(POINTS), st.booleans()),
    min_size=1,
    max_size=4,
)


def is_telling(points: list[str | None]) -> bool:
    """Of the steps' crash points: whether a test of one example learns from them, and in bounded time.

    The first example that is drawn is always the simplest one, whatever the seed: one step without a crash.
    """
    return len(points) <= 2 and any(points)


def play(spark: SparkSession, flow: Flow, steps: list[Any]) -> list[bool]:
    """Each step: events, where the run after them crashes, and whether they come in two commits. Then a last run.

    Returns, for each crash that was planned, whether the run came to it.
    """
    fired = []
    for events, point, split in steps:
        half = len(events) // 2 if split else 0
        for part in (events[:half], events[half:]):
            if part:
                flow.arrive(part)
        if point is not None:
            fired.append(crash(spark, flow, point))
    run(spark, flow)
    return fired
