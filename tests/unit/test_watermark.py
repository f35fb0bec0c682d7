"""The watermark: minimum over streams, never back, still while a stream is in its first snapshot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.watermark import advance, merge

TIMES = st.none() | st.integers(-(10**15), 10**15)


def test_it_is_the_slowest_streams_largest_time_less_its_lateness() -> None:
    assert advance(None, {"a": 100, "b": 90}, {"a": 30, "b": 5}, in_snapshot=False) == 70


def test_a_stream_without_rows_holds_it() -> None:
    assert advance(None, {"a": 100, "b": None}, {"a": 0, "b": 0}, in_snapshot=False) is None
    assert advance(40, {"a": 100, "b": None}, {"a": 0, "b": 0}, in_snapshot=False) == 40


def test_it_stands_still_in_the_first_snapshot() -> None:
    assert advance(None, {"a": 100}, {"a": 0}, in_snapshot=True) is None


def test_a_rule_without_lateness_has_none() -> None:
    assert advance(None, {"a": 100}, {}, in_snapshot=False) is None


@given(before=TIMES, top=TIMES, lateness=st.integers(0, 10**9), snapshot=st.booleans())
def test_it_never_goes_back(before: int | None, top: int | None, lateness: int, snapshot: bool) -> None:
    after = advance(before, {"a": top}, {"a": lateness}, snapshot)
    assert before is None or (after is not None and after >= before)


@given(before=TIMES, seen=TIMES)
def test_the_largest_event_time_is_kept(before: int | None, seen: int | None) -> None:
    known = [value for value in (before, seen) if value is not None]
    assert merge({"a": before}, {"a": seen}) == {"a": max(known, default=None)}
