"""Which files of a table may hold a key, by the statistics that Delta keeps of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

# By type, how Spark gives a value so that it compares as the statistics do; other types bound nothing.
MEASURES = {
    "tinyint": "{}",
    "smallint": "{}",
    "int": "{}",
    "bigint": "{}",
    "string": "hex({})",
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {})",
}
_ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CUT = 999  # Delta's statistics have times in whole milliseconds
# Of a text they have the first characters only, and after these, in an upper bound, one or more that are to come after
# all others. No character comes after bytes that are none, so only the characters before it count.
PREFIX = 32
NO_CHARACTER = "\ufffd"  # what statistics show in place of bytes that are no UTF-8: then they tell nothing
AFTER_ALL = "~"  # comes after every digit of a number in hexadecimal
# They have them in the session's zone, the offset in whole minutes. As long as clocks went by the sun (the last until
# 1972) offsets had seconds, so that a time in the statistics is off by up to a minute.
SUNDIALS, A_MINUTE = 94_694_400_000_000, 59_999_999


@dataclass(frozen=True)
class Bound:
    """Every key looked for has in `column` a value within [low, high], measured as MEASURES says for its type."""

    column: str
    kind: str
    low: Any
    high: Any

    def may_lie_in(self, stats: dict[str, Any]) -> bool:
        """Whether a file with these statistics may hold such a value; yes where they do not tell."""
        least, most = (stats.get(name, {}).get(self.column) for name in ("minValues", "maxValues"))
        low, high = _measured(least, self.kind), _measured(most, self.kind, up=True)
        return low is None or high is None or bool(low <= self.high and self.low <= high)


def may_hold(stats: str | None, bounds: list[Bound], partition: Mapping[str, str | None] | None = None) -> bool:
    """Whether a file with these statistics (Delta's JSON) may hold one of the keys.

    `partition`: column → its one value in the file, as Delta writes it (None: null, which no bound has).
    """
    known, there = json.loads(stats or "{}"), partition or {}
    if any(there[bound.column] is None for bound in bounds if bound.column in there):
        return False
    values = {bound.column: _read(str(there[bound.column]), bound.kind) for bound in bounds if bound.column in there}
    ends = {name: {**known.get(name, {}), **values} for name in ("minValues", "maxValues")}
    return all(bound.may_lie_in(ends) for bound in bounds)


def _read(text: str, kind: str) -> Any:
    """The value of a partition as the statistics would have it; None: not known.

    An instant without a zone is in that of whoever reads it. Older versions of Delta wrote it so, and delta-rs does.
    """
    if kind == "timestamp" and not _ZONED.search(text):
        return None
    return int(text) if kind in ("tinyint", "smallint", "int", "bigint") else text


def _measured(value: Any, kind: str, up: bool = False) -> Any:
    """A value of the statistics, below (`up`: above) all that it may stand for; None: not known."""
    try:
        if value is not None and kind == "string":
            return _text(value, up)
        if value is None or kind not in ("date", "timestamp", "timestamp_ntz"):
            return value
        if kind == "date":
            return (date.fromisoformat(value) - EPOCH.date()).days
        moment = datetime.fromisoformat(value)
    except ValueError:  # a year that Python does not know
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    at = (aware - EPOCH) // timedelta(microseconds=1)
    off = _off(at) if kind == "timestamp" else 0
    return at + CUT + off if up else at - off


def _text(value: str, up: bool) -> str | None:
    """The text's UTF-8 as digits of hexadecimal, which come in the order of its bytes, as Spark's texts do."""
    if NO_CHARACTER in value:
        return None
    found = value[:PREFIX].encode().hex().upper()  # raises a ValueError for half a character
    return found + AFTER_ALL if up and len(value) >= PREFIX else found


def not_after(at: int) -> int:
    """The latest moment that can stand as `at` in Delta's statistics; microseconds since 1970."""
    return at + CUT + _off(at)


def _off(at: int) -> int:
    return A_MINUTE if at < SUNDIALS else 0
