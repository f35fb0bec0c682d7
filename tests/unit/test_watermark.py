"""The watermark: minimum over the streams not excused, never back, still while one is in its first snapshot."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.protocol.watermark import advance, excused, hear, merge

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


def test_a_stream_is_excused_once_it_has_been_silent_for_as_long_as_it_declares() -> None:
    heard, after, timed = {"b": 100, "c": 150}, {"b": 50, "c": 50}, ("a", "b", "c")
    assert excused(heard, after, timed, 149) == set()
    assert excused(heard, after, timed, 150) == {"b"}
    assert excused(heard, after, timed, 200) == {"b", "c"}
    assert excused(hear(heard, {"b"}, 200), after, timed, 200) == {"c"}


def test_where_all_are_silent_none_is_excused() -> None:
    assert excused({"a": 0, "b": 0}, {"a": 5, "b": 9}, ("a", "b"), 8) == {"a"}
    assert excused({"a": 0, "b": 0}, {"a": 5, "b": 9}, ("a", "b"), 9) == set()


def test_a_stream_of_which_nothing_is_recorded_is_not_excused() -> None:
    assert excused({}, {"b": 1}, ("a", "b"), 10**18) == set()


def test_only_streams_that_can_be_excused_are_listened_to() -> None:
    assert hear({"b": 1, "c": 2}, {"a", "b"}, 7) == {"b": 7, "c": 2}
    assert hear({}, {"a"}, 7) == {}


CLOCKS = st.lists(st.tuples(st.integers(0, 20), st.sets(st.sampled_from("abc")), TIMES), max_size=8)


@given(steps=CLOCKS, after=st.dictionaries(st.sampled_from("abc"), st.integers(1, 30)))
def test_with_excused_streams_it_never_goes_back_and_somebody_holds_it(steps: list[Any], after: dict[str, int]) -> None:
    heard, maxima, clock, mark = dict.fromkeys(after, 0), dict[str, int | None](), 0, None
    for later, speaking, top in steps:
        clock += later
        maxima = merge(dict.fromkeys("abc") | maxima, dict.fromkeys(speaking, top))
        heard = hear(heard, speaking, clock)
        lateness = dict.fromkeys(set("abc") - excused(heard, after, "abc", clock), 0)
        assert lateness, "at least one holds"
        assert not speaking - lateness.keys(), "who has just spoken is waited for"
        mark, before = advance(mark, maxima, lateness, in_snapshot=False), mark
        assert before is None or (mark is not None and mark >= before)
