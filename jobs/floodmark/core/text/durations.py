"""Parses durations in a rule file into whole microseconds.

The words are those of a Spark interval string ("1 hour 30 minutes"), so lateness and window sizes are written alike.
"""

from __future__ import annotations

import difflib
import re

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

_UNITS = {
    "week": WEEK,
    "day": DAY,
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
    "millisecond": MILLISECOND,
    "microsecond": MICROSECOND,
}
_CALENDAR = frozenset({"month", "year", "quarter"})
_LONGEST = 2**62  # far below the overflow of signed 64 bits when added to an event time
_SHORT = {"s": "second", "sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour", "d": "day",
          "w": "week", "wk": "week", "ms": "millisecond", "us": "microsecond"}  # fmt: skip
_EXAMPLE = "a duration such as '30 minutes' or '1 hour 30 minutes'"
_PART = re.compile(r"([+-]?)\s*(\d+)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str, *, negative: bool = False) -> int:
    """Microseconds of a Spark interval string; with ``negative``, a signed sum.

    Units: weeks, days, hours, minutes, seconds, milliseconds, microseconds; singular or plural, any case, optionally
    after the word ``interval``. A day is 24 hours. Raises ValueError that says what was expected and what was found.
    """
    rest = re.sub(r"^interval\b", "", text.strip().lower()).strip()
    if not rest:
        raise ValueError(f"expected {_EXAMPLE}, found {text!r}")
    total = 0
    while rest:
        amount, rest = _first_part(rest, text)
        total += amount
    if total < 0 and not negative:
        raise ValueError(f"expected a duration that is not negative, found {text!r}")
    if abs(total) > _LONGEST:
        raise ValueError(f"expected a duration below 100000 years, found {text!r}")
    return total


def _first_part(rest: str, text: str) -> tuple[int, str]:
    """The first 'number unit' of ``rest`` in microseconds, and the text after it."""
    match = _PART.match(rest)
    if match is None:
        raise ValueError(f"expected {_EXAMPLE} in whole numbers, found {text!r}")
    sign, number, word = match.groups()
    if len(number) > 20:
        raise ValueError(f"expected a duration below 100000 years, found {text!r}")
    amount = int(number) * _unit(word, text)
    return (-amount if sign == "-" else amount), rest[match.end() :].strip()


def _unit(word: str, text: str) -> int:
    unit = word.removesuffix("s")
    if unit in _CALENDAR:
        raise ValueError(f"expected {_EXAMPLE}, found {text!r}: a {unit} is not a fixed length of time; give days")
    if unit not in _UNITS:
        near = [_SHORT[unit]] if unit in _SHORT else difflib.get_close_matches(unit, _UNITS, 1)
        hint = f": did you mean {near[0]}s?" if near else ""
        units = ", ".join(f"{name}s" for name in _UNITS)
        raise ValueError(f"expected one of the units {units}, found {word!r} in {text!r}{hint}")
    return _UNITS[unit]


def format_duration(us: int) -> str:
    """The words for ``us`` microseconds, largest unit first; ``parse_duration(..., negative=True)`` reads them back."""
    if us == 0:
        return "0 seconds"
    sign, rest, parts = ("-" if us < 0 else ""), abs(us), []
    for word, size in _UNITS.items():
        count, rest = divmod(rest, size)
        # "14 days" is what people say and write; a week is used only for whole weeks beyond that.
        if count:
            parts.append(f"{sign}{count} {word}{'' if count == 1 else 's'}")
    return " ".join(parts)
