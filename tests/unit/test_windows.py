"""Which windows are final and which rows are still needed, against a model that lists every window."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.sql.windows import (
    GroupSpec,
    Reach,
    RowSpec,
    SessionSpec,
    Spec,
    Starts,
    WindowSpec,
    joined,
    needed_from,
)
from floodmark.core.sql.words.function_names import WINDOWING

SPECS = st.builds(
    lambda slide, times, offset: WindowSpec(size_us=slide * times, slide_us=slide, offset_us=offset % slide),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(0, 19),
)
TIME = st.integers(-200, 200)


def windows_of(spec: WindowSpec, at: int) -> list[tuple[int, int]]:
    """The model: of all windows far and wide, those that hold `at`."""
    starts = range(-400 * spec.slide_us + spec.offset_us, 400 * spec.slide_us, spec.slide_us)
    return [(start, start + spec.size_us) for start in starts if start <= at < start + spec.size_us]


RUNS = st.lists(st.tuples(st.integers(-30, 30), st.integers(0, 12)), max_size=8)


@given(runs=RUNS, slide=st.integers(1, 7), offset=st.integers(0, 6), moment=st.integers(-300, 300))
def test_runs_of_starts_hold_each_start_once(runs: list[tuple[int, int]], slide: int, offset: int, moment: int) -> None:
    spans = [(at * slide + offset % slide, (at + more) * slide + offset % slide) for at, more in runs]
    found = joined(Starts(first, last, slide) for first, last in spans)
    listed = sorted({start for first, last in spans for start in range(first, last + 1, slide)})
    assert starts(found) == listed
    assert sum(run.count for run in found) == len(listed)
    assert all(one.last + slide < other.first for one, other in pairwise(found))
    later = [left for run in found if (left := run.after(moment))]
    assert all(run.count > 0 for run in later)
    assert starts(later) == [start for start in listed if start > moment]


def starts(runs: list[Starts]) -> list[int]:
    return [start for run in runs for start in range(run.first, run.last + 1, run.slide)]


def test_windows_of_a_month_that_start_every_minute_of_a_year_are_counted_without_a_list() -> None:
    minute = 60_000_000
    found = joined(Starts((at - 43_199) * minute, at * minute, minute) for at in range(0, 525_600, 60))
    assert [run.count for run in found] == [43_199 + 525_600 - 59]


@given(spec=SPECS, at=TIME, watermark=TIME)
def test_a_row_is_live_while_one_of_its_windows_is_not_final(spec: WindowSpec, at: int, watermark: int) -> None:
    needed = any(end > watermark for _, end in windows_of(spec, at))
    assert (at >= spec.grid.live_from(watermark)) == needed


@given(spec=SPECS, before=st.none() | TIME, step=st.integers(0, 100))
def test_windows_become_final_exactly_when_an_end_is_passed(spec: WindowSpec, before: int | None, step: int) -> None:
    after = (0 if before is None else before) + step
    ends = [spec.offset_us + k * spec.slide_us + spec.size_us for k in range(-500, 500)]
    due = [end for end in ends if (before is None or end > before) and end <= after]
    assert spec.any_becomes_final(before, after) == bool(due)
    assert spec.grid.newest_final_end(after) == max(end for end in ends if end <= after)


def test_how_far_back_a_session_is_needed_cannot_be_told_by_time() -> None:
    assert needed_from([WindowSpec(size_us=10, slide_us=10, offset_us=0), SessionSpec("'1 minute'")], 5) is None


# --- what every kind promises; a new one has to be among these

KINDS: list[Spec] = [
    WindowSpec(60, 60, 0),
    WindowSpec(60, 20, 5, before_us=7, after_us=3),
    SessionSpec("'1 minute'"),
    RowSpec(0, 0),
    RowSpec(7, 3),
]
GROUPING = [spec for spec in KINDS if isinstance(spec, GroupSpec)]


def kinds_of(base: type[Spec]) -> set[type[Spec]]:
    """The classes below one that are made into values."""
    below = {kind for one in base.__subclasses__() for kind in {one, *kinds_of(one)}}
    return {kind for kind in below if kind.__module__ == Spec.__module__ and not kind.__abstractmethods__}


def test_all_kinds_are_asked_for_what_they_promise() -> None:
    assert kinds_of(Spec) == {type(spec) for spec in KINDS}
    assert {spec.function for spec in GROUPING} == WINDOWING


def test_a_kind_without_an_answer_cannot_be_made() -> None:
    class Silent(RowSpec):
        """As if nobody had said how far its results reach."""

        extent_us = Spec.extent_us

    silent: type[Spec] = Silent
    with pytest.raises(TypeError, match="extent_us"):
        silent(1, 1)  # type: ignore[call-arg]


@pytest.mark.parametrize("spec", KINDS, ids=repr)
def test_time_tells_what_a_kind_needs_unless_its_windows_merge(spec: Spec) -> None:
    needed = [spec.needed_from(at) for at in range(-100, 100)]
    assert all((since is None) == spec.merges for since in needed)
    known = [since for since in needed if since is not None]
    assert known == sorted(known)
    assert all(since <= at for at, since in zip(range(-100, 100), known, strict=False))
    assert spec.grid is None or not spec.merges


@pytest.mark.parametrize("spec", KINDS, ids=repr)
def test_results_of_the_newest_row_are_final_once_the_watermark_is_beyond_their_extent(spec: Spec) -> None:
    assert spec.extent_us > spec.reach.after_us
    for at in range(-100, 100):
        since = spec.needed_from(at + spec.extent_us)
        assert since is None or since + spec.reach.before_us > at


@pytest.mark.parametrize("spec", KINDS, ids=repr)
def test_a_kind_describes_itself(spec: Spec) -> None:
    said = list(spec.describe())
    assert said and all(one[0].islower() and one[-1] != "." for one in said)


def test_kinds_in_words() -> None:
    tumbling, hopping, sessions, _, rows = ("; ".join(spec.describe()) for spec in KINDS)
    assert tumbling == "windows of 60 microseconds, a new one every 60 microseconds, without overlap"
    assert hopping == (
        "windows of 60 microseconds, a new one every 20 microseconds, overlapping; starting 5 microseconds after "
        "1970-01-01T00:00:00Z; a row of a window depends on rows at most 7 microseconds before and 3 microseconds "
        "after it in event time"
    )
    assert sessions == "sessions that end after a gap of '1 minute'; overlapping sessions are merged"
    assert rows == (
        "each row (OVER, JOIN) with rows at most 7 microseconds before and 3 microseconds after it in event time"
    )


def test_the_extent_of_a_session_is_its_longest_gap() -> None:
    minute = 60_000_000
    gaps = {"'1 minute'": minute, "IF(k = 'a', '2 minutes', '1 minute')": 2 * minute, "gap": 1440 * minute}
    gaps |= dict.fromkeys(("'a'", "concat(n, ' minutes')", "format_string('%d minutes', n)"), 1440 * minute)
    assert {gap: SessionSpec(gap).extent_us - 1 for gap in gaps} == gaps


@pytest.mark.parametrize("spec", KINDS, ids=repr)
def test_a_kind_is_aligned_with_what_is_final_when_it_is_alone(spec: Spec) -> None:
    others = [SessionSpec("x"), RowSpec(90, 90), WindowSpec(61, 61, 0, 90, 90)]
    assert spec.aligned([]) == spec.aligned([spec, *others]) == spec


def test_windows_of_one_size_and_slide_are_aligned_by_the_furthest_reach() -> None:
    others = [WindowSpec(60, 20, 5, 1, 9), WindowSpec(60, 20, 5, 8, 2), WindowSpec(60, 30, 5, 99, 99)]
    assert WindowSpec(60, 20, 5, 4, 4).aligned(others) == WindowSpec(60, 20, 5, 8, 9)


@pytest.mark.parametrize("spec", GROUPING, ids=repr)
def test_windows_of_rows_that_depend_on_none_are_the_same_windows(spec: GroupSpec) -> None:
    plain = spec.reaching(Reach())
    assert plain is not None and plain.grid == spec.grid and plain.reach == Reach()
    joined_rows = spec.reaching(Reach(4, 2))
    assert joined_rows is None if spec.merges else joined_rows is not None and joined_rows.reach == Reach(4, 2)
