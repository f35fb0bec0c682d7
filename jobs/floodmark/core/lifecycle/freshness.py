"""Decides whether a rule's results are as fresh as its file requires. Pure; the caller passes the time.

The lag of a stream is the clock less the event time of its newest folded row, or, without any, less the clock at the
start of the generation. So it grows while input waits, and also while none comes. The lag of a rule is the largest over
its streams that have an event time, except those excused by `idle_after`.

The share of late rows is that of the newest run that has ended an epoch: late rows among those late and folded. Over a
longer period, a rule would continue to fail after the cause is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.watermark import silent
from floodmark.core.text.durations import SECOND, format_duration
from floodmark.errors import Stale

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Row
    from floodmark.core.rules.rule import Freshness, Rule


@dataclass(frozen=True)
class Lag:
    """The stream that is furthest behind. `newest`: event time in microseconds; None: no row of it was folded."""

    stream: str
    us: int
    newest: int | None


@dataclass(frozen=True)
class Late:
    """Rows of one run: how many were late, out of those late or folded."""

    late: int
    of: int

    @property
    def percent(self) -> float:
        return 100 * self.late / self.of if self.of else 0.0


@dataclass(frozen=True)
class Fresh:
    """A rule's lag and late rows beside its limits. `lag`, `late`: None if the rule has no such limit."""

    rule: str
    wanted: Freshness
    lag: Lag | None
    late: Late | None

    @property
    def exceeded(self) -> list[str]:
        """The limits that are exceeded, in sentences."""
        return [said for said, more in self._said() if more]

    @property
    def fails(self) -> bool:
        return bool(self.exceeded) and self.wanted.on_exceed == "fail"

    def text(self) -> str:
        """For people, in one line."""
        return "; ".join(said for said, _ in self._said())

    def facts(self) -> dict[str, Any]:
        """For --json; times in seconds."""
        return {
            "lag_seconds": self.lag and round(self.lag.us / SECOND, 3),
            "lag_of": self.lag and self.lag.stream,
            "max_lag_seconds": self.wanted.max_lag_us and self.wanted.max_lag_us / SECOND,
            "late": self.late and asdict(self.late),
            "max_late_percent": self.wanted.max_late_percent,
            "on_exceed": self.wanted.on_exceed,
            "exceeded": self.exceeded,
        }

    def check(self) -> None:
        """Raise Stale if a limit is exceeded and the rule says `on_exceed: fail`."""
        if self.fails:
            raise Stale(
                f"rule {self.rule} is stale (`freshness`): {'; '.join(self.exceeded)}. Committed results stay, and "
                "the next run continues as usual"
            )

    def _said(self) -> list[tuple[str, bool]]:
        found = []
        if self.lag is not None and self.wanted.max_lag_us is not None:
            more = self.lag.us > self.wanted.max_lag_us
            found.append((f"{_lag(self.lag)}, {_than(more)} max_lag {format_duration(self.wanted.max_lag_us)}", more))
        if self.late is not None and self.wanted.max_late_percent is not None:
            more = exceeds(self.late, self.wanted.max_late_percent)
            said = f"{self.late.late} of {self.late.of} rows of the newest run were late ({self.late.percent:.3g} %)"
            found.append((f"{said}, {_than(more)} max_late {self.wanted.max_late_percent:g} %", more))
        return found


def fresh(rule: Rule, head: Head | None, late: Late | None, now: datetime) -> Fresh | None:
    """The freshness at `now`; None for a rule without `freshness`, without a ledger, or retired.

    late: of the newest run; None if that was judged before, because the current run had nothing to do.
    """
    if rule.freshness is None or head is None or head.retired is not None:
        return None
    lag = lag_of(rule, head, now) if rule.freshness.max_lag_us is not None else None
    return Fresh(rule.rule, rule.freshness, lag, late if rule.freshness.max_late_percent is not None else None)


def lag_of(rule: Rule, head: Head, now: datetime) -> Lag:
    """The lag of a rule that has a stream with an event time."""
    zone, excused = zoned(rule, head), silent(rule, head.heard, int(now.timestamp() * 1e6))
    clock = micros_of(now, rule, zone)
    begun = datetime.fromtimestamp(Entry.parse(head.begun_with.entry).clock_ms / 1000, UTC)
    found = []
    for name in (name for name, one in rule.streams.items() if one.event_time and name not in excused):
        newest = head.maxima.get(name)
        since = newest if newest is not None else micros_of(begun, rule, zone)
        found.append(Lag(name, max(0, clock - since), newest))
    return max(found, key=lambda lag: lag.us)


def lag_with(rule: Rule, head: Head, maxima: Mapping[str, int | None] | None, now: datetime) -> Lag | None:
    """The lag of what a target has. `maxima`: the newest event times in it; None, also as the result: unknown."""
    if maxima is None or not any(one.event_time for one in rule.streams.values()):
        return None
    return lag_of(rule, replace(head, maxima=dict(maxima)), now)


def late_of(rows: Sequence[Row]) -> Late | None:
    """The late rows of the newest run that ended an epoch of the newest generation; None if it has read nothing."""
    epochs = [row for row in rows if row.kind == "commit" and row.epoch > 0 and row.generation == rows[-1].generation]
    mine = [json.loads(row.body)["counts"].values() for row in epochs if row.run == epochs[-1].run]
    late, folded = (sum(one[name] for counts in mine for one in counts) for name in ("late", "folded"))
    return Late(late, late + folded) if late + folded else None


def exceeds(late: Late, percent: float) -> bool:
    """Compares exactly: 0.1 is a tenth, not the nearest double."""
    return late.late * 100 > Fraction(str(percent)) * late.of


def _lag(lag: Lag) -> str:
    rounded = format_duration(lag.us // SECOND * SECOND)
    if lag.newest is None:
        return f"stream {lag.stream} has had no processed row since the generation started, {rounded} ago"
    return f"the newest processed row of stream {lag.stream} is {rounded} old"


def _than(more: bool) -> str:
    return "more than" if more else "within"
