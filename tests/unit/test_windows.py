"""Which windows are final and which rows are still needed, against a model that lists every window."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.sql.windows import SessionSpec, Starts, WindowSpec, joined, live_from, needed_from, newest_final_end

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
    assert (at >= live_from(spec, watermark)) == needed


@given(spec=SPECS, before=st.none() | TIME, step=st.integers(0, 100))
def test_windows_become_final_exactly_when_an_end_is_passed(spec: WindowSpec, before: int | None, step: int) -> None:
    after = (0 if before is None else before) + step
    ends = [spec.offset_us + k * spec.slide_us + spec.size_us for k in range(-500, 500)]
    due = [end for end in ends if (before is None or end > before) and end <= after]
    assert spec.any_becomes_final(before, after) == bool(due)
    assert newest_final_end(spec, after) == max(end for end in ends if end <= after)


def test_how_far_back_a_session_is_needed_cannot_be_told_by_time() -> None:
    assert needed_from([WindowSpec(size_us=10, slide_us=10, offset_us=0), SessionSpec("'1 minute'")], 5) is None
