"""Finds the files of a table that may hold a key, by Delta's statistics of each file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from floodmark.core.sql.times import micros_since_1970

# SQL by type that makes a value comparable with the statistics; other types give no bounds.
MEASURES = {
    "tinyint": "{}",
    "smallint": "{}",
    "int": "{}",
    "bigint": "{}",
    "string": "hex({})",
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": micros_since_1970("{}"),
}
_ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CUT = 999  # Delta's statistics have times in whole milliseconds
# Statistics have only the first characters of a text; an upper bound then ends in one or more characters that sort
# after all others. No character sorts after bytes that are not one, so only the characters before it count.
PREFIX = 32
LAST = "\U0010ffff"  # of a text that was cut, also where `delta.dataSkippingStringPrefixLength` says another length
NO_CHARACTER = "\ufffd"  # statistics show it in place of invalid UTF-8, and then give no bounds
AFTER_ALL = "~"  # sorts after every hexadecimal digit
# Statistics have timestamps in the session's zone, with the offset in whole minutes. While clocks followed the sun (the
# last until 1972) offsets had seconds, so a time in the statistics may be off by up to a minute.
SUNDIALS, A_MINUTE = 94_694_400_000_000, 59_999_999


@dataclass(frozen=True)
class Bound:
    """Every key looked for has in `column` a value within [low, high], measured by MEASURES for its type."""

    column: str
    kind: str
    low: Any
    high: Any

    def may_lie_in(self, stats: dict[str, Any]) -> bool:
        """Whether a file with these statistics may hold such a value; yes if they do not show it."""
        least, most = (stats.get(name, {}).get(self.column) for name in ("minValues", "maxValues"))
        low, high = _measured(least, self.kind), _measured(most, self.kind, up=True)
        return low is None or high is None or bool(low <= self.high and self.low <= high)


def may_hold(stats: str | None, bounds: list[Bound], partition: Mapping[str, str | None] | None = None) -> bool:
    """Whether a file with these statistics (Delta's JSON) may hold one of the keys.

    partition: column -> its one value in the file, as Delta writes it (None: null, which is within no bound).
    """
    known, there = json.loads(stats or "{}"), partition or {}
    if any(there[bound.column] is None for bound in bounds if bound.column in there):
        return False
    values = {bound.column: _read(str(there[bound.column]), bound.kind) for bound in bounds if bound.column in there}
    ends = {name: {**known.get(name, {}), **values} for name in ("minValues", "maxValues")}
    return all(bound.may_lie_in(ends) for bound in bounds)


def _read(text: str, kind: str) -> Any:
    """The value of a partition, in the form of the statistics; None: unknown.

    A timestamp without a zone is in the zone of whoever reads it. Older versions of Delta wrote such, and delta-rs
    does.
    """
    if kind == "timestamp" and not _ZONED.search(text):
        return None
    return int(text) if kind in ("tinyint", "smallint", "int", "bigint") else text


def _measured(value: Any, kind: str, up: bool = False) -> Any:
    """A value of the statistics, rounded down (`up`: up) to cover all that it may represent; None: unknown."""
    try:
        if value is not None and kind == "string":
            return _text(value, up)
        if value is None or kind not in ("date", "timestamp", "timestamp_ntz"):
            return value
        if kind == "date":
            return (date.fromisoformat(value) - EPOCH.date()).days
        moment = datetime.fromisoformat(value)
    except ValueError:  # a year outside of Python's range
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    at = (aware - EPOCH) // timedelta(microseconds=1)
    off = _off(at) if kind == "timestamp" else 0
    return at + CUT + off if up else at - off


def _text(value: str, up: bool) -> str | None:
    """The text's UTF-8 as hexadecimal digits, which sort like its bytes, as Spark's texts do."""
    if NO_CHARACTER in value:
        return None
    cut = len(value) >= PREFIX or value.endswith(LAST)
    known = value[:PREFIX].rstrip(LAST) if up else value[:PREFIX]
    found = known.encode().hex().upper()  # raises a ValueError for half a character
    return found + AFTER_ALL if up and cut else found


def not_after(at: int) -> int:
    """The latest moment that Delta's statistics may show as `at`; microseconds since 1970."""
    return at + CUT + _off(at)


def _off(at: int) -> int:
    return A_MINUTE if at < SUNDIALS else 0
