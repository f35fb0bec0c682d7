"""The `ctx` of a process class: state, counters and timers of the current key, and the epoch's clock."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from floodmark.core.process.slots import Slots
from floodmark.core.process.values import Record, plain_text, short
from floodmark.core.text.ddl import columns_of

ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_ORIGIN = datetime(1970, 1, 1)  # of event times without a zone
COUNTERS, TIMERS, CLOCK_TIMERS = "counters", "timers", "clock_timers"
MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Times:
    """An epoch's watermarks and clock, in microseconds; `zoned`: whether event times have a zone."""

    before: int | None
    after: int | None
    clock: int
    zoned: bool = True

    def event_time(self, at: int) -> datetime:
        """A time in microseconds, as the class sees event times."""
        return (ORIGIN if self.zoned else NAIVE_ORIGIN) + timedelta(microseconds=at)

    def micros(self, at: Any) -> int:
        """Microseconds of an event time. Raises ValueError for any other value."""
        if not isinstance(at, datetime) or (at.tzinfo is not None) != self.zoned:
            kind = (
                "with a time zone, like the event times"
                if self.zoned
                else ("without a time zone, like the event times")
            )
            raise ValueError(f"expected a datetime {kind}, found {short(at)}")
        return (at - (ORIGIN if self.zoned else NAIVE_ORIGIN)) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Declaration:
    """What state a class declares: columns as DDL by name, lifetimes in microseconds, and which timers it has."""

    state: Mapping[str, str]
    ttl_us: Mapping[str, int]
    timers: bool
    clock_timers: bool


class Schema:
    """The declared state, parsed once for many keys."""

    def __init__(self, declared: Declaration):
        self.declared = declared
        self.records = {name: Record(columns_of(ddl)) for name, ddl in declared.state.items()}

    def record(self, name: str) -> Record:
        found = self.records.get(name)
        if found is None:
            near = difflib.get_close_matches(str(name), self.records, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"expected a state among {', '.join(self.records) or 'none'}, found {name!r}{hint}")
        return found


class Context:
    """State of one key in one epoch. A wrong argument raises a ValueError, which ends the epoch before any write.

    position: event time, in microseconds, of the current row or timer.
    """

    def __init__(self, schema: Schema, slots: Slots, times: Times):
        self._schema, self._known, self._times = schema, slots, times
        self._closed = False
        self.position = times.before or 0
        self.in_timer = False

    def close(self) -> None:
        """Refuse all later use: the epoch's calls for the key are over."""
        self._closed = True

    @property
    def _slots(self) -> Slots:
        if self._closed:
            raise ValueError(
                "expected the ctx of this call, found one of another key: a class keeps no ctx in its module or in "
                "itself, only values in state"
            )
        return self._known

    @property
    def now(self) -> datetime:
        """The epoch's recorded clock, in UTC: the same in every attempt at the epoch."""
        return ORIGIN + timedelta(microseconds=self._times.clock)

    def get_state(self, name: str) -> dict[str, Any] | None:
        """The value as a dict by column; None if there is none or its `ttl` has expired."""
        record = self._schema.record(name)
        values = self._live(name, "")
        return None if values is None else record.row(values)

    def put_state(self, name: str, value: Mapping[str, Any] | tuple[Any, ...]) -> None:
        """Store a dict or a tuple of the state's columns. Columns that a dict leaves out are null."""
        self._slots.put((name, ""), self._schema.record(name).values(value), self.position)

    def delete_state(self, name: str) -> None:
        """Delete the value, if there is one."""
        self._schema.record(name)
        self._slots.drop((name, ""))

    def incr_counter(self, name: str, by: int = 1) -> int:
        """Add to a counter of the key and return its new value; counters need no declaration and start at 0."""
        found = self.get_counter(name) + _whole(by)
        if not -MOST <= found <= MOST:
            raise ValueError(f"expected a counter that fits BIGINT, found {found}")
        self._slots.put((COUNTERS, _named(name)), found, self.position)
        return found

    def get_counter(self, name: str) -> int:
        """The counter's number; 0 if it was never set."""
        found: int | None = self._live(COUNTERS, _named(name))
        return found or 0

    def set_timer(self, at: datetime, name: str = "") -> None:
        """Call `on_timer` when the watermark has passed event time `at`, after the rows of that time.

        A key has one timer per name; setting it again moves it. `at` must not be before the current row, and must be
        after the current timer, or it could fire for ever.
        """
        self._refuse_unless(self._schema.declared.timers, "on_timer")
        micros = self._times.micros(at)
        if micros < self.position + self.in_timer:
            than = "after the timer's own time" if self.in_timer else "not before the current row"
            raise ValueError(f"expected a timer {than}, {self._times.event_time(self.position)}, found {at}")
        self._slots.put((TIMERS, _named(name)), micros, self.position)

    def delete_timer(self, name: str = "") -> None:
        """Delete the timer, if there is one."""
        self._slots.drop((TIMERS, _named(name)))

    def set_clock_timer(self, at: datetime, name: str = "") -> None:
        """Call `on_clock` in the first later epoch whose clock has reached `at`, before the rows of that epoch."""
        self._refuse_unless(self._schema.declared.clock_timers, "on_clock")
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise ValueError(
                f"expected a datetime with a time zone, such as ctx.now + timedelta(hours=1), found {short(at)}"
            )
        micros = (at - ORIGIN) // timedelta(microseconds=1)
        self._slots.put((CLOCK_TIMERS, _named(name)), micros, self.position)

    def delete_clock_timer(self, name: str = "") -> None:
        """Delete the timer, if there is one."""
        self._slots.drop((CLOCK_TIMERS, _named(name)))

    def _live(self, table: str, name: str) -> Any:
        slot = self._slots.get((table, name))
        ttl = self._schema.declared.ttl_us.get(table)
        if slot is None or (ttl is not None and slot.at + ttl <= self.position):
            return None
        return slot.value

    def _refuse_unless(self, allowed: bool, method: str) -> None:
        if not allowed:
            raise ValueError(f"expected a method {method}(self, key, at, name, ctx) in the class, found none")


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"expected a name as text, found {short(name)}")
    return plain_text(name)


def _whole(by: Any) -> int:
    if isinstance(by, bool) or not isinstance(by, int):
        raise ValueError(f"expected a whole number, found {short(by)}")
    return by
