"""Durations: Spark's interval words, whole microseconds."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.text.durations import DAY, HOUR, MINUTE, SECOND, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("30 minutes", 30 * MINUTE),
        ("1 hour 30 minutes", 90 * MINUTE),
        ("interval 1 day", DAY),
        ("INTERVAL 2 WEEKS", 14 * DAY),
        ("500 milliseconds", SECOND // 2),
        ("10 microseconds", 10),
        (" 1  Hour ", HOUR),
        ("1 hour -30 minutes", 30 * MINUTE),
        ("0 seconds", 0),
    ],
)
def test_words(text: str, us: int) -> None:
    assert parse_duration(text) == us


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 month", "a month is not a fixed length"),
        ("2 years", "a year is not a fixed length"),
        ("1.5 hours", "in whole numbers"),
        ("30", "expected a duration such as '30 minutes'"),
        ("", "expected a duration such as '30 minutes'"),
        ("interval", "expected a duration such as '30 minutes'"),
        ("3 fortnights", "expected one of the units weeks, days, hours"),
        ("-5 minutes", "not negative"),
        ("99999999999 weeks", "below 100000 years"),
        ("9" * 5000 + " days", "below 100000 years"),
        ("30 minutes please", "in whole numbers"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_duration(text)


def test_negative_where_allowed() -> None:
    assert parse_duration("-10 minutes", negative=True) == -10 * MINUTE


@given(st.integers(-(2**61), 2**61))
def test_format_is_read_back(us: int) -> None:
    assert parse_duration(format_duration(us), negative=True) == us


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_duration(text) >= 0
